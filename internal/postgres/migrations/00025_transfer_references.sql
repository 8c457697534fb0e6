-- +goose Up

-- The references of deposits, withdrawals and transfers that have one. Those of completed ones are unique for ever. This is a table of
-- its own, so that all other transfers cost nothing more, and no table in use is changed. Servers of older versions ignore it.
CREATE TABLE transfer_references (
    transfer  uuid PRIMARY KEY,
    reference text COLLATE "C" NOT NULL,
    completed boolean          NOT NULL,
    available bigint           NOT NULL -- what a deposit or a withdrawal left on its account, as its answer says; else 0
);
CREATE UNIQUE INDEX transfer_references_completed ON transfer_references (reference) WHERE completed;
