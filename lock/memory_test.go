package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// memory is a backend of one key in memory, by the local clock, whose calls take some time and can be made to fail or hang
// for an owner. It is for tests on fake time: a waiting request looks twice a second.
type memory struct {
	latency time.Duration
	answer  time.Duration // more latency, after the effect

	mu       sync.Mutex
	id       string
	owner    string
	owners   map[string]string // by id
	term     int64
	expires  time.Time
	acquires int
	renews   int
	failing  map[string]bool // owners whose calls fail
	hanging  map[string]bool // owners whose calls hang, after they took effect
}

func newMemory() *memory {
	return &memory{
		latency: 2 * time.Millisecond, owners: map[string]string{}, failing: map[string]bool{}, hanging: map[string]bool{},
	}
}

var errPassing = errors.New("passing trouble")

func (m *memory) call(ctx context.Context, owner string, f func()) error {
	time.Sleep(m.latency / 2)
	m.mu.Lock()
	failing, hanging := m.failing[owner], m.hanging[owner]
	if !failing {
		f()
	}
	m.mu.Unlock()
	if failing {
		return errPassing
	}
	if hanging {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(m.latency/2 + m.answer)
	return ctx.Err()
}

// Acquire implements [lock.Backend].
func (m *memory) Acquire(ctx context.Context, r lock.Request) (g lock.Grant, err error) {
	for {
		granted := false
		var wait time.Duration
		start := time.Now()
		err := m.call(ctx, r.Owner, func() {
			m.acquires++
			if wait = time.Until(m.expires); wait > 0 {
				return
			}
			m.term++
			m.id, m.owner, m.expires, granted = r.ID, r.Owner, time.Now().Add(r.TTL), true
			m.owners[r.ID] = r.Owner
			g = lock.Grant{ID: r.ID, Owner: r.Owner, Tokens: map[string]int64{r.Keys[0]: m.term}, TTL: r.TTL, ExpiresAt: m.expires, Start: start}
		})
		if err != nil || granted {
			return g, err
		}
		if r.Wait == 0 {
			return g, lock.ErrHeld
		}
		select {
		case <-time.After(min(wait, 500*time.Millisecond)):
		case <-ctx.Done():
			return g, context.Cause(ctx)
		}
	}
}

func (m *memory) ownerOf(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners[id]
}

func (m *memory) held(id string) bool { return m.id == id && time.Now().Before(m.expires) }

// Renew implements [lock.Backend].
func (m *memory) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	lost := false
	err := m.call(ctx, m.ownerOf(id), func() {
		m.renews++
		if lost = !m.held(id); !lost {
			m.expires = time.Now().Add(ttl)
		}
	})
	if err == nil && lost {
		err = lock.ErrLost
	}
	return lock.Grant{ID: id}, err
}

// Release implements [lock.Backend].
func (m *memory) Release(ctx context.Context, g lock.Grant) error {
	lost := false
	err := m.call(ctx, m.ownerOf(g.ID), func() {
		if lost = !m.held(g.ID); !lost {
			m.expires = time.Time{}
		}
	})
	if err == nil && lost {
		err = lock.ErrLost
	}
	return err
}

func (m *memory) set(of map[string]bool, owner string, v bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of[owner] = v
}

// tenure is a call of the work.
type tenure struct {
	candidate  string
	term       int64
	start, end time.Time // of the context
	cause      error
}

// record remembers the terms of several candidates, and finds two at a time.
type record struct {
	t *testing.T

	mu      sync.Mutex
	leading int
	tenures []tenure
	told    map[string]bool // by the observer
}

func newRecord(t *testing.T) *record {
	t.Helper()
	return &record{t: t, told: map[string]bool{}}
}

// lead is work that lasts until its context ends.
func (r *record) lead(candidate string) func(context.Context, int64) {
	return func(ctx context.Context, term int64) {
		r.mu.Lock()
		if r.leading++; r.leading > 1 {
			r.t.Errorf("%s leads under %d beside another", candidate, term)
		}
		i := len(r.tenures)
		r.tenures = append(r.tenures, tenure{candidate: candidate, term: term, start: time.Now()})
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		r.leading--
		r.tenures[i].end, r.tenures[i].cause = time.Now(), context.Cause(ctx)
		r.mu.Unlock()
	}
}

// at returns the i-th tenure.
func (r *record) at(i int) tenure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i >= len(r.tenures) {
		r.t.Fatalf("%d tenures: %+v", len(r.tenures), r.tenures)
	}
	return r.tenures[i]
}

func (r *record) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tenures)
}

// leads reports what the observer was told last.
func (r *record) leads(candidate string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[candidate]
}

// campaign runs a candidate and returns what stops it and waits.
func campaign(t *testing.T, b lock.Backend, r *record, candidate string, ttl time.Duration, lead func(context.Context, int64)) (stop func()) {
	t.Helper()
	e, err := lock.NewElection(lock.New(b, lock.LockerOptions{}), "auctions", lock.ElectionOptions{
		Candidate: candidate, TTL: ttl, Observe: func(_ string, _ int64, leading bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told[candidate] = leading
		},
	})
	testwait.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx, lead) })
	return func() {
		cancel()
		running.Wait()
	}
}
