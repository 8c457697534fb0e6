package postgres

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// press is a store of publications with a service on it.
type press struct {
	*testing.T

	db      *DB
	store   *Publications
	service *publish.Service
	vault   *publish.Vault
	wake    func(time.Duration)
}

func newPress(t *testing.T) *press {
	t.Helper()
	vault, err := publish.NewVault(bytes.Repeat([]byte{1}, publish.VaultKeySize))
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, Options{URL: database(t), MaxConns: 12})
	p := &press{T: t, db: db, store: NewPublications(db), vault: vault}
	p.service = publish.NewService(p.store, publish.Options{Vault: vault, Scheduled: func(in time.Duration) {
		if p.wake != nil {
			p.wake(in)
		}
	}})
	t.Cleanup(func() { closing(t, p.service.Close) })
	return p
}

func (p *press) do(id uuid.UUID, op publish.Op) error {
	p.Helper()
	a, err := p.service.Execute(p.Context(), id, own(op))
	if err != nil {
		p.Fatal(err)
	}
	return a.Err
}

func (p *press) target(name string) {
	p.Helper()
	op := publish.CreateTarget{Name: name, Kind: publish.KindWebhook, URL: "https://example.com/" + name, Timeout: publish.MaxTimeout}
	// Nothing of the outside hears these commands, so they have no answer to render.
	if a, err := p.service.Create(p.Context(), own[publish.Op](op)); err != nil || a.Err != nil {
		p.Fatal(err, a.Err)
	}
}

// add makes a publication that is due after a while, or now.
func (p *press) add(target string, in time.Duration) uuid.UUID {
	p.Helper()
	at := ask[time.Time](p.T, p.db, `SELECT clock_timestamp()`).Add(in)
	a, err := p.service.Create(p.Context(), own[publish.Op](publish.Create{Target: target, PublishAt: &at, Payload: []byte(`1`)}))
	if err != nil || a.Err != nil {
		p.Fatal(err, a.Err)
	}
	made, ok := a.Result.(*publish.Publication)
	if !ok {
		p.Fatalf("%T", a.Result)
	}
	return made.ID
}

func (p *press) slots() publish.Slots {
	return publish.Slots{Total: 100, Each: 50, Keys: p.vault.KeyIDs()}
}

func (p *press) claim(s publish.Slots) []*publish.Work {
	p.Helper()
	work, err := p.store.ClaimDue(p.Context(), s)
	if err != nil {
		p.Fatal(err)
	}
	return work
}

func (p *press) conclude(w *publish.Work, r publish.Result) publish.AttemptResult {
	p.Helper()
	c := publish.Conclusion{Claim: w.Claim, Result: r, Target: w.Target.ID, Verdict: publish.Conclude(r, w.Try, publish.Policy{Backoff: time.Hour}, func(int64) int64 { return 0 })}
	results, err := p.store.Conclude(p.Context(), []publish.Conclusion{c}, nil)
	if err != nil {
		p.Fatal(err)
	}
	return results[0]
}

func (p *press) status(id uuid.UUID) string {
	p.Helper()
	return ask[string](p.T, p.db, `SELECT status || ' ' || execution_version FROM publications WHERE id = $1`, id)
}

func (p *press) results(id uuid.UUID) string {
	p.Helper()
	return ask[string](p.T, p.db, `SELECT coalesce(string_agg(coalesce(result, 'running'), ' ' ORDER BY version), '') FROM publication_attempts WHERE publication = $1`, id)
}

// scripted is a sender that does what a test says.
type scripted struct {
	mu    sync.Mutex
	sent  map[uuid.UUID][]int64
	times map[uuid.UUID]time.Time
	then  func(ctx context.Context, d *publish.Delivery, n int) publish.Result
}

