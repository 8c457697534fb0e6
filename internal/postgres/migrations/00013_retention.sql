-- +goose Up

-- Sagas that have ended are deleted after a retention, oldest first.
CREATE INDEX sagas_ended ON sagas (ended_at) WHERE ended_at IS NOT NULL;

-- What operators look for among a million sagas: those of a kind, those that are under way, and those that did not complete.
CREATE INDEX sagas_by_name ON sagas (name, number);
CREATE INDEX sagas_not_completed ON sagas (status, number) WHERE status <> 'completed';

-- The sweeper looks whether a campaign that was drawn lately has more than one result.
CREATE INDEX draws_completed_at ON draws (completed_at);
