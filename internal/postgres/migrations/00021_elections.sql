-- +goose Up

-- Leaders are elected by locks of package pglock in the schema fairlead_elections. Their terms go on from those of the table
-- of leases, which nobody may change from here on. A server of an older version that still runs fails to renew its lease:
-- its term ends, and it stands for no other. So there is one line of terms, also while servers are upgraded one by one.
-- The URL may name another schema (internal/postgres/elections.go).
LOCK TABLE leases;
-- +goose StatementBegin
DO $$ BEGIN
    EXECUTE format('INSERT INTO %I.lock_keys (key, token) SELECT name, term FROM leases
        ON CONFLICT (key) DO UPDATE SET token = greatest(lock_keys.token, excluded.token)',
        coalesce(nullif(current_setting('fairlead.elections', true), ''), 'fairlead_elections'));
END $$;
-- +goose StatementEnd
DROP TABLE leases;
