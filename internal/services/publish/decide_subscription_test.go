package publish

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestSubscriptionIsMade(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hook := &Target{ID: uuid.New(), Name: "hook", Kind: KindWebhook}
	op := CreateSubscription{Name: "s", Target: "hook", Topics: []string{"auction:*", "campaign:a"}, Envelope: EnvelopePlain}
	if _, err := DecideCreateSubscription(op, &Target{Kind: KindDeviantArt}, nil, uuid.New(), now); !errors.Is(err, ErrNoWebhook) {
		t.Errorf("for another kind of target: %v", err)
	}
	var absent *NotFoundError
	if _, err := DecideCreateSubscription(op, hook, nil, uuid.New(), now); !errors.As(err, &absent) || absent.What != "topic" || absent.Name != "campaign:a" {
		t.Errorf("of a topic that is not there: %v", err)
	}
	s, err := DecideCreateSubscription(op, hook, map[string]TopicSpan{"campaign:a": {1, 5}}, uuid.New(), now)
	if err != nil || s.Target != hook.ID || s.Types == nil || !s.CreatedAt.Equal(now) {
		t.Fatalf("%+v, %v", s, err)
	}
	for topic, want := range map[string]bool{"auction:x": true, "campaign:a": true, "campaign:b": false, "multidraw:x": false} {
		if s.Follows(topic) != want {
			t.Errorf("follows %s: %v", topic, !want)
		}
	}
	if !s.Wants("bid.placed") {
		t.Error("without types, all are wanted")
	}
	if s.Types = []string{"draw.completed"}; s.Wants("bid.placed") || !s.Wants("draw.completed") {
		t.Error("types are not heeded")
	}
}

func TestSubscriptionChanges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	spans := map[string]TopicSpan{"auction:a": {4, 9}, "campaign:b": {1, 9}}
	active := Subscription{Topics: []string{"auction:*"}, Refusals: 3}
	paused := active
	paused.PausedAt, paused.PausedReason = &now, SubscriptionOnRequest
	refused := paused
	refused.PausedReason = SubscriptionRefused
	deleted := active
	deleted.DeletedAt = &now
	for _, c := range []struct {
		what string
		s    Subscription
		op   Op
		err  error // nil: done
		then func(s *Subscription) bool
	}{
		{"pause", active, PauseSubscription{}, nil, func(s *Subscription) bool { return s.PausedReason == SubscriptionOnRequest && s.PausedAt.Equal(now) }},
		{"pause one that was refused", refused, PauseSubscription{}, nil, func(s *Subscription) bool { return s.PausedReason == SubscriptionOnRequest }},
		{"pause again", paused, PauseSubscription{}, ErrBadTransition, nil},
		{"resume", refused, ResumeSubscription{}, nil, func(s *Subscription) bool { return s.PausedAt == nil && s.PausedReason == "" && s.Refusals == 0 }},
		{"resume what goes", active, ResumeSubscription{}, ErrBadTransition, nil},
		{"delete", paused, DeleteSubscription{}, nil, func(s *Subscription) bool { return s.DeletedAt != nil }},
		{"delete again", deleted, DeleteSubscription{}, &NotFoundError{What: "subscription"}, nil},
		{"pause what is deleted", deleted, PauseSubscription{}, &NotFoundError{What: "subscription"}, nil},
		{"replay from the first that is kept", active, ReplayTopic{"auction:a", 3}, nil, nil},
		{"replay nothing", active, ReplayTopic{"auction:a", 9}, nil, nil},
		{"replay what is not kept", active, ReplayTopic{"auction:a", 2}, &ReplayError{3, 9}, nil},
		{"replay from the future", active, ReplayTopic{"auction:a", 10}, &ReplayError{3, 9}, nil},
		{"replay another topic", active, ReplayTopic{"campaign:b", 1}, &NotFoundError{What: "topic", Name: "campaign:b"}, nil},
		{"replay no topic", active, ReplayTopic{"auction:c", 0}, &NotFoundError{What: "topic", Name: "auction:c"}, nil},
	} {
		before := c.s
		err := DecideSubscription(&c.s, c.op, spans, now)
		switch {
		case c.err == nil && err != nil, c.err != nil && (err == nil || err.Error() != c.err.Error()):
			t.Errorf("%s: %v, want %v", c.what, err, c.err)
		case err != nil && (c.s.PausedAt != before.PausedAt || c.s.DeletedAt != before.DeletedAt || c.s.Refusals != before.Refusals):
			t.Errorf("%s: refused, and changed: %+v", c.what, c.s)
		case c.then != nil && !c.then(&c.s):
			t.Errorf("%s: %+v", c.what, c.s)
		}
	}
}

func TestRetriesOfEvents(t *testing.T) {
	t.Parallel()
	policy := Policy{Backoff: 2 * time.Second}
	middle := func(n int64) int64 { return n / 2 } // No shift.
	var rests []time.Duration
	for attempts := 1; attempts <= 7; attempts++ {
		rest, refused := DecideRetry(Result{Class: Transient}, attempts, policy, middle)
		if refused {
			t.Error("a transient failure is no refusal")
		}
		rests = append(rests, rest/time.Second)
	}
	if !slices.Equal(rests, []time.Duration{2, 4, 8, 16, 32, 60, 60}) {
		t.Errorf("rests %d", rests)
	}
	if rest, _ := DecideRetry(Result{Class: Transient, RetryAfter: 90 * time.Second}, 1, policy, middle); rest != 90*time.Second {
		t.Errorf("asked for 90 s, got %s", rest)
	}
	if rest, refused := DecideRetry(Result{Class: Permanent}, 1, policy, middle); !refused || rest != time.Minute {
		t.Errorf("refused: %v, %s", refused, rest)
	}
	for _, shift := range []func(int64) int64{func(int64) int64 { return 0 }, func(n int64) int64 { return n - 1 }} {
		if rest, _ := DecideRetry(Result{Class: Transient}, 9, policy, shift); rest < 48*time.Second || rest > 72*time.Second {
			t.Errorf("shifted to %s", rest)
		}
	}
}

func TestStatesOfTopics(t *testing.T) {
	t.Parallel()
	for want, p := range map[TopicState]TopicProgress{
		TopicStopped: {Stopped: true, Attempts: 1, Head: 9}, TopicRetrying: {Attempts: 2, Head: 9}, TopicBehind: {Seq: 8, Head: 9}, TopicCurrent: {Seq: 9, Head: 9},
	} {
		if got := p.State(); got != want {
			t.Errorf("%+v is %s", p, got)
		}
	}
	if lag := (&TopicProgress{Seq: 9, Head: 8}).Lag(); lag != 0 { // The head was read before.
		t.Errorf("lag %d", lag)
	}
}
