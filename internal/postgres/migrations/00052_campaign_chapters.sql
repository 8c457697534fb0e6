-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- As that of auctions: see docs/adr/0061-chapters-of-hot-rows.md. Servers of older versions leave it as it is.
ALTER TABLE campaigns ADD COLUMN chapter bigint NOT NULL DEFAULT 0;
ALTER TABLE campaign_layers ADD COLUMN chapter bigint NOT NULL DEFAULT 0;
