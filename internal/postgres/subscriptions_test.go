package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// subscribed makes auctions with events, a target and a subscription.
func subscribed(t *testing.T, p *press, op publish.CreateSubscription, seqs ...int64) (*publish.Subscription, []string) {
	t.Helper()
	var topics []string
	for _, seq := range seqs {
		topics = append(topics, "auction:"+bareAuction(t, p.db, seq))
	}
	if op.Topics == nil {
		op.Topics = topics
	}
	testwait.Must(t, testwait.Err(p.service.Create(t.Context(), own[publish.Op](publish.CreateTarget{Name: op.Name, Kind: publish.KindWebhook, URL: "https://example.com", Timeout: time.Second}))))
	op.Target, op.Envelope = op.Name, publish.EnvelopePlain
	a, err := p.service.Create(t.Context(), own[publish.Op](op))
	if err != nil || a.Err != nil {
		t.Fatal(err, a.Err)
	}
	return a.Result.(*publish.Subscription), topics //nolint:errcheck,forcetypeassert // It was made.
}

// bareAuction is an auction's row with so many events.
func bareAuction(t *testing.T, db *DB, seq int64) string {
	t.Helper()
	id := uuid.New()
	exec(t, db, `INSERT INTO auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window, snipe_extension, snipe_max, cooldown,
			unique_amounts, total_bids, seq, version, revision, created_at)
		VALUES ($1, 'a', 'active', 'EUR', 'seller', 1, 1, 1, 0, 0, 0, 0, false, 0, $2, 1, gen_random_uuid(), now())`, id, seq)
	t.Cleanup(func() { // The auditor would miss its events.
		testwait.Check(t, testwait.Err(db.pool.Exec(context.Background(), `DELETE FROM auctions WHERE id = $1`, id)))
	})
	return id.String()
}

// places are where a subscription is in topics, -1 where it has no place.
func places(t *testing.T, db *DB, s *publish.Subscription, topics []string) (out []int64) {
	t.Helper()
	for _, topic := range topics {
		out = append(out, ask[int64](t, db, `SELECT coalesce((SELECT seq FROM subscription_topics WHERE subscription = $1 AND topic = $2), -1)`, s.ID, topic))
	}
	return out
}

// behind are the topics that may be tried, of one subscription.
func behind(t *testing.T, store *Publications, s *publish.Subscription, most int) (topics map[string]time.Duration, survey *deliver.Survey) {
	t.Helper()
	survey, err := store.Survey(t.Context(), most)
	testwait.Must(t, err)
	topics = map[string]time.Duration{}
	for _, b := range survey.Behind {
		if b.Subscription == s.ID {
			topics[b.Topic] = b.Rest
		}
	}
	return topics, survey
}

// TestSubscriptionsBegin says from where: before what there is, after it, and before what comes.
func TestSubscriptionsBegin(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	now, topics := subscribed(t, p, publish.CreateSubscription{Name: "now"}, 4, 0)
	start, _ := subscribed(t, p, publish.CreateSubscription{Name: "start", Topics: topics, FromStart: true})
	kind, _ := subscribed(t, p, publish.CreateSubscription{Name: "kind", Topics: []string{"auction:*", "campaign:*", "multidraw:*"}})
	all, _ := subscribed(t, p, publish.CreateSubscription{Name: "all", Topics: []string{"auction:*"}, FromStart: true})
	for name, c := range map[string]struct {
		s    *publish.Subscription
		want []int64
		n    int
	}{"now": {now, []int64{4, 0}, 0}, "start": {start, []int64{0, 0}, 1}, "kind": {kind, []int64{4, -1}, 0}, "all": {all, []int64{-1, -1}, 1}} {
		if got := places(t, p.db, c.s, topics); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if found, survey := behind(t, p.store, c.s, 10); len(found) != c.n || survey.Lag != 8 || len(survey.Open) != 4 {
			t.Errorf("%s: behind are %v; %+v", name, found, survey)
		}
	}
	later := "auction:" + bareAuction(t, p.db, 2)
	if found, _ := behind(t, p.store, kind, 10); len(found) != 1 {
		t.Errorf("behind are %v, want %s", found, later)
	}
	if place, err := p.store.Place(t.Context(), deliver.Key{Subscription: kind.ID, Topic: later}); err != nil || place.Seq != 0 || place.Target.Name != "kind" || place.Name != "kind" {
		t.Errorf("%+v, %v", place, err)
	}
	if found, survey := behind(t, p.store, all, 1); len(found) != 1 || !survey.More {
		t.Errorf("one of %v; %+v", found, survey)
	}
}

