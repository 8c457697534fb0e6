package audit

import "slices"

func auctionChecks() []check {
	return slices.Concat(holdChecks(), bidChecks(), roundChecks(), winnerChecks())
}

func holdChecks() []check {
	return []check{
		{guarantee: Auctions, promise: "what is held for an auction is the sum of its active bids", sql: `
			SELECT format('auction %s (%s): holds %s, active bids %s', a.id, a.status, coalesce(h.total, 0), coalesce(s.total, 0))
			FROM auctions a
			LEFT JOIN (SELECT owner, sum(amount) AS total FROM holds WHERE status = 'open' GROUP BY owner) h ON h.owner = 'auction:' || a.id
			LEFT JOIN (SELECT auction, sum(amount) AS total FROM auction_standing WHERE active GROUP BY auction) s ON s.auction = a.id
			WHERE coalesce(h.total, 0) <> coalesce(s.total, 0)`},
		{guarantee: Auctions, promise: "an active bid has its one hold, of its amount, account and auction", sql: `
			SELECT format('bid of %s over %s in auction %s; hold %s of %s over %s, owner %s, expires at %s', s.account, s.amount, s.auction,
			              coalesce(h.id, s.hold), h.account, h.amount, h.owner, h.expires_at)
			FROM (SELECT * FROM auction_standing WHERE active) s
			FULL JOIN (SELECT * FROM holds WHERE status = 'open' AND owner <> '') h ON h.id = s.hold
			WHERE (h.account = s.account AND h.amount = s.amount AND h.owner = 'auction:' || s.auction AND h.expires_at IS NULL) IS NOT TRUE
			UNION ALL
			SELECT format('hold %s is that of %s active bids', hold, count(*)) FROM auction_standing WHERE active GROUP BY hold HAVING count(*) > 1
			UNION ALL
			SELECT format('%s has %s standing bids in auction %s', account, count(*), auction) FROM auction_standing GROUP BY auction, account HAVING count(*) > 1`},
		{guarantee: Auctions, promise: "an auction that is not running holds nothing", sql: `
			SELECT format('auction %s (%s): hold %s of %s over %s is open', a.id, a.status, h.id, h.account, h.amount)
			FROM auctions a JOIN holds h ON h.owner = 'auction:' || a.id AND h.status = 'open'
			WHERE a.status <> 'active'`},
	}
}

// lives tells of each bid which one of its account it took the place of: the one before, unless that won a round.
const lives = `WITH ordered AS (
		SELECT *, lag(seq) OVER w AS before_seq, lag(amount) OVER w AS before_amount, lag(round) OVER w AS before_round,
		       lag(at) OVER w AS before_at, lag(hold) OVER w AS before_hold
		FROM auction_bids WINDOW w AS (PARTITION BY auction, account ORDER BY seq)
	), lives AS (
		SELECT o.*, o.before_seq IS NOT NULL AND NOT EXISTS (
			SELECT FROM auction_winners x
			WHERE x.auction = o.auction AND x.account = o.account AND x.round >= o.before_round AND x.round < o.round) AS raises
		FROM ordered o
	) `