func (s *scripted) Send(ctx context.Context, d *publish.Delivery) publish.Result {
	s.mu.Lock()
	if s.sent == nil {
		s.sent, s.times = map[uuid.UUID][]int64{}, map[uuid.UUID]time.Time{}
	}
	s.sent[d.Publication] = append(s.sent[d.Publication], d.Version)
	s.times[d.Publication] = time.Now()
	n := len(s.sent[d.Publication])
	s.mu.Unlock()
	if s.then != nil {
		return s.then(ctx, d, n)
	}
	return publish.Result{Class: publish.Delivered, StatusCode: 200}
}

func (s *scripted) versions(id uuid.UUID) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int64(nil), s.sent[id]...)
}

// work runs a worker as another process would have it, until the test ends or stop is called.
func (p *press) work(sender publish.Sender, change func(*publish.WorkerOptions)) (w *publish.Worker, stop func()) {
	p.Helper()
	o := publish.WorkerOptions{
		Queue: NewPublications(open(p.T, Options{URL: p.db.pool.Config().ConnString(), MaxConns: 8})), Vault: p.vault,
		Senders: map[publish.Kind]publish.Sender{publish.KindWebhook: sender}, Policy: publish.Policy{Backoff: 10 * time.Millisecond},
		StaleAfter: time.Hour, SweepEvery: time.Hour, Drain: patience,
	}
	if change != nil {
		change(&o)
	}
	w = publish.NewWorker(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	stop = func() { cancel(); <-done }
	p.Cleanup(stop)
	return w, stop
}

// tooLate reports whether a claim was later than a machine that is at rest lets it be, in seconds: workers look every second.
func tooLate(seconds float64) bool { return testwait.Torture() && seconds > 10 }

func TestNothingIsClaimedBeforeItIsDue(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	later := p.add("t", time.Hour)
	if work := p.claim(p.slots()); len(work) != 0 {
		t.Fatalf("claimed %d before their time", len(work))
	}
	sooner := p.add("t", 300*time.Millisecond)
	next, err := p.store.NextDue(t.Context(), p.slots())
	if err != nil || next.In == nil || *next.In > 300*time.Millisecond || !next.Whole {
		t.Errorf("next due: %+v, %v", next, err)
	}
	var sender scripted
	p.work(&sender, nil)
	testwait.Eventually(t, patience, "the sooner one is published", func() bool { return p.status(sooner) == "published 1" })
	if p.status(later) != "scheduled 0" {
		t.Error(p.status(later))
	}
	if early := ask[int](t, p.db, `SELECT count(*)::int FROM publication_attempts a JOIN publications p ON p.id = a.publication WHERE a.started_at < p.publish_at`); early != 0 {
		t.Errorf("%d attempts before their time", early)
	}
	if late := ask[float64](t, p.db, `SELECT extract(epoch FROM published_at - publish_at)::float8 FROM publications WHERE id = $1`, sooner); tooLate(late) {
		t.Errorf("%v s late", late)
	}
}

// TestCancelRacesClaim has cancellations race claims: what is cancelled is never sent.
func TestCancelRacesClaim(t *testing.T) {
	t.Parallel()
	n := 400
	if on, err := strconv.ParseBool(os.Getenv("FAIRLEAD_TORTURE")); err == nil && on {
		n = 10_000
	}
	p := newPress(t)
	p.target("t")
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = p.add("t", 50*time.Millisecond)
	}
	var sender scripted
	for range 2 {
		p.work(&sender, nil)
	}
	var wg sync.WaitGroup
	cancelled := make([]bool, n)
	for i := range ids {
		wg.Go(func() { cancelled[i] = p.do(ids[i], publish.Cancel{}) == nil })
		if i%40 == 39 {
			wg.Wait()
		}
	}
	wg.Wait()
	testwait.Eventually(t, patience, "all are decided", func() bool {
		return ask[int](t, p.db, `SELECT count(*)::int FROM publications WHERE status NOT IN ('published', 'cancelled')`) == 0
	})
	sent := 0
	for i, id := range ids {
		times := len(sender.versions(id))
		sent += times
		if cancelled[i] && times != 0 || !cancelled[i] && times != 1 {
			t.Errorf("cancelled %v, sent %d times, %s", cancelled[i], times, p.status(id))
		}
	}
	t.Logf("%d of %d sent", sent, n)
}

