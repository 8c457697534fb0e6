-- +goose Up

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

-- The signature of a beacon's round is in draws.beacon; these say of which round it is, and carry the signature before
-- it on chains that sign that too.
ALTER TABLE draws ADD COLUMN beacon_round bigint;
ALTER TABLE draws ADD COLUMN beacon_previous bytea;
ALTER TABLE draws ADD CHECK ((beacon IS NULL) = (beacon_round IS NULL));
