-- +goose Up
-- A bid bears the nonce of its batch, by which a process tells a bid that it remembers from another one with the same number
-- and amount, and the begin of its transaction by the database's own clock, for the audit. Older bids have neither.
ALTER TABLE auction_bids ADD COLUMN nonce bigint, ADD COLUMN began_at timestamptz;
ALTER TABLE auction_bids ALTER COLUMN began_at SET DEFAULT transaction_timestamp();
