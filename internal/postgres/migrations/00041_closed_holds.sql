-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- Once a month the table hold_rows is turned (package partitions): a new one takes its place, the open holds move there, and the old one, all of
-- whose holds are closed, becomes a part of this table. It is one by inheritance, since no column tells in which part a hold is; the table itself stays empty.
CREATE TABLE closed_holds (
    id         uuid PRIMARY KEY,
    account    text COLLATE "C" NOT NULL,
    amount     bigint      CONSTRAINT holds_amount_check CHECK (amount > 0),
    captured   bigint      NOT NULL CONSTRAINT holds_check CHECK (captured >= 0 AND captured <= amount),
    status     text        NOT NULL CONSTRAINT holds_status_check CHECK (status IN ('open', 'captured', 'released', 'expired')),
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    closed_at  timestamptz,
    transfer   uuid,
    owner      text        NOT NULL DEFAULT '',
    auction    uuid GENERATED ALWAYS AS (CASE WHEN owner LIKE 'auction:%' THEN substr(owner, length('auction:') + 1)::uuid END) STORED,
    CONSTRAINT holds_check1 CHECK ((status = 'open') = (closed_at IS NULL)),
    CONSTRAINT holds_check2 CHECK ((status = 'captured') = (captured > 0)),
    CONSTRAINT hold_rows_amount_once CHECK ((amount IS NULL) = (status = 'open' AND auction IS NOT NULL)),
    CONSTRAINT all_closed CHECK (status <> 'open')
);

-- A turn's old table is closed_holds_ and its number. Until settled_at is set, it is a part of hold_rows, and open holds may be there; from then on it is
-- a part of closed_holds, and what is there was closed before. Number 0 had none: the first turn is that of the month in which this step was taken.
CREATE TABLE hold_turns (
    number     integer PRIMARY KEY CHECK (number >= 0),
    turned_at  timestamptz NOT NULL,
    settled_at timestamptz
);
-- One is under way at a time.
CREATE UNIQUE INDEX hold_turns_under_way ON hold_turns ((true)) WHERE settled_at IS NULL;
INSERT INTO hold_turns (number, turned_at, settled_at) VALUES (0, clock_timestamp(), clock_timestamp());

-- The open holds and those that were closed since the last turn, with their amounts. An open hold without an amount is one of no standing bid,
-- which should not be.
CREATE VIEW current_holds AS
SELECT h.id, h.account, coalesce(h.amount, s.amount) AS amount, h.captured, h.status, h.expires_at, h.created_at, h.closed_at,
    h.transfer, h.owner
FROM hold_rows AS h LEFT JOIN auction_standing AS s
    ON h.amount IS NULL AND s.auction = h.auction AND s.account = h.account AND s.hold = h.id AND s.active;

-- All holds that were not archived.
CREATE OR REPLACE VIEW holds AS
SELECT id, account, amount, captured, status, expires_at, created_at, closed_at, transfer, owner FROM current_holds
UNION ALL
SELECT id, account, amount, captured, status, expires_at, created_at, closed_at, transfer, owner FROM closed_holds;
