package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// stalled is a sender that stops in the middle of an upload until its context ends or finish is closed.
func stalled(finish <-chan struct{}) *scripted {
	s := &scripted{}
	s.then = func(ctx context.Context, d *publish.Delivery, _ int) publish.Result {
		d.Meter.Begin(publish.StageUploading, 300)
		d.Meter.Sent(100)
		select {
		case <-finish:
			return publish.Result{Class: publish.Delivered, StatusCode: 200}
		case <-ctx.Done():
			return publish.Result{Class: publish.Transient, Error: "cut"}
		}
	}
	return s
}

// TestProgressIsShown has an attempt outlive its claim's age, and shows what it is doing. A machine that stalls for as long costs the attempt: then
// another publication is made.
func TestProgressIsShown(t *testing.T) {
	t.Parallel()
	for tries := 1; !progressIsShown(t); tries++ {
		if tries == 3 {
			t.Fatal("each time, the attempt was lost")
		}
	}
}

// progressIsShown reports false if the attempt was lost.
func progressIsShown(t *testing.T) bool {
	t.Helper()
	p := newPress(t)
	p.target("t")
	finish := make(chan struct{})
	p.work(stalled(finish), func(o *publish.WorkerOptions) { o.StaleAfter, o.SweepEvery = 4*time.Second, 100*time.Millisecond })
	id := p.add("t", 0)
	var last time.Time
	lost := false
	for range 3 {
		testwait.Eventually(t, patience, "a heartbeat tells the progress", func() bool {
			now, err := p.store.Publication(t.Context(), id)
			if err != nil || now.Running == nil || now.Running.HeartbeatAt == nil || !now.Running.HeartbeatAt.After(last) {
				return false
			}
			a := *now.Running
			if a.Version > 1 {
				lost = true
				return true
			}
			if a.Version != 1 || a.Stage != publish.StageUploading || a.SentBytes != 100 || a.TotalBytes != 300 || now.LockedAt == nil {
				t.Fatalf("%+v", a)
			}
			last = *a.HeartbeatAt
			return true
		})
	}
	close(finish)
	testwait.Eventually(t, patience, "it ends", func() bool { return strings.HasPrefix(p.status(id), "published ") })
	if lost || p.status(id) != "published 1" {
		return false
	}
	now, err := p.store.Publication(t.Context(), id)
	attempts, err2 := p.store.Attempts(t.Context(), id, 0, 10)
	if err != nil || err2 != nil || now.Running != nil || len(attempts) != 1 || attempts[0].SentBytes != 100 || attempts[0].Result != publish.ResultPublished {
		t.Errorf("%+v, %+v, %v, %v", now, attempts, err, err2)
	}
	return true
}

