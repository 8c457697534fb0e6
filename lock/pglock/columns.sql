-- Which process waits, if it is to be told of the grant through its memory.
ALTER TABLE lock_waiters ADD COLUMN IF NOT EXISTS process uuid;

-- The first token of a new key is above the floor, which is raised when a restored database has forgotten keys.
ALTER TABLE lock_arbiter ADD COLUMN IF NOT EXISTS token_floor bigint NOT NULL DEFAULT 0;

-- Each 128 grants of a key begin a chapter of its row, by which functions.sql finds the row past its dead versions; nobody stands in the
-- key's line with a ticket below queue_from.
ALTER TABLE lock_keys ADD COLUMN IF NOT EXISTS chapter bigint NOT NULL DEFAULT 0;
ALTER TABLE lock_keys ADD COLUMN IF NOT EXISTS queue_from bigint NOT NULL DEFAULT 0;
