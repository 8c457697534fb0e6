-- +goose Up

SET LOCAL lock_timeout = '150ms';

-- Keys that read everything and change nothing. A server of an earlier version refuses such a key as it refuses an unknown one.
ALTER TABLE api_keys DROP CONSTRAINT api_keys_role_check,
    ADD CONSTRAINT api_keys_role_check CHECK (role IN ('admin', 'service', 'reader'));
