-- +goose Up

-- Kinds of targets are open: a program that embeds the publisher brings senders of its own. A target's secret is replaced
-- with an overlap, in which the previous one signs too. A paused target is sent nothing; paused_reason says who paused it.
ALTER TABLE targets DROP CONSTRAINT targets_kind_check;
ALTER TABLE targets ADD CONSTRAINT targets_kind_check CHECK (kind ~ '^[a-z][a-z0-9_]{0,63}$');
ALTER TABLE targets
    ADD COLUMN previous_secret     bytea,
    ADD COLUMN previous_secret_key text,
    ADD COLUMN previous_until      timestamptz,
    ADD COLUMN paused_at           timestamptz,
    ADD COLUMN paused_reason       text NOT NULL DEFAULT '' CHECK (paused_reason IN ('', 'request', 'auth_expired')),
    ADD COLUMN resumed_at          timestamptz,
    ADD CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    ADD CHECK ((previous_secret IS NULL) = (previous_secret_key IS NULL)),
    ADD CHECK ((paused_at IS NULL) = (paused_reason = ''));

-- What an attempt of several steps has brought about, in the sender's own words: the next attempt goes on from there.
ALTER TABLE publications ADD COLUMN progress text NOT NULL DEFAULT '';

-- The tokens of targets that are used under an authorization which has to be renewed. One process at a time renews one, under
-- an execution claim (package claim), because a renewal ends the tokens before it. generation counts the renewals.
CREATE TABLE target_tokens (
    target              uuid PRIMARY KEY REFERENCES targets (id),
    sealed              bytea  NOT NULL,
    sealed_key          text   NOT NULL,
    generation          bigint NOT NULL DEFAULT 1 CHECK (generation > 0),
    execution_lock_id   uuid,
    execution_locked_at timestamptz,
    execution_version   bigint NOT NULL DEFAULT 0 CHECK (execution_version >= 0),
    CHECK ((execution_lock_id IS NULL) = (execution_locked_at IS NULL))
) WITH (fillfactor = 50);
