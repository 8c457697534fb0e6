-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- Purchases are in partitions by the campaign's time (package partitions), and leave with an archive when all campaigns of a partition have ended.

-- The id of the latest sale, where a server has made it that knows of this column: servers of older versions sell without writing it, and it is that of
-- an earlier sale then. A batch that was decided on what a server remembers of a campaign compares it, instead of looking the sale up.
ALTER TABLE campaigns ADD COLUMN last_sale uuid;

-- The purchases of campaigns with smaller ids are in the files of this archive and of those before. NULL: it has no purchases.
ALTER TABLE archives ADD COLUMN sales_upto uuid;

-- Where the purchases in the tables begin: with those of campaigns whose ids are from upto on.
CREATE VIEW archived_sales AS
SELECT coalesce((SELECT sales_upto FROM archives WHERE detached_at IS NOT NULL AND sales_upto IS NOT NULL ORDER BY number DESC LIMIT 1),
    '00000000-0000-0000-0000-000000000000') AS upto;
