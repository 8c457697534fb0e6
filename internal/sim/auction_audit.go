//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/audit"
)

// question is one promise about auctions, and the SQL that yields one text a violation.
type question struct{ promise, sql string }

// AuditAuctions asks the database by itself, in one snapshot, whether it keeps the promises about auctions. It may be
// under load. It returns ErrModel with everything that is wrong. It knows the tables alone, and wants all events kept.
func AuditAuctions(ctx context.Context, db audit.Beginner) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("audit of the auctions: %w", err)
	}
	var wrong []error
	for _, q := range append(append(eventQuestions(), holdQuestions()...), roundQuestions()...) {
		rows, err := tx.Query(ctx, q.sql)
		if err != nil {
			return errors.Join(fmt.Errorf("audit of the auctions: %s: %w", q.promise, err), tx.Rollback(context.WithoutCancel(ctx)))
		}
		violations, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return errors.Join(fmt.Errorf("audit of the auctions: %s: %w", q.promise, err), tx.Rollback(context.WithoutCancel(ctx)))
		}
		for _, v := range violations[:min(len(violations), 20)] {
			wrong = append(wrong, fmt.Errorf("%w: %s: %s", ErrModel, q.promise, v))
		}
		if more := len(violations) - 20; more > 0 {
			wrong = append(wrong, fmt.Errorf("%w: %s: and %d more", ErrModel, q.promise, more))
		}
	}
	return errors.Join(append(wrong, tx.Rollback(ctx))...)
}

func eventQuestions() []question {
	return []question{
		{"sequence numbers run from 1 to the auction's without gap or double", `
			SELECT format('auction %s: seq %s, %s events, %s numbers from %s to %s', a.id, a.seq, count(e.seq),
			              count(DISTINCT e.seq), min(e.seq), max(e.seq))
			FROM auctions a
			LEFT JOIN (SELECT auction, seq FROM auction_bids UNION ALL SELECT auction, seq FROM auction_events) e ON e.auction = a.id
			GROUP BY a.id
			HAVING count(e.seq) <> a.seq OR count(DISTINCT e.seq) <> a.seq
			    OR a.seq > 0 AND (min(e.seq) <> 1 OR max(e.seq) <> a.seq)`},
		{"an auction counts its accepted bids", `
			SELECT format('auction %s counts %s of %s bids', a.id, a.total_bids, count(b.seq))
			FROM auctions a LEFT JOIN auction_bids b ON b.auction = a.id
			GROUP BY a.id HAVING a.total_bids <> count(b.seq)`},
		{"times never run backwards along the sequence", `
			SELECT format('auction %s: event %s at %s after one at %s', auction, seq, at, before)
			FROM (SELECT auction, seq, at, lag(at) OVER (PARTITION BY auction ORDER BY seq) AS before
			      FROM (SELECT auction, seq, at FROM auction_bids UNION ALL SELECT auction, seq, at FROM auction_events) AS events) AS steps
			WHERE at < before`},
		{"a bid's previous amount is that of the account's bid before, unless that one won", `
			SELECT format('auction %s: event %s: %s raised from %s, bid %s before', auction, seq, account, previous_amount, before)
			FROM (SELECT b.*, lag(amount) OVER mine AS before, lag(round) OVER mine AS before_round
			      FROM auction_bids b WINDOW mine AS (PARTITION BY auction, account ORDER BY seq)) AS b
			WHERE previous_amount <> CASE
				WHEN before IS NULL THEN 0
				WHEN EXISTS (SELECT FROM auction_winners w WHERE w.auction = b.auction AND w.account = b.account
				             AND w.round >= before_round AND w.round < b.round) THEN 0
				ELSE before END`},
	}
}

func holdQuestions() []question {
	return []question{
		{"every active bid has its open hold, and every open hold of an auction its active bid", `
			SELECT format('hold %s of %s (%s %s, owner %s), bid of %s on auction %s: %s', h.id, h.account, h.status, h.amount,
			              h.owner, s.account, s.auction, s.amount)
			FROM (SELECT * FROM auction_standing WHERE active) s
			FULL JOIN (SELECT * FROM holds WHERE status = 'open' AND owner LIKE 'auction:%') h ON h.id = s.hold
			WHERE (h.account = s.account AND h.amount = s.amount AND h.owner = 'auction:' || s.auction) IS NOT TRUE`},
		{"what is held for auctions is the sum of the active bids", `
			SELECT format('open holds %s, active bids %s', held, bids)
			FROM (SELECT coalesce(sum(amount), 0) AS held FROM holds WHERE status = 'open' AND owner LIKE 'auction:%') h,
			     (SELECT coalesce(sum(amount), 0) AS bids FROM auction_standing WHERE active) s
			WHERE held <> bids`},
		{"an active bid is the account's last accepted one", `
			SELECT format('auction %s: %s stands with %s by event %s, the last is %s', s.auction, s.account, s.amount, s.seq, b.seq)
			FROM auction_standing s
			LEFT JOIN LATERAL (SELECT * FROM auction_bids b WHERE b.auction = s.auction AND b.account = s.account
			                   ORDER BY seq DESC LIMIT 1) b ON true
			WHERE s.active AND (b.seq = s.seq AND b.amount = s.amount AND b.round = s.round AND b.at = s.at) IS NOT TRUE`},
		{"amounts of active bids are unique where they must be", `
			SELECT format('auction %s: %s active bids of %s', s.auction, count(*), s.amount)
			FROM auction_standing s JOIN auctions a ON a.id = s.auction
			WHERE s.active AND a.unique_amounts GROUP BY s.auction, s.amount HAVING count(*) > 1`},
		{"only an active auction has active bids", `
			SELECT format('auction %s is %s: bid of %s by %s', a.id, a.status, s.amount, s.account)
			FROM auction_standing s JOIN auctions a ON a.id = s.auction WHERE s.active AND a.status <> 'active'`},
		{"a winner paid the seller what it bid, once", `
			SELECT format('auction %s round %s: %s won with %s, transfer %s (%s %s from %s to %s)', w.auction, w.round, w.account,
			              w.amount, w.transfer, t.status, t.amount, t.source, t.destination)
			FROM auction_winners w JOIN auctions a ON a.id = w.auction LEFT JOIN transfers t ON t.id = w.transfer
			WHERE (t.status = 'completed' AND t.amount = w.amount AND t.source = w.account AND t.destination = a.seller
			       AND t.currency = a.currency) IS NOT TRUE
			UNION ALL
			SELECT format('transfer %s pays %s wins', transfer, count(*)) FROM auction_winners GROUP BY transfer HAVING count(*) > 1
			UNION ALL
			SELECT format('hold %s of %s was captured for %s and belongs to no win', h.id, h.owner, h.captured)
			FROM holds h LEFT JOIN auction_winners w ON w.transfer = h.transfer
			WHERE h.owner LIKE 'auction:%' AND h.status = 'captured' AND w.auction IS NULL`},
	}
}

