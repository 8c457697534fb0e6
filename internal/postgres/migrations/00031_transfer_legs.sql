-- +goose Up

-- The legs of transfers that were asked for by legs. A leg that was carried out has a row of its own in transfers, with its two entries;
-- the first leg's is the transfer's. So servers of older versions see movements that they know, and their books agree. A transfer that
-- failed has one row in transfers, of the leg that was refused. This is a table of its own, so that all other transfers cost nothing
-- more, and no table in use is changed.
CREATE TABLE transfer_legs (
    transfer    uuid NOT NULL,
    leg         smallint NOT NULL CHECK (leg BETWEEN 0 AND 99),
    source      text COLLATE "C" NOT NULL,
    destination text COLLATE "C" NOT NULL,
    amount      bigint NOT NULL CHECK (amount > 0),
    currency    text   NOT NULL, -- empty where a refused transfer did not get as far
    part        uuid,            -- the leg's row in transfers
    PRIMARY KEY (transfer, leg)
);
CREATE UNIQUE INDEX transfer_legs_part ON transfer_legs (part);
