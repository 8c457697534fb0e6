-- +goose Up

SET LOCAL lock_timeout = '150ms';

-- Operators look for campaigns and auctions by the beginning of their name, in any case.
CREATE INDEX campaigns_by_name ON campaigns ((lower(name) COLLATE "C"));
CREATE INDEX auctions_by_title ON auctions ((lower(title) COLLATE "C"));

-- They list the publications of a target, and the failed ones with the same error. An index entry has room for the beginning of an error
-- only.
CREATE INDEX publications_of_target ON publications (target, status, number);
CREATE INDEX publications_by_error ON publications ("left"(last_error, 100), number) WHERE status = 'failed';
CREATE INDEX publications_of_target_by_error ON publications (target, "left"(last_error, 100), number) WHERE status = 'failed';
