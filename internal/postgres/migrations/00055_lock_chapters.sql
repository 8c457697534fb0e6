-- +goose Up

-- Package pglock adds these columns to its tables itself, before the steps are taken. A server of this version needs them.
SELECT chapter, queue_from FROM lock_keys LIMIT 0;
