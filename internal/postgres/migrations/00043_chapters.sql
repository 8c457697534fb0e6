-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- A part of the key of a hot row, which grows with its version, so that the entries of its dead versions are where nobody looks: see
-- docs/adr/0061-chapters-of-hot-rows.md. Servers of older versions leave it as it is.
ALTER TABLE auctions ADD COLUMN chapter bigint NOT NULL DEFAULT 0;
