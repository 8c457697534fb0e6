-- +goose Up

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
    completed_at timestamptz NOT NULL
);
