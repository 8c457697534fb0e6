-- One row for each key: while its request executes, and with the answer once that is decided.
CREATE TABLE idempotent_requests (
    id           bytea PRIMARY KEY,     -- SHA-256 of principal, method, path and key
    fingerprint  bytea       NOT NULL,  -- SHA-256 of the request
    execution    uuid        NOT NULL,  -- who executes it, or has
    fence        bigint      NOT NULL,  -- grows with each execution
    park         boolean     NOT NULL,  -- past its lease it is unknown, and not free
    lease_until  timestamptz NOT NULL,
    retention    interval    NOT NULL,
    expires_at   timestamptz,           -- null: never, as long as the outcome may be unknown
    status       integer,               -- null: not decided
    header       text,
    body         bytea,
    CHECK ((status IS NULL) = (body IS NULL)),
    CHECK (expires_at IS NOT NULL OR park AND status IS NULL)
) WITH (fillfactor = 80);
CREATE INDEX idempotent_requests_expired ON idempotent_requests (expires_at);
