package audit

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"
)

func lotteryChecks() []check {
	return slices.Concat(saleChecks(), escrowChecks(), drawChecks(), beaconChecks())
}

// Files (package archive) have the purchases of campaigns before archivedSales, and the transfers before archivedTransfers. A check that compares both in the
// database leaves out settled campaigns: they have ended, and files may have their payout or refunds while the tables have their purchases.
const (
	archivedSales     = `(SELECT upto FROM archived_sales)`
	archivedTransfers = `(SELECT upto FROM archived)`
	settled           = `(c.id < ` + archivedSales + ` OR EXISTS (SELECT FROM purchases AS s WHERE s.campaign = c.id AND s.seq = c.sold_positions AND s.transfer < ` + archivedTransfers + `
			AND c.status IN ('completed', 'cancelled')))`
)

func saleChecks() []check {
	return []check{
		{guarantee: Lottery, promise: "sold positions are the purchases, and at most the total", sql: `
			SELECT format('campaign %s: sold %s of %s, purchases %s', c.id, c.sold_positions, c.total_positions, count(p.id))
			FROM campaigns c LEFT JOIN purchases p ON p.campaign = c.id
			GROUP BY c.id, c.chapter
			HAVING CASE WHEN c.id < ` + archivedSales + ` THEN 0 ELSE c.sold_positions END <> count(p.id) OR c.sold_positions > c.total_positions
			    OR (c.id < ` + archivedSales + ` AND c.status NOT IN ('completed', 'cancelled'))`},
		{guarantee: Lottery, promise: "layers sum to the campaign, and count their own purchases", sql: `
			SELECT format('campaign %s layer %s: sold %s of %s, purchases %s', l.campaign, l.layer, l.sold, l.positions, count(p.id))
			FROM campaign_layers l LEFT JOIN purchases p ON p.campaign = l.campaign AND p.layer = l.layer
			GROUP BY l.campaign, l.layer, l.chapter HAVING CASE WHEN l.campaign < ` + archivedSales + ` THEN 0 ELSE l.sold END <> count(p.id) OR l.sold > l.positions
			UNION ALL
			SELECT format('campaign %s: total %s, sold %s, layers sum to %s and %s in %s layers, base length %s', c.id, c.total_positions, c.sold_positions,
			              coalesce(sum(l.positions), 0), coalesce(sum(l.sold), 0), count(l.layer), c.base_length)
			FROM campaigns c LEFT JOIN campaign_layers l ON l.campaign = c.id
			GROUP BY c.id, c.chapter
			HAVING c.total_positions <> coalesce(sum(l.positions), 0) OR c.sold_positions <> coalesce(sum(l.sold), 0)
			    OR count(l.layer) <> max(l.layer)
			    OR (c.base_length IS NOT NULL AND (count(l.layer) <> c.base_length OR bool_or(l.positions <> l.layer)))`},
		{guarantee: Lottery, promise: "a campaign has one row, and so has each of its layers", sql: `
			SELECT format('campaign %s has %s', id, count(*)) FROM campaigns GROUP BY id HAVING count(*) > 1
			UNION ALL SELECT format('campaign %s has %s of layer %s', campaign, count(*), layer) FROM campaign_layers GROUP BY campaign, layer HAVING count(*) > 1`},
		{guarantee: Lottery, promise: "sale numbers of a campaign are 1, 2, … without a gap", sql: `
			SELECT format('campaign %s: %s sales numbered %s to %s', campaign, count(*), min(seq), max(seq))
			FROM purchases GROUP BY campaign
			HAVING min(seq) <> 1 OR max(seq) <> count(*) OR count(DISTINCT seq) <> count(*)`},
		{guarantee: Lottery, promise: "every position is sold at most once, and is where its ordinal says", sql: `
			SELECT format('campaign %s: ordinal %s sold %s times', campaign, ordinal, count(*))
			FROM purchases GROUP BY campaign, ordinal HAVING count(*) > 1
			UNION ALL
			SELECT format('campaign %s: layer %s number %s sold %s times', campaign, layer, number, count(*))
			FROM purchases GROUP BY campaign, layer, number HAVING count(*) > 1
			UNION ALL
			SELECT format('purchase %s: layer %s number %s does not have ordinal %s', p.id, p.layer, p.number, p.ordinal)
			FROM purchases p
			LEFT JOIN (SELECT campaign, layer, positions, sum(positions) OVER (PARTITION BY campaign ORDER BY layer) - positions AS before
			           FROM campaign_layers) l ON l.campaign = p.campaign AND l.layer = p.layer
			WHERE l.layer IS NULL OR p.number NOT BETWEEN 1 AND l.positions OR p.ordinal <> l.before + p.number - 1`},
		{guarantee: Lottery, promise: "purchase ids are distinct", sql: `
			SELECT format('purchase %s exists %s times', id, count(*)) FROM purchases GROUP BY id HAVING count(*) > 1`},
		{guarantee: Lottery, promise: "a purchase costs its layer's price and was paid once into the escrow", sql: `
			SELECT format('purchase %s by %s at %s (layer price %s): transfer %s is %s %s of %s from %s to %s', p.id, p.account,
			              p.price, l.price, p.transfer, coalesce(t.status, 'absent'), t.kind, t.amount, t.source, t.destination)
			FROM purchases p
			LEFT JOIN campaigns c ON c.id = p.campaign
			LEFT JOIN campaign_layers l ON l.campaign = p.campaign AND l.layer = p.layer
			LEFT JOIN transfers t ON t.id = p.transfer
			WHERE (t.status = 'completed' AND t.kind = 'purchase' AND t.source = p.account AND t.destination = c.escrow
			       AND t.amount = p.price AND t.currency = c.currency AND p.price = l.price) IS NOT TRUE
			  AND (p.transfer >= ` + archivedTransfers + ` OR (p.price = l.price) IS NOT TRUE)
			UNION ALL
			SELECT format('payment %s of %s by %s belongs to %s purchases', t.id, t.amount, t.source, count(p.id))
			FROM transfers t LEFT JOIN purchases p ON p.transfer = t.id LEFT JOIN campaigns c ON c.escrow = t.destination
			WHERE t.kind = 'purchase' AND t.status = 'completed' AND (c.id < ` + archivedSales + `) IS NOT TRUE
			GROUP BY t.id HAVING count(p.id) <> 1`},
		{guarantee: Lottery, promise: "nobody bought more than the purchase limit", sql: `
			SELECT format('campaign %s: %s bought %s of at most %s', c.id, p.account, count(*), c.purchase_limit)
			FROM campaigns c JOIN purchases p ON p.campaign = c.id
			WHERE c.purchase_limit IS NOT NULL
			GROUP BY c.id, c.chapter, p.account HAVING count(*) > c.purchase_limit`},
	}
}