// TestWorkersShareTheWork lets five processes publish what is due at once: everything once, nothing late.
func TestWorkersShareTheWork(t *testing.T) {
	t.Parallel()
	const n = 500
	p := newPress(t)
	for i := range 5 {
		p.target(fmt.Sprint("t", i))
	}
	ids := make([]uuid.UUID, n)
	at := ask[time.Time](t, p.db, `SELECT clock_timestamp()`).Add(3 * time.Second)
	var making sync.WaitGroup
	for i := range ids {
		making.Go(func() {
			a, err := p.service.Create(t.Context(), own[publish.Op](publish.Create{Target: fmt.Sprint("t", i%5), PublishAt: &at, Payload: []byte(`1`)}))
			if made, ok := a.Result.(*publish.Publication); ok && err == nil {
				ids[i] = made.ID
			}
		})
	}
	making.Wait()
	var sender scripted
	for range 5 {
		p.work(&sender, nil)
	}
	began := ask[time.Time](t, p.db, `SELECT clock_timestamp()`)
	testwait.Eventually(t, patience, "all are published", func() bool {
		return ask[int](t, p.db, `SELECT count(*)::int FROM publications WHERE status = 'published'`) == n
	})
	for _, id := range ids {
		if v := sender.versions(id); len(v) != 1 || v[0] != 1 {
			t.Errorf("sent with versions %v", v)
		}
	}
	// Making them all may have taken longer than until they were due.
	late := ask[float64](t, p.db, `SELECT extract(epoch FROM max(started_at) - greatest($1::timestamptz, $2))::float8 FROM publication_attempts`, at, began)
	if tooLate(late) {
		t.Errorf("claimed up to %v s late", late)
	}
	t.Logf("claimed up to %.3f s late", late)
}

// TestFreedSlotsAreUsedAtOnce has more due than a target may have at once: the next is claimed as one ends, not a poll later.
func TestFreedSlotsAreUsedAtOnce(t *testing.T) {
	t.Parallel()
	const n = 40
	p := newPress(t)
	p.target("t")
	for range n {
		p.add("t", 0)
	}
	var sender scripted
	p.work(&sender, func(o *publish.WorkerOptions) { o.PerTarget = 2 })
	testwait.Eventually(t, patience, "all are published", func() bool {
		return ask[int](t, p.db, `SELECT count(*)::int FROM publications WHERE status = 'published'`) == n
	})
	// By polling alone, each pair would begin a second after the one before. A machine that stalls delays some.
	if gap := ask[float64](t, p.db, `SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY gap) FROM (
		SELECT extract(epoch FROM started_at - lag(started_at, 2) OVER (ORDER BY started_at))::float8 AS gap FROM publication_attempts) AS gaps`); gap > 0.9 {
		t.Errorf("most wait for longer than %v s", gap)
	}
}

