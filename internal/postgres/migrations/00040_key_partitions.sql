-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- The records of idempotency keys are in two slots, one of which is written at a time. When the last key of the other one is past its
-- retention, that slot is emptied at once, its space is given back, and it is written next: see docs/adr/0051-keys-in-two-slots.md. The first slot
-- is the table that there was.

-- Only servers that know of the slots name this column. Servers of older versions read and write the first slot alone, which is right until
-- the other one is written. The first turn drops the default, so that what they insert afterwards is refused.
ALTER TABLE idempotency_keys ADD COLUMN slot smallint NOT NULL DEFAULT 0;

CREATE TABLE idempotency_keys_1 (
    id          bytea PRIMARY KEY CHECK (length(id) = 32),
    fingerprint bytea       NOT NULL CHECK (length(fingerprint) = 32),
    execution   uuid        NOT NULL,
    status      smallint    NOT NULL,
    body        bytea       NOT NULL,
    created_at  timestamptz NOT NULL
);

-- All records. A key has one at most.
CREATE VIEW stored_keys AS
    SELECT id, fingerprint, execution, status, body, created_at FROM idempotency_keys
    UNION ALL SELECT id, fingerprint, execution, status, body, created_at FROM idempotency_keys_1;

-- The state of each slot: empty (no times), written since some time, or left. It changes under a lock of the table idempotency_keys that no
-- transaction which has written a key shares.
CREATE TABLE key_slots (
    slot    smallint PRIMARY KEY CHECK (slot BETWEEN 0 AND 1),
    since   timestamptz,
    left_at timestamptz,
    CHECK (left_at IS NULL OR since IS NOT NULL)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX key_slots_written ON key_slots ((left_at IS NULL)) WHERE since IS NOT NULL AND left_at IS NULL;
INSERT INTO key_slots (slot, since) VALUES (0, clock_timestamp()), (1, NULL);
