package pgstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const patience = testwait.Patience

func count(normal, torture int) int {
	if os.Getenv("FAIRLEAD_TORTURE") == "1" {
		return torture
	}
	return normal
}

const insertEffect = `INSERT INTO effects (id, fence) VALUES ($1, $2)`

func effects(t *testing.T, pool *pgxpool.Pool, id idempotency.ID) (n int) {
	t.Helper()
	testwait.Must(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM effects WHERE id = $1`, id[:]).Scan(&n))
	return n
}

func request(key, content string) idempotency.Request {
	return idempotency.Request{
		ID: idempotency.NewID("", http.MethodPost, "example.com/a", key), Fingerprint: idempotency.NewFingerprint([]byte(content)), Execution: uuid.New(),
	}
}

// TestLeaseWrittenByAClockThatWasAhead: a key is free, or parked, a lease after the first request that meets it in flight.
func TestLeaseWrittenByAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrate)
	step := pgtest.Clock(t, url)
	step(time.Hour)
	s := New(connect(t, url, 4), Options{})
	terms := idempotency.Terms{Lease: time.Second, Retention: 24 * time.Hour}
	for policy, want := range map[idempotency.CrashPolicy]idempotency.Phase{
		idempotency.FreeAfterLease: idempotency.Started, idempotency.ParkAsUnknown: idempotency.Unknown,
	} {
		step(time.Hour)
		terms.OnCrash = policy
		r := request(uuid.NewString(), "content")
		dead, err := s.Begin(t.Context(), r, terms)
		testwait.Must(t, err)
		step(0)
		r.Execution = uuid.New()
		e, err := s.Begin(t.Context(), r, terms)
		if err != nil || e.Phase != idempotency.InFlight || e.LeaseLeft > terms.Lease {
			t.Fatalf("after the step: %+v, %v", e, err)
		}
		testwait.Eventually(t, patience, "the lease is over", func() bool {
			e, err = s.Begin(t.Context(), r, terms)
			testwait.Must(t, err)
			return e.Phase != idempotency.InFlight
		})
		if e.Phase != want {
			t.Errorf("the key is %v, want %v", e.Phase, want)
		}
		if err := s.Extend(t.Context(), dead.Grant, terms.Lease); !errors.Is(err, idempotency.ErrLost) {
			t.Errorf("the dead execution's extension: %v", err)
		}
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	const copies = 20
	pool := connect(t, pgtest.NewDatabase(t, migrate), 10)
	s := New(pool, Options{})
	errLost := errors.New("this transaction is rolled back")
	for range count(5, 300) {
		var (
			wg      sync.WaitGroup
			runs    atomic.Int32
			fresh   atomic.Int32
			key     = uuid.NewString()
			answers [copies]string
		)
		for i := range answers {
			wg.Go(func() {
				for {
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						r := request(key, "content")
						a, replayed, err := s.Do(t.Context(), tx, r, func(ctx context.Context) (idempotency.Response, error) {
							_, err := tx.Exec(ctx, insertEffect, r.ID[:], 0)
							return idempotency.Response{Status: 1, Body: []byte(r.Execution.String())}, err
						})
						if err != nil {
							return err
						}
						// The first two that get this far leave nothing behind.
						if !replayed && runs.Add(1) <= 2 {
							return errLost
						}
						if !replayed {
							fresh.Add(1)
						}
						answers[i] = string(a.Body)
						return nil
					})
					if err == nil {
						return
					}
					if !errors.Is(err, errLost) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := effects(t, pool, request(key, "").ID); n != 1 || fresh.Load() != 1 {
			t.Errorf("I1: %d effects, %d fresh answers", n, fresh.Load())
		}
		for _, a := range answers {
			if a == "" || a != answers[0] {
				t.Errorf("I2: %q and %q", a, answers[0])
			}
		}
	}
}

func TestDoRefuses(t *testing.T) {
	t.Parallel()
	pool := connect(t, pgtest.NewDatabase(t, migrate), 4)
	s := New(pool, Options{})
	do := func(r idempotency.Request, fail error) error {
		var out error
		// Committed whatever Do says, as by a caller who has forgotten.
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, _, out = s.Do(t.Context(), tx, r, func(context.Context) (idempotency.Response, error) { return idempotency.Response{Status: 200}, fail })
			return nil
		})
		return errors.Join(out, err)
	}
	errOwn := errors.New("not valid")
	if err := do(request("k", "1"), errOwn); !errors.Is(err, errOwn) {
		t.Errorf("its own error: %v", err)
	}
	if err := do(request("k", "2"), nil); err != nil { // So the key was free again.
		t.Error(err)
	}
	if err := do(request("k", "3"), nil); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("a key that is reused: %v", err)
	}
	for policy, want := range map[idempotency.CrashPolicy]error{idempotency.FreeAfterLease: ErrInFlight, idempotency.ParkAsUnknown: ErrUnknown} {
		lease := map[idempotency.CrashPolicy]time.Duration{idempotency.FreeAfterLease: time.Hour, idempotency.ParkAsUnknown: time.Microsecond}[policy]
		_, err := s.Begin(t.Context(), request(fmt.Sprint(policy), "1"), idempotency.Terms{Lease: lease, Retention: time.Hour, OnCrash: policy})
		testwait.Must(t, err)
		if err := do(request(fmt.Sprint(policy), "1"), nil); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	s = New(pool, Options{Retention: -time.Hour}) // The keys would be free at once.
	if err := do(request("another", "1"), nil); !errors.Is(err, idempotency.ErrBadOptions) {
		t.Errorf("a retention that is over before it begins: %v", err)
	}
}

// shop is a handler that has its effect and completes its key in one transaction, and can be held up on the way.
type shop struct {
	pool *pgxpool.Pool
	keys *Store
	hold func(at string)
}

// The points of a handler's way.
func points() []string { return []string{"begun", "effect", "completed", "committed"} }

// ServeHTTP implements [http.Handler].
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g, _ := idempotency.FromContext(r.Context())
	s.hold("begun")
	err := pgx.BeginFunc(context.Background(), s.pool, func(tx pgx.Tx) error {
		ctx := context.Background() // A handler that doesn't heed its context is fenced all the same.
		if _, err := tx.Exec(ctx, insertEffect, g.ID[:], g.Fence); err != nil {
			return err
		}
		s.hold("effect")
		answer := idempotency.Response{Status: http.StatusCreated, Body: []byte(g.Execution.String())}
		if err := s.keys.CompleteIn(ctx, tx, g, answer); err != nil {
			return err
		}
		s.hold("completed")
		return nil
	})
	s.hold("committed")
	if err != nil {
		http.Error(w, "not applied", http.StatusServiceUnavailable)
	}
}

func (s *shop) wrap(lease time.Duration) (http.Handler, error) {
	m, err := idempotency.New(idempotency.Options{Store: s.keys, Principal: idempotency.Everybody, Lease: lease})
	if err != nil {
		return nil, err
	}
	return m.Wrap(s), nil
}

func ask(h http.Handler, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/a", strings.NewReader("x"))
	r.Header.Set(idempotency.KeyHeader, key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func newShop(t *testing.T, url string, lease time.Duration, hold func(string)) (*shop, http.Handler) {
	t.Helper()
	pool := connect(t, url, 6)
	s := &shop{pool: pool, keys: New(pool, Options{}), hold: hold}
	h, err := s.wrap(lease)
	testwait.Must(t, err)
	return s, h
}

// victimEnv makes this test binary a process that executes one request and is killed on the way.
const victimEnv = "FAIRLEAD_IDEMPOTENCY_VICTIM"

// victim executes a request, says where it has come to, and waits to be killed at the point that it was told.
func victim(order string) error {
	at, rest, _ := strings.Cut(order, " ")
	key, url, _ := strings.Cut(rest, " ")
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	s := &shop{pool: pool, keys: New(pool, Options{}), hold: func(now string) {
		if now == at {
			fmt.Println("at", now)
			select {}
		}
	}}
	h, err := s.wrap(idempotency.MinLease)
	if err != nil {
		return err
	}
	return fmt.Errorf("not killed, but answered %d", ask(h, key).Code)
}

// TestKilledAtEachPoint kills processes with SIGKILL: whatever the point, a retry ends with one effect and its answer.
func TestKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrate)
	live, h := newShop(t, url, time.Minute, func(string) {})
	for _, at := range points() {
		for range count(2, 100) {
			key := uuid.NewString()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), victimEnv+"="+at+" "+key+" "+url)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			testwait.Must(t, err)
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "at "+at+"\n" {
				t.Errorf("it says %q, %v", line, err)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			answer := persist(t, h, key)
			if n := effects(t, live.pool, request(key, "").ID); n != 1 {
				t.Errorf("%s: %d effects", at, n)
			}
			for range 2 {
				if again := ask(h, key); again.Code != 201 || again.Body.String() != answer {
					t.Errorf("%s: %d %s, want %s", at, again.Code, again.Body, answer)
				}
			}
		}
	}
}

func persist(t *testing.T, h http.Handler, key string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		w := ask(h, key)
		if w.Code == http.StatusCreated {
			return w.Body.String()
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %d %s", w.Code, w.Body)
		}
	}
}

// TestStoppedHandlerRollsBack: one that wakes after its key was taken over can't complete, and so has no effect.
func TestStoppedHandlerRollsBack(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrate)
	live, h := newShop(t, url, time.Minute, func(string) {})
	stopped, _ := newShop(t, url, time.Minute, nil)
	for i := range count(4, 200) {
		at := points()[i%2] // Before its transaction, and within it.
		held, wake := make(chan struct{}), make(chan struct{})
		stopped.hold = func(now string) {
			if now == at {
				close(held)
				<-wake
			}
		}
		key := uuid.NewString()
		// Nobody extends the lease of a process that is stopped.
		m, err := idempotency.New(idempotency.Options{Store: frozen{stopped.keys}, Principal: idempotency.Everybody, Lease: idempotency.MinLease})
		testwait.Must(t, err)
		var late *httptest.ResponseRecorder
		var wg sync.WaitGroup
		wg.Go(func() { late = ask(m.Wrap(stopped), key) })
		<-held
		answer := persist(t, h, key)
		close(wake)
		wg.Wait()
		if late.Code != http.StatusCreated || late.Body.String() != answer || late.Header().Get(idempotency.ReplayedHeader) != "true" {
			t.Errorf("%s: the late one is told %d %s, the other %s", at, late.Code, late.Body, answer)
		}
		if n := effects(t, live.pool, request(key, "").ID); n != 1 {
			t.Errorf("%s: %d effects", at, n)
		}
	}
}

// frozen is a store whose leases are not extended.
type frozen struct{ idempotency.Store }

// Extend implements [idempotency.Store].
func (frozen) Extend(context.Context, idempotency.Grant, time.Duration) error {
	return errors.New("stopped")
}