func bidChecks() []check {
	return []check{
		{guarantee: Auctions, promise: "events and bids of an auction are numbered 1, 2, … without a gap", sql: `
			SELECT format('auction %s: seq %s, kept from %s, but %s numbers, %s different ones, from %s to %s', a.id, a.seq, a.first_seq,
			              count(n.seq), count(DISTINCT n.seq), min(n.seq), max(n.seq))
			FROM auctions a
			LEFT JOIN (SELECT auction, seq FROM auction_bids UNION ALL SELECT auction, seq FROM auction_events) n
			       ON n.auction = a.id AND n.seq >= a.first_seq
			GROUP BY a.id, a.chapter
			HAVING count(n.seq) <> a.seq - a.first_seq + 1 OR count(DISTINCT n.seq) <> count(n.seq) OR max(n.seq) <> a.seq OR a.first_seq < 1`},
		{guarantee: Auctions, promise: "an auction has one row", sql: `SELECT format('auction %s has %s', id, count(*)) FROM auctions GROUP BY id HAVING count(*) > 1`},
		{guarantee: Auctions, promise: "time does not run backwards from one bid to the next", sql: `
			SELECT format('auction %s: bid %s at %s, the one before at %s', auction, seq, at, before)
			FROM (SELECT auction, seq, at, lag(at) OVER (PARTITION BY auction ORDER BY seq) AS before FROM auction_bids) b
			WHERE at < before`},
		{guarantee: Auctions, promise: "the bids that are counted are the bids", sql: `
			SELECT format('auction %s: counts %s of %s bids', a.id, a.total_bids, count(b.seq))
			FROM auctions a LEFT JOIN auction_bids b ON b.auction = a.id
			GROUP BY a.id, a.chapter HAVING a.total_bids <> count(b.seq)`},
		{guarantee: Auctions, promise: "a bid only rises, by the increment at least, and under one hold", sql: lives + `
			SELECT format('auction %s: bid %s of %s over %s after %s, before it was %s; minimum %s, increment %s', l.auction, l.seq, l.account,
			              l.amount, l.previous_amount, l.before_amount, a.min_bid, a.min_increment)
			FROM lives l LEFT JOIN auctions a ON a.id = l.auction
			WHERE CASE WHEN l.raises THEN l.previous_amount = l.before_amount AND l.amount >= l.before_amount + a.min_increment
			                              AND l.hold = l.before_hold
			      ELSE l.previous_amount = 0 AND l.amount >= a.min_bid AND l.hold IS DISTINCT FROM l.before_hold END IS NOT TRUE`},
		{guarantee: Auctions, promise: "an account bids again after its cooldown only", sql: lives + `
			SELECT format('auction %s: %s bid at %s and at %s, cooldown %s us', l.auction, l.account, l.before_at, l.at, a.cooldown)
			FROM lives l JOIN auctions a ON a.id = l.auction
			WHERE l.raises AND l.at - l.before_at < a.cooldown * interval '1 microsecond'`},
		{guarantee: Auctions, promise: "a bid is placed while its round is open, and not by the seller", sql: `
			SELECT format('auction %s: bid %s of %s at %s in round %s (%s to %s), seller %s', b.auction, b.seq, b.account, b.at, b.round,
			              r.started_at, r.ends_at, a.seller)
			FROM auction_bids b
			LEFT JOIN auctions a ON a.id = b.auction
			LEFT JOIN auction_rounds r ON r.auction = b.auction AND r.round = b.round
			WHERE (b.at >= r.started_at AND b.at < r.ends_at AND b.at <= coalesce(r.ended_at, b.at) AND b.account <> a.seller) IS NOT TRUE`},
		// A later extension says what the end was until then; without one it is the round's.
		{guarantee: Auctions, promise: "a bid's transaction began before its round's end by the database's own clock", sql: `
			SELECT format('auction %s: bid %s of %s in round %s was written by a transaction of %s, the round ended at %s', b.auction, b.seq, b.account, b.round,
			              b.began_at, coalesce(x.ends_at, r.ends_at))
			FROM auction_bids b
			JOIN auctions a ON a.id = b.auction
			JOIN auction_rounds r ON r.auction = b.auction AND r.round = b.round
			LEFT JOIN LATERAL (
				SELECT (data::jsonb ->> 'ends_at')::timestamptz - a.snipe_extension * interval '1 microsecond' AS ends_at FROM auction_events e
				WHERE e.auction = b.auction AND e.type = 'round.extended' AND e.seq > b.seq AND (data::jsonb ->> 'round')::integer = b.round
				ORDER BY e.seq LIMIT 1) x ON true
			WHERE b.began_at >= coalesce(x.ends_at, r.ends_at)`},
		{guarantee: Auctions, promise: "an account's standing bid is its last one that has not won", sql: `
			SELECT format('auction %s (%s): %s stands with %s of number %s, round %s, active %s; last bid is %s of number %s, round %s', a.id,
			              a.status, coalesce(s.account, b.account), s.amount, s.seq, s.round, s.active, b.amount, b.seq, b.round)
			FROM auction_standing s
			FULL JOIN (SELECT * FROM (SELECT DISTINCT ON (auction, account) * FROM auction_bids ORDER BY auction, account, seq DESC) l
			           WHERE NOT EXISTS (SELECT FROM auction_winners w WHERE w.auction = l.auction AND w.account = l.account AND w.round >= l.round)) b
			       ON b.auction = s.auction AND b.account = s.account
			LEFT JOIN auctions a ON a.id = coalesce(s.auction, b.auction)
			WHERE (s.amount = b.amount AND s.seq = b.seq AND s.round = b.round AND s.at = b.at AND s.hold = b.hold
			       AND s.active = (a.status = 'active')) IS NOT TRUE`},
		{guarantee: Auctions, promise: "a bid outbids the standing bid of another account, which then has the place behind the winners", sql: lives + `
			SELECT format('auction %s: bid %s of %s over %s at rank %s of %s places outbids number %s, of %s over %s; at least %s would win', b.auction,
			              b.seq, b.account, b.amount, b.rank, r.winners, b.outbid, o.account, o.amount, b.floor)
			FROM auction_bids b
			LEFT JOIN auction_rounds r ON r.auction = b.auction AND r.round = b.round
			LEFT JOIN auction_bids o ON o.auction = b.auction AND o.seq = b.outbid
			WHERE (b.outbid > 0 OR b.floor IS NOT NULL)
			  AND (o.seq < b.seq AND o.account <> b.account AND b.rank <= r.winners AND o.amount < b.floor AND b.floor <= b.amount + 1
			       AND NOT EXISTS (SELECT FROM auction_winners w
			                       WHERE w.auction = o.auction AND w.account = o.account AND w.round >= o.round AND w.round < b.round)
			       AND NOT EXISTS (SELECT FROM lives l WHERE l.auction = o.auction AND l.account = o.account
			                       AND l.before_seq = o.seq AND l.seq < b.seq)) IS NOT TRUE`},
		{guarantee: Auctions, promise: "no two active bids have one amount, where amounts are unique", sql: `
			SELECT format('auction %s: %s active bids over %s', s.auction, count(*), s.amount)
			FROM auction_standing s JOIN auctions a ON a.id = s.auction
			WHERE s.active AND a.unique_amounts GROUP BY s.auction, s.amount HAVING count(*) > 1`},
	}
}

