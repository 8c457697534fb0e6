-- +goose Up

-- The servers that use this database. Each counts in its row, once a second. A server that finds less than it has counted knows
-- that commits are lost. A step that older servers can't work with waits until none of them counts any more.
CREATE TABLE servers (
    id         uuid PRIMARY KEY,
    name       text        NOT NULL,
    version    text        NOT NULL,
    step       bigint      NOT NULL,
    beat       bigint      NOT NULL,
    started_at timestamptz NOT NULL,
    at         timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What servers found to be lost. An operator accepts it: see docs/operations/restores.md.
CREATE TABLE history_losses (
    id          uuid PRIMARY KEY,
    server      text        NOT NULL,
    found_at    timestamptz NOT NULL,
    since       timestamptz,
    until       timestamptz NOT NULL,
    answers     bigint      NOT NULL,
    checked     bigint      NOT NULL,
    beats       bigint      NOT NULL,
    before      text        NOT NULL,
    now         text        NOT NULL,
    accepted_at timestamptz
);
CREATE UNIQUE INDEX history_losses_open ON history_losses (id) WHERE accepted_at IS NULL;

-- The oldest step whose servers can work with this schema. A step that removes what they need raises it.
CREATE TABLE schema_support (
    one    boolean PRIMARY KEY CHECK (one),
    oldest bigint NOT NULL
);
INSERT INTO schema_support VALUES (true, 22);
