package demo

// question is a row of the table: a guarantee, and the question to the database whose answer is whether it held, and what was
// found. Its arguments tell what clients were told.
type question struct{ id, promise, sql string }

// refused are the buyers whose stored answer is that everything is sold.
const refused = `WITH refused AS (
	SELECT buyer FROM unnest(@keys::bytea[], @buyers::text[]) AS asked (id, buyer) JOIN idempotency_keys USING (id)
	WHERE status = 409 AND convert_from(body, 'UTF8')::json ->> 'code' = 'sold_out') `

// made are the purchases that stored answers name.
const made = `WITH stored AS (
	SELECT k.status, k.body, asked.status = k.status AND asked.body = k.body AS same
	FROM unnest(@keys::bytea[], @statuses::int[], @bodies::bytea[]) AS asked (id, status, body) JOIN idempotency_keys k USING (id)
), made AS (
	SELECT convert_from(body, 'UTF8')::json ->> 'id' AS id, count(*) AS times FROM stored WHERE status = 201 GROUP BY 1
) `

func questions() []question {
	return []question{
		{"W1", "no position twice, none too many", `
			SELECT c.total_positions = @positions AND c.sold_positions = @positions AND p.n = @positions AND p.places = @positions,
			       format('%s sold of %s, %s distinct', p.n, c.total_positions, p.places)
			FROM campaigns c, (SELECT count(*) AS n, count(DISTINCT (layer, number)) AS places FROM purchases WHERE campaign = @campaign) p
			WHERE c.id = @campaign`},
		{"W1", "all others refused, none charged", refused + `
			SELECT r.n = @buyers_refused AND t.n = 0, format('%s sold_out, %s charged', r.n, t.n)
			FROM (SELECT count(*) AS n FROM refused) r,
			     (SELECT count(*) AS n FROM transfers t JOIN campaigns c ON c.escrow = t.destination
			      WHERE c.id = @campaign AND t.source IN (SELECT buyer FROM refused)) t`},
		{"W1", "one result, its winners bought", `
			SELECT d.n = 1 AND w.n > 0 AND w.bought = w.n, format('%s result row, %s of %s winners', d.n, w.bought, w.n)
			FROM (SELECT count(*) AS n FROM draws WHERE campaign = @campaign) d,
			     (SELECT count(*) AS n, count(p.id) AS bought
			      FROM draws d CROSS JOIN json_array_elements(d.winners::json) AS won (w)
			      LEFT JOIN purchases p ON p.campaign = d.campaign AND p.account = w ->> 'account'
			           AND p.layer = (w -> 'position' ->> 'layer')::int AND p.number = (w -> 'position' ->> 'number')::int
			      WHERE d.campaign = @campaign) w`},
		{"W1", "public data alone gives the draw", `SELECT @draw_holds::bool, @draw_finding::text`},
		{"U1", "event numbers without a gap", `
			SELECT a.seq > 0 AND a.seq = n.events AND n.first = 1 AND @same_on_both::bool AND n.seqs = @watched::bigint[] AND n.types = @kinds::text[],
			       format('%s on 2 streams, %s resumes', n.events, @resumes::int)
			FROM auctions a, (
				SELECT count(*) AS events, min(seq) AS first, array_agg(seq ORDER BY seq) AS seqs, array_agg(type ORDER BY seq) AS types FROM (
					SELECT seq, type FROM auction_events WHERE auction = @auction
					UNION ALL SELECT seq, 'bid.placed' FROM auction_bids WHERE auction = @auction) e) n
			WHERE a.id = @auction`},
		{"U1", "a replay gives the same winners", `SELECT @winners_hold::bool, @winners_finding::text`},
		{"U1", "a replay gives the same balances", `SELECT @balances_hold::bool, @balances_finding::text`},
		{"U1", "winners paid the seller exactly", `
			SELECT n > 0 AND exact = n AND paid = @income AND paid = (SELECT available FROM accounts WHERE id = @seller),
			       format('%s of %s, %s %s', exact, n, to_char(paid / 100.0, 'FM9999999990.00'), @currency::text)
			FROM (SELECT coalesce(sum(w.amount), 0) AS paid, count(*) AS n, count(*) FILTER (WHERE t.status = 'completed'
			             AND t.source = w.account AND t.destination = @seller AND t.amount = w.amount) AS exact
			      FROM auction_winners w LEFT JOIN transfers t ON t.id = w.transfer WHERE w.auction = @auction) w`},
		{"U1", "the last losers have all back", `
			SELECT a.held = 0 AND s.active = 0 AND h.open = 0 AND h.released > 0 AND h.released = @losers AND h.captured = @winners,
			       format('%s released, %s %s held', h.released, to_char(a.held / 100.0, 'FM9999999990.00'), @currency::text)
			FROM (SELECT coalesce(sum(held), 0) AS held FROM accounts WHERE id = ANY(@bots)) a,
			     (SELECT count(*) AS active FROM auction_standing WHERE auction = @auction AND active) s,
			     (SELECT count(*) FILTER (WHERE status = 'open') AS open, count(*) FILTER (WHERE status = 'captured') AS captured,
			             count(*) FILTER (WHERE status = 'released') AS released
			      FROM holds WHERE owner = 'auction:' || @auction::text) h`},
		{"U1", "no bid at or past its round's end", `
			SELECT count(*) > 0 AND count(*) FILTER (WHERE late) = 0, format('%s bids, %s late, %s extensions', count(*), count(*) FILTER (WHERE late),
			       (SELECT coalesce(sum(extensions), 0) FROM auction_rounds WHERE auction = @auction))
			FROM (SELECT (b.at >= r.started_at AND b.at < r.ends_at) IS NOT TRUE AS late
			      FROM auction_bids b LEFT JOIN auction_rounds r ON r.auction = b.auction AND r.round = b.round
			      WHERE b.auction = @auction) b`},
		{"U1", "one bid an amount, ten at once", `
			SELECT count(*) = 1 AND @amount_once::bool, format('%s taken, %s refused', count(*), @amount_refused::int)
			FROM auction_bids WHERE auction = @auction AND amount = @storm`},
		{"U1", "one bid an account, ten at once", `
			SELECT count(*) = 1 AND @account_once::bool AND @account_refused::int = @storm_refused::int, format('%s taken, %s refused', count(*), @account_refused::int)
			FROM auction_bids WHERE auction = @auction AND amount = @twin`},
		{"U1", "held = open holds, none negative", `
			SELECT open > 0 AND odd + off = 0 AND negative = 0, format('%s open, %s off, %s negative', open, odd + off, negative)
			FROM (SELECT count(*) AS open, count(*) FILTER (WHERE amount IS NULL) AS odd FROM holds WHERE status = 'open') h,
			     (SELECT count(*) FILTER (WHERE available < 0 OR held < 0) AS negative, count(*) FILTER (WHERE held <>
			             (SELECT coalesce(sum(amount), 0) FROM holds WHERE account = a.id AND status = 'open')) AS off FROM accounts a) a`},
		{"A1", "every acknowledged sale is there", `
			SELECT count(*) > 0 AND count(p.id) = count(*), format('%s of %s', count(p.id), count(*))
			FROM unnest(@ids::uuid[], @owners::text[], @layers::int[], @numbers::int[]) AS told (id, account, layer, number)
			LEFT JOIN (SELECT * FROM purchases WHERE campaign = @campaign) p USING (id, account, layer, number)`},
		{"A1", "every acknowledged bid is there", `
			SELECT count(*) > 0 AND count(b.hold) = count(*) AND count(*) = (SELECT count(*) FROM auction_bids WHERE auction = @auction),
			       format('%s of %s', count(b.hold), count(*))
			FROM unnest(@seqs::bigint[], @bidders::text[], @amounts::bigint[], @previous::bigint[], @rounds::int[], @ranks::int[])
			     AS told (seq, account, amount, previous_amount, round, rank)
			LEFT JOIN (SELECT * FROM auction_bids WHERE auction = @auction) b USING (seq, account, amount, previous_amount, round, rank)`},
		{"I1", "one key, at most one effect", made + `
			SELECT p.once = p.n AND p.once = m.n, format('%s requests, %s keys, %s effects', @requests::int, (SELECT count(*) FROM stored), p.n)
			FROM (SELECT count(*) AS n FROM made) m, (SELECT count(*) AS n, count(*) FILTER (WHERE m.times = 1) AS once
			      FROM purchases p LEFT JOIN made m ON m.id = p.id::text WHERE p.campaign = @campaign) p`},
		{"I2", "one key, the same bytes always", made + `
			SELECT s.same = cardinality(@keys::bytea[]) AND @replays_hold::bool, format('%s of %s as stored, %s replays', s.same, cardinality(@keys::bytea[]), @replayed::int)
			FROM (SELECT count(*) FILTER (WHERE same) AS same FROM stored) s`},
		{"A2", "every transfer sums to zero", `
			SELECT n > 0 AND off = 0, format('%s transfers, %s off', n, off)
			FROM (SELECT count(*) FILTER (WHERE status = 'completed') AS n,
			             count(*) FILTER (WHERE (status = 'completed') <> coalesce(e.n = 2 AND e.total = 0, false) OR (status <> 'completed' AND e.n > 0)) AS off
			      FROM transfers t LEFT JOIN (SELECT transfer, count(*) AS n, sum(amount) AS total FROM entries GROUP BY transfer) e ON e.transfer = t.id) t`},
		{"A2", "every balance is its entries' sum", `
			SELECT n > 0 AND off = 0, format('%s accounts, %s off', n, off)
			FROM (SELECT count(*) AS n, count(*) FILTER (WHERE available::numeric + held <>
			             (SELECT coalesce(sum(amount), 0) FROM entries WHERE account = a.id)) AS off FROM accounts a) a`},
		{"A2", "deposits = available + held", `
			SELECT came - went = available + held, format('%s − %s = %s + %s', came, went, available, held)
			FROM (SELECT coalesce(sum(amount) FILTER (WHERE kind = 'deposit'), 0) AS came, coalesce(sum(amount) FILTER (WHERE kind = 'withdrawal'), 0) AS went
			      FROM transfers WHERE status = 'completed' AND currency = @currency) t,
			     (SELECT coalesce(sum(available), 0) AS available, coalesce(sum(held), 0) AS held FROM accounts WHERE currency = @currency) a`},
		{"A2", "the books add up while they bid", `
			SELECT @snapshots::int > 0 AND @off::int = 0 AND @integrity::bool, format('%s snapshots, %s off', @snapshots::int, @off::int)`},
	}
}