// TestLateFinishIsRefused lets a claim go stale. What it brings back later is noted, and nothing else.
func TestLateFinishIsRefused(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	id := p.add("t", 0)
	old := p.claim(p.slots())[0]
	if n, err := p.store.ReleaseStale(t.Context(), time.Hour); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	exec(t, p.db, `UPDATE publications SET execution_locked_at = execution_locked_at - interval '2 hours'`)
	if n, err := p.store.ReleaseStale(t.Context(), time.Hour); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if p.status(id) != "scheduled 1" || p.results(id) != "lost" {
		t.Fatal(p.status(id), p.results(id))
	}
	// Before the next claim, while it runs, and after it has ended.
	if got := p.conclude(old, publish.Result{Class: publish.Delivered, StatusCode: 200}); got != publish.ResultRefused {
		t.Errorf("recorded %q", got)
	}
	if p.status(id) != "scheduled 1" || p.results(id) != "refused" {
		t.Fatal(p.status(id), p.results(id))
	}
	fresh := p.claim(p.slots())[0]
	if fresh.Version != 2 || fresh.LockID == old.LockID || fresh.Try != 2 {
		t.Fatalf("%+v", fresh)
	}
	for _, class := range []publish.Class{publish.Delivered, publish.Permanent} {
		if got := p.conclude(old, publish.Result{Class: class, Error: "late"}); got != "" {
			t.Errorf("recorded %q again", got)
		}
	}
	if lost, err := p.store.Heartbeat(t.Context(), []publish.Beat{{Claim: old.Claim}, {Claim: fresh.Claim}}); err != nil || len(lost) != 1 || lost[0] != old.Claim {
		t.Errorf("lost %v, %v", lost, err)
	}
	forged := *fresh
	forged.Version++
	if got := p.conclude(&forged, publish.Result{Class: publish.Delivered}); got != "" || p.status(id) != "publishing 2" {
		t.Errorf("recorded %q under a version that is not", got)
	}
	if got := p.conclude(fresh, publish.Result{Class: publish.Delivered, StatusCode: 202, ExternalID: "x"}); got != publish.ResultPublished {
		t.Errorf("recorded %q", got)
	}
	// The end of an attempt that is recorded again, because nobody knew whether it was, changes nothing.
	if got := p.conclude(fresh, publish.Result{Class: publish.Permanent}); got != "" || p.status(id) != "published 2" || p.results(id) != "refused published" {
		t.Error(got, p.status(id), p.results(id))
	}
	// Whoever loses every claim fails in the end.
	id = p.add("t", 0)
	for i := range publish.MaxAttempts {
		if work := p.claim(p.slots()); len(work) != 1 || work[0].Try != i+1 {
			t.Fatalf("try %d: %+v", i+1, work)
		}
		exec(t, p.db, `UPDATE publications SET execution_locked_at = execution_locked_at - interval '2 hours' WHERE id = $1`, id)
		if n, err := p.store.ReleaseStale(t.Context(), time.Hour); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if p.status(id) != "failed 7" {
		t.Error(p.status(id))
	}
	if err := p.do(id, publish.Retry{}); err != nil || len(p.claim(p.slots())) != 1 {
		t.Error("a retry gives no new attempts", err)
	}
}

// TestStoppedWorkerIsRefused has a worker that hangs in its attempt without a sign of life, as a stopped process would.
func TestStoppedWorkerIsRefused(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	asleep, wake := make(chan struct{}), make(chan struct{})
	var first, second scripted
	first.then = func(context.Context, *publish.Delivery, int) publish.Result {
		close(asleep)
		<-wake
		return publish.Result{Class: publish.Delivered, StatusCode: 200}
	}
	id := p.add("t", 0)
	// Its heartbeats come every minute, so within this test it gives no sign of life. It has no room for a second attempt.
	_, stop := p.work(&first, func(o *publish.WorkerOptions) { o.PerTarget = 1 })
	<-asleep
	// A claim lives long enough for the attempt to begin on a machine that stalls: under one that may have died it would not.
	p.work(&second, func(o *publish.WorkerOptions) { o.StaleAfter, o.SweepEvery = 4*time.Second, time.Second })
	testwait.Eventually(t, patience, "the other worker has it", func() bool { return p.status(id) == "published 2" })
	close(wake)
	stop()
	if p.results(id) != "refused published" || p.status(id) != "published 2" {
		t.Error(p.results(id), p.status(id))
	}
	if v := second.versions(id); len(v) != 1 || v[0] != 2 {
		t.Errorf("sent with versions %v", v)
	}
}

// TestHeartbeatKeepsAClaim has an attempt that ends after six heartbeats: a claim dies when the fourth has not come.
func TestHeartbeatKeepsAClaim(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	var slow scripted
	end := make(chan struct{})
	slow.then = func(ctx context.Context, _ *publish.Delivery, _ int) publish.Result {
		select {
		case <-end:
			return publish.Result{Class: publish.Delivered, StatusCode: 200}
		case <-ctx.Done():
			return publish.Result{Class: publish.Transient, Error: "cut"}
		}
	}
	id := p.add("t", 0)
	p.work(&slow, func(o *publish.WorkerOptions) { o.StaleAfter, o.SweepEvery = 4*time.Second, 100*time.Millisecond })
	testwait.Eventually(t, patience, "it is claimed", func() bool { return p.status(id) == "publishing 1" })
	lockedAt := func() time.Time {
		return ask[time.Time](t, p.db, `SELECT execution_locked_at FROM publications WHERE id = $1`, id)
	}
	for range 6 {
		last := lockedAt()
		testwait.Eventually(t, patience, "a heartbeat renews the claim", func() bool { return lockedAt().After(last) })
	}
	close(end)
	testwait.Eventually(t, patience, "it ends", func() bool { return p.results(id) != "" && p.results(id) != "running" })
	if p.results(id) != "published" {
		t.Error(p.results(id))
	}
}

// TestShutdown drains: what is under way is ended and recorded, or cut when it takes too long.
func TestShutdown(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	for _, patient := range []bool{true, false} {
		id := p.add("t", 0)
		running := make(chan struct{})
		var sender scripted
		sender.then = func(ctx context.Context, _ *publish.Delivery, _ int) publish.Result {
			close(running)
			// The impatient worker is stopped long before that.
			timer := time.NewTimer(map[bool]time.Duration{true: 500 * time.Millisecond, false: patience}[patient])
			defer timer.Stop()
			select {
			case <-timer.C:
				return publish.Result{Class: publish.Delivered, StatusCode: 200}
			case <-ctx.Done():
				return publish.Result{Class: publish.Transient, Error: "cut"}
			}
		}
		_, stop := p.work(&sender, func(o *publish.WorkerOptions) {
			if o.Policy.Backoff = time.Hour; !patient {
				o.Drain = 0
			}
		})
		<-running
		stop()
		want := "published 1"
		if !patient {
			want = "scheduled 1"
		}
		if got := p.status(id); got != want {
			t.Errorf("patient %v: %s, want %s", patient, got, want)
		}
	}
}

// TestAClaimWhoseCommitIsLost finds what it claimed by its lock id, or claims again: one attempt either way, and nothing that
// lies claimed by nobody.
func TestAClaimWhoseCommitIsLost(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]wire.Fate{
		"applied": wire.AnswerLost, "not applied": wire.CommitLost, "open": wire.OutcomeOpen,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPress(t)
			p.target("t")
			id := p.add("t", 0)
			db, proxy, seen := behindProxy(t, p.db.pool.Config().ConnString(), fate)
			// The rerun passes over what is locked, so the cut connection's backend must have ended what it has begun.
			pid := ask[int](t, db, `SELECT pg_backend_pid()`)
			seen.onRetry = func(string) {
				testwait.Eventually(t, patience, "the outcome is settled", func() bool {
					return ask[int](t, p.db, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid) == 0
				})
			}
			proxy.Arm(true)
			work, err := NewPublications(db).ClaimDue(t.Context(), p.slots())
			if err != nil {
				t.Fatal(err)
			}
			expectRuns(t, seen, "committed", "commit_unknown")
			if proxy.Stats().Lost() != 1 {
				t.Errorf("the proxy did %+v", proxy.Stats())
			}
			if len(work) != 1 || work[0].ID != id || work[0].Try != 1 || work[0].Target.Name != "t" || string(work[0].Payload) != "1" {
				t.Fatalf("%+v", work)
			}
			if p.status(id) != "publishing 1" || p.results(id) != "running" {
				t.Errorf("%s, attempts: %s", p.status(id), p.results(id))
			}
			if got := p.conclude(work[0], publish.Result{Class: publish.Delivered, StatusCode: 200}); got != publish.ResultPublished {
				t.Errorf("its end: %s", got)
			}
		})
	}
}
