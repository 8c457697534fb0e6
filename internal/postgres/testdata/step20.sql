-- The schema that the twenty steps before the first release made, dumped by pg_dump 15 without owners.
SET check_function_bodies = false;
CREATE FUNCTION public.lock_ask(the_key text, ids text[], owners text[], ttls bigint[], holds bigint[], patient boolean[], the_process text, alive_us bigint, OUT outcome text, OUT new_token bigint, OUT lease_end timestamp with time zone, OUT tickets bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    k lock_keys;
    i integer := 1;
    t bigint;
BEGIN
    outcome := 'undecided';
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN; -- What was committed while we waited for the key would not be seen.
    END IF;
    SELECT * INTO k FROM lock_keys WHERE key = the_key FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        INSERT INTO lock_keys (key, token) VALUES (the_key, 0) ON CONFLICT DO NOTHING;
        SELECT * INTO k FROM lock_keys WHERE key = the_key FOR NO KEY UPDATE;
    END IF;
    PERFORM FROM lock_waiters WHERE id = ANY (ids::uuid[]);
    IF FOUND THEN
        RETURN; -- One of them is in line, or its caller has gone: this comes late.
    END IF;
    SELECT expires_at INTO lease_end FROM lock_grants WHERE id = k.holder;
    IF FOUND AND (lease_end <= clock_timestamp() OR k.holder::text = ANY (ids)) THEN
        RETURN; -- A lease is over, or a request is made again that has been granted.
    END IF;
    IF FOUND THEN
        outcome := 'held';
        -- A place in line that a crash takes away is asked for again.
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSE
        PERFORM FROM lock_queue WHERE key = the_key;
        IF FOUND THEN
            RETURN;
        END IF;
        outcome := 'granted';
        new_token := k.token + 1;
        lease_end := clock_timestamp() + CASE WHEN holds[1] > 0 THEN least(ttls[1], holds[1]) ELSE ttls[1] END * interval '1 microsecond';
        INSERT INTO lock_grants (id, owner, keys, tokens, ttl_us, hold_us, granted_at, expires_at)
            VALUES (ids[1]::uuid, owners[1], ARRAY[the_key], ARRAY[new_token], ttls[1], holds[1], clock_timestamp(), lease_end);
        UPDATE lock_keys SET token = new_token, holder = ids[1]::uuid WHERE key = the_key;
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
CREATE FUNCTION public.lock_release(the_key text, base text, holder text, holder_token bigint, served text[], served_tickets bigint[], the_process text, depth bigint, hand_over_us bigint, cohort text, channel text, OUT outcome text, OUT heirs uuid[], OUT heir_tickets bigint[], OUT ours boolean, OUT new_token bigint, OUT lease_end timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    old_token bigint;
    q record;
    w lock_waiters;
    head lock_waiters;
    held boolean;
BEGIN
    outcome := 'undecided';
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    SELECT token INTO old_token FROM lock_keys WHERE key = the_key FOR NO KEY UPDATE;
    IF cardinality(served) > 0 THEN
        DELETE FROM lock_waiters WHERE id = ANY (served::uuid[]);
        DELETE FROM lock_queue WHERE key = the_key AND ticket = ANY (served_tickets);
    END IF;
    FOR q IN SELECT ticket, waiter FROM lock_queue WHERE key = the_key ORDER BY ticket LOOP
        SELECT * INTO w FROM lock_waiters WHERE id = q.waiter AND cycle IS NULL AND alive_until > clock_timestamp();
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
    new_token := old_token + 1;
    lease_end := clock_timestamp() + least(head.ttl_us, CASE WHEN head.hold_us > 0 THEN head.hold_us END, CASE WHEN NOT ours THEN hand_over_us END)
        * interval '1 microsecond';
    INSERT INTO lock_grants (id, owner, keys, tokens, ttl_us, hold_us, request, granted_at, expires_at)
        VALUES (head.id, CASE WHEN cardinality(heirs) > 1 THEN cohort ELSE head.owner END, head.keys, ARRAY[new_token], head.ttl_us, head.hold_us,
            head.request, clock_timestamp(), lease_end);
    UPDATE lock_keys SET token = old_token + cardinality(heirs), holder = head.id WHERE key = the_key;
    IF NOT ours THEN
        -- Taking the lock is what makes it durable; should the database crash before that, it is still its last holder's.
        -- NOTIFY makes the commits that have it take turns, which must not wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
        PERFORM pg_notify(channel, head.id::text);
    END IF;
END $$;
CREATE FUNCTION public.lock_settle(the_key text, base text, served text[], served_tickets bigint[], new_holder text, new_owner text, new_token bigint, held_us bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    there boolean;
BEGIN
    PERFORM FROM lock_keys WHERE key = the_key FOR NO KEY UPDATE;
    UPDATE lock_grants SET id = new_holder::uuid, owner = new_owner, tokens = ARRAY[new_token],
        granted_at = clock_timestamp() - held_us * interval '1 microsecond' WHERE id = base::uuid AND expires_at > clock_timestamp();
    IF FOUND THEN
        UPDATE lock_keys SET holder = new_holder::uuid WHERE key = the_key;
        there := true;
    ELSE
        -- It may have been written down before. Else the lock has ended, and what its holder was granted for its place in
        -- line is nobody's.
        DELETE FROM lock_grants WHERE id = new_holder::uuid AND tokens <> ARRAY[new_token];
        PERFORM FROM lock_grants WHERE id = new_holder::uuid;
        there := FOUND;
    END IF;
    DELETE FROM lock_waiters WHERE id = ANY (served::uuid[]);
    DELETE FROM lock_queue WHERE key = the_key AND ticket = ANY (served_tickets);
    RETURN there;
END $$;
CREATE TABLE public.accounts (
    id text NOT NULL COLLATE pg_catalog."C",
    currency text NOT NULL,
    available bigint NOT NULL,
    held bigint NOT NULL,
    version bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT accounts_available_check CHECK ((available >= 0)),
    CONSTRAINT accounts_held_check CHECK ((held >= 0))
)
WITH (fillfactor='50');
CREATE TABLE public.api_keys (
    id text NOT NULL,
    role text NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT api_keys_hash_check CHECK ((length(hash) = 32)),
    CONSTRAINT api_keys_role_check CHECK ((role = ANY (ARRAY['admin'::text, 'service'::text])))
);
CREATE TABLE public.auction_bids (
    auction uuid NOT NULL,
    seq bigint NOT NULL,
    account text NOT NULL COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    previous_amount bigint NOT NULL,
    round integer NOT NULL,
    rank integer NOT NULL,
    at timestamp with time zone NOT NULL,
    hold uuid NOT NULL,
    nonce bigint,
    began_at timestamp with time zone DEFAULT transaction_timestamp(),
    CONSTRAINT auction_bids_check CHECK ((amount > previous_amount)),
    CONSTRAINT auction_bids_previous_amount_check CHECK ((previous_amount >= 0)),
    CONSTRAINT auction_bids_rank_check CHECK ((rank > 0))
);
CREATE TABLE public.auction_events (
    auction uuid NOT NULL,
    seq bigint NOT NULL,
    type text NOT NULL,
    at timestamp with time zone NOT NULL,
    data text NOT NULL
);
CREATE TABLE public.auction_rounds (
    auction uuid NOT NULL,
    round integer NOT NULL,
    winners integer NOT NULL,
    duration bigint NOT NULL,
    status text NOT NULL,
    extensions integer NOT NULL,
    started_at timestamp with time zone,
    ends_at timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT auction_rounds_check CHECK (((status = 'completed'::text) = (ended_at IS NOT NULL))),
    CONSTRAINT auction_rounds_duration_check CHECK ((duration > 0)),
    CONSTRAINT auction_rounds_extensions_check CHECK ((extensions >= 0)),
    CONSTRAINT auction_rounds_round_check CHECK ((round > 0)),
    CONSTRAINT auction_rounds_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'active'::text, 'completed'::text]))),
    CONSTRAINT auction_rounds_winners_check CHECK ((winners > 0))
)
WITH (fillfactor='50');
CREATE TABLE public.auction_standing (
    auction uuid NOT NULL,
    account text NOT NULL COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    unique_amount bigint,
    round integer NOT NULL,
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    hold uuid NOT NULL,
    active boolean NOT NULL,
    CONSTRAINT auction_standing_amount_check CHECK ((amount > 0)),
    CONSTRAINT auction_standing_check CHECK ((unique_amount = amount))
)
WITH (fillfactor='50');
ALTER TABLE ONLY public.auction_standing REPLICA IDENTITY FULL;
CREATE TABLE public.auction_winners (
    auction uuid NOT NULL,
    round integer NOT NULL,
    rank integer NOT NULL,
    account text NOT NULL COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    transfer uuid NOT NULL,
    CONSTRAINT auction_winners_amount_check CHECK ((amount > 0)),
    CONSTRAINT auction_winners_rank_check CHECK ((rank > 0))
);
CREATE TABLE public.auctions (
    id uuid NOT NULL,
    number bigint NOT NULL,
    title text NOT NULL,
    status text NOT NULL,
    currency text NOT NULL,
    seller text NOT NULL COLLATE pg_catalog."C",
    current_round integer NOT NULL,
    min_bid bigint NOT NULL,
    min_increment bigint NOT NULL,
    snipe_window bigint NOT NULL,
    snipe_extension bigint NOT NULL,
    snipe_max integer NOT NULL,
    cooldown bigint NOT NULL,
    unique_amounts boolean NOT NULL,
    total_bids bigint NOT NULL,
    seq bigint NOT NULL,
    first_seq bigint DEFAULT 1 NOT NULL,
    leader_term bigint DEFAULT 0 NOT NULL,
    version bigint NOT NULL,
    revision uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT auctions_cooldown_check CHECK ((cooldown >= 0)),
    CONSTRAINT auctions_current_round_check CHECK ((current_round >= 0)),
    CONSTRAINT auctions_min_bid_check CHECK ((min_bid > 0)),
    CONSTRAINT auctions_min_increment_check CHECK ((min_increment > 0)),
    CONSTRAINT auctions_seq_check CHECK ((seq >= 0)),
    CONSTRAINT auctions_snipe_extension_check CHECK ((snipe_extension >= 0)),
    CONSTRAINT auctions_snipe_max_check CHECK ((snipe_max >= 0)),
    CONSTRAINT auctions_snipe_window_check CHECK ((snipe_window >= 0)),
    CONSTRAINT auctions_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'active'::text, 'completed'::text, 'cancelled'::text]))),
    CONSTRAINT auctions_total_bids_check CHECK ((total_bids >= 0))
)
WITH (fillfactor='50');
ALTER TABLE public.auctions ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.auctions_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.audit_log (
    id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    principal text NOT NULL,
    action text NOT NULL,
    object text NOT NULL,
    request_id text NOT NULL
);
CREATE TABLE public.automation_firings (
    automation uuid NOT NULL,
    scheduled_for timestamp with time zone NOT NULL,
    number bigint NOT NULL,
    fired_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    publication uuid,
    skipped integer NOT NULL,
    CONSTRAINT automation_firings_check CHECK (((outcome = 'scheduled'::text) = (publication IS NOT NULL))),
    CONSTRAINT automation_firings_outcome_check CHECK ((outcome = ANY (ARRAY['scheduled'::text, 'no_draft'::text, 'quota_reached'::text]))),
    CONSTRAINT automation_firings_skipped_check CHECK ((skipped >= 0))
);
ALTER TABLE public.automation_firings ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.automation_firings_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.automations (
    id uuid NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    target uuid NOT NULL,
    status text NOT NULL,
    weekdays smallint[] NOT NULL,
    times integer[] NOT NULL,
    time_zone text NOT NULL,
    every bigint NOT NULL,
    starts_at timestamp with time zone NOT NULL,
    pick text NOT NULL,
    daily_quota integer NOT NULL,
    jitter bigint NOT NULL,
    next_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT automations_check CHECK (((status = 'active'::text) = (next_at IS NOT NULL))),
    CONSTRAINT automations_check1 CHECK (((every = 0) = (cardinality(times) > 0))),
    CONSTRAINT automations_daily_quota_check CHECK ((daily_quota >= 0)),
    CONSTRAINT automations_every_check CHECK ((every >= 0)),
    CONSTRAINT automations_jitter_check CHECK (((jitter >= 0) AND (jitter <= 300000000))),
    CONSTRAINT automations_pick_check CHECK ((pick = ANY (ARRAY['random'::text, 'first'::text, 'last'::text]))),
    CONSTRAINT automations_status_check CHECK ((status = ANY (ARRAY['active'::text, 'paused'::text, 'cancelled'::text])))
);
ALTER TABLE public.automations ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.automations_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.campaign_beacons (
    campaign uuid NOT NULL,
    chain text NOT NULL,
    root bytea,
    round bigint,
    sealed_at timestamp with time zone,
    due_at timestamp with time zone,
    next_attempt_at timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    failure text DEFAULT ''::text NOT NULL,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT campaign_beacons_check CHECK ((due_at > sealed_at)),
    CONSTRAINT campaign_beacons_check1 CHECK ((num_nulls(root, round, sealed_at, due_at) = ANY (ARRAY[0, 4]))),
    CONSTRAINT campaign_beacons_check2 CHECK (((next_attempt_at IS NULL) OR (round IS NOT NULL))),
    CONSTRAINT campaign_beacons_root_check CHECK ((length(root) = 32)),
    CONSTRAINT campaign_beacons_round_check CHECK ((round > 0))
);
CREATE TABLE public.campaign_layers (
    campaign uuid NOT NULL,
    layer integer NOT NULL,
    positions integer NOT NULL,
    price bigint NOT NULL,
    sold integer NOT NULL,
    CONSTRAINT campaign_layers_check CHECK ((sold <= positions)),
    CONSTRAINT campaign_layers_layer_check CHECK ((layer > 0)),
    CONSTRAINT campaign_layers_positions_check CHECK ((positions > 0)),
    CONSTRAINT campaign_layers_price_check CHECK ((price > 0)),
    CONSTRAINT campaign_layers_sold_check CHECK ((sold >= 0))
);
CREATE TABLE public.campaign_prizes (
    campaign uuid NOT NULL,
    ordinal integer NOT NULL,
    name text NOT NULL,
    layer integer,
    quantity integer NOT NULL,
    CONSTRAINT campaign_prizes_quantity_check CHECK ((quantity > 0))
);
CREATE TABLE public.campaign_seeds (
    campaign uuid NOT NULL,
    seed bytea NOT NULL,
    CONSTRAINT campaign_seeds_seed_check CHECK ((length(seed) = 32))
);
CREATE TABLE public.campaigns (
    id uuid NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL,
    status text NOT NULL,
    draw_mode text NOT NULL,
    base_length integer,
    currency text NOT NULL,
    price bigint,
    beneficiary text NOT NULL COLLATE pg_catalog."C",
    escrow text NOT NULL COLLATE pg_catalog."C",
    purchase_limit integer,
    total_positions integer NOT NULL,
    sold_positions integer NOT NULL,
    commitment bytea NOT NULL,
    version bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    published_at timestamp with time zone,
    draw_started_at timestamp with time zone,
    completed_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    CONSTRAINT campaigns_check CHECK ((sold_positions <= total_positions)),
    CONSTRAINT campaigns_check1 CHECK (((status <> ALL (ARRAY['drawing'::text, 'completed'::text])) OR (sold_positions = total_positions))),
    CONSTRAINT campaigns_commitment_check CHECK ((length(commitment) = 32)),
    CONSTRAINT campaigns_draw_mode_check CHECK ((draw_mode = ANY (ARRAY['instant'::text, 'beacon'::text]))),
    CONSTRAINT campaigns_purchase_limit_check CHECK ((purchase_limit > 0)),
    CONSTRAINT campaigns_sold_positions_check CHECK ((sold_positions >= 0)),
    CONSTRAINT campaigns_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'active'::text, 'drawing'::text, 'completed'::text, 'cancelled'::text]))),
    CONSTRAINT campaigns_total_positions_check CHECK ((total_positions > 0))
);
ALTER TABLE public.campaigns ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.campaigns_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.console_links (
    hash bytea NOT NULL,
    key text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    CONSTRAINT console_links_hash_check CHECK ((length(hash) = 32))
);
CREATE TABLE public.console_sessions (
    hash bytea NOT NULL,
    key text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT console_sessions_hash_check CHECK ((length(hash) = 32))
);
CREATE TABLE public.draws (
    campaign uuid NOT NULL,
    root bytea NOT NULL,
    beacon bytea,
    winners text NOT NULL,
    completed_at timestamp with time zone NOT NULL,
    beacon_round bigint,
    beacon_previous bytea,
    CONSTRAINT draws_check CHECK (((beacon IS NULL) = (beacon_round IS NULL))),
    CONSTRAINT draws_root_check CHECK ((length(root) = 32))
);
CREATE TABLE public.entries (
    account text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    version bigint NOT NULL,
    transfer uuid NOT NULL,
    amount bigint NOT NULL,
    currency text NOT NULL,
    at timestamp with time zone NOT NULL,
    memo text DEFAULT ''::text NOT NULL,
    CONSTRAINT entries_amount_check CHECK ((amount <> 0))
);
CREATE TABLE public.goose_db_version (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.goose_db_version ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.goose_db_version_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.hold_rows (
    id uuid NOT NULL,
    account text NOT NULL COLLATE pg_catalog."C",
    amount bigint,
    captured bigint NOT NULL,
    status text NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    closed_at timestamp with time zone,
    transfer uuid,
    owner text DEFAULT ''::text NOT NULL,
    auction uuid GENERATED ALWAYS AS (
CASE
    WHEN (owner ~~ 'auction:%'::text) THEN (substr(owner, (length('auction:'::text) + 1)))::uuid
    ELSE NULL::uuid
END) STORED,
    CONSTRAINT hold_rows_amount_once CHECK (((amount IS NULL) = ((status = 'open'::text) AND (auction IS NOT NULL)))),
    CONSTRAINT holds_amount_check CHECK ((amount > 0)),
    CONSTRAINT holds_check CHECK (((captured >= 0) AND (captured <= amount))),
    CONSTRAINT holds_check1 CHECK (((status = 'open'::text) = (closed_at IS NULL))),
    CONSTRAINT holds_check2 CHECK (((status = 'captured'::text) = (captured > 0))),
    CONSTRAINT holds_status_check CHECK ((status = ANY (ARRAY['open'::text, 'captured'::text, 'released'::text, 'expired'::text])))
)
WITH (fillfactor='50');
CREATE VIEW public.holds AS
 SELECT h.id,
    h.account,
    COALESCE(h.amount, s.amount) AS amount,
    h.captured,
    h.status,
    h.expires_at,
    h.created_at,
    h.closed_at,
    h.transfer,
    h.owner
   FROM (public.hold_rows h
     LEFT JOIN public.auction_standing s ON (((h.amount IS NULL) AND (s.auction = h.auction) AND (s.account = h.account) AND (s.hold = h.id) AND s.active)));
CREATE TABLE public.idempotency_keys (
    id bytea NOT NULL,
    fingerprint bytea NOT NULL,
    execution uuid NOT NULL,
    status smallint NOT NULL,
    body bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT idempotency_keys_fingerprint_check CHECK ((length(fingerprint) = 32)),
    CONSTRAINT idempotency_keys_id_check CHECK ((length(id) = 32))
);
CREATE TABLE public.leases (
    name text NOT NULL,
    holder text NOT NULL,
    term bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT leases_term_check CHECK ((term > 0))
);
CREATE TABLE public.lock_arbiter (
    one boolean NOT NULL,
    CONSTRAINT lock_arbiter_one_check CHECK (one)
);
CREATE TABLE public.lock_fences (
    resource text NOT NULL COLLATE pg_catalog."C",
    token bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.lock_grants (
    id uuid NOT NULL,
    owner text NOT NULL,
    keys text[] NOT NULL,
    tokens bigint[] NOT NULL,
    ttl_us bigint NOT NULL,
    hold_us bigint NOT NULL,
    request bytea,
    granted_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT lock_grants_check CHECK ((cardinality(tokens) = cardinality(keys))),
    CONSTRAINT lock_grants_hold_us_check CHECK ((hold_us >= 0)),
    CONSTRAINT lock_grants_ttl_us_check CHECK ((ttl_us > 0))
)
WITH (fillfactor='50');
CREATE TABLE public.lock_keys (
    key text NOT NULL COLLATE pg_catalog."C",
    token bigint NOT NULL,
    holder uuid,
    CONSTRAINT lock_keys_token_check CHECK ((token >= 0))
)
WITH (fillfactor='50');
CREATE TABLE public.lock_queue (
    key text NOT NULL COLLATE pg_catalog."C",
    ticket bigint NOT NULL,
    waiter uuid NOT NULL
);
CREATE TABLE public.lock_waiters (
    id uuid NOT NULL,
    ticket bigint NOT NULL,
    owner text NOT NULL,
    keys text[] NOT NULL,
    ttl_us bigint NOT NULL,
    hold_us bigint NOT NULL,
    request bytea,
    since timestamp with time zone NOT NULL,
    alive_until timestamp with time zone NOT NULL,
    cycle text[],
    process uuid,
    CONSTRAINT lock_waiters_hold_us_check CHECK ((hold_us >= 0)),
    CONSTRAINT lock_waiters_ttl_us_check CHECK ((ttl_us > 0))
)
WITH (fillfactor='50');
ALTER TABLE public.lock_waiters ALTER COLUMN ticket ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.lock_waiters_ticket_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.multidraw_chunks (
    multidraw uuid NOT NULL,
    seq bigint NOT NULL,
    data bytea NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT multidraw_chunks_seq_check CHECK ((seq > 0))
);
ALTER TABLE ONLY public.multidraw_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE public.multidraw_seeds (
    multidraw uuid NOT NULL,
    seed bytea NOT NULL,
    CONSTRAINT multidraw_seeds_seed_check CHECK ((length(seed) = 32))
);
CREATE TABLE public.multidraws (
    id uuid NOT NULL,
    number bigint NOT NULL,
    lock_key text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL,
    total bigint NOT NULL,
    completed bigint NOT NULL,
    every integer NOT NULL,
    checkpoints bigint NOT NULL,
    low bigint,
    high bigint,
    prizes text,
    parameters bytea NOT NULL,
    commitment bytea NOT NULL,
    digest bytea NOT NULL,
    owner uuid NOT NULL,
    term bigint NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    completed_at timestamp with time zone,
    rolled_back_at timestamp with time zone,
    key bytea,
    fingerprint bytea,
    execution uuid,
    CONSTRAINT multidraws_check CHECK ((completed <= total)),
    CONSTRAINT multidraws_check1 CHECK ((checkpoints = (((completed + every) - 1) / every))),
    CONSTRAINT multidraws_check2 CHECK (((completed = total) OR ((completed % (every)::bigint) = 0))),
    CONSTRAINT multidraws_check3 CHECK (((completed = total) = (completed_at IS NOT NULL))),
    CONSTRAINT multidraws_check4 CHECK (((status <> 'completed'::text) OR (completed = total))),
    CONSTRAINT multidraws_check5 CHECK (((status <> ALL (ARRAY['running'::text, 'interrupted'::text])) OR (completed < total))),
    CONSTRAINT multidraws_check6 CHECK (((status = 'rolled_back'::text) = (rolled_back_at IS NOT NULL))),
    CONSTRAINT multidraws_check7 CHECK ((((low IS NULL) = (high IS NULL)) AND ((low IS NULL) <> (prizes IS NULL)))),
    CONSTRAINT multidraws_check8 CHECK ((((key IS NULL) = (fingerprint IS NULL)) AND ((key IS NULL) = (execution IS NULL)))),
    CONSTRAINT multidraws_commitment_check CHECK ((length(commitment) = 32)),
    CONSTRAINT multidraws_completed_check CHECK ((completed >= 0)),
    CONSTRAINT multidraws_digest_check CHECK ((length(digest) = 32)),
    CONSTRAINT multidraws_every_check CHECK ((every > 0)),
    CONSTRAINT multidraws_parameters_check CHECK ((length(parameters) = 32)),
    CONSTRAINT multidraws_status_check CHECK ((status = ANY (ARRAY['running'::text, 'completed'::text, 'interrupted'::text, 'rolled_back'::text]))),
    CONSTRAINT multidraws_term_check CHECK ((term > 0)),
    CONSTRAINT multidraws_total_check CHECK ((total > 0))
)
WITH (fillfactor='50');
ALTER TABLE public.multidraws ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.multidraws_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.publication_attempts (
    publication uuid NOT NULL,
    version bigint NOT NULL,
    lock_id uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    result text,
    status_code integer,
    error text DEFAULT ''::text NOT NULL,
    CONSTRAINT publication_attempts_check CHECK (((result IS NULL) = (ended_at IS NULL))),
    CONSTRAINT publication_attempts_result_check CHECK ((result = ANY (ARRAY['published'::text, 'failed'::text, 'refused'::text, 'lost'::text]))),
    CONSTRAINT publication_attempts_version_check CHECK ((version > 0))
)
WITH (fillfactor='70');
CREATE TABLE public.publications (
    id uuid NOT NULL,
    number bigint NOT NULL,
    target uuid NOT NULL,
    status text NOT NULL,
    payload text NOT NULL,
    jitter bigint NOT NULL,
    publish_at timestamp with time zone,
    actual_publish_at timestamp with time zone,
    due_at timestamp with time zone,
    execution_lock_id uuid,
    execution_locked_at timestamp with time zone,
    execution_version bigint NOT NULL,
    attempts integer NOT NULL,
    spent integer NOT NULL,
    last_error text NOT NULL,
    external_id text NOT NULL,
    published_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    progress text DEFAULT ''::text NOT NULL,
    CONSTRAINT publications_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT publications_check CHECK (((spent >= 0) AND (spent <= attempts))),
    CONSTRAINT publications_check1 CHECK (((status = 'publishing'::text) = (execution_lock_id IS NOT NULL))),
    CONSTRAINT publications_check2 CHECK (((execution_lock_id IS NULL) = (execution_locked_at IS NULL))),
    CONSTRAINT publications_check3 CHECK (((status = 'published'::text) = (published_at IS NOT NULL))),
    CONSTRAINT publications_check4 CHECK (((status <> 'scheduled'::text) OR (due_at IS NOT NULL))),
    CONSTRAINT publications_execution_version_check CHECK ((execution_version >= 0)),
    CONSTRAINT publications_jitter_check CHECK (((jitter >= 0) AND (jitter <= 300000000))),
    CONSTRAINT publications_status_check CHECK ((status = ANY (ARRAY['draft'::text, 'scheduled'::text, 'publishing'::text, 'published'::text, 'failed'::text, 'cancelled'::text])))
)
WITH (fillfactor='70');
ALTER TABLE public.publications ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.publications_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.purchases (
    campaign uuid NOT NULL,
    seq integer NOT NULL,
    id uuid NOT NULL,
    account text NOT NULL COLLATE pg_catalog."C",
    layer integer NOT NULL,
    number integer NOT NULL,
    ordinal integer NOT NULL,
    price bigint NOT NULL,
    transfer uuid NOT NULL,
    at timestamp with time zone NOT NULL
);
CREATE TABLE public.saga_coordinator (
    only_row boolean DEFAULT true NOT NULL,
    id text NOT NULL,
    incarnation uuid NOT NULL,
    instance text NOT NULL,
    began_at timestamp with time zone NOT NULL,
    CONSTRAINT saga_coordinator_only_row_check CHECK (only_row)
);
CREATE TABLE public.saga_fences (
    coordinator text NOT NULL,
    token uuid NOT NULL,
    incarnation uuid NOT NULL,
    since timestamp with time zone NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.saga_legs (
    saga uuid NOT NULL,
    step text NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    transfer uuid,
    at timestamp with time zone NOT NULL,
    gid text,
    CONSTRAINT saga_legs_check CHECK (((outcome = 'done'::text) = (transfer IS NOT NULL))),
    CONSTRAINT saga_legs_check1 CHECK (((outcome = 'refused'::text) = (reason <> ''::text))),
    CONSTRAINT saga_legs_outcome_check CHECK ((outcome = ANY (ARRAY['done'::text, 'refused'::text])))
);
CREATE TABLE public.saga_tokens (
    participant text NOT NULL,
    tokens uuid[] NOT NULL,
    at timestamp with time zone NOT NULL
);
CREATE TABLE public.sagas (
    id uuid NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL,
    protocol text NOT NULL,
    input text NOT NULL,
    status text NOT NULL,
    reason text NOT NULL,
    steps text NOT NULL,
    decided bigint NOT NULL,
    coordinator text NOT NULL,
    cancelled boolean NOT NULL,
    owner uuid NOT NULL,
    term bigint NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    version bigint NOT NULL,
    next_at timestamp with time zone NOT NULL,
    attempts integer NOT NULL,
    last_error text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    key bytea,
    fingerprint bytea,
    execution uuid,
    deadline_at timestamp with time zone,
    CONSTRAINT sagas_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT sagas_check CHECK (((decided >= 0) AND (decided <= term))),
    CONSTRAINT sagas_check1 CHECK (((status = 'pending'::text) = (ended_at IS NULL))),
    CONSTRAINT sagas_check2 CHECK (((decided = 0) OR ((protocol = 'twophase'::text) AND (status = ANY (ARRAY['pending'::text, 'completed'::text]))))),
    CONSTRAINT sagas_check3 CHECK ((((key IS NULL) = (fingerprint IS NULL)) AND ((key IS NULL) = (execution IS NULL)))),
    CONSTRAINT sagas_protocol_check CHECK ((protocol = ANY (ARRAY['saga'::text, 'twophase'::text]))),
    CONSTRAINT sagas_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'completed'::text, 'failed'::text, 'compensated'::text]))),
    CONSTRAINT sagas_term_check CHECK ((term > 0)),
    CONSTRAINT sagas_version_check CHECK ((version > 0))
)
WITH (fillfactor='50');
ALTER TABLE public.sagas ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.sagas_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.secrets (
    name text NOT NULL,
    value bytea NOT NULL,
    CONSTRAINT secrets_value_check CHECK ((length(value) = 32))
);
CREATE TABLE public.target_tokens (
    target uuid NOT NULL,
    sealed bytea NOT NULL,
    sealed_key text NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    execution_lock_id uuid,
    execution_locked_at timestamp with time zone,
    execution_version bigint DEFAULT 0 NOT NULL,
    CONSTRAINT target_tokens_check CHECK (((execution_lock_id IS NULL) = (execution_locked_at IS NULL))),
    CONSTRAINT target_tokens_execution_version_check CHECK ((execution_version >= 0)),
    CONSTRAINT target_tokens_generation_check CHECK ((generation > 0))
)
WITH (fillfactor='50');
CREATE TABLE public.targets (
    id uuid NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    url text NOT NULL,
    timeout bigint NOT NULL,
    secret bytea NOT NULL,
    secret_key text NOT NULL,
    pace_interval bigint DEFAULT 0 NOT NULL,
    refusals integer DEFAULT 0 NOT NULL,
    refused_last uuid,
    next_send_at timestamp with time zone,
    open_until timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    previous_secret bytea,
    previous_secret_key text,
    previous_until timestamp with time zone,
    paused_at timestamp with time zone,
    paused_reason text DEFAULT ''::text NOT NULL,
    resumed_at timestamp with time zone,
    CONSTRAINT targets_check CHECK (((previous_secret IS NULL) = (previous_until IS NULL))),
    CONSTRAINT targets_check1 CHECK (((previous_secret IS NULL) = (previous_secret_key IS NULL))),
    CONSTRAINT targets_check2 CHECK (((paused_at IS NULL) = (paused_reason = ''::text))),
    CONSTRAINT targets_kind_check CHECK ((kind ~ '^[a-z][a-z0-9_]{0,63}$'::text)),
    CONSTRAINT targets_pace_interval_check CHECK ((pace_interval >= 0)),
    CONSTRAINT targets_paused_reason_check CHECK ((paused_reason = ANY (ARRAY[''::text, 'request'::text, 'auth_expired'::text]))),
    CONSTRAINT targets_refusals_check CHECK ((refusals >= 0)),
    CONSTRAINT targets_timeout_check CHECK ((timeout > 0))
);
ALTER TABLE public.targets ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.targets_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.transfers (
    id uuid NOT NULL,
    kind text NOT NULL,
    source text NOT NULL COLLATE pg_catalog."C",
    destination text NOT NULL COLLATE pg_catalog."C",
    amount bigint NOT NULL,
    currency text NOT NULL,
    status text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    memo text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT transfers_amount_check CHECK ((amount > 0)),
    CONSTRAINT transfers_check CHECK ((destination <> source)),
    CONSTRAINT transfers_kind_check CHECK ((kind = ANY (ARRAY['transfer'::text, 'deposit'::text, 'withdrawal'::text, 'capture'::text, 'purchase'::text, 'payout'::text, 'refund'::text, 'cross'::text]))),
    CONSTRAINT transfers_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'completed'::text, 'failed'::text])))
);
ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_hash_key UNIQUE (hash);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.auction_bids
    ADD CONSTRAINT auction_bids_pkey PRIMARY KEY (auction, seq);
