package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
)

var _ deliver.Store = (*Publications)(nil)

const (
	selectOpen = `SELECT s.id, s.target, s.topics FROM subscriptions AS s JOIN targets AS t ON t.id = s.target
		WHERE s.deleted_at IS NULL AND s.paused_at IS NULL AND t.paused_at IS NULL`
	countPaused = `SELECT count(*) FROM subscriptions WHERE deleted_at IS NULL AND paused_at IS NOT NULL`
	// selectBehind finds what is behind. All topics of a kind are gone through where a subscription follows the kind, and those alone that
	// subscriptions name where none does: OFFSET 0 keeps the condition in front of the tables.
	selectBehind = `WITH open AS MATERIALIZED (` + selectOpen + `), found AS (
			SELECT o.id, o.target, h.topic, h.head FROM open AS o CROSS JOIN LATERAL (
				SELECT topic, head FROM (` + auctionHeads + `) AS a WHERE 'auction:*' = ANY (o.topics) OFFSET 0) AS h
			UNION SELECT o.id, o.target, h.topic, h.head FROM open AS o CROSS JOIN LATERAL (
				SELECT topic, head FROM (` + campaignHeads + `) AS a WHERE 'campaign:*' = ANY (o.topics) OFFSET 0) AS h
			UNION SELECT o.id, o.target, h.topic, h.head FROM open AS o CROSS JOIN LATERAL (
				SELECT topic, head FROM (` + multidrawHeads + `) AS a WHERE 'multidraw:*' = ANY (o.topics) OFFSET 0) AS h
			UNION SELECT o.id, o.target, n.topic, ` + headOf + ` FROM open AS o CROSS JOIN LATERAL (
				SELECT topic FROM unnest(o.topics) AS u (topic) WHERE topic NOT LIKE '%:*' OFFSET 0) AS n
		), behind AS (
			SELECT f.id, f.target, f.topic, f.head - coalesce(p.seq, 0) AS lag, coalesce(p.stopped, false) AS stopped,
				greatest(0, coalesce(extract(epoch FROM p.retry_at - clock_timestamp()) * 1000000, 0))::bigint AS rest
			FROM found AS f LEFT JOIN subscription_topics AS p ON p.subscription = f.id AND p.topic = f.topic WHERE f.head > coalesce(p.seq, 0)
		), placed AS (
			SELECT *, row_number() OVER (PARTITION BY id ORDER BY stopped, rest, topic) AS place FROM behind
		)
		SELECT id, topic, target, rest, stopped, (SELECT sum(lag) FROM behind)::bigint, (SELECT count(*) FROM behind WHERE stopped),
			(SELECT count(*) FROM placed WHERE place > $1 AND NOT stopped AND rest = 0)
		FROM placed WHERE place <= $1`
)

// behindRow is a row of selectBehind.
type behindRow struct {
	ID      uuid.UUID
	Topic   string
	Target  uuid.UUID
	Rest    int64
	Stopped bool
	// Of all that is behind: the number of events, of topics that are stopped, and of those that may be tried and are not in a row.
	Lag, AllStopped, More int64
}

// Survey implements [deliver.Store].
func (s *Publications) Survey(ctx context.Context, most int) (*deliver.Survey, error) {
	var (
		out  *deliver.Survey
		rows []behindRow
	)
	err := s.db.read(ctx, "survey", scanTimeout, func(ctx context.Context, pool *pgxpool.Pool) error {
		out, rows = &deliver.Survey{}, nil
		var b pgx.Batch
		b.Queue(selectOpen).Query(collect(&out.Open, pgx.RowToStructByPos[deliver.Open]))
		b.Queue(countPaused).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Paused) })
		// After the list of those that are open: it has no topic of one that is not in that list, unless it was made meanwhile.
		b.Queue(selectBehind, most).Query(collect(&rows, pgx.RowToStructByPos[behindRow]))
		return pool.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		out.Lag, out.Stopped, out.More = r.Lag, int(r.AllStopped), r.More > 0
		out.Behind = append(out.Behind, deliver.Behind{
			Key: deliver.Key{Subscription: r.ID, Topic: r.Topic}, Target: r.Target, Rest: time.Duration(r.Rest) * time.Microsecond, Stopped: r.Stopped,
		})
	}
	return out, nil
}

const (
	selectPlaceIn = `SELECT ` + subscriptionFields + `, ` + targetFields + `, p.seq, p.attempts, p.stopped OR coalesce(p.retry_at > clock_timestamp(), false),
			clock_timestamp()
		` + subscriptionsAndTargets + ` LEFT JOIN subscription_topics AS p ON p.subscription = s.id AND p.topic = $2
		WHERE s.id = $1 AND s.deleted_at IS NULL AND s.paused_at IS NULL AND t.paused_at IS NULL`
	// beginTopic makes a place, of a subscription that is not deleted meanwhile.
	beginTopic = `INSERT INTO subscription_topics (subscription, topic, seq)
		SELECT id, $2, 0 FROM subscriptions WHERE id = $1 AND deleted_at IS NULL FOR SHARE ON CONFLICT DO NOTHING`
)

// placeRow is a row of selectPlaceIn. Seq and its like are null where there is no place yet.
type placeRow struct {
	deliver.Place

	seq      *int64
	attempts *int
	held     *bool
}

func scanPlace(row pgx.CollectableRow) (p placeRow, err error) {
	into := append(subscriptionInto(&p.Subscription), targetInto(&p.Target)...)
	err = row.Scan(append(into, &p.seq, &p.attempts, &p.held, &p.Now)...)
	return p, err
}

// Place implements [deliver.Store]. It returns a [command.BlockedError] where another session has locked the place, or the subscription that is to have
// it: what is delivered could not be recorded.
func (s *Publications) Place(ctx context.Context, k deliver.Key) (*deliver.Place, error) {
	if reason := s.db.blocked.find(placeRowKind, placeID(k)); reason != nil {
		return nil, reason
	}
	for {
		found, err := query(ctx, s.db, scanPlace, selectPlaceIn, k.Subscription, k.Topic)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		p := &found[0]
		switch {
		case p.seq == nil:
			if err := s.db.runOn(ctx, "subscription.begin", nil, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, beginTopic, k.Subscription, k.Topic)
				return err
			}); err != nil {
				return nil, err
			}
			continue
		case *p.held:
			return nil, nil
		}
		p.Seq, p.Attempts = *p.seq, *p.attempts
		return &p.Place, nil
	}
}
