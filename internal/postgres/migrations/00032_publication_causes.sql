-- +goose Up

SET LOCAL lock_timeout = '150ms';

-- What a publication's last attempt failed for, in the words of the targets' outcomes (dns, refused, tls, timeout, status, …). It is null
-- before the first attempt, and where a server of an earlier version made the last one.
ALTER TABLE publications ADD COLUMN last_cause text;

-- Operators list the failed publications with the same cause.
CREATE INDEX publications_by_cause ON publications (last_cause, number) WHERE status = 'failed';
CREATE INDEX publications_of_target_by_cause ON publications (target, last_cause, number) WHERE status = 'failed';