ALTER TABLE ONLY public.auction_events
    ADD CONSTRAINT auction_events_pkey PRIMARY KEY (auction, seq);
ALTER TABLE ONLY public.auction_rounds
    ADD CONSTRAINT auction_rounds_pkey PRIMARY KEY (auction, round);
ALTER TABLE ONLY public.auction_standing
    ADD CONSTRAINT auction_standing_unique_amount UNIQUE (auction, unique_amount) DEFERRABLE;
ALTER TABLE ONLY public.auction_winners
    ADD CONSTRAINT auction_winners_auction_round_account_key UNIQUE (auction, round, account);
ALTER TABLE ONLY public.auction_winners
    ADD CONSTRAINT auction_winners_pkey PRIMARY KEY (auction, round, rank);
ALTER TABLE ONLY public.auctions
    ADD CONSTRAINT auctions_number_key UNIQUE (number);
ALTER TABLE ONLY public.auctions
    ADD CONSTRAINT auctions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.automation_firings
    ADD CONSTRAINT automation_firings_number_key UNIQUE (number);
ALTER TABLE ONLY public.automation_firings
    ADD CONSTRAINT automation_firings_pkey PRIMARY KEY (automation, scheduled_for);
ALTER TABLE ONLY public.automations
    ADD CONSTRAINT automations_name_key UNIQUE (name);
