-- +goose NO TRANSACTION
-- +goose Up

-- It finds what auction_standing_account does, which the next step drops. That an account has one standing bid in an auction follows from its hold
-- (hold_rows_one_an_auction).
-- Only where rows have versions.
DROP INDEX CONCURRENTLY IF EXISTS auction_standing_by_chapter;
CREATE INDEX CONCURRENTLY auction_standing_by_chapter ON auction_standing (account, (auction::text), chapter) WHERE coalesce(unique_amount, 0) = 0;
