-- +goose Up

-- A multi-draw and how far it has come. The term grows with each grant of the lease: a checkpoint is written in the row's
-- term only. The range is low to high, both included; or prizes is their list, as JSON. parameters is a hash of both and of
-- the total, digest one of all that was drawn so far. The row is written with each checkpoint: half-filled pages let it stay
-- on its page.
CREATE TABLE multidraws (
    id               uuid PRIMARY KEY,
    number           bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    lock_key         text COLLATE "C" NOT NULL,
    status           text        NOT NULL CHECK (status IN ('running', 'completed', 'interrupted', 'rolled_back')),
    total            bigint      NOT NULL CHECK (total > 0),
    completed        bigint      NOT NULL CHECK (completed >= 0),
    every            integer     NOT NULL CHECK (every > 0), -- draws between two checkpoints
    checkpoints      bigint      NOT NULL,                   -- and the number of the last event
    low              bigint,
    high             bigint,
    prizes           text,
    parameters       bytea       NOT NULL CHECK (length(parameters) = 32),
    commitment       bytea       NOT NULL CHECK (length(commitment) = 32),
    digest           bytea       NOT NULL CHECK (length(digest) = 32),
    owner            uuid        NOT NULL,
    term             bigint      NOT NULL CHECK (term > 0),
    lease_expires_at timestamptz NOT NULL,
    started_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    completed_at     timestamptz,
    rolled_back_at   timestamptz,
    -- The key under which it was asked for, while the answer is not decided.
    key              bytea,
    fingerprint      bytea,
    execution        uuid,
    CHECK (completed <= total),
    CHECK (checkpoints = (completed + every - 1) / every),
    CHECK (completed = total OR completed % every = 0),
    CHECK ((completed = total) = (completed_at IS NOT NULL)),
    CHECK (status <> 'completed' OR completed = total),
    CHECK (status NOT IN ('running', 'interrupted') OR completed < total),
    CHECK ((status = 'rolled_back') = (rolled_back_at IS NOT NULL)),
    CHECK ((low IS NULL) = (high IS NULL) AND (low IS NULL) <> (prizes IS NULL)),
    CHECK ((key IS NULL) = (fingerprint IS NULL) AND (key IS NULL) = (execution IS NULL))
) WITH (fillfactor = 50);
-- A lock key is held by at most one operation.
CREATE UNIQUE INDEX multidraws_lock_key ON multidraws (lock_key) WHERE status IN ('running', 'interrupted');
CREATE UNIQUE INDEX multidraws_key ON multidraws (key) WHERE key IS NOT NULL;
CREATE INDEX multidraws_running ON multidraws (id) WHERE status = 'running';

-- The seed lives apart from the operation, so that no SELECT * on multidraws can show it before all is drawn.
CREATE TABLE multidraw_seeds (
    multidraw uuid PRIMARY KEY REFERENCES multidraws (id),
    seed      bytea NOT NULL CHECK (length(seed) = 32)
);

-- What was drawn, a row a checkpoint: draws (seq − 1) × every and following, each as what it is above the range's minimum,
-- or as the prize's place in the list from 0, in 1, 2, 4 or 8 bytes, the same for all of an operation. A row is the
-- operation's event with that number, too. Random bytes can't be compressed, so nobody tries.
CREATE TABLE multidraw_chunks (
    multidraw uuid        NOT NULL,
    seq       bigint      NOT NULL CHECK (seq > 0),
    data      bytea       NOT NULL,
    at        timestamptz NOT NULL,
    PRIMARY KEY (multidraw, seq)
);
ALTER TABLE multidraw_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