ALTER TABLE ONLY public.automations
    ADD CONSTRAINT automations_number_key UNIQUE (number);
ALTER TABLE ONLY public.automations
    ADD CONSTRAINT automations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.campaign_beacons
    ADD CONSTRAINT campaign_beacons_pkey PRIMARY KEY (campaign);
ALTER TABLE ONLY public.campaign_layers
    ADD CONSTRAINT campaign_layers_pkey PRIMARY KEY (campaign, layer);
ALTER TABLE ONLY public.campaign_prizes
    ADD CONSTRAINT campaign_prizes_campaign_name_key UNIQUE (campaign, name);
ALTER TABLE ONLY public.campaign_prizes
    ADD CONSTRAINT campaign_prizes_pkey PRIMARY KEY (campaign, ordinal);
ALTER TABLE ONLY public.campaign_seeds
    ADD CONSTRAINT campaign_seeds_pkey PRIMARY KEY (campaign);
ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_escrow_key UNIQUE (escrow);
ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_number_key UNIQUE (number);
ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.console_links
    ADD CONSTRAINT console_links_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT console_sessions_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.draws
    ADD CONSTRAINT draws_pkey PRIMARY KEY (campaign);
ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (account, version, id);
ALTER TABLE ONLY public.goose_db_version
    ADD CONSTRAINT goose_db_version_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.hold_rows
    ADD CONSTRAINT holds_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.lock_arbiter
    ADD CONSTRAINT lock_arbiter_pkey PRIMARY KEY (one);
