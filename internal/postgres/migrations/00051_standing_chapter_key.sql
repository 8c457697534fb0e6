-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- Only where rows have versions.
DROP INDEX auction_standing_account;
