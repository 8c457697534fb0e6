-- +goose Up
SET LOCAL lock_timeout = '150ms';

-- As of auctions in step 45. The escrow account has the campaign's id in its name, and there is one account of a name. A result is one of a campaign's
-- seed instead, which is written with the campaign and never changed.
-- Only where rows have versions.
ALTER TABLE campaign_layers DROP CONSTRAINT campaign_layers_campaign_fkey, DROP CONSTRAINT campaign_layers_pkey,
    ADD CONSTRAINT campaign_layers_pkey PRIMARY KEY USING INDEX campaign_layers_by_chapter;
ALTER TABLE campaign_prizes DROP CONSTRAINT campaign_prizes_campaign_fkey;
ALTER TABLE campaign_seeds DROP CONSTRAINT campaign_seeds_campaign_fkey;
ALTER TABLE campaign_beacons DROP CONSTRAINT campaign_beacons_campaign_fkey;
ALTER TABLE draws DROP CONSTRAINT draws_campaign_fkey, ADD CONSTRAINT draws_campaign_fkey FOREIGN KEY (campaign) REFERENCES campaign_seeds (campaign) NOT VALID;
ALTER TABLE campaigns DROP CONSTRAINT campaigns_number_key, DROP CONSTRAINT campaigns_escrow_key, DROP CONSTRAINT campaigns_pkey,
    ADD CONSTRAINT campaigns_pkey PRIMARY KEY USING INDEX campaigns_by_chapter;
