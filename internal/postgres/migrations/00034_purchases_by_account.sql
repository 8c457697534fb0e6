-- +goose NO TRANSACTION
-- +goose Up

-- Accounts list their purchases in all campaigns, newest first: the ids are in the order of time.
DROP INDEX CONCURRENTLY IF EXISTS purchases_by_account;
CREATE INDEX CONCURRENTLY purchases_by_account ON purchases (account, id);
