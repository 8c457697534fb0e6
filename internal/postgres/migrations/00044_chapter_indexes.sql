-- +goose NO TRANSACTION
-- +goose Up

-- The next step makes one of them the primary key, and drops what the other one replaces.
-- Only where rows have versions.
DROP INDEX CONCURRENTLY IF EXISTS auctions_by_chapter;
CREATE UNIQUE INDEX CONCURRENTLY auctions_by_chapter ON auctions (id, chapter);
DROP INDEX CONCURRENTLY IF EXISTS auctions_by_number;
CREATE INDEX CONCURRENTLY auctions_by_number ON auctions (number);
