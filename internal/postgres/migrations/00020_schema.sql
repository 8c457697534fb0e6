-- +goose Up

-- The tables of the services. Those of locks and sagas are installed by their packages (lock/pglock, saga/pgsaga).
-- Databases that were made by the twenty steps before this one have all of it already.

-- Accounts and money, keys and sessions

-- Columns that hold account ids are COLLATE "C" everywhere: the canonical lock order sorts them by byte, in Go and in
-- SQL alike, whatever the database's own collation is.

-- API keys of administrators and services. Only the SHA-256 of a key is kept.
CREATE TABLE api_keys (
    id         text PRIMARY KEY,
    role       text        NOT NULL CHECK (role IN ('admin', 'service')),
    name       text        NOT NULL,
    hash       bytea       NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at timestamptz NOT NULL,
    revoked_at timestamptz
);

-- One row for each administrative action, written in the action's own transaction.
CREATE TABLE audit_log (
    id         uuid PRIMARY KEY,
    at         timestamptz NOT NULL,
    principal  text        NOT NULL,
    action     text        NOT NULL,
    object     text        NOT NULL,
    request_id text        NOT NULL
);
-- Operators look for the newest actions by each of these columns. There are few actions, so the indexes cost little.
CREATE INDEX audit_log_action ON audit_log (action, id);
CREATE INDEX audit_log_object ON audit_log (object, id);
CREATE INDEX audit_log_principal ON audit_log (principal, id);

-- One row for each decided command, inserted in the command's own transaction. The id is the SHA-256 of principal,
-- method, path and key; execution tells the request that ran from those that are answered with its result. Old keys are
-- found by going through the table, part by part, when a part is due: see ADR 0019.
CREATE TABLE idempotency_keys (
    id          bytea PRIMARY KEY CHECK (length(id) = 32),
    fingerprint bytea       NOT NULL CHECK (length(fingerprint) = 32),
    execution   uuid        NOT NULL,
    status      smallint    NOT NULL,
    body        bytea       NOT NULL,
    created_at  timestamptz NOT NULL
);

-- Accounts carry their balance; entries are the history that it must equal. The version grows with each change.
-- Half-filled pages let the frequent balance updates stay on their page (heap-only tuples).
CREATE TABLE accounts (
    id         text COLLATE "C" PRIMARY KEY,
    currency   text        NOT NULL,
    available  bigint      NOT NULL CHECK (available >= 0),
    held       bigint      NOT NULL CHECK (held >= 0),
    version    bigint      NOT NULL,
    created_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The intent and the outcome of every movement of money. A deposit comes from, a withdrawal goes to the account
-- outside/CURRENCY, which has entries but no row in accounts: its balance is what the ledger owes its depositors. Money that
-- goes to another ledger, or comes from it, does so by way of transit/LEDGER, which has no row either.
CREATE TABLE transfers (
    id           uuid PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN ('transfer', 'deposit', 'withdrawal', 'capture', 'purchase', 'payout', 'refund', 'cross')),
    source       text COLLATE "C" NOT NULL,
    destination  text COLLATE "C" NOT NULL CHECK (destination <> source),
    amount       bigint      NOT NULL CHECK (amount > 0),
    currency     text        NOT NULL,
    status       text        NOT NULL CHECK (status IN ('pending', 'completed', 'failed')),
    reason       text        NOT NULL DEFAULT '',
    memo         text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL
);
CREATE INDEX transfers_not_completed ON transfers (status, id) WHERE status <> 'completed';

-- Double entry: the entries of one transfer sum to zero. The version is the account's version that the entry made,
-- so an account's entries have an order of their own; outside entries are numbered by their transfer alone.
CREATE TABLE entries (
    account  text COLLATE "C" NOT NULL,
    id       uuid        NOT NULL,
    version  bigint      NOT NULL,
    transfer uuid        NOT NULL,
    amount   bigint      NOT NULL CHECK (amount <> 0),
    currency text        NOT NULL,
    at       timestamptz NOT NULL,
    memo     text        NOT NULL DEFAULT '',
    PRIMARY KEY (account, version, id)
);