func escrowChecks() []check {
	return []check{
		{guarantee: Lottery, promise: "the escrow holds the takings while on sale, and nothing afterwards", sql: `
			SELECT format('campaign %s (%s): escrow %s has %s, takings are %s', c.id, c.status, c.escrow,
			              coalesce(a.available + a.held, 0), coalesce(p.takings, 0))
			FROM campaigns c
			LEFT JOIN accounts a ON a.id = c.escrow
			LEFT JOIN (SELECT campaign, sum(price) AS takings FROM purchases GROUP BY campaign) p ON p.campaign = c.id
			WHERE coalesce(a.available + a.held, 0)
			      <> CASE WHEN c.status IN ('active', 'drawing') THEN coalesce(p.takings, 0) ELSE 0 END`},
		{guarantee: Lottery, promise: "the beneficiary got the takings of a completed campaign, once", sql: `
			SELECT format('campaign %s (%s): takings %s, paid out %s in %s transfers', c.id, c.status,
			              coalesce(p.takings, 0), coalesce(t.paid, 0), coalesce(t.transfers, 0))
			FROM campaigns c
			LEFT JOIN (SELECT campaign, sum(price) AS takings FROM purchases GROUP BY campaign) p ON p.campaign = c.id
			LEFT JOIN (SELECT source, destination, sum(amount) AS paid, count(*) AS transfers FROM transfers
			           WHERE kind = 'payout' AND status = 'completed' GROUP BY source, destination) t
			       ON t.source = c.escrow AND t.destination = c.beneficiary
			WHERE coalesce(t.paid, 0) <> CASE WHEN c.status = 'completed' THEN coalesce(p.takings, 0) ELSE 0 END AND NOT ` + settled + `
			UNION ALL
			SELECT format('payout %s of %s from %s to %s belongs to no campaign', t.id, t.amount, t.source, t.destination)
			FROM transfers t LEFT JOIN campaigns c ON c.escrow = t.source AND c.beneficiary = t.destination
			WHERE t.kind = 'payout' AND c.id IS NULL`},
		{guarantee: Lottery, promise: "buyers of a cancelled campaign have back what they paid, others nothing", sql: `
			SELECT format('campaign %s (%s): %s paid %s and was refunded %s', c.id, c.status, coalesce(p.account, r.account),
			              coalesce(p.paid, 0), coalesce(r.refunded, 0))
			FROM (SELECT campaign, account, sum(price) AS paid FROM purchases GROUP BY campaign, account) p
			FULL JOIN (SELECT c.id AS campaign, t.destination AS account, sum(t.amount) AS refunded
			           FROM transfers t LEFT JOIN campaigns c ON c.escrow = t.source
			           WHERE t.kind = 'refund' AND t.status = 'completed' GROUP BY c.id, t.destination) r
			       ON r.campaign = p.campaign AND r.account = p.account
			LEFT JOIN campaigns c ON c.id = coalesce(p.campaign, r.campaign)
			WHERE coalesce(r.refunded, 0) <> CASE WHEN c.status = 'cancelled' THEN coalesce(p.paid, 0) ELSE 0 END AND ` + settled + ` IS NOT TRUE`},
		{guarantee: Lottery, promise: "an escrow is touched by its campaign's purchases, payout and refunds alone", sql: `
			SELECT format('transfer %s (%s): from %s to %s', t.id, t.kind, t.source, t.destination)
			FROM transfers t JOIN campaigns c ON c.escrow IN (t.source, t.destination)
			WHERE t.kind NOT IN ('purchase', 'payout', 'refund')`},
	}
}

