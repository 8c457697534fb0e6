package leader_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/leader"
)

const name = "auctions"

// memory is a lease in memory, by the local clock, whose calls take some time and can be made to fail or hang.
type memory struct {
	latency time.Duration
	answer  time.Duration // more latency, after the effect

	mu       sync.Mutex
	holder   string
	term     int64
	expires  time.Time
	acquires int
	renews   int
	failing  map[string]bool // holders whose calls fail
	hanging  map[string]bool // holders whose calls hang, after they took effect
}

func newMemory() *memory {
	return &memory{latency: 2 * time.Millisecond, failing: map[string]bool{}, hanging: map[string]bool{}}
}

var errPassing = errors.New("passing trouble")

func (m *memory) call(ctx context.Context, holder string, f func()) error {
	time.Sleep(m.latency / 2)
	m.mu.Lock()
	failing, hanging := m.failing[holder], m.hanging[holder]
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

func (m *memory) Acquire(ctx context.Context, _, holder string, ttl time.Duration) (term int64, ok bool, wait time.Duration, err error) {
	err = m.call(ctx, holder, func() {
		m.acquires++
		if wait = time.Until(m.expires); wait > 0 {
			return
		}
		m.term++
		m.holder, m.expires = holder, time.Now().Add(ttl)
		term, ok, wait = m.term, true, 0
	})
	return term, ok, wait, err
}

func (m *memory) held(holder string, term int64) bool {
	return m.holder == holder && m.term == term && time.Now().Before(m.expires)
}

func (m *memory) Renew(ctx context.Context, _, holder string, term int64, ttl time.Duration) (ok bool, err error) {
	err = m.call(ctx, holder, func() {
		m.renews++
		if ok = m.held(holder, term); ok {
			m.expires = time.Now().Add(ttl)
		}
	})
	return ok, err
}

func (m *memory) Resign(ctx context.Context, _, holder string, term int64) error {
	lost := false
	err := m.call(ctx, holder, func() {
		if lost = !m.held(holder, term); !lost {
			m.expires = time.Time{}
		}
	})
	if err == nil && lost {
		return leader.ErrLeaseLost
	}
	return err
}

func (m *memory) set(of map[string]bool, holder string, v bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of[holder] = v
}

// tenure is a call of the work.
type tenure struct {
	holder     string
	term       int64
	start, end time.Time // of the context
	cause      error
}

// record remembers the tenures of several electors, and finds two at a time.
type record struct {
	t *testing.T

	mu      sync.Mutex
	leading int
	tenures []tenure
	changed chan struct{}
	told    map[string]bool // by the observer
}

func newRecord(t *testing.T) *record {
	t.Helper()
	return &record{t: t, changed: make(chan struct{}, 1000), told: map[string]bool{}}
}

// lead is work that lasts until its context ends.
func (r *record) lead(holder string) func(context.Context, int64) {
	return func(ctx context.Context, term int64) {
		r.mu.Lock()
		if r.leading++; r.leading > 1 {
			r.t.Errorf("%s leads under %d beside another", holder, term)
		}
		i := len(r.tenures)
		r.tenures = append(r.tenures, tenure{holder: holder, term: term, start: time.Now()})
		r.mu.Unlock()
		r.changed <- struct{}{}
		<-ctx.Done()
		r.mu.Lock()
		r.leading--
		r.tenures[i].end, r.tenures[i].cause = time.Now(), context.Cause(ctx)
		r.mu.Unlock()
		r.changed <- struct{}{}
	}
}

type observer struct {
	*record

	holder string
}

func (o observer) Leading(_ string, _ int64, leading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told[o.holder] = leading
}

// at returns the i-th tenure, once it is there.
func (r *record) at(i int) tenure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i >= len(r.tenures) {
		r.t.Fatalf("%d tenures: %+v", len(r.tenures), r.tenures)
	}
	return r.tenures[i]
}

// wait waits for the next beginning or end of a tenure.
func (r *record) wait() {
	r.t.Helper()
	select {
	case <-r.changed:
	case <-time.After(patience):
		r.t.Fatal("no tenure began or ended")
	}
}