-- Money set aside on an account: captured or released once. A hold that an entity of the system placed names it as owner, and
-- nobody else may close the hold. An open hold of an auction has its amount in the standing bid that it is for, and not here
-- too: a raise writes one row with its amount (ADR 0019). Half-filled pages let raises stay on their page.
CREATE TABLE hold_rows (
    id         uuid CONSTRAINT holds_pkey PRIMARY KEY,
    account    text COLLATE "C" NOT NULL,
    amount     bigint      CONSTRAINT holds_amount_check CHECK (amount > 0),
    captured   bigint      NOT NULL CONSTRAINT holds_check CHECK (captured >= 0 AND captured <= amount),
    status     text        NOT NULL CONSTRAINT holds_status_check CHECK (status IN ('open', 'captured', 'released', 'expired')),
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    closed_at  timestamptz,
    transfer   uuid,
    owner      text        NOT NULL DEFAULT '',
    auction    uuid GENERATED ALWAYS AS (CASE WHEN owner LIKE 'auction:%' THEN substr(owner, length('auction:') + 1)::uuid END) STORED,
    CONSTRAINT holds_check1 CHECK ((status = 'open') = (closed_at IS NULL)),
    CONSTRAINT holds_check2 CHECK ((status = 'captured') = (captured > 0)),
    CONSTRAINT hold_rows_amount_once CHECK ((amount IS NULL) = (status = 'open' AND auction IS NOT NULL))
) WITH (fillfactor = 50);
CREATE INDEX holds_open_by_account ON hold_rows (account) WHERE status = 'open';
CREATE INDEX holds_open_by_expiry ON hold_rows (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;
-- An account has one open hold an auction, and so one standing bid.
CREATE UNIQUE INDEX hold_rows_one_an_auction ON hold_rows (auction, account) WHERE status = 'open' AND auction IS NOT NULL;

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

-- Secrets that all servers on this database share and nobody else knows. The one of aliases keeps a guessed account name from
-- being compared with what public pages show.
CREATE TABLE secrets (
    name  text PRIMARY KEY,
    value bytea NOT NULL CHECK (length(value) = 32)
);

-- Two random UUIDs have 244 random bits, from the source that the server's other secrets come from.
INSERT INTO secrets (name, value)
    VALUES ('aliases', decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));

-- Lottery

-- A campaign and its counters. The version grows with each change, so that a process can tell whether what it
-- remembers of a campaign is still true. CHECK (sold <= total) is the last of the layers against overselling.
CREATE TABLE campaigns (
    id              uuid PRIMARY KEY,
    number          bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    name            text        NOT NULL,
    status          text        NOT NULL CHECK (status IN ('pending', 'active', 'drawing', 'completed', 'cancelled')),
    draw_mode       text        NOT NULL CHECK (draw_mode IN ('instant', 'beacon')),
    base_length     integer,
    currency        text        NOT NULL,
    price           bigint,
    beneficiary     text COLLATE "C" NOT NULL,
    escrow          text COLLATE "C" NOT NULL UNIQUE,
    purchase_limit  integer     CHECK (purchase_limit > 0),
    total_positions integer     NOT NULL CHECK (total_positions > 0),
    sold_positions  integer     NOT NULL CHECK (sold_positions >= 0),
    commitment      bytea       NOT NULL CHECK (length(commitment) = 32),
    version         bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    published_at    timestamptz,
    draw_started_at timestamptz,
    completed_at    timestamptz,
    cancelled_at    timestamptz,
    CHECK (sold_positions <= total_positions),
    CHECK (status NOT IN ('drawing', 'completed') OR sold_positions = total_positions)
);
CREATE INDEX campaigns_by_status ON campaigns (status, number);
CREATE INDEX campaigns_drawing ON campaigns (draw_started_at) WHERE status = 'drawing';

CREATE TABLE campaign_layers (
    campaign  uuid    NOT NULL REFERENCES campaigns (id),
    layer     integer NOT NULL CHECK (layer > 0),
    positions integer NOT NULL CHECK (positions > 0),
    price     bigint  NOT NULL CHECK (price > 0),
    sold      integer NOT NULL CHECK (sold >= 0),
    PRIMARY KEY (campaign, layer),
    CHECK (sold <= positions)
);

