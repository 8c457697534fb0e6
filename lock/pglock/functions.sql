-- What requests for one key do most often, each in one round trip: a key that many want is locked for a
-- short time only. What they find out of the ordinary they leave to the program, which decides it in a transaction of
-- several statements by the same rules and under the same row locks; then outcome is 'undecided', and nothing was done that
-- has to be undone.
--
-- Rows that came and went are what the tables mostly consist of, so that only their indexes lead anywhere quickly. Where
-- the planner believes a table to be small it would read all of it; a bitmap of its index would lead to all that is dead;
-- a join might begin at the wrong end. So each statement looks something up by one index. Then no plan depends on the values, and
-- one that is made for all of them saves making one at each call, which took half of the functions' time.
--
-- While somebody holds a snapshot, all that was written since stays in the indexes. A key is looked up from its last chapter, so that only
-- the versions of the last 128 grants are visited, and its line from the first place that was taken at the last hand-over: places
-- are numbered while the key is locked, so none can come before.

-- Requests of one process for one key, in order. If the key is free the first is granted it ('granted'). The others that
-- will wait get in line; each has a ticket then, which is else 0.
CREATE OR REPLACE FUNCTION lock_ask(
    the_key text, ids text[], owners text[], ttls bigint[], holds bigint[], patient boolean[], the_process text, alive_us bigint,
    OUT outcome text, OUT new_token bigint, OUT lease_end timestamptz, OUT tickets bigint[]
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    k lock_keys;
    i integer := 1;
    t bigint;
    ahead boolean;
BEGIN
    outcome := 'undecided';
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN; -- What was committed while we waited for the key would not be seen.
    END IF;
    SELECT * INTO k FROM lock_keys WHERE key = the_key ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        INSERT INTO lock_keys (key, token) SELECT the_key, token_floor FROM lock_arbiter ON CONFLICT DO NOTHING;
        SELECT * INTO k FROM lock_keys WHERE key = the_key ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE;
    END IF;
    PERFORM FROM lock_waiters WHERE id = ANY (ids::uuid[]);
    IF FOUND THEN
        RETURN; -- One of them is in line, or its caller has gone: this comes late.
    END IF;
    SELECT expires_at, expires_at > clock_timestamp() + least(ttl_us, nullif(hold_us, 0)) * interval '1 microsecond'
        INTO lease_end, ahead FROM lock_grants WHERE id = k.holder;
    IF FOUND AND (lease_end <= clock_timestamp() OR ahead OR k.holder::text = ANY (ids)) THEN
        RETURN; -- A lease is over, or was written by a clock that was ahead, or a request is made again that has been granted.
    END IF;
    IF FOUND THEN
        outcome := 'held';
        -- A place in line that a crash takes away is asked for again.
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSE
        PERFORM FROM lock_queue WHERE key = the_key AND ticket >= k.queue_from;
        IF FOUND THEN
            RETURN;
        END IF;
        outcome := 'granted';
        new_token := k.token + 1;
        lease_end := clock_timestamp() + CASE WHEN holds[1] > 0 THEN least(ttls[1], holds[1]) ELSE ttls[1] END * interval '1 microsecond';
        INSERT INTO lock_grants (id, owner, keys, tokens, ttl_us, hold_us, granted_at, expires_at)
            VALUES (ids[1]::uuid, owners[1], ARRAY[the_key], ARRAY[new_token], ttls[1], holds[1], clock_timestamp(), lease_end);
        UPDATE lock_keys SET token = new_token, holder = ids[1]::uuid, chapter = new_token >> 7 WHERE key = the_key AND chapter = k.chapter;
        tickets := ARRAY[0];
        i := 2;
    END IF;
    WHILE i <= cardinality(ids) LOOP
        t := 0;
        IF patient[i] THEN
            INSERT INTO lock_waiters (id, owner, keys, ttl_us, hold_us, since, alive_until, process)
                VALUES (ids[i]::uuid, owners[i], ARRAY[the_key], ttls[i], holds[i], clock_timestamp(),
                    clock_timestamp() + alive_us * interval '1 microsecond', the_process::uuid)
                RETURNING ticket INTO t;
            INSERT INTO lock_queue (key, ticket, waiter) VALUES (the_key, t, ids[i]::uuid);
        END IF;
        tickets := tickets || t;
        i := i + 1;
    END LOOP;
END $$;

-- One request for one key. If nobody else has to do with the key, this grants it as lock_ask does, which decides the rest. With plain
-- values in place of arrays and several results, and one look for all that may be in the way, it takes a good part less time. Of the
-- result the first is the token, if the key was granted, the second the end of the lease in microseconds, the third the ticket; NULL is
-- 'undecided'.
CREATE OR REPLACE FUNCTION lock_take(
    the_key text, the_id uuid, the_owner text, ttl bigint, hold bigint, patient boolean, the_process text, alive_us bigint
) RETURNS bigint[] LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    k lock_keys;
    a record;
    lease_end timestamptz;
BEGIN
    SELECT * INTO k FROM lock_keys WHERE key = the_key ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE;
    IF NOT FOUND OR current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM lock_waiters WHERE id = the_id)
        OR EXISTS (SELECT FROM lock_grants WHERE id = k.holder) OR EXISTS (SELECT FROM lock_queue WHERE key = the_key AND ticket >= k.queue_from) THEN
        SELECT * INTO a FROM lock_ask(
            the_key, ARRAY[the_id::text], ARRAY[the_owner], ARRAY[ttl], ARRAY[hold], ARRAY[patient], the_process, alive_us);
        IF a.outcome = 'undecided' THEN
            RETURN NULL;
        END IF;
        RETURN ARRAY[a.new_token, (date_part('epoch', a.lease_end) * 1000000)::bigint, a.tickets[1]];
    END IF;
    INSERT INTO lock_grants (id, owner, keys, tokens, ttl_us, hold_us, granted_at, expires_at)
        VALUES (the_id, the_owner, ARRAY[the_key], ARRAY[k.token + 1], ttl, hold, clock_timestamp(),
            clock_timestamp() + CASE WHEN hold > 0 THEN least(ttl, hold) ELSE ttl END * interval '1 microsecond')
        RETURNING expires_at INTO lease_end;
    UPDATE lock_keys SET token = k.token + 1, holder = the_id, chapter = (k.token + 1) >> 7 WHERE key = the_key AND chapter = k.chapter;
    RETURN ARRAY[k.token + 1, (date_part('epoch', lease_end) * 1000000)::bigint, 0];
