-- +goose Up

-- What was taken out of the tables of the ledger's history and written to files (package archive). Those tables are partitioned by the times
-- in their ids (package partitions); an archive has one partition of each.

-- An archive. upto is the first id that is not in it: of two archives, the later one begins where the earlier one ends. files says what was
-- written, as JSON; carried is how many blocks of the entries were added to archive_sums.
CREATE TABLE archives (
    number      integer PRIMARY KEY CHECK (number > 0),
    upto        uuid        NOT NULL UNIQUE,
    began_at    timestamptz NOT NULL,
    host        text        NOT NULL,
    directory   text        NOT NULL,
    files       text        NOT NULL DEFAULT '[]',
    carried     bigint      NOT NULL DEFAULT 0 CHECK (carried >= 0),
    detached_at timestamptz,         -- from here on, the history begins at upto
    dropped_at  timestamptz,
    CHECK (dropped_at IS NULL OR detached_at IS NOT NULL)
) WITH (fillfactor = 50);
-- One is under way at a time.
CREATE UNIQUE INDEX archives_under_way ON archives ((true)) WHERE dropped_at IS NULL;

-- What the entries of an archive sum up to, by account: of accounts that have a row, all of them (side 0) and the last version; of the outside
-- and of transit, whose entries have no versions, what came in (side -1) and what went out (side 1).
CREATE TABLE archive_sums (
    archive  integer  NOT NULL REFERENCES archives (number),
    account  text COLLATE "C" NOT NULL,
    currency text     NOT NULL,
    side     smallint NOT NULL CHECK (side BETWEEN -1 AND 1),
    version  bigint   NOT NULL,
    amount   numeric  NOT NULL,
    PRIMARY KEY (account, currency, side, archive)
);

-- Where the history in the tables begins: with the ids from upto on.
CREATE VIEW archived AS
SELECT coalesce((SELECT upto FROM archives WHERE detached_at IS NOT NULL ORDER BY number DESC LIMIT 1), '00000000-0000-0000-0000-000000000000') AS upto;

-- The balances that the history begins with.
CREATE VIEW brought_forward AS
SELECT s.account, s.currency, s.side, max(s.version) AS version, sum(s.amount) AS amount
FROM archive_sums AS s JOIN archives AS a ON a.number = s.archive WHERE a.detached_at IS NOT NULL
GROUP BY s.account, s.currency, s.side;