func roundChecks() []check {
	return []check{
		{guarantee: Auctions, promise: "an auction's status agrees with its rounds and its dates", sql: `
			SELECT format('auction %s is %s in round %s of %s, started at %s, ended at %s; %s rounds completed, %s open', a.id, a.status,
			              a.current_round, count(r.round), a.started_at, a.ended_at, count(r.round) FILTER (WHERE r.status = 'completed'),
			              count(r.round) FILTER (WHERE r.status = 'active'))
			FROM auctions a LEFT JOIN auction_rounds r ON r.auction = a.id
			GROUP BY a.id, a.chapter
			HAVING count(r.round) = 0 OR max(r.round) <> count(r.round) OR min(r.round) <> 1
			    OR (a.started_at IS NOT NULL) <> (a.current_round > 0)
			    OR (a.ended_at IS NOT NULL) <> (a.status IN ('completed', 'cancelled'))
			    OR NOT CASE a.status WHEN 'pending' THEN a.current_round = 0 WHEN 'active' THEN a.current_round > 0
			                         WHEN 'completed' THEN a.current_round = count(r.round) ELSE true END
			    OR bool_or(r.status <> CASE WHEN r.round > a.current_round THEN 'pending'
			                                WHEN r.round < a.current_round OR a.status <> 'active' THEN 'completed'
			                                ELSE 'active' END)`},
		{guarantee: Auctions, promise: "a round follows the one before, and lasts what it should and its extensions", sql: `
			SELECT format('auction %s round %s (%s): from %s to %s, ended at %s; lasts %s us, extended %s times by %s us of at most %s', r.auction,
			              r.round, r.status, r.started_at, r.ends_at, r.ended_at, r.duration, r.extensions, a.snipe_extension, a.snipe_max)
			FROM auction_rounds r
			JOIN auctions a ON a.id = r.auction
			LEFT JOIN auction_rounds b ON b.auction = r.auction AND b.round = r.round - 1
			WHERE CASE WHEN r.status = 'pending' THEN r.started_at IS NULL AND r.ends_at IS NULL AND r.extensions = 0
			      ELSE r.started_at = CASE WHEN r.round = 1 THEN a.started_at ELSE b.ended_at END
			           AND r.ends_at = r.started_at + (r.duration + r.extensions * a.snipe_extension) * interval '1 microsecond'
			           AND r.extensions <= CASE WHEN a.snipe_window > 0 AND a.snipe_extension > 0 THEN a.snipe_max ELSE 0 END
			           AND (r.ended_at IS NULL OR r.ended_at >= r.ends_at OR (a.status = 'cancelled' AND r.round = a.current_round)) END IS NOT TRUE`},
		{guarantee: Auctions, promise: "every extension has its event", sql: `
			SELECT format('auction %s: %s extensions, %s events of them', a.id, r.extensions, coalesce(e.extended, 0))
			FROM auctions a
			JOIN (SELECT auction, sum(extensions) AS extensions FROM auction_rounds GROUP BY auction) r ON r.auction = a.id
			LEFT JOIN (SELECT auction, count(*) AS extended FROM auction_events WHERE type = 'round.extended' GROUP BY auction) e ON e.auction = a.id
			WHERE a.first_seq = 1 AND r.extensions <> coalesce(e.extended, 0)`},
	}
}