CREATE TABLE campaign_prizes (
    campaign uuid    NOT NULL REFERENCES campaigns (id),
    ordinal  integer NOT NULL,
    name     text    NOT NULL,
    layer    integer,
    quantity integer NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (campaign, ordinal),
    UNIQUE (campaign, name)
);

-- The server seed lives apart from the campaign, so that no SELECT * on campaigns can show it before the draw.
CREATE TABLE campaign_seeds (
    campaign uuid PRIMARY KEY REFERENCES campaigns (id),
    seed     bytea NOT NULL CHECK (length(seed) = 32)
);

-- One row for each sold position. seq is the number of the sale within its campaign (1, 2, …), ordinal the position's
-- place in campaign order (layer, then number; from 0). Positions that are not sold have no row.
CREATE TABLE purchases (
    campaign uuid        NOT NULL,
    seq      integer     NOT NULL,
    id       uuid        NOT NULL,
    account  text COLLATE "C" NOT NULL,
    layer    integer     NOT NULL,
    number   integer     NOT NULL,
    ordinal  integer     NOT NULL,
    price    bigint      NOT NULL,
    transfer uuid        NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (campaign, seq),
    UNIQUE (campaign, ordinal)
);

-- The one result of a campaign, for ever: the primary key is the layer of defence that no code path can go around.
CREATE TABLE draws (
    campaign     uuid PRIMARY KEY REFERENCES campaigns (id),
    root         bytea       NOT NULL CHECK (length(root) = 32),
    beacon       bytea,
    winners      text        NOT NULL,
    completed_at timestamptz NOT NULL,
    -- The round that the beacon's signature is of, and on chains that sign it too, the signature before it.
    beacon_round    bigint,
    beacon_previous bytea,
    CHECK ((beacon IS NULL) = (beacon_round IS NULL))
);
-- The sweeper looks whether a campaign that was drawn lately has more than one result.
CREATE INDEX draws_completed_at ON draws (completed_at);