// TestDeadWorkerIsNoticed has a worker die in the middle of an attempt whose target may take a quarter of an hour: the claim goes stale
// all the same, and another worker takes over.
func TestDeadWorkerIsNoticed(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	id := p.add("t", 0)
	dead := p.claim(p.slots())[0] // It gives no sign of life after this one.
	if lost, err := p.store.Heartbeat(t.Context(), []publish.Beat{{Claim: dead.Claim, Activity: publish.Activity{Stage: publish.StageUploading, Sent: 7}}}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	var sender scripted
	p.work(&sender, func(o *publish.WorkerOptions) { o.StaleAfter, o.SweepEvery = 4*time.Second, time.Second })
	// A machine that stalls for four seconds costs the other worker's attempt, too: then there is a third.
	testwait.Eventually(t, patience, "another worker has it", func() bool { return strings.HasPrefix(p.status(id), "published ") })
	attempts, err := p.store.Attempts(t.Context(), id, 0, 10)
	if err != nil || len(attempts) < 2 || attempts[0].Result != publish.ResultLost || attempts[0].SentBytes != 7 || attempts[len(attempts)-1].Result != publish.ResultPublished {
		t.Fatalf("%+v, %v", attempts, err)
	}
	if gap := attempts[0].EndedAt.Sub(*attempts[0].HeartbeatAt); gap < 4*time.Second {
		t.Errorf("its claim was lost %v after its last sign of life", gap)
	}
}

// TestAttemptHasATimeout ends a whole attempt, and counts the pause before the next one from there.
func TestAttemptHasATimeout(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	_, err := p.service.Create(t.Context(), own[publish.Op](publish.CreateTarget{Name: "t", Kind: publish.KindWebhook, URL: "https://example.com", Timeout: publish.MinTimeout}))
	testwait.Must(t, err)
	id := p.add("t", 0)
	p.work(stalled(nil), func(o *publish.WorkerOptions) { o.Policy.Backoff = time.Hour })
	testwait.Eventually(t, patience, "it is cut", func() bool { return p.status(id) == "scheduled 1" })
	a, err := p.store.Attempts(t.Context(), id, 0, 1)
	now, err2 := p.store.Publication(t.Context(), id)
	if err != nil || err2 != nil || a[0].Result != publish.ResultFailed || a[0].Error != "the attempt took longer than the target's timeout of 1s" {
		t.Fatalf("%+v, %v, %v", a, err, err2)
	}
	if pause := now.DueAt.Sub(*a[0].EndedAt); pause < 45*time.Minute || a[0].EndedAt.Sub(a[0].StartedAt) < publish.MinTimeout {
		t.Errorf("%v after its end, which came %v after its start", pause, a[0].EndedAt.Sub(a[0].StartedAt))
	}
	if now.Spent != 0 {
		t.Error("a timeout is not counted among the attempts")
	}
}

// TestShutdownsAreNotFailures shuts servers down in the middle of a long attempt, more often than a publication is attempted.
func TestShutdownsAreNotFailures(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	id := p.add("t", 0)
	for i := range publish.MaxAttempts + 1 {
		sender := stalled(nil)
		_, stop := p.work(sender, func(o *publish.WorkerOptions) { o.Drain = 0 })
		testwait.Eventually(t, patience, "it is sent", func() bool { return len(sender.versions(id)) == 1 })
		stop()
		if want := fmt.Sprint("scheduled ", i+1); p.status(id) != want {
			t.Fatalf("%s, want %s", p.status(id), want)
		}
	}
	a, err := p.store.Attempts(t.Context(), id, publish.MaxAttempts, 1)
	if err != nil || a[0].Result != publish.ResultFailed || !strings.Contains(a[0].Error, "shut down") || a[0].EndedAt == nil {
		t.Errorf("%+v, %v", a, err)
	}
	finish := make(chan struct{})
	close(finish)
	p.work(stalled(finish), nil)
	testwait.Eventually(t, patience, "it is published", func() bool { return p.status(id) == fmt.Sprint("published ", publish.MaxAttempts+2) })
}

// TestSlowTargetsStarveNobody has more slow targets than places for all their first attempts, and one that answers.
func TestSlowTargetsStarveNobody(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	slow := map[uuid.UUID]bool{}
	for i := range 12 {
		name := fmt.Sprint("slow", i)
		p.target(name)
		for range 6 {
			slow[p.add(name, 0)] = true
		}
	}
	finish := make(chan struct{})
	sender, stall := &scripted{}, stalled(finish)
	sender.then = func(ctx context.Context, d *publish.Delivery, n int) publish.Result {
		if slow[d.Publication] {
			return stall.then(ctx, d, n)
		}
		return publish.Result{Class: publish.Delivered, StatusCode: 200}
	}
	p.work(sender, func(o *publish.WorkerOptions) { o.Concurrency, o.PerTarget = 32, 32 })
	testwait.Eventually(t, patience, "each slow target has a place", func() bool {
		return ask[int](t, p.db, `SELECT count(DISTINCT target)::int FROM publications WHERE status = 'publishing'`) == 12
	})
	p.target("quick")
	for range 3 {
		id := p.add("quick", 0)
		testwait.Eventually(t, patience, "the quick target is not delayed", func() bool { return p.status(id) == "published 1" })
	}
	close(finish)
	testwait.Eventually(t, 2*patience, "the slow ones end", func() bool {
		return ask[int](t, p.db, `SELECT count(*)::int FROM publications WHERE status <> 'published'`) == 0
	})
}

// brokenOnce fails the first time that the end of a first attempt is recorded, as connections do that broke while the process was stopped.
type brokenOnce struct {
	publish.Queue

	broken atomic.Bool
}

// Conclude implements [publish.Queue].
func (q *brokenOnce) Conclude(ctx context.Context, batch []publish.Conclusion, repace func(*publish.Conclusion, publish.Pace, time.Time) publish.Pace) ([]publish.AttemptResult, error) {
	if slices.ContainsFunc(batch, func(c publish.Conclusion) bool { return c.Version == 1 }) && q.broken.CompareAndSwap(false, true) {
		return nil, errors.New("conn closed")
	}
	return q.Queue.Conclude(ctx, batch, repace)
}

// TestRefusalIsNotedAfterAFailure takes a claim away during its attempt, whose end can't be recorded at first. That the attempt was refused is noted.
func TestRefusalIsNotedAfterAFailure(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	arrived := make(chan struct{}, 1)
	sender := scripted{then: func(ctx context.Context, _ *publish.Delivery, n int) publish.Result {
		if n == 1 {
			arrived <- struct{}{}
			<-ctx.Done()
			return publish.Result{Class: publish.Transient, Error: "too late"}
		}
		return publish.Result{Class: publish.Delivered, StatusCode: 200}
	}}
	var queue *brokenOnce
	p.work(&sender, func(o *publish.WorkerOptions) {
		queue = &brokenOnce{Queue: o.Queue}
		o.Queue, o.StaleAfter = queue, 4*time.Second
	})
	id := p.add("t", 0)
	<-arrived
	testwait.Eventually(t, patience, "the claim goes stale", func() bool {
		exec(t, p.db, `UPDATE publications SET execution_locked_at = execution_locked_at - interval '2 hours' WHERE id = $1`, id)
		n, err := p.store.ReleaseStale(t.Context(), time.Hour)
		testwait.Must(t, err)
		return n == 1 || p.status(id) != "publishing 1"
	})
	testwait.Eventually(t, patience, "the first attempt is refused", func() bool { return strings.HasPrefix(p.results(id), "refused ") })
	if !queue.broken.Load() {
		t.Error("the first attempt's end was recorded at once")
	}
}
