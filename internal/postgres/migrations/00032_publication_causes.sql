-- +goose Up

SET LOCAL lock_timeout = '150ms';

-- What a publication's last attempt failed for, in the words of the targets' outcomes (dns, refused, tls, timeout, status, …). It is null
-- before the first attempt, and where a server of an earlier version made the last one.
ALTER TABLE publications ADD COLUMN last_cause text;