ALTER TABLE ONLY public.lock_fences
    ADD CONSTRAINT lock_fences_pkey PRIMARY KEY (resource);
ALTER TABLE ONLY public.lock_grants
    ADD CONSTRAINT lock_grants_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.lock_keys
    ADD CONSTRAINT lock_keys_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.lock_queue
    ADD CONSTRAINT lock_queue_pkey PRIMARY KEY (key, ticket);
ALTER TABLE ONLY public.lock_waiters
    ADD CONSTRAINT lock_waiters_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.lock_waiters
    ADD CONSTRAINT lock_waiters_request_key UNIQUE (request);
ALTER TABLE ONLY public.multidraw_chunks
    ADD CONSTRAINT multidraw_chunks_pkey PRIMARY KEY (multidraw, seq);
ALTER TABLE ONLY public.multidraw_seeds
    ADD CONSTRAINT multidraw_seeds_pkey PRIMARY KEY (multidraw);
ALTER TABLE ONLY public.multidraws
    ADD CONSTRAINT multidraws_number_key UNIQUE (number);
ALTER TABLE ONLY public.multidraws
    ADD CONSTRAINT multidraws_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.publication_attempts
    ADD CONSTRAINT publication_attempts_pkey PRIMARY KEY (publication, version);
ALTER TABLE ONLY public.publications
    ADD CONSTRAINT publications_number_key UNIQUE (number);
