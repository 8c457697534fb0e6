-- +goose NO TRANSACTION
-- +goose Up

-- Operators list the transfers between ledgers that are from or to an account, newest first. The ledger wrote their input, which names
-- accounts as LEDGER/ID; the log of sagas does not read it.
DROP INDEX CONCURRENTLY IF EXISTS sagas_by_payer;
CREATE INDEX CONCURRENTLY sagas_by_payer ON sagas (((input::jsonb #>> '{from,ledger}') || '/' || (input::jsonb #>> '{from,account}')), number)
    WHERE name = 'cross-transfer';
DROP INDEX CONCURRENTLY IF EXISTS sagas_by_payee;
CREATE INDEX CONCURRENTLY sagas_by_payee ON sagas (((input::jsonb #>> '{to,ledger}') || '/' || (input::jsonb #>> '{to,account}')), number)
    WHERE name = 'cross-transfer';
