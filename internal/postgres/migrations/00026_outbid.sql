-- +goose Up

SET LOCAL lock_timeout = '150ms';

-- Whose bid lost its winning place by this one: outbid is the number of that bid, and floor the least new bid that would then win. Both
-- are null where nobody lost a place, which most rows are to say in no space. Zero says that nobody recorded it: in rows that are here
-- already, which this does not rewrite, and in those of servers of an earlier version, which do not name the column.
ALTER TABLE auction_bids
    ADD COLUMN outbid bigint DEFAULT 0,
    ADD COLUMN floor  bigint;
