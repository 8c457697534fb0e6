-- +goose Up

-- Where publications go. The secret is sealed with AES-256-GCM under the key that secret_key names; the key is not in the
-- database. The pace slows a target down that has said it is sent too much; intervals are microseconds.
CREATE TABLE targets (
    id            uuid PRIMARY KEY,
    number        bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    name          text COLLATE "C" NOT NULL UNIQUE,
    kind          text        NOT NULL CHECK (kind IN ('webhook', 'deviantart')),
    url           text        NOT NULL,
    timeout       bigint      NOT NULL CHECK (timeout > 0), -- microseconds
    secret        bytea       NOT NULL,
    secret_key    text        NOT NULL,
    pace_interval bigint      NOT NULL DEFAULT 0 CHECK (pace_interval >= 0),
    refusals      integer     NOT NULL DEFAULT 0 CHECK (refusals >= 0), -- in a row
    refused_last  uuid,                                                -- the publication that was refused last
    next_send_at  timestamptz,                                         -- nothing is claimed for the target before
    open_until    timestamptz,                                         -- of the circuit breaker
    created_at    timestamptz NOT NULL
);

-- A publication is claimed by lock id and version (package claim); who finishes it names both. due_at is when it may be
-- claimed: the actual time at first, later that of the next attempt. attempts counts claims; those up to spent belong to
-- an earlier run that a retry has closed.
CREATE TABLE publications (
    id                  uuid PRIMARY KEY,
    number              bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    target              uuid        NOT NULL REFERENCES targets (id),
    status              text        NOT NULL CHECK (status IN ('draft', 'scheduled', 'publishing', 'published', 'failed', 'cancelled')),
    payload             text        NOT NULL,
    jitter              bigint      NOT NULL CHECK (jitter BETWEEN 0 AND 300000000), -- microseconds
    publish_at          timestamptz,
    actual_publish_at   timestamptz,
    due_at              timestamptz,
    execution_lock_id   uuid,
    execution_locked_at timestamptz,
    execution_version   bigint      NOT NULL CHECK (execution_version >= 0),
    attempts            integer     NOT NULL CHECK (attempts >= 0),
    spent               integer     NOT NULL CHECK (spent BETWEEN 0 AND attempts),
    last_error          text        NOT NULL,
    external_id         text        NOT NULL,
    published_at        timestamptz,
    created_at          timestamptz NOT NULL,
    CHECK ((status = 'publishing') = (execution_lock_id IS NOT NULL)),
    CHECK ((execution_lock_id IS NULL) = (execution_locked_at IS NULL)),
    CHECK ((status = 'published') = (published_at IS NOT NULL)),
    CHECK (status <> 'scheduled' OR due_at IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX publications_due ON publications (target, due_at) WHERE status = 'scheduled';
CREATE INDEX publications_claimed ON publications (execution_locked_at) WHERE status = 'publishing';
CREATE INDEX publications_by_status ON publications (status, number);

-- One row for each claim. Its result is null while the attempt runs, lost once its claim went stale, and refused when its
-- result came after that.
CREATE TABLE publication_attempts (
    publication uuid        NOT NULL REFERENCES publications (id),
    version     bigint      NOT NULL CHECK (version > 0),
    lock_id     uuid        NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    result      text CHECK (result IN ('published', 'failed', 'refused', 'lost')),
    status_code integer,
    error       text        NOT NULL DEFAULT '',
    PRIMARY KEY (publication, version),
    CHECK ((result IS NULL) = (ended_at IS NULL))
) WITH (fillfactor = 70);
-- A publication is published at most once.
CREATE UNIQUE INDEX publication_attempts_published ON publication_attempts (publication) WHERE result = 'published';
