package postgres

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestMultidrawLosesCommits draws over connections that break at a third of all commits: before it, after it, and with an
// outcome that stays open for a while. The run goes on by itself, and no draw is lost or doubled.
func TestMultidrawLosesCommits(t *testing.T) {
	t.Parallel()
	direct := database(t)
	around := open(t, Options{URL: direct})
	opts := wire.Options{Seed: rand.Uint64(), LoseOneIn: 3}
	proxy, through := wire.Through(t, direct, opts)
	seen := &recorder{}
	store := NewMultidraws(open(t, Options{URL: through, Observer: seen}))
	s := newMultidraws(t, store, multidraw.Options{})
	proxy.Arm(true)
	o := made(t, s, inRange("lossy", 40_500, true))
	reader := newMultidraws(t, NewMultidraws(around), multidraw.Options{})
	done := awaitStatus(t, reader, o.ID, multidraw.StatusCompleted)
	// Every command is told what became of it, as if nothing had been lost.
	for i := range 12 {
		name := fmt.Sprint(i)
		a, err := s.Create(t.Context(), keyed[multidraw.Op](inRange("keyed"+name, 12_000, false), name, name))
		if err != nil || a.Status != 201 || a.Replayed || !bytes.Contains(a.Body, []byte(`"completed":12000`)) {
			t.Errorf("%d %s, %v", a.Status, a.Body, err)
		}
		small := made(t, s, inRange("small"+name, 10, false))
		if back, err := change(t, s, small.ID, multidraw.Rollback{}); err != nil || back.Status != multidraw.StatusRolledBack {
			t.Errorf("%+v, %v", back, err)
		}
		if i%4 > 0 {
			continue
		}
		// Resumed by a run that is told so, and goes on.
		stopped := newMultidraws(t, &mortal{Multidraws: NewMultidraws(around), left: 1}, multidraw.Options{})
		part := made(t, stopped, inRange("part"+name, 5_000, true))
		awaitStatus(t, reader, part.ID, multidraw.StatusInterrupted)
		if _, err := change(t, s, part.ID, multidraw.Resume{}); err != nil {
			t.Errorf("resume: %v", err)
		}
		checkSaved(t, around, reader, awaitStatus(t, reader, part.ID, multidraw.StatusCompleted))
	}
	proxy.Arm(false)
	if lost := proxy.Stats(); lost.AnswerLost == 0 || lost.CommitLost == 0 {
		t.Errorf("seed %d: the proxy did no more than %+v", opts.Seed, lost)
	}
	if done.Term != 1 || done.Checkpoints != 41 {
		t.Errorf("%+v", done)
	}
	checkSaved(t, around, reader, done)
}
