-- The log of operations that have several steps, or branches in several databases. input and steps are JSON. The term grows
-- with each grant of the lease, the version with each change that a run writes: a run writes in its own term and version
-- only. decided is the term in which a two-phase transaction was decided to commit; without it, what is prepared is rolled
-- back. coordinator begins the identifiers of its prepared transactions.
CREATE TABLE sagas (
    id               uuid PRIMARY KEY,
    number           bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    name             text        NOT NULL,
    protocol         text        NOT NULL CHECK (protocol IN ('saga', 'twophase')),
    input            text        NOT NULL,
    status           text        NOT NULL CHECK (status IN ('pending', 'completed', 'failed', 'compensated')),
    reason           text        NOT NULL,
    steps            text        NOT NULL,
    decided          bigint      NOT NULL CHECK (decided BETWEEN 0 AND term),
    coordinator      text        NOT NULL,
    cancelled        boolean     NOT NULL,
    owner            uuid        NOT NULL,
    term             bigint      NOT NULL CHECK (term > 0),
    lease_expires_at timestamptz NOT NULL,
    version          bigint      NOT NULL CHECK (version > 0),
    next_at          timestamptz NOT NULL,
    attempts         integer     NOT NULL CHECK (attempts >= 0), -- that failed in a row
    last_error       text        NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    ended_at         timestamptz,
    -- The key under which it was asked for, while the answer is not decided.
    key              bytea,
    fingerprint      bytea,
    execution        uuid,
    deadline_at      timestamptz, -- after which it goes no further forward
    CHECK ((status = 'pending') = (ended_at IS NULL)),
    CHECK (decided = 0 OR (protocol = 'twophase' AND status IN ('pending', 'completed'))),
    CHECK ((key IS NULL) = (fingerprint IS NULL) AND (key IS NULL) = (execution IS NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX sagas_key ON sagas (key) WHERE key IS NOT NULL;
CREATE INDEX sagas_pending ON sagas (next_at) WHERE status = 'pending';
CREATE INDEX sagas_by_name ON sagas (name, number);
CREATE INDEX sagas_not_completed ON sagas (status, number) WHERE status <> 'completed';
CREATE INDEX sagas_ended ON sagas (ended_at) WHERE ended_at IS NOT NULL;
