-- +goose Up

-- Secrets that all servers on this database share and nobody else knows. The one of aliases keeps a guessed account name from
-- being compared with what public pages show.
CREATE TABLE secrets (
    name  text PRIMARY KEY,
    value bytea NOT NULL CHECK (length(value) = 32)
);

-- Two random UUIDs have 244 random bits, from the source that the server's other secrets come from.
INSERT INTO secrets (name, value)
    VALUES ('aliases', decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));
