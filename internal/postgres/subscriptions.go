package postgres

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

const (
	subscriptionFields = `s.id, s.number, s.name, s.target, t.name, s.topics, s.types, s.envelope, s.refusals, s.paused_at, s.paused_reason,
		s.created_at, s.deleted_at`
	subscriptionsAndTargets = ` FROM subscriptions AS s JOIN targets AS t ON t.id = s.target`
	lockSubscription        = `SELECT ` + subscriptionFields + subscriptionsAndTargets + ` WHERE s.id = $1 FOR NO KEY UPDATE OF s`
	takenSubscriptions      = `SELECT name FROM subscriptions WHERE name = ANY($1) AND deleted_at IS NULL`
	newSubscription         = `INSERT INTO subscriptions (id, name, target, topics, types, envelope, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	updateSubscription      = `UPDATE subscriptions SET refusals = $2, paused_at = $3, paused_reason = $4, deleted_at = $5 WHERE id = $1`
	deleteProgress          = `DELETE FROM subscription_topics WHERE subscription = $1`
	// lockAllPlaces comes before what changes all places: see lockPlaces.
	lockAllPlaces = `SELECT FROM subscription_topics WHERE subscription = $1 ORDER BY topic FOR NO KEY UPDATE`
	// forgetRetries lets a resumed subscription's events go at once.
	forgetRetries = `UPDATE subscription_topics SET retry_at = NULL WHERE subscription = $1 AND retry_at IS NOT NULL`
	// insertProgress says from where a subscription begins with topics that it names.
	insertProgress = `INSERT INTO subscription_topics (subscription, topic, seq) SELECT $1, topic, seq FROM unnest($2::text[], $3::bigint[]) AS n (topic, seq)
		ON CONFLICT DO NOTHING`
	// replayTopic moves a place back, or on. What the leader is just sending is guarded by the place that it had read.
	replayTopic = `INSERT INTO subscription_topics (subscription, topic, seq) VALUES ($1, $2, $3)
		ON CONFLICT (subscription, topic) DO UPDATE SET seq = excluded.seq, attempts = 0, retry_at = NULL, stopped = false,
			last_error = '', last_cause = '', status_code = 0`

	// The last numbers of all topics of a kind, and from which one on events are kept. Sales are never taken back, and are as many as
	// their last number; the draw is the event after the last sale.
	auctionHeads   = `SELECT 'auction:' || id AS topic, seq AS head, first_seq AS kept FROM auctions`
	campaignHeads  = `SELECT 'campaign:' || c.id AS topic, c.sold_positions + (SELECT count(*) FROM draws WHERE campaign = c.id) AS head, 1::bigint AS kept FROM campaigns AS c`
	multidrawHeads = `SELECT 'multidraw:' || id AS topic, checkpoints AS head, 1::bigint AS kept FROM multidraws`

	spansOf = auctionHeads + ` WHERE id = ANY ($1) UNION ALL ` + campaignHeads + ` WHERE c.id = ANY ($1) UNION ALL ` + multidrawHeads + ` WHERE id = ANY ($1)`
	// Topics of a kind that come later begin at their first event: they have no row.
	passAuctions   = `INSERT INTO subscription_topics (subscription, topic, seq) SELECT $1, topic, head FROM (` + auctionHeads + `) AS h WHERE head > 0 ON CONFLICT DO NOTHING`
	passCampaigns  = `INSERT INTO subscription_topics (subscription, topic, seq) SELECT $1, topic, head FROM (` + campaignHeads + `) AS h WHERE head > 0 ON CONFLICT DO NOTHING`
	passMultidraws = `INSERT INTO subscription_topics (subscription, topic, seq) SELECT $1, topic, head FROM (` + multidrawHeads + `) AS h WHERE head > 0 ON CONFLICT DO NOTHING`
)

// passKind is the statement that passes over what there is of a kind of topics.
func passKind(kind string) string {
	switch kind {
	case "auction":
		return passAuctions
	case "campaign":
		return passCampaigns
	case "multidraw":
		return passMultidraws
	}
	panic("postgres: there are no topics of the kind " + kind)
}

// topicSpan is a topic's span.
type topicSpan struct {
	Topic       string
	Last, First int64
}

// topicIDs are the ids of the entities that topics are of.
func topicIDs(topics []string) (ids []uuid.UUID) {
	for _, topic := range topics {
		_, rest, _ := strings.Cut(topic, ":")
		if id, err := uuid.Parse(rest); err == nil && id.String() == rest {
			ids = append(ids, id)
		}
	}
	return ids
}

// loadSpans queues the question for the spans of topics. Entities of other kinds than a topic's are not asked for, though they may be
// found: ids are unique among all.
func loadSpans(b *pgx.Batch, topics []string, into map[string]publish.TopicSpan) {
	ids := topicIDs(topics)
	if len(ids) == 0 {
		return
	}
	b.Queue(spansOf, ids).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[topicSpan])
		for _, s := range found {
			into[s.Topic] = publish.TopicSpan{First: s.First, Last: s.Last}
		}
		return err
	})
}

// saveMadeSubscription writes a subscription, and the places from which it begins.
func saveMadeSubscription(b *pgx.Batch, s *publish.Subscription, fromStart bool, spans map[string]publish.TopicSpan) {
	expectRows(b.Queue(newSubscription, s.ID, s.Name, s.Target, s.Topics, s.Types, s.Envelope, s.CreatedAt), 1, errLostRow)
	places := map[string]int64{}
	for _, topic := range s.Topics {
		kind, whole := publish.WholeKind(topic)
		switch {
		case !whole && fromStart:
			places[topic] = 0
		case !whole:
			places[topic] = spans[topic].Last
		case !fromStart:
			b.Queue(passKind(kind), s.ID)
		}
	}
	// Those that are named begin where the command saw them, unless the whole kind has.
	if len(places) == 0 {
		return
	}
	topics := slices.Sorted(maps.Keys(places))
	seqs := make([]int64, len(topics))
	for i, topic := range topics {
		seqs[i] = places[topic]
	}
	b.Queue(insertProgress, s.ID, topics, seqs)
}

// saveSubscription writes what commands have changed of the one subscription.
func saveSubscription(b *pgx.Batch, u *publish.Unit) {
	s := u.Subscription
	if s == nil {
		return
	}
	expectRows(b.Queue(updateSubscription, s.ID, s.Refusals, s.PausedAt, s.PausedReason, s.DeletedAt), 1, errLostRow)
	for _, r := range u.Replays {
		b.Queue(replayTopic, s.ID, r.Topic, r.After)
	}
	if u.Resumed || s.DeletedAt != nil {
		b.Queue(lockAllPlaces, s.ID)
	}
	if u.Resumed {
		b.Queue(forgetRetries, s.ID)
	}
	if s.DeletedAt != nil {
		b.Queue(deleteProgress, s.ID)
	}
}

func subscriptionInto(s *publish.Subscription) []any {
	return []any{
		&s.ID, &s.Number, &s.Name, &s.Target, &s.TargetName, &s.Topics, &s.Types, &s.Envelope, &s.Refusals, &s.PausedAt, &s.PausedReason,
		&s.CreatedAt, &s.DeletedAt,
	}
}

func scanSubscription(row pgx.CollectableRow) (s publish.Subscription, err error) {
	err = row.Scan(subscriptionInto(&s)...)
	return s, err
}

// Subscription implements [publish.Reader].
func (s *Publications) Subscription(ctx context.Context, id uuid.UUID) (*publish.Subscription, error) {
	found, err := queryOne(ctx, s.db.reads, &publish.NotFoundError{What: "subscription", ID: id}, scanSubscription,
		`SELECT `+subscriptionFields+subscriptionsAndTargets+` WHERE s.id = $1 AND s.deleted_at IS NULL`, id)
	return &found, err
}

// Subscriptions implements [publish.Reader].
func (s *Publications) Subscriptions(ctx context.Context, after int64, limit int) ([]publish.Subscription, error) {
	return query(ctx, s.db.reads, scanSubscription,
		`SELECT `+subscriptionFields+subscriptionsAndTargets+` WHERE s.number > $1 AND s.deleted_at IS NULL ORDER BY s.number LIMIT $2`, after, limit)
}

const (
	subscriptionExists = `SELECT EXISTS (SELECT FROM subscriptions WHERE id = $1 AND deleted_at IS NULL)`
	// headOf is the last number of the topic n.topic.
	headOf = `coalesce(CASE split_part(n.topic, ':', 1)
			WHEN 'auction' THEN (SELECT seq FROM auctions WHERE id = split_part(n.topic, ':', 2)::uuid ORDER BY chapter DESC LIMIT 1)
			WHEN 'campaign' THEN (SELECT sold_positions + (SELECT count(*) FROM draws WHERE campaign = c.id) FROM campaigns AS c WHERE id = split_part(n.topic, ':', 2)::uuid ORDER BY chapter DESC LIMIT 1)
			WHEN 'multidraw' THEN (SELECT checkpoints FROM multidraws WHERE id = split_part(n.topic, ':', 2)::uuid)
		END, 0)`
	selectProgressOf = `SELECT n.topic, n.seq, ` + headOf + `, n.attempts, n.retry_at, n.stopped, n.last_error, n.last_cause, n.status_code, n.delivered_at
		FROM subscription_topics AS n WHERE n.subscription = $1 AND n.topic > $2 ORDER BY n.topic LIMIT $3`
)

// TopicsOf implements [publish.Reader].
func (s *Publications) TopicsOf(ctx context.Context, id uuid.UUID, after string, limit int) ([]publish.TopicProgress, error) {
	return listOf[publish.TopicProgress](ctx, s.db.reads, subscriptionExists, &publish.NotFoundError{What: "subscription", ID: id},
		selectProgressOf, id, after, limit)
}
