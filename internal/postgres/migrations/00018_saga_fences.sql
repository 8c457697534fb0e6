-- +goose Up

-- What a log is: the beginning of the identifiers of its prepared transactions, which was drawn when it was first used, and
-- its present life. instance names the server process, timeline and database in which that began. A copy has all of it, too.
CREATE TABLE saga_coordinator (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id          text        NOT NULL,
    incarnation uuid        NOT NULL,
    instance    text        NOT NULL,
    began_at    timestamptz NOT NULL
);

-- The tokens that the log has left with each participant lately, newest first. A copy lacks those that came after it was made.
CREATE TABLE saga_tokens (
    participant text PRIMARY KEY,
    tokens      uuid[]      NOT NULL,
    at          timestamptz NOT NULL
);

-- As a participant: which life of each coordinator's log may end its prepared transactions here, and its newest token.
CREATE TABLE saga_fences (
    coordinator text PRIMARY KEY,
    token       uuid        NOT NULL,
    incarnation uuid        NOT NULL,
    since       timestamptz NOT NULL, -- of the incarnation
    at          timestamptz NOT NULL  -- of the token
) WITH (fillfactor = 50);
