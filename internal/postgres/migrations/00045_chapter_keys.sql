-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- A unique index without the chapter would have each new version of a row compared with all dead ones. That an auction has one row follows from its
-- id, which is random and made with it; nothing else inserts rows, and the updates count theirs.
-- Only where rows have versions.
ALTER TABLE auction_rounds DROP CONSTRAINT auction_rounds_auction_fkey;
ALTER TABLE auctions DROP CONSTRAINT auctions_number_key, DROP CONSTRAINT auctions_pkey, ADD CONSTRAINT auctions_pkey PRIMARY KEY USING INDEX auctions_by_chapter;
