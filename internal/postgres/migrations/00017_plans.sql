-- +goose Up

-- The stale claims among publications are found by the condition that package claim asks for, and by no other.
DROP INDEX publications_claimed;
CREATE INDEX publications_claimed ON publications (execution_locked_at) WHERE execution_lock_id IS NOT NULL;
