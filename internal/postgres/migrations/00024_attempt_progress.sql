-- +goose Up

SET LOCAL lock_timeout = '150ms';

-- What a running attempt was doing at its last heartbeat. All are null before the first heartbeat, and where a server of an earlier
-- version makes the attempt.
ALTER TABLE publication_attempts
    ADD COLUMN heartbeat_at timestamptz,
    ADD COLUMN stage        text,
    ADD COLUMN sent_bytes   bigint,
    ADD COLUMN total_bytes  bigint;

-- A target's timeout was that of each request, and is now that of a whole attempt: to fetch a file, to upload it and to publish it.
UPDATE targets SET timeout = least(3 * timeout, 900000000) WHERE kind = 'deviantart';
