-- +goose Up

-- The closings of the ledger, by which the integrity check counts what is new instead of everything.

-- An account as it was when its entries were last counted: up to this version their sum was available + held. Whoever locks an account
-- gives its entries their versions, so all entries up to a committed version are committed, too.
CREATE TABLE closed_accounts (
    account   text COLLATE "C" PRIMARY KEY,
    version   bigint NOT NULL,
    available bigint NOT NULL,
    held      bigint NOT NULL
) WITH (fillfactor = 50);

-- The last closing: one row. sums are what came in and went out in entries up to settled, as JSON, by currency. Each row of accounts that
-- a transaction before horizon has written, of this cluster, is closed as it is; without a horizon nothing is known.
CREATE TABLE ledger_closing (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    at      timestamptz NOT NULL, -- when the last closing of all accounts began
    settled uuid NOT NULL,
    sums    text NOT NULL,
    horizon bigint,
    cluster bigint,
    CHECK ((horizon IS NULL) = (cluster IS NULL))
) WITH (fillfactor = 50);

-- Counts of all entries from the beginning: each runner has one under way at most, and the last of each stays. state is where it has come to, as JSON;
-- round grows with each step, so that a step that two processes made is counted once.
CREATE TABLE ledger_recounts (
    id                uuid PRIMARY KEY,
    runner            text NOT NULL CHECK (runner IN ('server', 'operator')),
    began_at          timestamptz NOT NULL,
    round             bigint NOT NULL DEFAULT 0,
    worked_at         timestamptz NOT NULL,
    state             text NOT NULL,
    finished_at       timestamptz,
    valid             boolean,
    first_bad_account text NOT NULL DEFAULT '',
    bad_transfers     bigint NOT NULL DEFAULT 0,
    CHECK ((finished_at IS NULL) = (valid IS NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ledger_recounts_under_way ON ledger_recounts (runner) WHERE finished_at IS NULL;
