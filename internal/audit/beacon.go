package audit

// beaconChecks look at campaigns that a public beacon decides: that the list was closed, and the round named, before
// anybody could know it, and that this round and no other decided. That its signature is genuine is for fairlead verify.
func beaconChecks() []check {
	return []check{
		{guarantee: Lottery, promise: "a campaign in beacon mode has its beacon, and no other has one", sql: `
			SELECT format('campaign %s in mode %s', c.id, c.draw_mode)
			FROM campaigns c LEFT JOIN campaign_beacons b ON b.campaign = c.id
			WHERE (c.draw_mode = 'beacon') <> (b.campaign IS NOT NULL)`},
		{guarantee: Lottery, promise: "a campaign in beacon mode is sealed exactly if everything is sold, and waits exactly until it is drawn", sql: `
			SELECT format('campaign %s is %s, its round is %s, asked for at %s', c.id, c.status, coalesce(b.round::text, 'not named'), b.next_attempt_at)
			FROM campaigns c JOIN campaign_beacons b ON b.campaign = c.id
			WHERE (c.sold_positions = c.total_positions) <> (b.round IS NOT NULL)
			   OR c.status IN ('pending', 'active') AND b.round IS NOT NULL OR c.status = 'completed' AND b.round IS NULL
			   OR (c.status = 'drawing') <> (b.next_attempt_at IS NOT NULL)`},
		{guarantee: Lottery, promise: "a campaign's round is due a period or more after its seal, when its chain says", sql: `
			SELECT format('campaign %s: sealed at %s, round %s at %s', campaign, sealed_at, round, due_at)
			FROM (SELECT *, (chain::json ->> 'period')::integer AS period, (chain::json ->> 'genesis_time')::bigint AS genesis
				FROM campaign_beacons WHERE round IS NOT NULL) AS b
			WHERE due_at < sealed_at + period * interval '1 s' OR due_at <> to_timestamp(genesis + (round - 1) * period)`},
		{guarantee: Lottery, promise: "a draw is of the sealed root and the named round, and without a round where there is no beacon", sql: `
			SELECT format('draw of campaign %s: round %s, named was %s', d.campaign, d.beacon_round, b.round)
			FROM draws d LEFT JOIN campaign_beacons b ON b.campaign = d.campaign
			WHERE d.beacon_round IS DISTINCT FROM b.round OR (b.campaign IS NOT NULL AND d.root <> b.root)`},
	}
}
