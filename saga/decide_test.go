package saga

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
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

func TestUnknown(t *testing.T) {
	t.Parallel()
	none, some, part := siblings{all: true}, siblings{all: true, committed: true}, siblings{committed: true}
	for _, c := range []struct {
		name   string
		known  bool
		age    time.Duration
		t      siblings
		want   Verdict
		reason string
	}{
		{"young", false, DoubtAge - 1, some, Undecided, ReasonYoung},
		{"one is away", false, DoubtAge, part, Undecided, ReasonNotAsked},
		{"a sibling was committed", false, DoubtAge, some, CommitBranch, ReasonSibling},
		{"no sibling was", false, time.Hour, none, RollbackBranch, ""},
		{"known, one is away", true, time.Hour, part, Undecided, ReasonNotAsked},
		{"known, a sibling was committed", true, 0, some, CommitBranch, ReasonSibling},
		{"known, no sibling was", true, 0, none, RollbackBranch, ""},
	} {
		if got, reason := decideUnknown(c.known, c.age, DoubtAge, c.t); got != c.want || reason != c.reason {
			t.Errorf("%s: %v, %q; want %v, %q", c.name, got, reason, c.want, c.reason)
		}
	}
}

func TestFences(t *testing.T) {
	t.Parallel()
	own, other := uuid.New(), uuid.New()
	life := Incarnation{ID: own}
	for _, c := range []struct {
		name        string
		life        Incarnation
		seen        *Fence
		known, home bool
		move        bool
		err         error
	}{
		{"none yet", life, nil, false, false, true, nil},
		{"its own", life, &Fence{Incarnation: own, Age: FenceEvery}, true, false, true, nil},
		{"another process was here", life, &Fence{Incarnation: own, Age: 1}, true, false, false, nil},
		{"a foreign token", life, &Fence{Incarnation: other, Age: time.Hour}, false, false, false, ErrDisowned},
		{"a foreign token under its own incarnation", life, &Fence{Incarnation: own, Age: time.Hour}, false, false, false, ErrDisowned},
		{"its earlier life, silent", life, &Fence{Incarnation: other, Age: fencePatience * FenceEvery}, true, false, true, nil},
		{"its earlier life, or the one it was copied from", life, &Fence{Incarnation: other, Age: fencePatience*FenceEvery - 1}, true, false, false, ErrUnproven},
		{"its own database", life, &Fence{Incarnation: own, Age: time.Hour}, true, true, false, nil},
		{"its own database, started anew", life, &Fence{Incarnation: other}, true, true, true, nil},
		{"copied by contents", Incarnation{Copied: true}, nil, false, true, false, ErrDisowned},
	} {
		if move, err := decideFence(c.life, c.seen, c.known, c.home, FenceEvery); move != c.move || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, move, err, c.move, c.err)
		}
	}
}

func TestLastError(t *testing.T) {
	t.Parallel()
	refused := []StepState{{Name: "a", Status: StepCompensated}, {Name: "b", Status: StepRefused, Reason: "no money"}}
	for _, c := range []struct {
		s    Saga
		want string
	}{
		{Saga{Status: Pending, LastError: "it was away"}, ""},
		{Saga{Status: Completed, LastError: "it was away"}, ""},
		{Saga{Status: Failed, LastError: "it was away", Steps: refused}, "it was away"},
		{Saga{Status: Failed, Steps: refused}, "saga: step b was refused: no money"},
		{Saga{Status: WasCompensated, Steps: refused}, "saga: step b was refused: no money"},
		{Saga{Status: Failed, Reason: ReasonDeadline}, "saga: " + ReasonDeadline},
	} {
		if got := lastError(&c.s); got != c.want {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
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

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	do := Call{Saga: uuid.New(), Step: "take"}
	undo := do
	undo.Undo = true
	if do.IdempotencyKey() == undo.IdempotencyKey() || !strings.HasPrefix(undo.IdempotencyKey(), do.Saga.String()) {
		t.Error(do.IdempotencyKey(), undo.IdempotencyKey())
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

// TestPlanPanics has a definition that panics: its service lives, and says so.
func TestPlanPanics(t *testing.T) {
	t.Parallel()
	s := NewService(nil, Options{Definitions: []Definition{{Name: "p", Plan: func(*Saga) (Plan, error) { panic("a bug") }}}})
	for _, err := range []error{testwait.Err(s.plan(&Saga{Name: "p"})), testwait.Err(s.Start(t.Context(), New{Name: "p"}))} {
		if err == nil || !strings.HasSuffix(err.Error(), `plan of "p": panic: a bug`) {
			t.Error(err)
		}
	}
}

// TestClean cleans a record of which all words are such as PostgreSQL refuses.
func TestClean(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{"": "", "größer\n": "größer\n", "gr\xf6\xdfer": "gr\uFFFDer", "a\x00\x00b": "a\uFFFD\uFFFDb", "\xed\xa0\x80": "\uFFFD"} {
		s := &Saga{Reason: said, LastError: said, Steps: []StepState{{Reason: said, Error: said, Result: said}}}
		clean(s)
		if s.Reason != want || s.LastError != want || s.Steps[0] != (StepState{Reason: want, Error: want, Result: said}) {
			t.Errorf("%q: %+v", said, s)
		}
	}
}

// TestALogThatProvesItselfIsAskedOften: what it keeps waiting goes on soon after its proof, however often it was tried.
func TestALogThatProvesItselfIsAskedOften(t *testing.T) {
	t.Parallel()
	s := &Service{o: Options{MaxPause: 15 * time.Second, FenceEvery: FenceEvery}}
	for _, err := range []error{ErrUnproven, ErrOtherLife} {
		if d := s.pauseAfter(fmt.Errorf("saga: prove the log: %w", err), 20); d > time.Second {
			t.Errorf("%v: %v", err, d)
		}
	}
	if d := s.pauseAfter(ErrDisowned, 20); d < 5*time.Second {
		t.Errorf("another failure: %v", d)
	}
}
