-- +goose Up

-- A raise writes one row with its amount and no more, and that row has one entry in one index: see ADR 0019.
--
-- An open hold of an auction has its amount in the standing bid that it is for, and not here too.
ALTER TABLE holds RENAME TO hold_rows;
ALTER TABLE hold_rows ADD COLUMN auction uuid
    GENERATED ALWAYS AS (CASE WHEN owner LIKE 'auction:%' THEN substr(owner, length('auction:') + 1)::uuid END) STORED;
ALTER TABLE hold_rows ALTER COLUMN amount DROP NOT NULL;
UPDATE hold_rows SET amount = NULL WHERE status = 'open' AND auction IS NOT NULL;
ALTER TABLE hold_rows ADD CONSTRAINT hold_rows_amount_once CHECK ((amount IS NULL) = (status = 'open' AND auction IS NOT NULL));

-- An account has one open hold an auction, and so one standing bid. Where amounts are unique, a standing bid is found by
-- its amount and has no entry by account, which every raise would write anew; those that are out of the running, and all
-- where amounts may repeat, have one.
CREATE UNIQUE INDEX hold_rows_one_an_auction ON hold_rows (auction, account) WHERE status = 'open' AND auction IS NOT NULL;
ALTER TABLE auction_standing DROP CONSTRAINT auction_standing_pkey;
ALTER TABLE auction_standing REPLICA IDENTITY FULL;
CREATE UNIQUE INDEX auction_standing_account ON auction_standing (auction, account) WHERE unique_amount IS NULL;

-- The holds with their amounts: what reads holds reads this. An open hold without an amount is one of no standing bid,
-- which should not be.
CREATE VIEW holds AS
SELECT h.id, h.account, coalesce(h.amount, s.amount) AS amount, h.captured, h.status, h.expires_at, h.created_at, h.closed_at,
    h.transfer, h.owner
FROM hold_rows AS h LEFT JOIN auction_standing AS s
    ON h.amount IS NULL AND s.auction = h.auction AND s.account = h.account AND s.hold = h.id AND s.active;
