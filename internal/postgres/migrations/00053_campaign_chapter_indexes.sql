-- +goose NO TRANSACTION
-- +goose Up

-- The next step makes two of them primary keys, and drops what the others replace.
-- Only where rows have versions.
DROP INDEX CONCURRENTLY IF EXISTS campaigns_by_chapter;
CREATE UNIQUE INDEX CONCURRENTLY campaigns_by_chapter ON campaigns (id, chapter);
DROP INDEX CONCURRENTLY IF EXISTS campaigns_by_number;
CREATE INDEX CONCURRENTLY campaigns_by_number ON campaigns (number);
DROP INDEX CONCURRENTLY IF EXISTS campaigns_by_escrow;
CREATE INDEX CONCURRENTLY campaigns_by_escrow ON campaigns (escrow);
DROP INDEX CONCURRENTLY IF EXISTS campaign_layers_by_chapter;
CREATE UNIQUE INDEX CONCURRENTLY campaign_layers_by_chapter ON campaign_layers (campaign, layer, chapter);
