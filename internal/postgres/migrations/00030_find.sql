-- +goose NO TRANSACTION
-- +goose Up

-- Indexes on tables in use are built while commands go on, which takes no transaction. A step that did not come to its end is done again
-- from the beginning, and what it left is dropped.

-- Operators look for campaigns and auctions by the beginning of their name, in any case.
DROP INDEX CONCURRENTLY IF EXISTS campaigns_by_name;
CREATE INDEX CONCURRENTLY campaigns_by_name ON campaigns ((lower(name) COLLATE "C"));
DROP INDEX CONCURRENTLY IF EXISTS auctions_by_title;
CREATE INDEX CONCURRENTLY auctions_by_title ON auctions ((lower(title) COLLATE "C"));

-- They list the publications of a target, and the failed ones with the same error. An index entry has room for the beginning of an error
-- only.
DROP INDEX CONCURRENTLY IF EXISTS publications_of_target;
CREATE INDEX CONCURRENTLY publications_of_target ON publications (target, status, number);
DROP INDEX CONCURRENTLY IF EXISTS publications_by_error;
CREATE INDEX CONCURRENTLY publications_by_error ON publications ("left"(last_error, 100), number) WHERE status = 'failed';
DROP INDEX CONCURRENTLY IF EXISTS publications_of_target_by_error;
CREATE INDEX CONCURRENTLY publications_of_target_by_error ON publications (target, "left"(last_error, 100), number) WHERE status = 'failed';
