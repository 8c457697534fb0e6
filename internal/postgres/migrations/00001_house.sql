-- +goose Up

-- Columns that hold account ids are COLLATE "C" everywhere: the canonical lock order sorts them by byte, in Go and in
-- SQL alike, whatever the database's own collation is.

-- API keys of administrators and services. Only the SHA-256 of a key is kept.
CREATE TABLE api_keys (
    id         text PRIMARY KEY,
    role       text        NOT NULL CHECK (role IN ('admin', 'service')),
    name       text        NOT NULL,
    hash       bytea       NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at timestamptz NOT NULL,
    revoked_at timestamptz
);

-- One row for each administrative action, written in the action's own transaction.
CREATE TABLE audit_log (
    id         uuid PRIMARY KEY,
    at         timestamptz NOT NULL,
    principal  text        NOT NULL,
    action     text        NOT NULL,
    object     text        NOT NULL,
    request_id text        NOT NULL
);

-- One row for each decided command, inserted in the command's own transaction. The id is the SHA-256 of principal,
-- method, path and key; execution tells the request that ran from those that are answered with its result.
CREATE TABLE idempotency_keys (
    id          bytea PRIMARY KEY CHECK (length(id) = 32),
    fingerprint bytea       NOT NULL CHECK (length(fingerprint) = 32),
    execution   uuid        NOT NULL,
    status      smallint    NOT NULL,
    body        bytea       NOT NULL,
    created_at  timestamptz NOT NULL
);
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);

-- Accounts carry their balance; entries are the history that it must equal. The version grows with each change.
-- Half-filled pages let the frequent balance updates stay on their page (heap-only tuples).
CREATE TABLE accounts (
    id         text COLLATE "C" PRIMARY KEY,
    currency   text        NOT NULL,
    available  bigint      NOT NULL CHECK (available >= 0),
    held       bigint      NOT NULL CHECK (held >= 0),
    version    bigint      NOT NULL,
    created_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The intent and the outcome of every movement of money. A deposit comes from, a withdrawal goes to the account
-- outside/CURRENCY, which has entries but no row in accounts: its balance is what the ledger owes its depositors.
CREATE TABLE transfers (
    id           uuid PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN ('transfer', 'deposit', 'withdrawal', 'capture', 'purchase', 'payout', 'refund')),
    source       text COLLATE "C" NOT NULL,
    destination  text COLLATE "C" NOT NULL CHECK (destination <> source),
    amount       bigint      NOT NULL CHECK (amount > 0),
    currency     text        NOT NULL,
    status       text        NOT NULL CHECK (status IN ('pending', 'completed', 'failed')),
    reason       text        NOT NULL DEFAULT '',
    memo         text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL
);

-- Double entry: the entries of one transfer sum to zero. The version is the account's version that the entry made,
-- so an account's entries have an order of their own; outside entries are numbered by their transfer alone.
CREATE TABLE entries (
    account  text COLLATE "C" NOT NULL,
    id       uuid        NOT NULL,
    version  bigint      NOT NULL,
    transfer uuid        NOT NULL,
    amount   bigint      NOT NULL CHECK (amount <> 0),
    currency text        NOT NULL,
    at       timestamptz NOT NULL,
    memo     text        NOT NULL DEFAULT '',
    PRIMARY KEY (account, version, id)
);

-- Money set aside on an account: captured or released once.
CREATE TABLE holds (
    id         uuid PRIMARY KEY,
    account    text COLLATE "C" NOT NULL,
    amount     bigint      NOT NULL CHECK (amount > 0),
    captured   bigint      NOT NULL CHECK (captured >= 0 AND captured <= amount),
    status     text        NOT NULL CHECK (status IN ('open', 'captured', 'released', 'expired')),
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    closed_at  timestamptz,
    transfer   uuid,
    CHECK ((status = 'open') = (closed_at IS NULL)),
    CHECK ((status = 'captured') = (captured > 0))
);
CREATE INDEX holds_open_by_account ON holds (account) WHERE status = 'open';
CREATE INDEX holds_open_by_expiry ON holds (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;