ALTER TABLE ONLY public.publications
    ADD CONSTRAINT publications_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.purchases
    ADD CONSTRAINT purchases_campaign_ordinal_key UNIQUE (campaign, ordinal);
ALTER TABLE ONLY public.purchases
    ADD CONSTRAINT purchases_pkey PRIMARY KEY (campaign, seq);
ALTER TABLE ONLY public.saga_coordinator
    ADD CONSTRAINT saga_coordinator_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.saga_fences
    ADD CONSTRAINT saga_fences_pkey PRIMARY KEY (coordinator);
ALTER TABLE ONLY public.saga_legs
    ADD CONSTRAINT saga_legs_pkey PRIMARY KEY (saga, step);
ALTER TABLE ONLY public.saga_tokens
    ADD CONSTRAINT saga_tokens_pkey PRIMARY KEY (participant);
ALTER TABLE ONLY public.sagas
    ADD CONSTRAINT sagas_number_key UNIQUE (number);
ALTER TABLE ONLY public.sagas
    ADD CONSTRAINT sagas_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.target_tokens
    ADD CONSTRAINT target_tokens_pkey PRIMARY KEY (target);
ALTER TABLE ONLY public.targets
    ADD CONSTRAINT targets_name_key UNIQUE (name);
ALTER TABLE ONLY public.targets
    ADD CONSTRAINT targets_number_key UNIQUE (number);
