package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
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
	err := s.db.read(ctx, scanTimeout, func(ctx context.Context, pool *pgxpool.Pool) error {
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

// Place implements [deliver.Store].
func (s *Publications) Place(ctx context.Context, k deliver.Key) (*deliver.Place, error) {
	for {
		found, err := query(ctx, s.db, scanPlace, selectPlaceIn, k.Subscription, k.Topic)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		p := &found[0]
		switch {
		case p.seq == nil:
			if err := s.db.run(ctx, "subscription.begin", func(ctx context.Context, tx pgx.Tx) error {
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

const (
	// Who locks several places does so in the order of their keys, after the subscription, if that is locked.
	lockSubscriptions = `SELECT FROM subscriptions WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE`
	lockPlaces        = `SELECT FROM subscription_topics WHERE (subscription, topic) IN (SELECT * FROM unnest($1::uuid[], $2::text[]))
		ORDER BY subscription, topic FOR NO KEY UPDATE`
	// movePlaces moves those places that are where the steps begin, and whose term is not over.
	movePlaces = `UPDATE subscription_topics AS p SET seq = v.upto, term = v.term, attempts = v.attempts,
			retry_at = CASE WHEN v.rest > 0 THEN clock_timestamp() + v.rest * interval '1 microsecond' END, stopped = v.stopped,
			last_error = v.error, last_cause = v.cause, status_code = v.status,
			delivered_at = CASE WHEN v.delivered THEN clock_timestamp() ELSE p.delivered_at END
		FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[], $7::integer[], $8::bigint[], $9::boolean[],
				$10::text[], $11::text[], $12::integer[])
			AS v (subscription, topic, term, since, upto, delivered, attempts, rest, stopped, error, cause, status)
		WHERE p.subscription = v.subscription AND p.topic = v.topic AND p.seq = v.since AND p.term <= v.term
		RETURNING p.subscription, p.topic`
	// countRefusals counts refusals in a row; enough of them pause the subscription.
	countRefusals = `UPDATE subscriptions SET refusals = n.refusals, paused_at = CASE WHEN n.pause THEN clock_timestamp() ELSE paused_at END,
			paused_reason = CASE WHEN n.pause THEN 'refused' ELSE paused_reason END
		FROM (SELECT s.id, r.refusals, r.refusals >= $4 AND s.paused_at IS NULL AND s.deleted_at IS NULL AS pause
			FROM unnest($1::uuid[], $2::boolean[], $3::integer[]) AS v (subscription, delivered, refused) JOIN subscriptions AS s ON s.id = v.subscription,
				LATERAL (SELECT CASE WHEN v.delivered THEN 0 ELSE s.refusals END + v.refused AS refusals) AS r) AS n
		WHERE subscriptions.id = n.id`
	selectHeld = `SELECT s.id FROM subscriptions AS s JOIN targets AS t ON t.id = s.target
		WHERE s.id = ANY ($1) AND (s.paused_at IS NOT NULL OR s.deleted_at IS NOT NULL OR t.paused_at IS NOT NULL)`
)

// Record implements [deliver.Store].
func (s *Publications) Record(ctx context.Context, steps []deliver.Step) (out []deliver.Recorded, err error) {
	sorted := slices.Clone(steps)
	slices.SortFunc(sorted, func(a, b deliver.Step) int {
		return cmp.Or(slices.Compare(a.Subscription[:], b.Subscription[:]), cmp.Compare(a.Topic, b.Topic))
	})
	n := len(sorted)
	ids, topics := make([][16]byte, n), make([]string, n)
	terms, from, to, rests := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	delivered, stopped := make([]bool, n), make([]bool, n)
	attempts, codes := make([]int, n), make([]int, n)
	messages, causes := make([]string, n), make([]string, n)
	for i, step := range sorted {
		ids[i], topics[i], terms[i], from[i], to[i] = step.Subscription, step.Topic, step.Term, step.From, step.To
		rests[i], delivered[i], stopped[i], attempts[i] = step.Rest.Microseconds(), step.Delivered, step.Stopped, step.Attempts
		if step.Attempts > 0 || step.Stopped {
			messages[i], causes[i], codes[i] = step.Failure.Error, string(step.Failure.FailedFor()), step.Failure.StatusCode
		}
	}
	counted := refusalsOf(sorted)
	err = s.db.run(ctx, "subscription.record", func(ctx context.Context, tx pgx.Tx) error {
		var (
			moved []deliver.Key
			held  []uuid.UUID
			b     pgx.Batch
		)
		if len(counted) > 0 {
			b.Queue(lockSubscriptions, slices.Sorted(maps.Keys(counted)))
		}
		b.Queue(lockPlaces, ids, topics)
		b.Queue(movePlaces, ids, topics, terms, from, to, delivered, attempts, rests, stopped, messages, causes, codes).
			Query(collect(&moved, pgx.RowToStructByPos[deliver.Key]))
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		b = pgx.Batch{}
		countRefused(&b, counted, moved)
		b.Queue(selectHeld, ids).Query(collect(&held, pgx.RowTo[uuid.UUID]))
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		out = make([]deliver.Recorded, n)
		for i := range steps {
			out[i] = deliver.Recorded{Moved: slices.Contains(moved, steps[i].Key), Held: slices.Contains(held, steps[i].Subscription)}
		}
		return nil
	})
	return out, err
}

// refusalsOf are the steps that count as refusals in a row, or end some, by the subscription's id as text, which sorts as the id does.
func refusalsOf(steps []deliver.Step) map[string][]deliver.Step {
	out := map[string][]deliver.Step{}
	for _, step := range steps {
		if step.Refused || step.Delivered && step.Refusals > 0 {
			out[step.Subscription.String()] = append(out[step.Subscription.String()], step)
		}
	}
	return out
}

// countRefused queues the count of those steps that have moved their places.
func countRefused(b *pgx.Batch, counted map[string][]deliver.Step, moved []deliver.Key) {
	var (
		ids       []string
		delivered []bool
		refused   []int
	)
	for id, steps := range counted {
		ended, n, some := false, 0, false
		for _, step := range steps {
			switch {
			case !slices.Contains(moved, step.Key):
				continue
			case step.Delivered:
				ended, n = true, 0
			default:
				n++
			}
			some = true
		}
		if some {
			ids, delivered, refused = append(ids, id), append(delivered, ended), append(refused, n)
		}
	}
	if len(ids) > 0 {
		b.Queue(countRefusals, ids, delivered, refused, publish.MaxRefusals)
	}
}
