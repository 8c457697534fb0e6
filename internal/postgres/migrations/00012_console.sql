-- +goose Up

-- Who is signed in to the console. Only the SHA-256 of a session's secret is kept, and a session is worth what its key is
-- worth: where the key is revoked, so is the session.
CREATE TABLE console_sessions (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    key        text        NOT NULL REFERENCES api_keys (id),
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX console_sessions_expires_at ON console_sessions (expires_at);

-- Links that sign somebody in once. A used one stays, so that a second use can be told from a link that never was.
CREATE TABLE console_links (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    key        text        NOT NULL REFERENCES api_keys (id),
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

-- What an operator looks for, newest first. Administrative actions are few, so their log can afford to be found by each of
-- its columns; of transfers only those that did not go well are.
CREATE INDEX audit_log_action ON audit_log (action, id);
CREATE INDEX audit_log_object ON audit_log (object, id);
CREATE INDEX audit_log_principal ON audit_log (principal, id);
CREATE INDEX transfers_not_completed ON transfers (status, id) WHERE status <> 'completed';
CREATE INDEX campaigns_by_status ON campaigns (status, number);
CREATE INDEX auctions_by_status ON auctions (status, number);
