-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- The public log. What its leaves say is derived from the other tables; a leader appends them, in the order of commits.
-- How far it has come: one row. term is that of the leader. began_at is when the log began: what was made before is not in it. Of campaigns,
-- auctions and multi-draws up to seen_… all are known, whose topics belong into the log; it begins with the last ones that were made before. verifier is of the key that signs, checkpoint the newest published signed note.
CREATE TABLE log_state (
    one             boolean PRIMARY KEY DEFAULT true CHECK (one),
    began_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    size            bigint NOT NULL DEFAULT 0 CHECK (size >= 0),
    root            bytea  NOT NULL CHECK (length(root) = 32),
    term            bigint NOT NULL DEFAULT 0,
    seen_campaigns  bigint NOT NULL DEFAULT 0,
    seen_auctions   bigint NOT NULL DEFAULT 0,
    seen_multidraws bigint NOT NULL DEFAULT 0,
    verifier        text   NOT NULL DEFAULT '',
    checkpoint      text   NOT NULL DEFAULT '',
    published       bigint NOT NULL DEFAULT 0, -- the checkpoint's size
    refused         text   NOT NULL DEFAULT '' -- why nothing is signed; empty while something is
) WITH (fillfactor = 50);
-- The root of the empty tree is SHA-256 of nothing. What is there already stays out of the log, by its number: the clock may run back later.
INSERT INTO log_state (root, seen_campaigns, seen_auctions, seen_multidraws)
    SELECT sha256(''), coalesce((SELECT max(number) FROM campaigns), 0), coalesce((SELECT max(number) FROM auctions), 0),
        coalesce((SELECT max(number) FROM multidraws), 0);

-- The tree's tiles. The last one of each level is filled up; the tiles that are served are prefixes.
CREATE TABLE log_tiles (
    level  smallint NOT NULL,
    number bigint   NOT NULL,
    hashes bytea    NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192 AND length(hashes) % 32 = 0),
    PRIMARY KEY (level, number)
);
ALTER TABLE log_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL; -- Hashes can't be compressed.

-- Bundles of up to 256 leaves, each behind its length in two bytes.
CREATE TABLE log_bundles (
    number  bigint PRIMARY KEY,
    entries bytea NOT NULL
);

-- Leaves are alike, so they are worth compressing, and lz4 costs a third of the other way. Not every PostgreSQL was built with it.
-- +goose StatementBegin
DO $$ BEGIN
    ALTER TABLE log_bundles ALTER COLUMN entries SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;
-- +goose StatementEnd

-- A topic, and the number of its next fact. Kinds: 1 campaigns, 2 auctions, 3 multi-draws, 4 the books.
CREATE TABLE log_topics (
    kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 4),
    id   uuid     NOT NULL,
    next bigint   NOT NULL CHECK (next > 0),
    open boolean  NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 50);
CREATE INDEX log_topics_open ON log_topics (kind, id) WHERE open;

-- Where a topic's leaves are: count facts from seq on, each of so many entries, from an index in the log on.
CREATE TABLE log_runs (
    kind  smallint NOT NULL,
    id    uuid     NOT NULL,
    seq   bigint   NOT NULL,
    index bigint   NOT NULL,
    count integer  NOT NULL CHECK (count > 0),
    parts integer  NOT NULL CHECK (parts > 0),
    PRIMARY KEY (kind, id, index)
);

-- The closings of the books. chunks are the roots of the trees over 256 accounts each. outside and transit are the sums of entries up to
-- settled, by which the next closing begins: sums are JSON, by currency.
CREATE TABLE log_closings (
    seq      bigint PRIMARY KEY,
    at       timestamptz NOT NULL,
    index    bigint NOT NULL,
    accounts bigint NOT NULL,
    root     bytea  NOT NULL CHECK (length(root) = 32),
    chunks   bytea  NOT NULL,
    settled  uuid   NOT NULL,
    sums     text   NOT NULL,
    kept     boolean NOT NULL -- whether the accounts are
);
ALTER TABLE log_closings ALTER COLUMN chunks SET STORAGE EXTERNAL;
CREATE INDEX log_closings_kept ON log_closings (at) WHERE kept;

-- The accounts of a closing, 256 a row, from first on: id, currency, available, held and version of each.
CREATE TABLE log_closing_accounts (
    closing bigint  NOT NULL,
    chunk   integer NOT NULL,
    first   text COLLATE "C" NOT NULL,
    data    bytea   NOT NULL,
    PRIMARY KEY (closing, chunk)
);
CREATE INDEX log_closing_accounts_first ON log_closing_accounts (closing, first);

-- The checkpoint by which a campaign's seal was cosigned, and the verifier of the key that the log signed it with: how many witnesses, and when the last of those
-- that count.
CREATE TABLE log_seals (
    campaign   uuid PRIMARY KEY,
    index      bigint NOT NULL,
    due_at     timestamptz NOT NULL,
    verifier   text   NOT NULL DEFAULT '',
    checkpoint text   NOT NULL DEFAULT '',
    witnesses  integer NOT NULL DEFAULT 0,
    seen_at    timestamptz
);
CREATE INDEX log_seals_due ON log_seals (due_at);

-- How many witnesses of the log must have seen a campaign's seal before its round.
ALTER TABLE campaigns ADD COLUMN witnesses integer NOT NULL DEFAULT 0;
