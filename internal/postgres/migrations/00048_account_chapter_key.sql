-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- Servers of before step 43 name the index of the id alone when they open accounts. Those since then look behind each insert whether the account has one row.
UPDATE schema_support SET oldest = 45;

-- Only where rows have versions.
ALTER TABLE accounts DROP CONSTRAINT accounts_pkey, ADD CONSTRAINT accounts_pkey PRIMARY KEY USING INDEX accounts_by_chapter;