// TestPlacesAreGuarded moves a place as several leaders would, and one that wakes up late.
func TestPlacesAreGuarded(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	s, topics := subscribed(t, p, publish.CreateSubscription{Name: "s", FromStart: true}, 9)
	k := deliver.Key{Subscription: s.ID, Topic: topics[0]}
	record := func(step deliver.Step) deliver.Recorded {
		t.Helper()
		step.Key = k
		got, err := p.store.Record(t.Context(), []deliver.Step{step})
		testwait.Must(t, err)
		return got[0]
	}
	do := func(op publish.Op) {
		t.Helper()
		if a, err := p.service.Execute(t.Context(), s.ID, own[publish.Op](op)); err != nil || a.Err != nil {
			t.Fatal(err, a.Err)
		}
	}
	for i, c := range []struct {
		step  deliver.Step
		moved bool
		seq   int64
	}{
		{deliver.Step{Term: 1, From: 0, To: 1, Delivered: true}, true, 1},
		{deliver.Step{Term: 1, From: 0, To: 1, Delivered: true}, false, 1}, // Its answer was lost.
		{deliver.Step{Term: 2, From: 1, To: 2, Delivered: true}, true, 2},
		{deliver.Step{Term: 1, From: 2, To: 3, Delivered: true}, false, 2}, // A leader whose term is over.
		{deliver.Step{Term: 2, From: 2, To: 2, Attempts: 1, Rest: time.Hour, Failure: publish.Result{Class: publish.Transient, StatusCode: 500, Error: "no"}}, true, 2},
	} {
		if got := record(c.step); got.Moved != c.moved || got.Held {
			t.Errorf("step %d: %+v", i, got)
		}
		if got := places(t, p.db, s, topics)[0]; got != c.seq {
			t.Errorf("step %d: at %d, want %d", i, got, c.seq)
		}
	}
	if place, err := p.store.Place(t.Context(), k); place != nil || err != nil {
		t.Errorf("it rests: %+v, %v", place, err)
	}
	if found, _ := behind(t, p.store, s, 10); found[k.Topic] < 50*time.Minute {
		t.Errorf("it rests for an hour: %v", found)
	}
	do(publish.PauseSubscription{})
	if got := record(deliver.Step{Term: 2, From: 2, To: 3, Delivered: true}); !got.Moved || !got.Held {
		t.Errorf("what was under way: %+v", got)
	}
	if found, survey := behind(t, p.store, s, 10); len(found) != 0 || survey.Paused != 1 || survey.Lag != 0 {
		t.Errorf("paused: %v, %+v", found, survey)
	}
	do(publish.ReplayTopic{Topic: k.Topic, After: 1})
	if got := record(deliver.Step{Term: 2, From: 3, To: 4, Delivered: true}); got.Moved {
		t.Error("a place was moved that a replay has moved")
	}
	do(publish.ResumeSubscription{})
	record(deliver.Step{Term: 2, From: 1, To: 1, Stopped: true, Failure: publish.Result{Class: publish.Permanent, Cause: publish.CauseExpired, Error: "gone"}})
	if found, survey := behind(t, p.store, s, 10); len(found) != 1 || survey.Stopped != 1 || !survey.Behind[0].Stopped {
		t.Errorf("stopped: %v, %+v", found, survey)
	}
	if listed, err := p.store.TopicsOf(t.Context(), s.ID, "", 10); err != nil || len(listed) != 1 || listed[0].State() != publish.TopicStopped || listed[0].Cause != publish.CauseExpired {
		t.Errorf("%+v, %v", listed, err)
	}
	for n := range publish.MaxRefusals {
		record(deliver.Step{Term: 2, From: 1, To: 1, Attempts: n + 1, Refused: true})
	}
	if got, err := p.store.Subscription(t.Context(), s.ID); err != nil || got.PausedReason != publish.SubscriptionRefused || got.Refusals != publish.MaxRefusals {
		t.Errorf("%+v, %v", got, err)
	}
	do(publish.DeleteSubscription{})
	if got := record(deliver.Step{Term: 2, From: 1, To: 2, Delivered: true}); got.Moved || ask[int](t, p.db, `SELECT count(*) FROM subscription_topics`) != 0 {
		t.Errorf("deleted: %+v", got)
	}
	if place, err := p.store.Place(t.Context(), k); place != nil || err != nil {
		t.Errorf("deleted: %+v, %v", place, err)
	}
}

