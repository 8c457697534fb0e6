-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- Beside a snapshot that somebody holds, a raise begins a chapter of its standing bid: see docs/adr/0061-chapters-of-hot-rows.md. Servers of older
-- versions leave it as it is.
ALTER TABLE auction_standing ADD COLUMN chapter bigint NOT NULL DEFAULT 0;