func winnerChecks() []check {
	return []check{
		{guarantee: Auctions, promise: "a closed round's winners are the best of its candidates, as many as it has places", sql: `
			WITH candidates AS (
				SELECT DISTINCT ON (r.auction, r.round, b.account) r.auction, r.round, r.winners, b.account, b.amount, b.seq, b.round AS placed
				FROM auction_rounds r
				JOIN auctions a ON a.id = r.auction
				JOIN auction_bids b ON b.auction = r.auction AND b.round <= r.round
				WHERE r.status = 'completed' AND NOT (a.status = 'cancelled' AND r.round = a.current_round)
				ORDER BY r.auction, r.round, b.account, b.seq DESC
			), ranked AS (
				SELECT c.*, row_number() OVER (PARTITION BY c.auction, c.round ORDER BY c.amount DESC, c.seq) AS rank
				FROM candidates c
				WHERE NOT EXISTS (SELECT FROM auction_winners w WHERE w.auction = c.auction AND w.account = c.account
				                  AND w.round >= c.placed AND w.round < c.round)
			)
			SELECT format('auction %s round %s place %s: %s with %s won, %s with %s should have', coalesce(w.auction, c.auction),
			              coalesce(w.round, c.round), coalesce(w.rank, c.rank), w.account, w.amount, c.account, c.amount)
			FROM auction_winners w
			FULL JOIN (SELECT * FROM ranked WHERE rank <= winners) c ON c.auction = w.auction AND c.round = w.round AND c.rank = w.rank
			WHERE (w.account = c.account AND w.amount = c.amount) IS NOT TRUE`},
		{guarantee: Auctions, promise: "a winner paid the seller once, exactly the bid", sql: `
			SELECT format('auction %s round %s: %s won with %s; transfer %s (%s, %s) of %s from %s to %s, seller %s', w.auction, w.round, w.account,
			              w.amount, w.transfer, t.kind, coalesce(t.status, 'absent'), t.amount, t.source, t.destination, a.seller)
			FROM auction_winners w
			LEFT JOIN auctions a ON a.id = w.auction
			LEFT JOIN transfers t ON t.id = w.transfer
			LEFT JOIN holds h ON h.transfer = t.id
			WHERE (t.kind = 'capture' AND t.status = 'completed' AND t.source = w.account AND t.destination = a.seller AND t.amount = w.amount
			       AND t.currency = a.currency AND h.owner = 'auction:' || w.auction AND h.amount = w.amount) IS NOT TRUE
			UNION ALL
			SELECT format('hold %s of %s, captured with transfer %s, is that of %s winners', h.id, h.owner, h.transfer, count(w.account))
			FROM holds h LEFT JOIN auction_winners w ON w.transfer = h.transfer
			WHERE h.status = 'captured' AND h.owner LIKE 'auction:%'
			GROUP BY h.id, h.owner, h.transfer HAVING count(w.account) <> 1`},
		{guarantee: Auctions, promise: "what a seller got is the sum of the winning bids", sql: `
			SELECT format('seller %s in %s: won %s, paid %s', coalesce(w.seller, t.destination), coalesce(w.currency, t.currency),
			              coalesce(w.total, 0), coalesce(t.total, 0))
			FROM (SELECT a.seller, a.currency, sum(w.amount) AS total
			      FROM auction_winners w JOIN auctions a ON a.id = w.auction GROUP BY a.seller, a.currency) w
			FULL JOIN (SELECT t.destination, t.currency, sum(t.amount) AS total
			           FROM transfers t JOIN holds h ON h.transfer = t.id AND h.owner LIKE 'auction:%'
			           WHERE t.status = 'completed' GROUP BY t.destination, t.currency) t
			       ON t.destination = w.seller AND t.currency = w.currency
			WHERE coalesce(w.total, 0) <> coalesce(t.total, 0)`},
	}
}
