-- +goose Up

-- A closing was made of one row for each account. Now it is one row: the sums of all entries that were committed at a moment.
SET LOCAL lock_timeout = '150ms';
DROP TABLE closed_accounts;
DROP TABLE ledger_closing;

-- The last closing: one row. books are what the accounts have by the entries that were committed in snapshot, as JSON. All of these have ids of before upto, or
-- nearly all; where rows don't tell who has written them, there is no snapshot, and upto alone tells what was counted. The numbers of transactions are those of a
-- cluster. seed is that of the hashes by which money is weighed.
CREATE TABLE ledger_closing (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    at       timestamptz NOT NULL,
    upto     uuid NOT NULL,
    snapshot text,
    cluster  bigint,
    seed     bigint NOT NULL,
    books    text NOT NULL,
    CHECK ((snapshot IS NULL) = (cluster IS NULL))
) WITH (fillfactor = 50);

-- What a recount began with: the snapshot, and the balances in it.
DELETE FROM ledger_recounts WHERE finished_at IS NULL;
ALTER TABLE ledger_recounts ADD COLUMN snapshot text NOT NULL DEFAULT '', ADD COLUMN balances text NOT NULL DEFAULT '';
