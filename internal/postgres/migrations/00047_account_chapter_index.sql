-- +goose NO TRANSACTION
-- +goose Up

-- The next step makes it the primary key.
-- Only where rows have versions.
DROP INDEX CONCURRENTLY IF EXISTS accounts_by_chapter;
CREATE UNIQUE INDEX CONCURRENTLY accounts_by_chapter ON accounts (id, chapter);
