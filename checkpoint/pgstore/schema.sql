-- One row for each operation: its state, and beside it the head that guards the next save. Random results can't be compressed,
-- so nobody tries. The row is replaced with each save: half-filled pages let its short part stay on its page.
CREATE TABLE checkpoint_states (
    lock_key     text COLLATE "C" NOT NULL,
    operation_id text COLLATE "C" NOT NULL,
    revision     bigint      NOT NULL CHECK (revision > 0),
    token        bigint      NOT NULL CHECK (token >= 0),
    run          text        NOT NULL,
    state        bytea       NOT NULL,
    updated_at   timestamptz NOT NULL,
    expires_at   timestamptz, -- null until it has ended
    PRIMARY KEY (lock_key, operation_id)
) WITH (fillfactor = 50);
ALTER TABLE checkpoint_states ALTER COLUMN state SET STORAGE EXTERNAL;
CREATE INDEX checkpoint_states_expiry ON checkpoint_states (expires_at) WHERE expires_at IS NOT NULL;
