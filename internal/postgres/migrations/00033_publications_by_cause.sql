-- +goose NO TRANSACTION
-- +goose Up

-- Operators list the failed publications with the same cause.
DROP INDEX CONCURRENTLY IF EXISTS publications_by_cause;
CREATE INDEX CONCURRENTLY publications_by_cause ON publications (last_cause, number) WHERE status = 'failed';
DROP INDEX CONCURRENTLY IF EXISTS publications_of_target_by_cause;
CREATE INDEX CONCURRENTLY publications_of_target_by_cause ON publications (target, last_cause, number) WHERE status = 'failed';