func roundQuestions() []question {
	return []question{
		{"a round that was settled was settled once, and its winners are those of its event", `
			SELECT format('auction %s round %s is %s with %s closing events and %s winners', r.auction, r.round, r.status,
			              count(e.seq), (SELECT count(*) FROM auction_winners w WHERE w.auction = r.auction AND w.round = r.round))
			FROM auction_rounds r JOIN auctions a ON a.id = r.auction
			LEFT JOIN auction_events e ON e.auction = r.auction AND e.type = 'round.completed' AND (e.data::json->>'round')::int = r.round
			GROUP BY r.auction, r.round, a.status
			HAVING count(e.seq) > 1
			    OR a.status <> 'cancelled' AND (count(e.seq) = 1) <> (r.status = 'completed')
			    OR (SELECT count(*) FROM auction_winners w WHERE w.auction = r.auction AND w.round = r.round)
			       <> coalesce(max(json_array_length(e.data::json->'winners')), 0)`},
		{"a bid lies between the start of its round and its close", `
			SELECT format('auction %s: event %s at %s is a bid in round %s, which starts with %s and ends with %s', b.auction, b.seq,
			              b.at, b.round, s.seq, c.seq)
			FROM auction_bids b
			LEFT JOIN auction_events s ON s.auction = b.auction AND s.type = 'round.started' AND (s.data::json->>'round')::int = b.round
			LEFT JOIN auction_events c ON c.auction = b.auction AND c.type = 'round.completed' AND (c.data::json->>'round')::int = b.round
			JOIN auction_rounds r ON r.auction = b.auction AND r.round = b.round
			WHERE s.seq IS NULL OR b.seq < s.seq OR b.seq > c.seq OR b.at >= r.ends_at`},
		{"a round ends when its duration and its extensions say, and never settles before", `
			SELECT format('auction %s round %s: %s + %s µs + %s × %s µs is not %s, ended at %s', r.auction, r.round, r.started_at,
			              r.duration, r.extensions, a.snipe_extension, r.ends_at, r.ended_at)
			FROM auction_rounds r JOIN auctions a ON a.id = r.auction
			WHERE r.status <> 'pending'
			  AND (r.ends_at <> r.started_at + (r.duration + r.extensions * a.snipe_extension) * interval '1 microsecond'
			       OR r.extensions > a.snipe_max OR (a.status <> 'cancelled' AND r.ended_at < r.ends_at))`},
		{"no round has more winners than places", `
			SELECT format('auction %s round %s: %s winners of %s', r.auction, r.round, count(w.rank), r.winners)
			FROM auction_rounds r JOIN auction_winners w ON w.auction = r.auction AND w.round = r.round
			GROUP BY r.auction, r.round HAVING count(w.rank) > r.winners OR max(w.rank) <> count(w.rank)`},
		{"the bids' answers that are stored are those of the bids", `
			SELECT format('auction %s: event %s is told by %s stored answers, %s of them true', b.auction, b.seq, count(k.*),
			              count(*) FILTER (WHERE k.told->>'account' = b.account AND (k.told->>'amount')::bigint = b.amount))
			FROM auction_bids b
			LEFT JOIN (SELECT convert_from(body, 'UTF8')::json AS told FROM idempotency_keys
			           WHERE status = 201 AND length(body) > 0 AND position('"previous_amount"' IN convert_from(body, 'UTF8')) > 0) k
			       ON k.told->>'auction' = b.auction::text AND (k.told->>'seq')::bigint = b.seq
			GROUP BY b.auction, b.seq
			HAVING count(k.*) <> 1
			    OR count(*) FILTER (WHERE k.told->>'account' = b.account AND (k.told->>'amount')::bigint = b.amount) <> 1`},
	}
}
