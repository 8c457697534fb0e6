-- +goose Up

-- When a saga's way forward ends.
ALTER TABLE sagas ADD COLUMN deadline_at timestamptz;

-- The identifier of the prepared transaction in which a leg had its effect, if any: it tells a branch that was committed
-- from one that was lost.
ALTER TABLE saga_legs ADD COLUMN gid text;
