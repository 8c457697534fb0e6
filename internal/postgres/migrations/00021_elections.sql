-- +goose Up

-- Leaders are elected by locks of package pglock in the schema fairlead_elections. Their terms go on from those of the table
-- of leases, which nobody may change from here on. A server of an older version that still runs fails to renew its lease:
-- its term ends, and it stands for no other. So there is one line of terms, also while servers are upgraded one by one.
-- Without leases that schema is not looked at: a new installation may have another one.
LOCK TABLE leases;
-- +goose StatementBegin
DO $$ BEGIN
    IF EXISTS (SELECT FROM leases) THEN
        INSERT INTO fairlead_elections.lock_keys (key, token) SELECT name, term FROM leases ON CONFLICT DO NOTHING;
        UPDATE fairlead_elections.lock_keys SET token = greatest(token, term) FROM leases WHERE key = name;
        DELETE FROM leases;
    END IF;
END $$;
-- +goose StatementEnd
-- Without functions in PL/pgSQL the block is left out. Then leases that are there must not be lost.
ALTER TABLE leases ADD CONSTRAINT leases_need_functions_to_go_on CHECK (false);
DROP TABLE leases;