ALTER TABLE ONLY public.targets
    ADD CONSTRAINT targets_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.transfers
    ADD CONSTRAINT transfers_pkey PRIMARY KEY (id);
CREATE UNIQUE INDEX auction_rounds_active ON public.auction_rounds USING btree (auction) WHERE (status = 'active'::text);
CREATE UNIQUE INDEX auction_standing_account ON public.auction_standing USING btree (auction, account) WHERE (unique_amount IS NULL);
CREATE INDEX auctions_by_status ON public.auctions USING btree (status, number);
CREATE INDEX audit_log_action ON public.audit_log USING btree (action, id);
CREATE INDEX audit_log_object ON public.audit_log USING btree (object, id);
CREATE INDEX audit_log_principal ON public.audit_log USING btree (principal, id);
CREATE INDEX automation_firings_listed ON public.automation_firings USING btree (automation, number);
CREATE INDEX automation_firings_of_day ON public.automation_firings USING btree (automation, fired_at) WHERE (outcome = 'scheduled'::text);
CREATE INDEX automations_due ON public.automations USING btree (next_at) WHERE (status = 'active'::text);
CREATE INDEX campaign_beacons_waiting ON public.campaign_beacons USING btree (next_attempt_at) WHERE (next_attempt_at IS NOT NULL);
CREATE INDEX campaigns_by_status ON public.campaigns USING btree (status, number);
CREATE INDEX campaigns_drawing ON public.campaigns USING btree (draw_started_at) WHERE (status = 'drawing'::text);
CREATE INDEX console_sessions_expires_at ON public.console_sessions USING btree (expires_at);
CREATE INDEX draws_completed_at ON public.draws USING btree (completed_at);
CREATE UNIQUE INDEX hold_rows_one_an_auction ON public.hold_rows USING btree (auction, account) WHERE ((status = 'open'::text) AND (auction IS NOT NULL));
CREATE INDEX holds_open_by_account ON public.hold_rows USING btree (account) WHERE (status = 'open'::text);
CREATE INDEX holds_open_by_expiry ON public.hold_rows USING btree (expires_at) WHERE ((status = 'open'::text) AND (expires_at IS NOT NULL));
CREATE INDEX lock_grants_owner ON public.lock_grants USING btree (owner);
CREATE UNIQUE INDEX multidraws_key ON public.multidraws USING btree (key) WHERE (key IS NOT NULL);
CREATE UNIQUE INDEX multidraws_lock_key ON public.multidraws USING btree (lock_key) WHERE (status = ANY (ARRAY['running'::text, 'interrupted'::text]));
CREATE INDEX multidraws_running ON public.multidraws USING btree (id) WHERE (status = 'running'::text);
CREATE UNIQUE INDEX publication_attempts_published ON public.publication_attempts USING btree (publication) WHERE (result = 'published'::text);
CREATE INDEX publications_by_status ON public.publications USING btree (status, number);
CREATE INDEX publications_claimed ON public.publications USING btree (execution_locked_at) WHERE (execution_lock_id IS NOT NULL);
CREATE INDEX publications_drafts ON public.publications USING btree (target, number) WHERE (status = 'draft'::text);
CREATE INDEX publications_due ON public.publications USING btree (target, due_at) WHERE (status = 'scheduled'::text);
CREATE INDEX sagas_by_name ON public.sagas USING btree (name, number);
CREATE INDEX sagas_ended ON public.sagas USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE UNIQUE INDEX sagas_key ON public.sagas USING btree (key) WHERE (key IS NOT NULL);
CREATE INDEX sagas_not_completed ON public.sagas USING btree (status, number) WHERE (status <> 'completed'::text);
CREATE INDEX sagas_pending ON public.sagas USING btree (next_at) WHERE (status = 'pending'::text);
CREATE INDEX transfers_not_completed ON public.transfers USING btree (status, id) WHERE (status <> 'completed'::text);
ALTER TABLE ONLY public.auction_rounds
    ADD CONSTRAINT auction_rounds_auction_fkey FOREIGN KEY (auction) REFERENCES public.auctions(id);
