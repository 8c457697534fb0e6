package saga

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// TestEverySagaEndsAsPromised plays sagas whose steps are refused wherever: in the end every step is done once, or every
// done one is undone once, in reverse order.
func TestEverySagaEndsAsPromised(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "steps")
		refuseAt := rapid.IntRange(0, n).Draw(t, "refused") // n: none
		s := &Saga{Status: Pending}
		for i := range n {
			s.Steps = append(s.Steps, StepState{Name: fmt.Sprint(i), Status: StepPending})
		}
		var done, undone []int
		for range 3 * n {
			todo, i := next(s)
			if todo == actEnd {
				break
			}
			refused := todo == actDo && i == refuseAt
			record(s, todo, i, Outcome{Refused: refused, Reason: "because", Result: "r"})
			switch {
			case todo == actUndo:
				undone = append(undone, i)
			case !refused:
				done = append(done, i)
			}
		}
		settle(s)
		want := Completed
		switch {
		case refuseAt == 0:
			want = Failed
		case refuseAt < n:
			want = WasCompensated
		}
		if s.Status != want || (want == Completed) != (s.Reason == "") {
			t.Fatalf("%s, %q; want %s", s.Status, s.Reason, want)
		}
		for i, step := range done {
			if step != i {
				t.Fatalf("done: %v", done)
			}
		}
		slices.Reverse(undone)
		if len(done) != min(refuseAt, n) || want == WasCompensated && !slices.Equal(done, undone) || want != WasCompensated && len(undone) > 0 {
			t.Fatalf("done %v, undone in reverse %v", done, undone)
		}
	})
}

func TestInDoubt(t *testing.T) {
	t.Parallel()
	leased := time.Now().Add(time.Minute)
	for _, c := range []struct {
		name string
		s    *Saga
		term int64
		want Verdict
	}{
		{"no log", nil, 1, Undecided},
		{"its run is at work", &Saga{Status: Pending, Term: 2, LeaseExpiresAt: leased}, 2, Leave},
		{"its run is late", &Saga{Status: Pending, Term: 2, LeaseExpiresAt: time.Unix(1, 0)}, 2, Leave},
		{"its run has given up", &Saga{Status: Pending, Term: 2, LeaseExpiresAt: time.Unix(0, 0)}, 2, RollbackBranch},
		{"an older term", &Saga{Status: Pending, Term: 3}, 2, RollbackBranch},
		{"decided", &Saga{Status: Pending, Term: 2, Decided: 2}, 2, CommitBranch},
		{"decided, taken over", &Saga{Status: Pending, Term: 4, Decided: 2}, 2, CommitBranch},
		{"decided in another term", &Saga{Status: Pending, Term: 4, Decided: 3}, 2, RollbackBranch},
		{"a late one of a completed saga", &Saga{Status: Completed, Term: 3, Decided: 3}, 2, RollbackBranch},
		{"a completed saga's", &Saga{Status: Completed, Term: 3, Decided: 3}, 3, CommitBranch},
		{"a failed saga's", &Saga{Status: Failed, Term: 3}, 3, RollbackBranch},
	} {
		if got := DecideInDoubt(c.s, c.term); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestGIDs(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	gid := GID("fairlead:0123", id, 7, 1)
	if got, term, ok := ParseGID("fairlead:0123", gid); !ok || got != id || term != 7 {
		t.Errorf("%s: %s, %d, %v", gid, got, term, ok)
	}
	if got, ok := IDOfGID(gid); !ok || got != id {
		t.Errorf("%s: %s, %v", gid, got, ok)
	}
	for _, other := range []string{"", "fairlead:0123", "fairlead:01234:" + id.String() + ":7:1", "fairlead:0123:x:7:1", "fairlead:0123:" + id.String() + ":x:1"} {
		if _, _, ok := ParseGID("fairlead:0123", other); ok {
			t.Errorf("%q was read", other)
		}
	}
}

func TestOperators(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &Saga{Status: Pending, Attempts: StuckAfter, NextAt: now.Add(time.Hour)}
	if !s.Stuck() {
		t.Error("it is not stuck")
	}
	if err := decideRetry(s, now); err != nil || s.Stuck() || s.NextAt.After(now) || s.Cancelled {
		t.Errorf("retry: %v, %+v", err, s)
	}
	if err := decideCompensate(s, now); err != nil || !s.Cancelled {
		t.Errorf("compensate: %v, %+v", err, s)
	}
	for _, s := range []*Saga{{Status: Completed}, {Status: Failed}, {Status: WasCompensated}, {Status: Pending, Decided: 1}} {
		if err := decideCompensate(s, now); !errors.Is(err, ErrBadTransition) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestPauseGrowsToItsLimit(t *testing.T) {
	t.Parallel()
	for attempts := range 100 {
		if d := pause(attempts, MaxPause); d < firstPause/2 || d > MaxPause*3/2 {
			t.Errorf("after %d attempts: %v", attempts, d)
		}
	}
	if d := pause(60, MaxPause); d < MaxPause/2 {
		t.Errorf("after 60 attempts: %v", d)
	}
}
