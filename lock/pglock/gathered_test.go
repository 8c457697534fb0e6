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

	"github.com/fairlead-dev/fairlead/internal/pgkit"
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

// TestRequestThatFailsAlone: a request whose hook has PostgreSQL refuse a value fails, and none of those that are decided together with it.
func TestRequestThatFailsAlone(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	holder, err := b.Acquire(t.Context(), lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Keys: []string{"k"}, Owner: "holder", TTL: time.Hour})
	testwait.Must(t, err)
	done, err := b.turnAlone(t.Context(), "k") // All the others wait for theirs.
	testwait.Must(t, err)
	const many = 10
	results := make(chan error, many)
	for n := range many {
		look := `SELECT 1`
		if n == 3 {
			look = `SELECT 'one'::text::int`
		}
		known := func(_ context.Context, _ pgx.Tx, b *pgx.Batch) func() (bool, error) {
			b.Queue(look)
			return func() (bool, error) { return false, nil }
		}
		go func() {
			r := lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Keys: []string{"k"}, Owner: fmt.Sprint("owner ", n), TTL: time.Hour, Wait: lock.Forever}
			g, err := b.AcquireWith(t.Context(), r, Hooks{Known: known})
			if err == nil {
				err = b.Release(t.Context(), g)
			}
			results <- err
		}()
	}
	waitFor(t, "all are to be asked for", func() bool { return queued(b, "k") == many+1 })
	done()
	if err := <-results; pgkit.Code(err) != "22P02" {
		t.Errorf("the one that can't be decided: %v", err)
	}
	waitFor(t, "the others are in line", func() bool { return len(waitersOn(t, b, "k")) == many-1 })
	testwait.Must(t, b.Release(t.Context(), holder))
	for range many - 1 {
		testwait.Check(t, <-results)
	}
}

// TestRequestsGiveUpTogether: requests for one key that give up while its row is locked leave the line by few transactions. One of them that was
// granted the lock meanwhile ends it, and who stays in line is next.
func TestRequestsGiveUpTogether(t *testing.T) {
	t.Parallel()
	url := database(t)
	b := open(t, url, Options{})
	var leaving atomic.Int64
	run := func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
		if name == "lock leave" && ctx.Err() == nil {
			leaving.Add(1)
		}
		return b.run(ctx, name, fn)
	}
	request := func(owner string, wait time.Duration) lock.Request {
		return lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Keys: []string{"k"}, Owner: owner, TTL: time.Hour, Wait: wait}
	}
	holder, err := b.Acquire(t.Context(), request("holder", 0))
	testwait.Must(t, err)
	hooks := Hooks{Run: run, Granted: func(context.Context, pgx.Tx, lock.Grant) error { return nil }}
	gone, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var waiting sync.WaitGroup
	const many = 40
	for n := range many {
		waiting.Go(func() {
			if _, err := b.AcquireWith(gone, request(fmt.Sprint("impatient ", n), lock.Forever), hooks); !errors.Is(err, context.Canceled) {
				t.Errorf("request %d: %v", n, err)
			}
		})
	}
	waitFor(t, "all are in line", func() bool { return len(waitersOn(t, b, "k")) == many })
	patient := make(chan error, 1)
	go func() {
		g, err := b.AcquireWith(t.Context(), request("patient", lock.Forever), hooks)
		if err == nil {
			err = b.Release(t.Context(), g)
		}
		patient <- err
	}()
	waitFor(t, "another is in line", func() bool { return len(waitersOn(t, b, "k")) == many+1 })
	stranger, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{`BEGIN`, `SELECT FROM @lock_keys WHERE key = 'k' FOR UPDATE`} {
		testwait.Must(t, testwait.Err(stranger.Exec(t.Context(), testSchema.in(sql))))
	}
	giveUp()
	waitFor(t, "all are on their way", func() bool { return queued(b, "k") == many })
	// The first of the line has the lock, as if it had been handed over a moment ago.
	for _, sql := range []string{
		`WITH head AS (DELETE FROM @lock_waiters WHERE ticket = (SELECT min(ticket) FROM @lock_waiters) RETURNING *), ended AS (DELETE FROM @lock_grants),
			place AS (DELETE FROM @lock_queue USING head WHERE waiter = head.id),
			g AS (INSERT INTO @lock_grants (id, owner, keys, tokens, ttl_us, hold_us, granted_at, expires_at)
				SELECT id, owner, keys, '{7}', ttl_us, hold_us, clock_timestamp(), clock_timestamp() + interval '1 h' FROM head)
			UPDATE @lock_keys SET token = 7, holder = head.id FROM head`,
		`COMMIT`,
	} {
		testwait.Must(t, testwait.Err(stranger.Exec(t.Context(), testSchema.in(sql))))
	}
	waiting.Wait()
	testwait.Must(t, <-patient)
	if n := leaving.Load(); n > many/2 { // Two, and more where the machine took longer than requests wait for their end.
		t.Errorf("%d transactions for %d requests that gave up", n, many)
	}
	if err := b.Release(t.Context(), holder); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the holder from before: %v", err)
	}
	waitFor(t, "nothing is left", func() bool {
		return count(t, b.pool, testSchema.in(`SELECT (SELECT count(*) FROM @lock_waiters) + (SELECT count(*) FROM @lock_queue) + (SELECT count(*) FROM @lock_grants)`)) == 0
	})
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