ALTER TABLE ONLY public.automation_firings
    ADD CONSTRAINT automation_firings_automation_fkey FOREIGN KEY (automation) REFERENCES public.automations(id);
ALTER TABLE ONLY public.automation_firings
    ADD CONSTRAINT automation_firings_publication_fkey FOREIGN KEY (publication) REFERENCES public.publications(id);
ALTER TABLE ONLY public.automations
    ADD CONSTRAINT automations_target_fkey FOREIGN KEY (target) REFERENCES public.targets(id);
ALTER TABLE ONLY public.campaign_beacons
    ADD CONSTRAINT campaign_beacons_campaign_fkey FOREIGN KEY (campaign) REFERENCES public.campaigns(id);
ALTER TABLE ONLY public.campaign_layers
    ADD CONSTRAINT campaign_layers_campaign_fkey FOREIGN KEY (campaign) REFERENCES public.campaigns(id);
ALTER TABLE ONLY public.campaign_prizes
    ADD CONSTRAINT campaign_prizes_campaign_fkey FOREIGN KEY (campaign) REFERENCES public.campaigns(id);
ALTER TABLE ONLY public.campaign_seeds
    ADD CONSTRAINT campaign_seeds_campaign_fkey FOREIGN KEY (campaign) REFERENCES public.campaigns(id);
