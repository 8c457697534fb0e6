package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

func TestALeaderStaysAsLongAsItRenews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		stopA := campaign(t, m, r, "a", 3*time.Second, r.lead("a"))
		time.Sleep(20 * time.Millisecond)
		stopB := campaign(t, m, r, "b", 3*time.Second, r.lead("b"))
		time.Sleep(10 * time.Minute)
		if n := r.count(); n != 1 || !r.leads("a") || r.leads("b") {
			t.Errorf("%d tenures, a leads: %t, b leads: %t", n, r.leads("a"), r.leads("b"))
		}
		m.mu.Lock()
		if m.renews < 590 || m.renews > 601 { // Once a third of the TTL.
			t.Errorf("%d renewals", m.renews)
		}
		m.mu.Unlock()
		resigned := time.Now()
		stopA()
		if first := r.at(0); !errors.Is(first.cause, context.Canceled) || !first.end.Equal(resigned) || r.leads("a") {
			t.Errorf("the first tenure was %+v", first)
		}
		time.Sleep(time.Second)
		if second := r.at(1); second.candidate != "b" || second.term != 2 || second.start.Sub(resigned) > 520*time.Millisecond {
			t.Errorf("the second tenure was %+v", second)
		}
		stopB()
	})
}

func TestATermEndsBeforeTheLeaseCanHaveExpired(t *testing.T) {
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
				if !errors.Is(first.cause, lock.ErrUnrenewed) {
					t.Errorf("ended by %v", first.cause)
				}
				if first.end.Sub(cut) > ttl-lock.Margin(ttl) {
					t.Errorf("ended %s after the last renewal", first.end.Sub(cut))
				}
				// A call that hangs may have taken effect, and so may the resignation once the work has returned.
				gap := second.start.Sub(first.end)
				if what == "failing" && gap < lock.Margin(ttl) || gap < 0 || second.start.Sub(cut) > 2*ttl+500*time.Millisecond {
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
		if first := r.at(0); first.end.IsZero() || m.expires.Sub(first.end) < lock.Margin(3*time.Second) {
			t.Errorf("ended %s before the expiry", m.expires.Sub(first.end))
		}
		stop()
	})
}

func TestPassingTroubleCostsNoTerm(t *testing.T) {
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

func TestARefusedRenewalEndsTheTermAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		stop := campaign(t, m, r, "a", 3*time.Second, r.lead("a"))
		time.Sleep(1500 * time.Millisecond)
		m.mu.Lock()
		m.id, m.term = "somebody's", 9
		m.mu.Unlock()
		time.Sleep(600 * time.Millisecond)
		if first := r.at(0); !errors.Is(first.cause, lock.ErrLost) {
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

// TestWorkThatEndsResigns has work that returns at once in one process.
func TestWorkThatEndsResigns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, r := newMemory(), newRecord(t)
		var calls atomic.Int64
		stopA := campaign(t, m, r, "a", 3*time.Second, func(context.Context, int64) { calls.Add(1) })
		time.Sleep(5 * time.Second)
		if n := calls.Load(); n < 9 || n > 11 { // Alone, it stands again twice a second.
			t.Errorf("called %d times", n)
		}
		stopB := campaign(t, m, r, "b", 3*time.Second, r.lead("b"))
		time.Sleep(2 * time.Second)
		if r.at(0).candidate != "b" {
			t.Error("b does not lead")
		}
		stopA()
		stopB()
	})
}

// TestAnAnswerThatComesTooLateIsNoTerm has Acquire answer when the lease may be over.
func TestAnAnswerThatComesTooLateIsNoTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecord(t)
		stop := campaign(t, lateBackend{newMemory()}, r, "a", 3*time.Second, r.lead("a"))
		time.Sleep(20 * time.Second)
		stop()
		if n := r.count(); n != 0 {
			t.Errorf("%d tenures", n)
		}
	})
}

// lateBackend keeps its caller waiting, as if the process had been stopped before it saw the answer.
type lateBackend struct{ *memory }

// Acquire implements [lock.Backend].
func (l lateBackend) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	g, err := l.memory.Acquire(ctx, r)
	time.Sleep(r.TTL - lock.Margin(r.TTL))
	return g, err
}

func TestElectionOptionsAreChecked(t *testing.T) {
	t.Parallel()
	l := lock.New(newMemory(), lock.LockerOptions{})
	for what, o := range map[string]lock.ElectionOptions{
		"short TTL":     {TTL: time.Millisecond},
		"long TTL":      {TTL: lock.MaxTTL + 1},
		"bad candidate": {Candidate: "a\nb"},
	} {
		if _, err := lock.NewElection(l, "name", o); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := lock.NewElection(l, "", lock.ElectionOptions{}); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	e, err := lock.NewElection(l, "name", lock.ElectionOptions{})
	testwait.Must(t, err)
	if _, err := e.Leader(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a backend that can't be asked: %v", err)
	}
}