// TestALockedPlaceStopsItsOwnTopicAlone has other sessions keep the rows of two of four topics locked, while one of each subscription is delivered.
func TestALockedPlaceStopsItsOwnTopicAlone(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	first, topics := subscribed(t, p, publish.CreateSubscription{Name: "first", FromStart: true}, 9, 9)
	second, others := subscribed(t, p, publish.CreateSubscription{Name: "second", FromStart: true}, 9, 9)
	steps := []deliver.Step{
		{Key: deliver.Key{Subscription: first.ID, Topic: topics[0]}, To: 1, Delivered: true},
		{Key: deliver.Key{Subscription: first.ID, Topic: topics[1]}, To: 2, Delivered: true},
		{Key: deliver.Key{Subscription: second.ID, Topic: others[0]}, Attempts: 1, Refused: true}, // Which the subscription counts.
		{Key: deliver.Key{Subscription: second.ID, Topic: others[1]}, To: 3, Delivered: true},
	}
	place := stranger(t, p.db, `SELECT FROM subscription_topics WHERE subscription = $1 AND topic = $2 FOR UPDATE`, first.ID, topics[0])
	subscription := stranger(t, p.db, `SELECT FROM subscriptions WHERE id = $1 FOR UPDATE`, second.ID)
	for range 2 { // The second time it is known.
		got, err := p.store.Record(t.Context(), steps)
		testwait.Must(t, err)
		for i, want := range []struct{ moved, blocked bool }{{false, true}, {true, false}, {false, true}, {true, false}} {
			if got[i].Moved != want.moved || (got[i].Blocked != nil) != want.blocked {
				t.Errorf("step %d: %+v, want %+v", i, got[i], want)
			}
		}
		steps[1].From, steps[1].To, steps[3].From, steps[3].To = 2, 3, 3, 4
	}
	if place, err := p.store.Place(t.Context(), steps[0].Key); place != nil || err == nil {
		t.Errorf("a place that is known to be locked would be delivered to, which could not be recorded: %+v", place)
	}
	fresh := deliver.Key{Subscription: second.ID, Topic: "auction:" + bareAuction(t, p.db, 1)}
	if place, err := p.store.Place(t.Context(), fresh); place != nil || !errors.As(err, new(*command.BlockedError)) {
		t.Errorf("a place that can't be made: %+v, %v", place, err)
	}
	place()
	subscription()
	got, err := p.store.Record(t.Context(), steps)
	testwait.Must(t, err)
	for i := range steps {
		for got[i].Blocked != nil {
			testwait.Must(t, got[i].Blocked.Wait(testwait.Context(t, testwait.Patience)))
			got, err = p.store.Record(t.Context(), steps)
			testwait.Must(t, err)
		}
	}
	if !slices.Equal(places(t, p.db, first, topics), []int64{1, 3}) || ask[int](t, p.db, `SELECT refusals FROM subscriptions WHERE id = $1`, second.ID) != 1 {
		t.Errorf("%+v: at %v, with %d refusals", got, places(t, p.db, first, topics), ask[int](t, p.db, `SELECT refusals FROM subscriptions WHERE id = $1`, second.ID))
	}
}