func drawChecks() []check {
	return []check{
		{guarantee: Lottery, promise: "a campaign has its one draw exactly if it is completed", sql: `
			SELECT format('campaign %s is %s and has %s draws', c.id, c.status, count(d.campaign))
			FROM campaigns c LEFT JOIN draws d ON d.campaign = c.id
			GROUP BY c.id, c.chapter HAVING count(d.campaign) <> CASE WHEN c.status = 'completed' THEN 1 ELSE 0 END`},
		{guarantee: Lottery, promise: "a campaign's status agrees with its sales and its dates", sql: `
			SELECT format('campaign %s is %s with %s of %s sold, completed at %s, cancelled at %s', id, status, sold_positions,
			              total_positions, completed_at, cancelled_at)
			FROM campaigns
			WHERE (status = 'active' AND sold_positions = total_positions)
			   OR (status = 'pending' AND sold_positions > 0)
			   OR (status IN ('drawing', 'completed') AND sold_positions <> total_positions)
			   OR (status = 'completed') <> (completed_at IS NOT NULL)
			   OR (status = 'cancelled') <> (cancelled_at IS NOT NULL)
			   OR (status IN ('active', 'drawing', 'completed') AND published_at IS NULL)`},
		{guarantee: Lottery, promise: "the commitment is that of the campaign's seed", sql: `
			SELECT format('campaign %s: commitment %s, seed hashes to %s', c.id, encode(c.commitment, 'hex'),
			              coalesce(encode(sha256(s.seed), 'hex'), 'absent'))
			FROM campaigns c LEFT JOIN campaign_seeds s ON s.campaign = c.id
			WHERE s.seed IS NULL OR sha256(s.seed) <> c.commitment`},
		{guarantee: Lottery, promise: "winners are sold positions, distinct within a prize, as many as the prize has", find: findBadWinners},
	}
}

// findBadWinners compares the stored winners of every draw with the purchases and prizes of its campaign, one campaign at a
// time.
func findBadWinners(ctx context.Context, tx pgx.Tx, report func(string, ...any)) error {
	rows, err := tx.Query(ctx, `SELECT campaign::text, winners FROM draws`)
	if err != nil {
		return err
	}
	draws := map[string]string{}
	var campaign, winners string
	if _, err := pgx.ForEachRow(rows, []any{&campaign, &winners}, func() error { draws[campaign] = winners; return nil }); err != nil {
		return err
	}
	for campaign, winners := range draws {
		if err := json.Unmarshal([]byte(winners), new([]json.RawMessage)); err != nil {
			report("campaign %s: winners can't be read: %v", campaign, err)
			continue
		}
		if err := ask(ctx, tx, badWinners, report, campaign, winners); err != nil {
			return err
		}
	}
	return nil
}

const badWinners = `
	WITH won AS (
		SELECT w ->> 'prize' AS prize, w ->> 'account' AS account, (w -> 'position' ->> 'layer')::int AS layer, (w -> 'position' ->> 'number')::int AS number
		FROM json_array_elements($2::text::json) AS winners (w)
	)
	SELECT format('campaign %s: prize %s (layer %s) went to %s for layer %s number %s, sold to %s', $1::text, coalesce(p.name, w.prize || ', which is none'),
	              p.layer, w.account, w.layer, w.number, coalesce(b.account, 'nobody'))
	FROM won w
	LEFT JOIN campaign_prizes p ON p.campaign = $1::text::uuid AND p.name = w.prize
	LEFT JOIN purchases b ON b.campaign = $1::text::uuid AND b.layer = w.layer AND b.number = w.number
	WHERE ((b.account = w.account OR $1::text::uuid < ` + archivedSales + `) AND w.layer = coalesce(p.layer, w.layer) AND p.name IS NOT NULL) IS NOT TRUE
	UNION ALL
	SELECT format('campaign %s: prize %s went to layer %s number %s %s times', $1::text, prize, layer, number, count(*))
	FROM won GROUP BY prize, layer, number HAVING count(*) > 1
	UNION ALL
	SELECT format('campaign %s: prize %s drawn %s times of %s', $1::text, p.name, count(w.prize), p.quantity)
	FROM campaign_prizes p LEFT JOIN won w ON w.prize = p.name
	WHERE p.campaign = $1::text::uuid GROUP BY p.name, p.quantity HAVING count(w.prize) <> p.quantity`
