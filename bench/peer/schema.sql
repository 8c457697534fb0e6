-- The tables of the peer servers. They hold what the product's tables hold (same columns, same checks, same fill
-- factor), so that both sides write the same rows for a command; positions are rows here, because a peer of this
-- kind picks one with FOR UPDATE SKIP LOCKED.

CREATE TABLE idempotency_keys (
    id          bytea PRIMARY KEY CHECK (length(id) = 32),
    fingerprint bytea       NOT NULL CHECK (length(fingerprint) = 32),
    status      smallint    NOT NULL,
    body        bytea       NOT NULL,
    created_at  timestamptz NOT NULL
);
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);

CREATE TABLE accounts (
    id         text COLLATE "C" PRIMARY KEY,
    currency   text        NOT NULL,
    available  bigint      NOT NULL CHECK (available >= 0),
    held       bigint      NOT NULL CHECK (held >= 0),
    version    bigint      NOT NULL,
    created_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE transfers (
    id           uuid PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN ('transfer', 'deposit', 'purchase', 'payout')),
    source       text COLLATE "C" NOT NULL,
    destination  text COLLATE "C" NOT NULL CHECK (destination <> source),
    amount       bigint      NOT NULL CHECK (amount > 0),
    currency     text        NOT NULL,
    status       text        NOT NULL CHECK (status IN ('pending', 'completed', 'failed')),
    reason       text        NOT NULL DEFAULT '',
    memo         text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL
);

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

-- lock_id is the number that pg_advisory_xact_lock takes for the campaign.
CREATE TABLE campaigns (
    id              uuid PRIMARY KEY,
    lock_id         bigint GENERATED ALWAYS AS IDENTITY,
    name            text        NOT NULL,
    status          text        NOT NULL CHECK (status IN ('pending', 'active', 'drawing', 'completed', 'cancelled')),
    currency        text        NOT NULL,
    price           bigint      NOT NULL CHECK (price > 0),
    beneficiary     text COLLATE "C" NOT NULL,
    escrow          text COLLATE "C" NOT NULL UNIQUE,
    total_positions integer     NOT NULL CHECK (total_positions > 0),
    sold_positions  integer     NOT NULL CHECK (sold_positions >= 0),
    version         bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    draw_started_at timestamptz,
    completed_at    timestamptz,
    CHECK (sold_positions <= total_positions)
);

CREATE TABLE campaign_layers (
    campaign  uuid    NOT NULL REFERENCES campaigns (id),
    layer     integer NOT NULL CHECK (layer > 0),
    positions integer NOT NULL CHECK (positions > 0),
    sold      integer NOT NULL CHECK (sold >= 0),
    PRIMARY KEY (campaign, layer),
    CHECK (sold <= positions)
);

CREATE TABLE campaign_prizes (
    campaign uuid    NOT NULL REFERENCES campaigns (id),
    ordinal  integer NOT NULL,
    name     text    NOT NULL,
    quantity integer NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (campaign, ordinal)
);

CREATE TABLE positions (
    campaign uuid    NOT NULL,
    ordinal  integer NOT NULL,
    layer    integer NOT NULL,
    number   integer NOT NULL,
    status   text    NOT NULL CHECK (status IN ('available', 'sold')),
    account  text COLLATE "C",
    PRIMARY KEY (campaign, ordinal)
);
CREATE INDEX positions_available ON positions (campaign, layer) WHERE status = 'available';

CREATE TABLE purchases (
    campaign uuid        NOT NULL,
    seq      integer     NOT NULL,
    id       uuid        NOT NULL,
    account  text COLLATE "C" NOT NULL,
    ordinal  integer     NOT NULL,
    price    bigint      NOT NULL,
    transfer uuid        NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (campaign, seq),
    UNIQUE (campaign, ordinal)
);
CREATE INDEX purchases_by_account ON purchases (account, id);

-- One result a campaign: the third of the requirement's layers of defence.
CREATE TABLE draws (
    campaign     uuid PRIMARY KEY REFERENCES campaigns (id),
    winners      text        NOT NULL,
    completed_at timestamptz NOT NULL
);

-- An auction with its one round and its counters. Durations are nanoseconds.
CREATE TABLE auctions (
    id              uuid PRIMARY KEY,
    title           text        NOT NULL,
    status          text        NOT NULL CHECK (status IN ('pending', 'active', 'completed', 'cancelled')),
    currency        text        NOT NULL,
    seller          text COLLATE "C" NOT NULL,
    winners         integer     NOT NULL CHECK (winners > 0),
    duration        bigint      NOT NULL CHECK (duration > 0),
    round           integer     NOT NULL CHECK (round >= 0),
    ends_at         timestamptz,
    extensions      integer     NOT NULL CHECK (extensions >= 0),
    min_bid         bigint      NOT NULL CHECK (min_bid > 0),
    min_increment   bigint      NOT NULL CHECK (min_increment > 0),
    snipe_window    bigint      NOT NULL CHECK (snipe_window >= 0),
    snipe_extension bigint      NOT NULL CHECK (snipe_extension >= 0),
    snipe_max       integer     NOT NULL CHECK (snipe_max >= 0),
    cooldown        bigint      NOT NULL CHECK (cooldown >= 0),
    total_bids      bigint      NOT NULL CHECK (total_bids >= 0),
    seq             bigint      NOT NULL CHECK (seq >= 0),
    created_at      timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The standing bids: one an account and auction, and one an amount. The second index also serves the ranking.
CREATE TABLE bids (
    auction uuid        NOT NULL,
    account text COLLATE "C" NOT NULL,
    amount  bigint      NOT NULL CHECK (amount > 0),
    round   integer     NOT NULL,
    seq     bigint      NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (auction, account),
    CONSTRAINT bids_amount UNIQUE (auction, amount)
) WITH (fillfactor = 50);

CREATE TABLE auction_events (
    auction uuid        NOT NULL,
    seq     bigint      NOT NULL,
    type    text        NOT NULL,
    at      timestamptz NOT NULL,
    data    text        NOT NULL,
    PRIMARY KEY (auction, seq)
);