-- The public randomness that decides a campaign in beacon mode. The chain is written with the campaign; root, round and
-- the two times are the seal, written once, with the last sale: the durable intent to draw. What follows them is how the
-- attempts to get the round went; next_attempt_at is null before the seal and after the draw.
CREATE TABLE campaign_beacons (
    campaign        uuid PRIMARY KEY REFERENCES campaigns (id),
    chain           text        NOT NULL, -- its description, JSON
    root            bytea       CHECK (length(root) = 32),
    round           bigint      CHECK (round > 0),
    sealed_at       timestamptz,
    due_at          timestamptz CHECK (due_at > sealed_at),
    next_attempt_at timestamptz,
    attempts        integer     NOT NULL DEFAULT 0, -- in vain, since the round was due
    failure         text        NOT NULL DEFAULT '',
    early           boolean     NOT NULL DEFAULT false,
    CHECK (num_nulls(root, round, sealed_at, due_at) IN (0, 4)),
    CHECK (next_attempt_at IS NULL OR round IS NOT NULL)
);
CREATE INDEX campaign_beacons_waiting ON campaign_beacons (next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- A multi-draw and how far it has come. The term grows with each grant of the lease: a checkpoint is written in the row's
-- term only. The range is low to high, both included; or prizes is their list, as JSON. parameters is a hash of both and of
-- the total, digest one of all that was drawn so far. The row is written with each checkpoint: half-filled pages let it stay
-- on its page.
CREATE TABLE multidraws (
    id               uuid PRIMARY KEY,
    number           bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    lock_key         text COLLATE "C" NOT NULL,
    status           text        NOT NULL CHECK (status IN ('running', 'completed', 'interrupted', 'rolled_back')),
    total            bigint      NOT NULL CHECK (total > 0),
    completed        bigint      NOT NULL CHECK (completed >= 0),
    every            integer     NOT NULL CHECK (every > 0), -- draws between two checkpoints
    checkpoints      bigint      NOT NULL,                   -- and the number of the last event
    low              bigint,
    high             bigint,
    prizes           text,
    parameters       bytea       NOT NULL CHECK (length(parameters) = 32),
    commitment       bytea       NOT NULL CHECK (length(commitment) = 32),
    digest           bytea       NOT NULL CHECK (length(digest) = 32),
    owner            uuid        NOT NULL,
    term             bigint      NOT NULL CHECK (term > 0),
    lease_expires_at timestamptz NOT NULL,
    started_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    completed_at     timestamptz,
    rolled_back_at   timestamptz,
    -- The key under which it was asked for, while the answer is not decided.
    key              bytea,
    fingerprint      bytea,
    execution        uuid,
    CHECK (completed <= total),
    CHECK (checkpoints = (completed + every - 1) / every),
    CHECK (completed = total OR completed % every = 0),
    CHECK ((completed = total) = (completed_at IS NOT NULL)),
    CHECK (status <> 'completed' OR completed = total),
    CHECK (status NOT IN ('running', 'interrupted') OR completed < total),
    CHECK ((status = 'rolled_back') = (rolled_back_at IS NOT NULL)),
    CHECK ((low IS NULL) = (high IS NULL) AND (low IS NULL) <> (prizes IS NULL)),
    CHECK ((key IS NULL) = (fingerprint IS NULL) AND (key IS NULL) = (execution IS NULL))
) WITH (fillfactor = 50);
-- A lock key is held by at most one operation.
CREATE UNIQUE INDEX multidraws_lock_key ON multidraws (lock_key) WHERE status IN ('running', 'interrupted');
CREATE UNIQUE INDEX multidraws_key ON multidraws (key) WHERE key IS NOT NULL;
CREATE INDEX multidraws_running ON multidraws (id) WHERE status = 'running';

-- The seed lives apart from the operation, so that no SELECT * on multidraws can show it before all is drawn.
CREATE TABLE multidraw_seeds (
    multidraw uuid PRIMARY KEY REFERENCES multidraws (id),
    seed      bytea NOT NULL CHECK (length(seed) = 32)
);

-- What was drawn, a row a checkpoint: draws (seq − 1) × every and following, each as what it is above the range's minimum,
-- or as the prize's place in the list from 0, in 1, 2, 4 or 8 bytes, the same for all of an operation. A row is the
-- operation's event with that number, too. Random bytes can't be compressed, so nobody tries.
CREATE TABLE multidraw_chunks (
    multidraw uuid        NOT NULL,
    seq       bigint      NOT NULL CHECK (seq > 0),
    data      bytea       NOT NULL,
    at        timestamptz NOT NULL,
    PRIMARY KEY (multidraw, seq)
);
ALTER TABLE multidraw_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

-- Auctions

-- An auction and its counters. The version grows with each change and the revision is new with each, so that a process
-- can tell whether what it remembers of an auction is still true, even after a failover that lost the last commits.
-- Durations are microseconds.
CREATE TABLE auctions (
    id               uuid PRIMARY KEY,
    number           bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    title            text        NOT NULL,
    status           text        NOT NULL CHECK (status IN ('pending', 'active', 'completed', 'cancelled')),
    currency         text        NOT NULL,
    seller           text COLLATE "C" NOT NULL,
    current_round    integer     NOT NULL CHECK (current_round >= 0),
    min_bid          bigint      NOT NULL CHECK (min_bid > 0),
    min_increment    bigint      NOT NULL CHECK (min_increment > 0),
    snipe_window     bigint      NOT NULL CHECK (snipe_window >= 0),
    snipe_extension  bigint      NOT NULL CHECK (snipe_extension >= 0),
    snipe_max        integer     NOT NULL CHECK (snipe_max >= 0),
    cooldown         bigint      NOT NULL CHECK (cooldown >= 0),
    unique_amounts   boolean     NOT NULL,
    total_bids       bigint      NOT NULL CHECK (total_bids >= 0),
    seq              bigint      NOT NULL CHECK (seq >= 0), -- of the last event
    first_seq        bigint      NOT NULL DEFAULT 1,        -- of the oldest event that is kept
    leader_term      bigint      NOT NULL DEFAULT 0,        -- the newest that has closed a round
    version          bigint      NOT NULL,
    revision         uuid        NOT NULL,
    created_at       timestamptz NOT NULL,
    started_at       timestamptz,
    ended_at         timestamptz
) WITH (fillfactor = 50);
CREATE INDEX auctions_by_status ON auctions (status, number);

CREATE TABLE auction_rounds (
    auction    uuid        NOT NULL REFERENCES auctions (id),
    round      integer     NOT NULL CHECK (round > 0),
    winners    integer     NOT NULL CHECK (winners > 0),
    duration   bigint      NOT NULL CHECK (duration > 0), -- microseconds
    status     text        NOT NULL CHECK (status IN ('pending', 'active', 'completed')),
    extensions integer     NOT NULL CHECK (extensions >= 0),
    started_at timestamptz,
    ends_at    timestamptz,
    ended_at   timestamptz,
    PRIMARY KEY (auction, round),
    CHECK ((status = 'completed') = (ended_at IS NOT NULL))
) WITH (fillfactor = 50);
-- At most one round of an auction is open.
CREATE UNIQUE INDEX auction_rounds_active ON auction_rounds (auction) WHERE status = 'active';

-- The standing bids: one an account and auction, which hold_rows_one_an_auction holds. A winner's row is deleted by the
-- close of its round. At the end of an auction the losers' rows stay, no longer active. unique_amount repeats the amount
-- where amounts must be unique, and is null elsewhere; it is checked at the end of each statement, because the raises of
-- one batch may pass an amount on. Where amounts are unique, a standing bid is found by its amount and has no entry by
-- account, which every raise would write anew; those that are no longer active, and all where amounts may repeat, have one.
CREATE TABLE auction_standing (
    auction       uuid        NOT NULL,
    account       text COLLATE "C" NOT NULL,
    amount        bigint      NOT NULL CHECK (amount > 0),
    unique_amount bigint      CHECK (unique_amount = amount),
    round         integer     NOT NULL,
    seq           bigint      NOT NULL, -- of its bid.placed
    at            timestamptz NOT NULL,
    hold          uuid        NOT NULL,
    active        boolean     NOT NULL,
    CONSTRAINT auction_standing_unique_amount UNIQUE (auction, unique_amount) DEFERRABLE INITIALLY IMMEDIATE
) WITH (fillfactor = 50);
ALTER TABLE auction_standing REPLICA IDENTITY FULL;
CREATE UNIQUE INDEX auction_standing_account ON auction_standing (auction, account) WHERE unique_amount IS NULL;

-- The holds with their amounts: what reads holds reads this. An open hold without an amount is one of no standing bid,
-- which should not be.
CREATE VIEW holds AS
SELECT h.id, h.account, coalesce(h.amount, s.amount) AS amount, h.captured, h.status, h.expires_at, h.created_at, h.closed_at,
    h.transfer, h.owner
FROM hold_rows AS h LEFT JOIN auction_standing AS s
    ON h.amount IS NULL AND s.auction = h.auction AND s.account = h.account AND s.hold = h.id AND s.active;

-- Every accepted bid, for ever. A row is also the event bid.placed of its sequence number. By the nonce of its batch a process
-- tells a bid that it remembers from another one with the same number and amount; began_at is when its transaction began by
-- the database's own clock, for the audit.
CREATE TABLE auction_bids (
    auction         uuid        NOT NULL,
    seq             bigint      NOT NULL,
    account         text COLLATE "C" NOT NULL,
    amount          bigint      NOT NULL CHECK (amount > previous_amount),
    previous_amount bigint      NOT NULL CHECK (previous_amount >= 0),
    round           integer     NOT NULL,
    rank            integer     NOT NULL CHECK (rank > 0),
    at              timestamptz NOT NULL,
    hold            uuid        NOT NULL,
    nonce           bigint,
    began_at        timestamptz DEFAULT transaction_timestamp(),
    PRIMARY KEY (auction, seq)
);

-- Who won what. An account wins at most once a round.
CREATE TABLE auction_winners (
    auction  uuid    NOT NULL,
    round    integer NOT NULL,
    rank     integer NOT NULL CHECK (rank > 0),
    account  text COLLATE "C" NOT NULL,
    amount   bigint  NOT NULL CHECK (amount > 0),
    transfer uuid    NOT NULL,
    PRIMARY KEY (auction, round, rank),
    UNIQUE (auction, round, account)
);

-- All other events of an auction. Together with auction_bids the sequence numbers have no gap.
CREATE TABLE auction_events (
    auction uuid        NOT NULL,
    seq     bigint      NOT NULL,
    type    text        NOT NULL,
    at      timestamptz NOT NULL,
    data    text        NOT NULL,
    PRIMARY KEY (auction, seq)
);

-- Leases: the right of one process to lead something. The term grows with each change of holder and never falls.
CREATE TABLE leases (
    name       text PRIMARY KEY,
    holder     text        NOT NULL,
    term       bigint      NOT NULL CHECK (term > 0),
    expires_at timestamptz NOT NULL
);

-- Publishing

-- Where publications go. The secret is sealed with AES-256-GCM under the key that secret_key names; the key is not in the
-- database. It is replaced with an overlap, in which the previous one signs too. The pace slows a target down that has said it is sent too much; intervals are microseconds.
CREATE TABLE targets (
    id            uuid PRIMARY KEY,
    number        bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    name          text COLLATE "C" NOT NULL UNIQUE,
    kind          text        NOT NULL CHECK (kind ~ '^[a-z][a-z0-9_]{0,63}$'),
    url           text        NOT NULL,
    timeout       bigint      NOT NULL CHECK (timeout > 0), -- microseconds
    secret        bytea       NOT NULL,
    secret_key    text        NOT NULL,
    pace_interval bigint      NOT NULL DEFAULT 0 CHECK (pace_interval >= 0),
    refusals      integer     NOT NULL DEFAULT 0 CHECK (refusals >= 0), -- in a row
    refused_last  uuid,                                                -- the publication that was refused last
    next_send_at  timestamptz,                                         -- nothing is claimed for the target before
    open_until    timestamptz,                                         -- of the circuit breaker
    created_at    timestamptz NOT NULL,
    previous_secret     bytea,
    previous_secret_key text,
    previous_until      timestamptz,
    paused_at           timestamptz,
    paused_reason       text NOT NULL DEFAULT '' CHECK (paused_reason IN ('', 'request', 'auth_expired')),
    resumed_at          timestamptz,
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CHECK ((previous_secret IS NULL) = (previous_secret_key IS NULL)),
    CHECK ((paused_at IS NULL) = (paused_reason = ''))
);

-- A publication is claimed by lock id and version (package claim); who finishes it names both. due_at is when it may be
-- claimed: the actual time at first, later that of the next attempt. attempts counts claims; those up to spent belong to
-- an earlier run that a retry has closed.
CREATE TABLE publications (
    id                  uuid PRIMARY KEY,
    number              bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    target              uuid        NOT NULL REFERENCES targets (id),
    status              text        NOT NULL CHECK (status IN ('draft', 'scheduled', 'publishing', 'published', 'failed', 'cancelled')),
    payload             text        NOT NULL,
    jitter              bigint      NOT NULL CHECK (jitter BETWEEN 0 AND 300000000), -- microseconds
    publish_at          timestamptz,
    actual_publish_at   timestamptz,
    due_at              timestamptz,
    execution_lock_id   uuid,
    execution_locked_at timestamptz,
    execution_version   bigint      NOT NULL CHECK (execution_version >= 0),
    attempts            integer     NOT NULL CHECK (attempts >= 0),
    spent               integer     NOT NULL CHECK (spent BETWEEN 0 AND attempts),
    last_error          text        NOT NULL,
    external_id         text        NOT NULL,
    published_at        timestamptz,
    created_at          timestamptz NOT NULL,
    progress            text        NOT NULL DEFAULT '', -- of an attempt of several steps, in the sender's words
    CHECK ((status = 'publishing') = (execution_lock_id IS NOT NULL)),
    CHECK ((execution_lock_id IS NULL) = (execution_locked_at IS NULL)),
    CHECK ((status = 'published') = (published_at IS NOT NULL)),
    CHECK (status <> 'scheduled' OR due_at IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX publications_due ON publications (target, due_at) WHERE status = 'scheduled';
CREATE INDEX publications_claimed ON publications (execution_locked_at) WHERE execution_lock_id IS NOT NULL;
-- What an automation picks from, in the order in which it was made.
CREATE INDEX publications_drafts ON publications (target, number) WHERE status = 'draft';
CREATE INDEX publications_by_status ON publications (status, number);

-- One row for each claim. Its result is null while the attempt runs, lost once its claim went stale, and refused when its
-- result came after that.
CREATE TABLE publication_attempts (
    publication uuid        NOT NULL REFERENCES publications (id),
    version     bigint      NOT NULL CHECK (version > 0),
    lock_id     uuid        NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    result      text CHECK (result IN ('published', 'failed', 'refused', 'lost')),
    status_code integer,
    error       text        NOT NULL DEFAULT '',
    PRIMARY KEY (publication, version),
    CHECK ((result IS NULL) = (ended_at IS NULL))
) WITH (fillfactor = 70);
-- A publication is published at most once.
CREATE UNIQUE INDEX publication_attempts_published ON publication_attempts (publication) WHERE result = 'published';

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

-- Rules that take drafts of a target and schedule them. A rule has either times of the day on days of the week, in a time
-- zone, or an interval from an anchor. next_at is when it fires next, null once it fires no more.
CREATE TABLE automations (
    id          uuid PRIMARY KEY,
    number      bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    name        text COLLATE "C" NOT NULL UNIQUE,
    target      uuid        NOT NULL REFERENCES targets (id),
    status      text        NOT NULL CHECK (status IN ('active', 'paused', 'cancelled')),
    weekdays    smallint[]  NOT NULL, -- 0: Sunday
    times       integer[]   NOT NULL, -- seconds after midnight
    time_zone   text        NOT NULL,
    every       bigint      NOT NULL CHECK (every >= 0), -- microseconds
    starts_at   timestamptz NOT NULL,
    pick        text        NOT NULL CHECK (pick IN ('random', 'first', 'last')),
    daily_quota integer     NOT NULL CHECK (daily_quota >= 0), -- 0: none
    jitter      bigint      NOT NULL CHECK (jitter BETWEEN 0 AND 300000000), -- microseconds
    next_at     timestamptz,
    created_at  timestamptz NOT NULL,
    CHECK ((status = 'active') = (next_at IS NOT NULL)),
    CHECK ((every = 0) = (cardinality(times) > 0))
);
CREATE INDEX automations_due ON automations (next_at) WHERE status = 'active';

-- One row for each time that a rule has fired: the key is what makes any number of processes fire it once. skipped counts
-- the times before it that nobody was there for.
CREATE TABLE automation_firings (
    automation    uuid        NOT NULL REFERENCES automations (id),
    scheduled_for timestamptz NOT NULL,
    number        bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of lists
    fired_at      timestamptz NOT NULL,
    outcome       text        NOT NULL CHECK (outcome IN ('scheduled', 'no_draft', 'quota_reached')),
    publication   uuid        REFERENCES publications (id),
    skipped       integer     NOT NULL CHECK (skipped >= 0),
    PRIMARY KEY (automation, scheduled_for),
    CHECK ((outcome = 'scheduled') = (publication IS NOT NULL))
);
CREATE INDEX automation_firings_listed ON automation_firings (automation, number);
CREATE INDEX automation_firings_of_day ON automation_firings (automation, fired_at) WHERE outcome = 'scheduled';

-- Transfers between ledgers

-- What became of a stepthat had its effect in this database, decided once: the row commits with the effect, or, where the
-- step is refused, instead of it. The saga's log may be in another database. gid names the prepared transaction in
-- which it had its effect, if any: it tells a branch that was committed from one that was lost.
CREATE TABLE saga_legs (
    saga     uuid        NOT NULL,
    step     text        NOT NULL,
    outcome  text        NOT NULL CHECK (outcome IN ('done', 'refused')),
    reason   text        NOT NULL,
    transfer uuid,
    at       timestamptz NOT NULL,
    gid      text,
    PRIMARY KEY (saga, step),
    CHECK ((outcome = 'done') = (transfer IS NOT NULL)),
    CHECK ((outcome = 'refused') = (reason <> ''))
);
