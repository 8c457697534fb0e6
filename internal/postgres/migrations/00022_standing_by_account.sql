-- +goose Up

-- Where amounts may repeat, a raise finds its standing bid by auction and account. The planner could also go by the index of
-- unique amounts, over all bids of the auction, and did so while that index had fewer levels. So the index is on expressions
-- that no other index has: there is one way to the row, whatever the tables' sizes are.
DROP INDEX auction_standing_account;
CREATE UNIQUE INDEX auction_standing_account ON auction_standing (account, (auction::text)) WHERE coalesce(unique_amount, 0) = 0;
