-- What the two PostgreSQL sides of --only tbperf run on: balances and a row a transfer, with the keys and the indexes that tb-perf has.
CREATE TABLE accounts (
    id      bigint PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
) WITH (fillfactor = 50);

CREATE TABLE transfers (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_id  bigint NOT NULL REFERENCES accounts,
    dest_id    bigint NOT NULL REFERENCES accounts CHECK (dest_id <> source_id),
    amount     bigint NOT NULL CHECK (amount > 0),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON transfers (source_id);
CREATE INDEX ON transfers (dest_id);
CREATE INDEX ON transfers (created_at);

-- Locks both accounts in order of their ids, looks at the balance, and then moves the money. False: too little of it.
CREATE FUNCTION transfer_for_update(source bigint, dest bigint, moved bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    locked accounts;
BEGIN
    FOR locked IN SELECT * FROM accounts WHERE id IN (source, dest) ORDER BY id FOR UPDATE LOOP
        IF locked.id = source AND locked.balance < moved THEN
            RETURN false;
        END IF;
    END LOOP;
    UPDATE accounts SET balance = balance - moved WHERE id = source;
    UPDATE accounts SET balance = balance + moved WHERE id = dest;
    INSERT INTO transfers (source_id, dest_id, amount) VALUES (source, dest, moved);
    RETURN true;
END $$;

-- Updates both accounts in order of their ids; the payer's update has the condition. False: too little money.
CREATE FUNCTION transfer_atomic(source bigint, dest bigint, moved bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF dest < source THEN
        UPDATE accounts SET balance = balance + moved WHERE id = dest;
    END IF;
    UPDATE accounts SET balance = balance - moved WHERE id = source AND balance >= moved;
    IF NOT FOUND THEN
        IF dest < source THEN
            UPDATE accounts SET balance = balance - moved WHERE id = dest; -- Nobody else has seen it.
        END IF;
        RETURN false;
    END IF;
    IF dest > source THEN
        UPDATE accounts SET balance = balance + moved WHERE id = dest;
    END IF;
    INSERT INTO transfers (source_id, dest_id, amount) VALUES (source, dest, moved);
    RETURN true;
END $$;