END $$;

-- Ends the lock of one key that nobody stands in line for: 'released', or 'expired' when the lease was over. Else it is NULL, nothing was done,
-- and lock_release decides.
CREATE OR REPLACE FUNCTION lock_free(the_key text, the_id uuid) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    k lock_keys;
    held boolean;
BEGIN
    SELECT * INTO k FROM lock_keys WHERE key = the_key ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE;
    -- This statement sees what was committed before the key was locked, or else the isolation is another one.
    DELETE FROM lock_grants WHERE id = the_id AND NOT EXISTS (SELECT FROM lock_queue WHERE key = the_key AND ticket >= k.queue_from OFFSET 0)
        AND current_setting('transaction_isolation') = 'read committed' RETURNING expires_at > clock_timestamp() INTO held;
    IF held IS NULL THEN
        PERFORM set_config('synchronous_commit', 'off', true); -- Only the row lock is committed.
    END IF;
    RETURN CASE WHEN held THEN 'released' WHEN NOT held THEN 'expired' END;
END $$;

-- Ends the lock of one key: base names its row. Those of the process that it was passed on to since (see cohort.go) leave
-- the line; the last of them is the holder, after whom the row may have been named already, and its token tells the row
-- from one that it was granted since by somebody who did not know. Next in line is granted the key, and with it up to depth
-- requests that stand behind one another, where all are the process's own and their owners hold nothing else: these successors
-- are the heirs, and new_token is the first one's. Their grant is then in the name of the cohort, whom nobody waits as. If next in
-- line is another process's, that is notified and has the time of hand_over_us to take the lock. The outcome is
-- 'released'; 'expired' when the lease was over; 'lost' when the lock was no longer there.
CREATE OR REPLACE FUNCTION lock_release(
    the_key text, base text, holder text, holder_token bigint, served text[], served_tickets bigint[],
    the_process text, depth bigint, hand_over_us bigint, cohort text, channel text,
    OUT outcome text, OUT heirs uuid[], OUT heir_tickets bigint[], OUT ours boolean, OUT new_token bigint, OUT lease_end timestamptz
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    k lock_keys;
    first_ticket bigint; -- of those in line, alive or not
    q record;
    w lock_waiters;
    head lock_waiters;
    held boolean;
BEGIN
    outcome := 'undecided';
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    SELECT * INTO k FROM lock_keys WHERE key = the_key ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE;
    IF cardinality(served) > 0 THEN
        DELETE FROM lock_waiters WHERE id = ANY (served::uuid[]);
        DELETE FROM lock_queue WHERE key = the_key AND ticket >= k.queue_from AND ticket = ANY (served_tickets);
    END IF;
    FOR q IN SELECT ticket, waiter FROM lock_queue WHERE key = the_key AND ticket >= k.queue_from ORDER BY ticket LOOP
        first_ticket := coalesce(first_ticket, q.ticket);
        -- Nobody is alive for longer than the 1,200 ms that a process says at once: such a row was written by a clock that was ahead.
        SELECT * INTO w FROM lock_waiters WHERE id = q.waiter AND cycle IS NULL
            AND alive_until > clock_timestamp() AND alive_until <= clock_timestamp() + interval '1200 milliseconds';
        CONTINUE WHEN NOT FOUND;
        IF heirs IS NULL THEN
            IF cardinality(w.keys) > 1 THEN
                RETURN;
            END IF;
            head := w;
            ours := coalesce(w.process = the_process::uuid, false);
            heirs := ARRAY[w.id];
            heir_tickets := ARRAY[w.ticket];
            EXIT WHEN NOT ours OR w.owner <> w.id::text OR w.hold_us > 0;
        ELSE
            EXIT WHEN w.process IS DISTINCT FROM the_process::uuid OR w.owner <> w.id::text OR w.hold_us > 0 OR w.ttl_us <> head.ttl_us;
            heirs := heirs || w.id;
            heir_tickets := heir_tickets || w.ticket;
        END IF;
        EXIT WHEN cardinality(heirs) >= depth;
    END LOOP;
    DELETE FROM lock_grants WHERE id IN (base::uuid, holder::uuid)
        RETURNING expires_at > clock_timestamp() AND tokens[1] <= coalesce(holder_token, tokens[1]) INTO held;
    IF NOT FOUND THEN
        outcome := 'lost';
        heirs := NULL;
        RETURN;
    END IF;
    outcome := CASE WHEN held THEN 'released' ELSE 'expired' END;
    IF heirs IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM lock_waiters WHERE id = head.id AND cycle IS NULL;
    IF NOT FOUND THEN
        RAISE serialization_failure USING MESSAGE = 'next in line has just been made the victim of a deadlock';
    END IF;
    DELETE FROM lock_queue WHERE key = the_key AND ticket = head.ticket;
    new_token := k.token + 1;
    lease_end := clock_timestamp() + least(head.ttl_us, CASE WHEN head.hold_us > 0 THEN head.hold_us END, CASE WHEN NOT ours THEN hand_over_us END)
        * interval '1 microsecond';
    INSERT INTO lock_grants (id, owner, keys, tokens, ttl_us, hold_us, request, granted_at, expires_at)
        VALUES (head.id, CASE WHEN cardinality(heirs) > 1 THEN cohort ELSE head.owner END, head.keys, ARRAY[new_token], head.ttl_us, head.hold_us,
            head.request, clock_timestamp(), lease_end);
    UPDATE lock_keys SET token = k.token + cardinality(heirs), holder = head.id, chapter = (k.token + cardinality(heirs)) >> 7, queue_from = first_ticket
        WHERE key = the_key AND chapter = k.chapter;
    IF NOT ours THEN
        -- Taking the lock is what makes it durable; should the database crash before that, it is still its last holder's.
        -- NOTIFY makes the commits that have it take turns, which must not wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
        IF channel IS NOT NULL THEN
            PERFORM pg_notify(channel, head.id::text);
        END IF;
    END IF;
END $$;

-- Writes down who of a cohort has the lock, and for how long, once that one has it for long enough to be looked for. It
-- returns false if the lock is no longer there.
CREATE OR REPLACE FUNCTION lock_settle(
    the_key text, base text, served text[], served_tickets bigint[], new_holder text, new_owner text, new_token bigint, held_us bigint
) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    k lock_keys;
    there boolean;
BEGIN
    SELECT * INTO k FROM lock_keys WHERE key = the_key ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE;
    UPDATE lock_grants SET id = new_holder::uuid, owner = new_owner, tokens = ARRAY[new_token],
        granted_at = clock_timestamp() - held_us * interval '1 microsecond' WHERE id = base::uuid AND expires_at > clock_timestamp();
    IF FOUND THEN
        UPDATE lock_keys SET holder = new_holder::uuid WHERE key = the_key AND chapter = k.chapter;
        there := true;
    ELSE
        -- It may have been written down before. Else the lock has ended, and what its holder was granted for its place in
        -- line is nobody's.
        DELETE FROM lock_grants WHERE id = new_holder::uuid AND tokens <> ARRAY[new_token];
        PERFORM FROM lock_grants WHERE id = new_holder::uuid;
        there := FOUND;
    END IF;
    DELETE FROM lock_waiters WHERE id = ANY (served::uuid[]);
    DELETE FROM lock_queue WHERE key = the_key AND ticket >= k.queue_from AND ticket = ANY (served_tickets);
    RETURN there;
END $$;

-- Requests and releases of one process for different keys, as far as nobody else has to do with these keys: each request's key is in
-- nobody's hands, and nobody stands in line for any of them. The key of a lock to be released is looked up where it is not given; ages are
-- how long these were held, in microseconds. Those whose id is neither among the granted nor the ended ones were left alone. Rows that
-- another transaction has locked are passed over, so this waits for nobody, and no two of these for each other. Only a key that somebody
-- else is inserting at this moment is waited for, shortly, and in the same order by all. OFFSET 0 keeps a subquery one: it is looked up by its index for each
-- row, whatever the planner believes of the table.
CREATE OR REPLACE FUNCTION lock_share(
    ask_keys text[], ask_ids text[], owners text[], ttls bigint[], holds bigint[], end_keys text[], end_ids text[],
    OUT ended text[], OUT in_time boolean[], OUT ages bigint[], OUT granted text[], OUT new_tokens bigint[], OUT lease_ends timestamptz[]
) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '50ms'
AS $$
DECLARE
    fresh text[];
    free text[];
    lines bigint[]; -- where those of the free ones begin
    over uuid[];
    now timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN; -- What was committed before the rows were locked would not be seen.
    END IF;
    IF array_position(end_keys, NULL) IS NOT NULL THEN
        end_keys := ARRAY(
            SELECT coalesce(e.key, (SELECT keys[1] FROM lock_grants WHERE lock_grants.id = e.id::uuid AND cardinality(keys) = 1 OFFSET 0))
            FROM unnest(end_keys, end_ids) WITH ORDINALITY AS e (key, id, n) ORDER BY n);
    END IF;
    -- Each statement from the second on sees what was committed before these rows were locked.
    SELECT array_agg(k.key), array_agg(k.queue_from) INTO free, lines FROM unnest(ask_keys || end_keys) AS u (name) CROSS JOIN LATERAL (
        SELECT key, queue_from FROM lock_keys WHERE key = name ORDER BY chapter DESC LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS k;
    fresh := ARRAY(SELECT name FROM unnest(ask_keys) AS u (name)
        WHERE (SELECT true FROM lock_keys WHERE key = name ORDER BY chapter DESC LIMIT 1) IS NULL);
    IF cardinality(fresh) > 0 THEN
        WITH made AS (
            INSERT INTO lock_keys (key, token) SELECT k, token_floor FROM unnest(fresh) AS u (k) CROSS JOIN lock_arbiter ORDER BY k COLLATE "C"
            ON CONFLICT DO NOTHING RETURNING key
        ) SELECT free || array_agg(key), lines || array_agg(0::bigint) INTO free, lines FROM made;
    END IF;
    free := ARRAY(SELECT name FROM unnest(free, lines) AS u (name, line)
        WHERE NOT EXISTS (SELECT FROM lock_queue WHERE key = name AND ticket >= line OFFSET 0));
    over := ARRAY(SELECT e.id::uuid FROM unnest(end_keys, end_ids) AS e (key, id) WHERE e.key = ANY (free));
    IF cardinality(over) > 0 THEN
        WITH gone AS (
            DELETE FROM lock_grants WHERE id = ANY (ARRAY(SELECT id FROM lock_grants WHERE id = ANY (over) FOR UPDATE SKIP LOCKED))
            RETURNING id, expires_at > clock_timestamp() AS held, extract(epoch FROM clock_timestamp() - granted_at) * 1000000 AS age
        ) SELECT array_agg(id::text), array_agg(held), array_agg(age::bigint) INTO ended, in_time, ages FROM gone;
    END IF;
    IF cardinality(ask_ids) = 0 THEN
        RETURN;
    END IF;
    now := clock_timestamp();
    WITH asked AS MATERIALIZED (
        SELECT a.*, k.token + 1 AS token, k.chapter, now + CASE WHEN a.hold > 0 THEN least(a.ttl, a.hold) ELSE a.ttl END * interval '1 microsecond' AS lease_end
        FROM unnest(ask_keys, ask_ids::uuid[], owners, ttls, holds) AS a (key, id, owner, ttl, hold)
        CROSS JOIN LATERAL (SELECT token, chapter, holder FROM lock_keys WHERE key = a.key ORDER BY chapter DESC LIMIT 1) AS k
        WHERE a.key = ANY (free)
        AND NOT EXISTS (SELECT FROM lock_grants WHERE id = k.holder OFFSET 0)
        -- It has gone, or is in line: this comes late.
        AND NOT EXISTS (SELECT FROM lock_waiters WHERE id = a.id OFFSET 0)
    ), made AS (
        INSERT INTO lock_grants (id, owner, keys, tokens, ttl_us, hold_us, granted_at, expires_at)
        SELECT id, owner, ARRAY[key], ARRAY[token], ttl, hold, now, lease_end FROM asked
    ), taken AS ( -- These rows are there, and locked: so each is found by one look.
        INSERT INTO lock_keys (key, chapter, token, holder) SELECT key, chapter, token, id FROM asked
        ON CONFLICT (key, chapter) DO UPDATE SET token = excluded.token, holder = excluded.holder, chapter = excluded.token >> 7
    ) SELECT array_agg(id::text), array_agg(token), array_agg(lease_end) INTO granted, new_tokens, lease_ends FROM asked;
END $$;

-- The primary key below allows a key one row in each chapter, so this trigger looks for a second row behind each insert. A transaction that
-- makes a key while another one makes it waits for that one, because both rows are in the first chapter. A transaction that comes after the
-- other's row has left the first chapter sees that row here, and is rolled back.
CREATE OR REPLACE FUNCTION lock_key_is_one() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE invalid_transaction_state USING MESSAGE = 'keys of locks are made in READ COMMITTED transactions';
    END IF;
    IF (SELECT count(*) FROM lock_keys WHERE key = NEW.key) > 1 THEN
        RAISE serialization_failure USING MESSAGE = 'the key of a lock has been made by another transaction just now';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER lock_key_is_one AFTER INSERT ON lock_keys FOR EACH ROW EXECUTE FUNCTION lock_key_is_one();
DO $$ BEGIN
    IF (SELECT indnkeyatts FROM pg_index WHERE indrelid = 'lock_keys'::regclass AND indisprimary) = 1 THEN
        ALTER TABLE lock_keys DROP CONSTRAINT lock_keys_pkey, ADD CONSTRAINT lock_keys_pkey PRIMARY KEY (key, chapter);
    END IF;
END $$;