ALTER TABLE ONLY public.console_links
    ADD CONSTRAINT console_links_key_fkey FOREIGN KEY (key) REFERENCES public.api_keys(id);
ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT console_sessions_key_fkey FOREIGN KEY (key) REFERENCES public.api_keys(id);
ALTER TABLE ONLY public.draws
    ADD CONSTRAINT draws_campaign_fkey FOREIGN KEY (campaign) REFERENCES public.campaigns(id);
ALTER TABLE ONLY public.multidraw_seeds
    ADD CONSTRAINT multidraw_seeds_multidraw_fkey FOREIGN KEY (multidraw) REFERENCES public.multidraws(id);
ALTER TABLE ONLY public.publication_attempts
    ADD CONSTRAINT publication_attempts_publication_fkey FOREIGN KEY (publication) REFERENCES public.publications(id);
ALTER TABLE ONLY public.publications
    ADD CONSTRAINT publications_target_fkey FOREIGN KEY (target) REFERENCES public.targets(id);
ALTER TABLE ONLY public.target_tokens
    ADD CONSTRAINT target_tokens_target_fkey FOREIGN KEY (target) REFERENCES public.targets(id);
INSERT INTO public.goose_db_version (version_id, is_applied) SELECT n, true FROM generate_series(0, 20) AS n;
