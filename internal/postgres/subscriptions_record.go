package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
)

const (
	// Who locks several places does so in the order of their keys, after the subscription, if that is locked.
	lockSubscriptions = `SELECT id FROM subscriptions WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE`
	lockPlaces        = `SELECT subscription, topic FROM subscription_topics WHERE (subscription, topic) IN (SELECT * FROM unnest($1::uuid[], $2::text[]))
		ORDER BY subscription, topic FOR NO KEY UPDATE`
	// These lock what is free, and return what is not.
	lockedSubscriptions = `WITH free AS (` + lockSubscriptions + ` SKIP LOCKED) SELECT id FROM subscriptions WHERE id = ANY ($1) EXCEPT TABLE free`
	lockedPlaces        = `WITH free AS (` + lockPlaces + ` SKIP LOCKED)
		SELECT subscription, topic FROM subscription_topics WHERE (subscription, topic) IN (SELECT * FROM unnest($1::uuid[], $2::text[])) EXCEPT TABLE free`
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

// placeID names a place among blocked rows.
func placeID(k deliver.Key) string { return k.Subscription.String() + "/" + k.Topic }

// counts reports whether a step counts as a refusal in a row, or ends some, which the subscription's row says.
func counts(s *deliver.Step) bool { return s.Refused || s.Delivered && s.Refusals > 0 }

// Record implements [deliver.Store]. It does without the rows that somebody else has locked: those that are known to be, and, in a run after one that
// waited in vain, those that turn out to be.
func (s *Publications) Record(ctx context.Context, steps []deliver.Step) (out []deliver.Recorded, err error) {
	sorted := slices.Clone(steps)
	slices.SortFunc(sorted, func(a, b deliver.Step) int {
		return cmp.Or(slices.Compare(a.Subscription[:], b.Subscription[:]), cmp.Compare(a.Topic, b.Topic))
	})
	aside := setAside{rows: s.db.blocked}
	err = s.db.run(ctx, "subscription.record", func(ctx context.Context, tx pgx.Tx) error {
		aside.begin(tx)
		free, blocked, err := lockRecorded(ctx, tx, &aside, sorted)
		if err != nil {
			return aside.met(err)
		}
		moved, held, err := recordSteps(ctx, tx, free)
		if err != nil {
			return aside.met(err)
		}
		out = make([]deliver.Recorded, len(steps))
		for i, step := range steps {
			out[i] = deliver.Recorded{Moved: slices.Contains(moved, step.Key), Held: slices.Contains(held, step.Subscription), Blocked: blocked[step.Key]}
		}
		return nil
	})
	return out, err
}

// lockRecorded locks what the steps write. It returns those that can be recorded, and why the others can't.
func lockRecorded(ctx context.Context, tx pgx.Tx, aside *setAside, steps []deliver.Step) (free []deliver.Step, blocked map[deliver.Key]*command.BlockedError, err error) {
	blocked = map[deliver.Key]*command.BlockedError{}
	unblocked := func() []deliver.Step {
		return slices.DeleteFunc(slices.Clone(steps), func(s deliver.Step) bool { return blocked[s.Key] != nil })
	}
	for i := range steps {
		s := &steps[i]
		reason := aside.find(placeRowKind, placeID(s.Key))
		if reason == nil && counts(s) {
			reason = aside.find(subscriptionRow, s.Subscription.String())
		}
		if reason != nil {
			blocked[s.Key] = reason
		}
	}
	if free = unblocked(); len(free) == 0 {
		return nil, blocked, nil
	}
	var (
		b             pgx.Batch
		ids, counting []uuid.UUID
		topics        []string
		lockedRows    []uuid.UUID
		lockedKeys    []deliver.Key
	)
	for i := range free {
		ids, topics = append(ids, free[i].Subscription), append(topics, free[i].Topic)
		if counts(&free[i]) {
			counting = append(counting, free[i].Subscription)
		}
	}
	b.Queue(waitBriefly)
	if aside.skip {
		b.Queue(lockedSubscriptions, counting).Query(collect(&lockedRows, pgx.RowTo[uuid.UUID]))
		b.Queue(lockedPlaces, ids, topics).Query(collect(&lockedKeys, pgx.RowToStructByPos[deliver.Key]))
	} else {
		b.Queue(lockSubscriptions, counting)
		b.Queue(lockPlaces, ids, topics)
	}
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return nil, nil, err
	}
	for _, id := range lockedRows {
		reason := aside.add(subscriptionRow, id.String())
		for i := range free {
			if free[i].Subscription == id && counts(&free[i]) {
				blocked[free[i].Key] = reason
			}
		}
	}
	for _, k := range lockedKeys {
		blocked[k] = aside.add(placeRowKind, placeID(k))
	}
	return unblocked(), blocked, nil
}

// recordSteps writes steps whose rows are locked. It returns the places that have moved, and the subscriptions that are paused.
func recordSteps(ctx context.Context, tx pgx.Tx, steps []deliver.Step) (moved []deliver.Key, held []uuid.UUID, err error) {
	n := len(steps)
	if n == 0 {
		return nil, nil, nil
	}
	ids, topics := make([][16]byte, n), make([]string, n)
	terms, from, to, rests := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	delivered, stopped := make([]bool, n), make([]bool, n)
	attempts, codes := make([]int, n), make([]int, n)
	messages, causes := make([]string, n), make([]string, n)
	for i, step := range steps {
		ids[i], topics[i], terms[i], from[i], to[i] = step.Subscription, step.Topic, step.Term, step.From, step.To
		rests[i], delivered[i], stopped[i], attempts[i] = step.Rest.Microseconds(), step.Delivered, step.Stopped, step.Attempts
		if step.Attempts > 0 || step.Stopped {
			messages[i], causes[i], codes[i] = step.Failure.Error, string(step.Failure.FailedFor()), step.Failure.StatusCode
		}
	}
	var b pgx.Batch
	b.Queue(movePlaces, ids, topics, terms, from, to, delivered, attempts, rests, stopped, messages, causes, codes).
		Query(collect(&moved, pgx.RowToStructByPos[deliver.Key]))
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return nil, nil, err
	}
	b = pgx.Batch{}
	countRefused(&b, refusalsOf(steps), moved)
	b.Queue(selectHeld, ids).Query(collect(&held, pgx.RowTo[uuid.UUID]))
	return moved, held, pgkit.Send(ctx, tx, &b)
}

// refusalsOf are the steps that count as refusals in a row, or end some, by the subscription's id as text, which sorts as the id does.
func refusalsOf(steps []deliver.Step) map[string][]deliver.Step {
	out := map[string][]deliver.Step{}
	for _, step := range steps {
		if counts(&step) {
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