func (r *record) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tenures)
}

// leads reports what the observer was told last.
func (r *record) leads(holder string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[holder]
}

// campaign starts an elector and returns what stops it and waits.
func campaign(t *testing.T, lease leader.Lease, r *record, holder string, ttl time.Duration, lead func(context.Context, int64)) (stop func()) {
	t.Helper()
	e, err := leader.New(leader.Options{
		Lease: lease, Name: name, Holder: holder, TTL: ttl, Observer: observer{record: r, holder: holder},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx, lead) })
	return func() {
		cancel()
		running.Wait()
	}
}

func TestALeaderStaysAsLongAsItRenews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		stopA := campaign(t, m, r, "a", 0, r.lead("a"))
		time.Sleep(20 * time.Millisecond)
		stopB := campaign(t, m, r, "b", 0, r.lead("b"))
		time.Sleep(10 * time.Minute)
		if n := r.count(); n != 1 || !r.leads("a") || r.leads("b") {
			t.Errorf("%d tenures, a leads: %t, b leads: %t", n, r.leads("a"), r.leads("b"))
		}
		// Once a third of the TTL, and once each half second.
		m.mu.Lock()
		if m.renews < 590 || m.renews > 601 || m.acquires < 1150 || m.acquires > 1202 {
			t.Errorf("%d renewals, %d tries", m.renews, m.acquires)
		}
		m.mu.Unlock()
		resigned := time.Now()
		stopA()
		if first := r.at(0); !errors.Is(first.cause, context.Canceled) || !first.end.Equal(resigned) || r.leads("a") {
			t.Errorf("the first tenure was %+v", first)
		}
		time.Sleep(time.Second)
		if second := r.at(1); second.holder != "b" || second.term != 2 || second.start.Sub(resigned) > 520*time.Millisecond {
			t.Errorf("the second tenure was %+v", second)
		}
		stopB()
	})
}

func TestATenureEndsBeforeTheLeaseCanHaveExpired(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for what, trouble := range map[string]func(*memory) map[string]bool{
		"failing": func(m *memory) map[string]bool { return m.failing },
		"hanging": func(m *memory) map[string]bool { return m.hanging },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, r := newMemory(), newRecord(t)
				stopA := campaign(t, m, r, "a", ttl, r.lead("a"))
				time.Sleep(20 * time.Millisecond)
				stopB := campaign(t, m, r, "b", ttl, r.lead("b"))
				time.Sleep(time.Minute)
				m.set(trouble(m), "a", true)
				cut := time.Now()
				time.Sleep(10 * time.Second)
				first, second := r.at(0), r.at(1)
				if !errors.Is(first.cause, leader.ErrLeaseLost) {
					t.Errorf("ended by %v", first.cause)
				}
				if first.end.Sub(cut) > ttl-leader.Margin(ttl) {
					t.Errorf("ended %s after the last renewal", first.end.Sub(cut))
				}
				// A hanging renewal may have taken effect, once a second, until the tenure's end.
				if gap := second.start.Sub(first.end); gap < leader.Margin(ttl) || second.start.Sub(cut) > 2*ttl+500*time.Millisecond {
					t.Errorf("next %s later, %s after the cut", gap, second.start.Sub(cut))
				}
				if second.term != 2 {
					t.Errorf("second %+v", second)
				}
				stopA()
				stopB()
			})
		})
	}
}

// TestTheDeadlineCountsFromTheAttempt has answers that take their time: the lease is older than they are.
func TestTheDeadlineCountsFromTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		m.answer = 450 * time.Millisecond
		stop := campaign(t, m, r, "a", 3*time.Second, r.lead("a"))
		time.Sleep(time.Minute)
		m.set(m.failing, "a", true)
		time.Sleep(10 * time.Second)
		if first := r.at(0); first.end.IsZero() || m.expires.Sub(first.end) < leader.Margin(3*time.Second) {
			t.Errorf("ended %s before the expiry", m.expires.Sub(first.end))
		}
		stop()
	})
}

func TestPassingTroubleCostsNoLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		stop := campaign(t, m, r, "a", 3*time.Second, r.lead("a"))
		for i := range 20 {
			time.Sleep(3 * time.Second)
			trouble, lasts := m.failing, 1600*time.Millisecond
			if i%2 == 0 {
				trouble, lasts = m.hanging, 450*time.Millisecond
			}
			m.set(trouble, "a", true)
			time.Sleep(lasts)
			m.set(trouble, "a", false)
		}
		if n := r.count(); n != 1 {
			t.Errorf("%d tenures", n)
		}
		stop()
	})
}

func TestARefusedRenewalEndsTheTenureAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		stop := campaign(t, m, r, "a", 3*time.Second, r.lead("a"))
		time.Sleep(1500 * time.Millisecond)
		m.mu.Lock()
		m.holder, m.term = "somebody", 9
		m.mu.Unlock()
		time.Sleep(600 * time.Millisecond)
		if first := r.at(0); !errors.Is(first.cause, leader.ErrLeaseLost) {
			t.Errorf("first %+v", first)
		}
		time.Sleep(5 * time.Second)
		if second := r.at(1); second.term != 10 {
			t.Errorf("second %+v", second)
		}
		stop()
	})
}

// TestWorkIsWaitedFor has work that takes its time to end: nobody else of this process may begin meanwhile.
func TestWorkIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		var calls, busy atomic.Int64
		stop := campaign(t, m, r, "a", 3*time.Second, func(ctx context.Context, _ int64) {
			calls.Add(1)
			if busy.Add(1) > 1 {
				t.Error("two at a time")
			}
			<-ctx.Done()
			time.Sleep(20 * time.Second)
			busy.Add(-1)
		})
		time.Sleep(time.Second)
		m.set(m.failing, "a", true)
		time.Sleep(10 * time.Second)
		m.set(m.failing, "a", false)
		time.Sleep(10 * time.Second)
		if n := calls.Load(); n != 1 {
			t.Errorf("called %d times", n)
		}
		time.Sleep(10 * time.Second)
		if n := calls.Load(); n != 2 {
			t.Errorf("called %d times", n)
		}
		stop()
	})
}

// TestWorkThatEndsGivesTheLeaseUp has work that returns at once in one process.
func TestWorkThatEndsGivesTheLeaseUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		var calls atomic.Int64
		stopA := campaign(t, m, r, "a", 3*time.Second, func(context.Context, int64) { calls.Add(1) })
		time.Sleep(5 * time.Second)
		if n := calls.Load(); n < 9 || n > 11 { // Alone, it tries again twice a second.
			t.Errorf("called %d times", n)
		}
		stopB := campaign(t, m, r, "b", 3*time.Second, r.lead("b"))
		time.Sleep(2 * time.Second)
		if r.at(0).holder != "b" {
			t.Error("b does not lead")
		}
		stopA()
		stopB()
	})
}

// TestAnAnswerThatComesTooLateIsNoTenure has Acquire take longer than it says it may.
func TestAnAnswerThatComesTooLateIsNoTenure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := lateLease{memory: newMemory()}
		r := newRecord(t)
		stop := campaign(t, late, r, "a", 3*time.Second, r.lead("a"))
		time.Sleep(20 * time.Second)
		stop()
		if n := r.count(); n != 0 {
			t.Errorf("%d tenures", n)
		}
	})
}

// lateLease keeps its caller waiting, as if the process had been stopped before it saw the answer.
type lateLease struct{ *memory }

func (l lateLease) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, wait time.Duration, err error) {
	term, ok, wait, err = l.memory.Acquire(ctx, name, holder, ttl)
	time.Sleep(ttl - leader.Margin(ttl))
	return term, ok, wait, err
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for what, o := range map[string]leader.Options{
		"no lease":  {Name: name},
		"no name":   {Lease: newMemory()},
		"short ttl": {Lease: newMemory(), Name: name, TTL: time.Millisecond},
	} {
		if _, err := leader.New(o); err == nil {
			t.Error(what)
		}
	}
}
