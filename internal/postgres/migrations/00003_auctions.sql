-- +goose Up

-- A hold that an entity of the system placed names it, and nobody else may close the hold. Half-filled pages let raises
-- stay on their page.
ALTER TABLE holds ADD COLUMN owner text NOT NULL DEFAULT '';
ALTER TABLE holds SET (fillfactor = 50);

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

-- The standing bids: one an account and auction, which is the primary key's to hold. A winner's row is deleted by the
-- close of its round. At the end of an auction the losers' rows stay, no longer active. unique_amount repeats the amount
-- where amounts must be unique, and is null elsewhere; it is checked at the end of each statement, because the raises of
-- one batch may pass an amount on.
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
    PRIMARY KEY (auction, account),
    CONSTRAINT auction_standing_unique_amount UNIQUE (auction, unique_amount) DEFERRABLE INITIALLY IMMEDIATE
) WITH (fillfactor = 50);

-- Every accepted bid, for ever. A row is also the event bid.placed of its sequence number.
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
