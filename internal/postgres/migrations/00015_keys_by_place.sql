-- +goose Up

-- Old keys are found by going through the table, part by part, when a part is due: see ADR 0019.
DROP INDEX idempotency_keys_created_at;
