-- Which process waits, if it is to be told of the grant through its memory.
ALTER TABLE lock_waiters ADD COLUMN IF NOT EXISTS process uuid;

-- The first token of a new key is above the floor, which is raised when a restored database has forgotten keys.
ALTER TABLE lock_arbiter ADD COLUMN IF NOT EXISTS token_floor bigint NOT NULL DEFAULT 0;
