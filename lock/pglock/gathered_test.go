package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// TestRequestsWithHooksShareTransactions: those that ask for one key while another is on its way, each with hooks of its own, are decided together. Each
// has its own outcome, and those in line are granted the lock in their order.
func TestRequestsWithHooksShareTransactions(t *testing.T) {
	t.Parallel()
	url := database(t)
	b := open(t, url, Options{})
	var asking atomic.Int64
	run := func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
		if name == "lock acquire" {
			asking.Add(1)
		}
		return b.run(ctx, name, fn)
	}
	holder, err := b.Acquire(t.Context(), lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Keys: []string{"k"}, Owner: "holder", TTL: time.Hour})
	testwait.Must(t, err)
	stranger, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{`BEGIN`, `SELECT FROM @lock_keys WHERE key = 'k' FOR UPDATE`} {
		testwait.Must(t, testwait.Err(stranger.Exec(t.Context(), testSchema.in(sql))))
	}
	var (
		order   []int
		mu      sync.Mutex
		waiting sync.WaitGroup
		refused = errors.New("refused by the hook")
	)
	// ask asks, and waits until that is on its way, or with those that are to be asked for.
	ask := func(n int, wait time.Duration, fingerprint string, known func() (bool, error), want error) {
		before := queued(b, "k")
		ctx, over := context.WithCancel(t.Context())
		waiting.Go(func() {
			defer over()
			id := uuid.Must(uuid.NewV7()).String()
			r := lock.Request{ID: id, Keys: []string{"k"}, Owner: fmt.Sprint("owner ", n), TTL: time.Hour, Wait: wait}
			g, err := b.AcquireWith(t.Context(), r, Hooks{
				Request: []byte(fingerprint), Run: run,
				Known: func(_ context.Context, _ pgx.Tx, b *pgx.Batch) func() (bool, error) {
					b.Queue(`SELECT 1`)
					return known
				},
				Granted: func(context.Context, pgx.Tx, lock.Grant) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, n)
					return nil
				},
			})
			if !errors.Is(err, want) {
				t.Errorf("request %d: %v, want %v", n, err, want)
			}
			if err == nil {
				testwait.Check(t, b.Release(t.Context(), g))
			}
		})
		waitFor(t, "it is on its way", func() bool { return queued(b, "k") > before || ctx.Err() != nil })
	}
	fresh := func() (bool, error) { return false, nil }
	const many = 40
	for n := range many {
		ask(n, lock.Forever, fmt.Sprint(n), fresh, nil)
	}
	ask(many, 0, "impatient", fresh, lock.ErrHeld)
	ask(many, lock.Forever, "refused", func() (bool, error) { return false, refused }, refused)
	ask(many, lock.Forever, "answered", func() (bool, error) { return true, nil }, ErrAnswered)
	testwait.Must(t, testwait.Err(stranger.Exec(t.Context(), `ROLLBACK`)))
	waitFor(t, "all are in line", func() bool { return len(waitersOn(t, b, "k")) == many })
	if n := asking.Load(); n > 3 { // The first one's, the one of all that came meanwhile, and one more where the machine took its time.
		t.Errorf("%d transactions put %d requests in line", n, many)
	}
	testwait.Must(t, b.Release(t.Context(), holder))
	waiting.Wait()
	for i, n := range order {
		if i != n {
			t.Fatalf("granted in the order %v", order)
		}
	}
	if len(order) != many {
		t.Errorf("%d were granted the lock", len(order))
	}
}

// queued is how many requests for a key are on their way, or are to be asked for.
func queued(b *Backend, key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.asking[key]; t != nil {
		return t.users
	}
	return 0
}

// TestRepeatsGatheredTogether: of two requests that stand for the same, and are decided in one transaction, one has the lock, and the other one is
// answered with what that one left.
func TestRepeatsGatheredTogether(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	var answered atomic.Bool
	known := func(context.Context, pgx.Tx, *pgx.Batch) func() (bool, error) {
		return func() (bool, error) { return answered.Load(), nil }
	}
	granted := func(context.Context, pgx.Tx, lock.Grant) error { answered.Store(true); return nil }
	batch := make([]*joining, 3)
	for i := range batch {
		batch[i] = &joining{w: &waiter{
			backend: b, wait: lock.Forever, hooks: Hooks{Request: []byte("same"), Known: known, Granted: granted},
			request: request{id: uuid.New(), keys: []string{"k"}, owner: fmt.Sprint(i), ttl: time.Hour.Microseconds(), fingerprint: []byte("same")},
		}}
	}
	testwait.Must(t, b.decideIn(t.Context(), b.run, batch))
	if batch[0].out.grant == nil || !batch[1].out.rival || !batch[2].out.rival {
		t.Errorf("%+v, %+v, %+v", batch[0].out, batch[1].out, batch[2].out)
	}
	testwait.Must(t, b.decideIn(t.Context(), b.run, batch[1:]))
	for _, j := range batch[1:] {
		if !errors.Is(j.err, ErrAnswered) || j.out.grant != nil {
			t.Errorf("%+v, %v", j.out, j.err)
		}
	}
}
