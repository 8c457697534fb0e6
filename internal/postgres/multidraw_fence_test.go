package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestCheckpointIsFenced sends checkpoints by hand: of an older term, of the right one twice, and at a wrong place.
func TestCheckpointIsFenced(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store := NewMultidraws(db)
	s := newMultidraws(t, &silent{mortal{Multidraws: store}}, multidraw.Options{LeaseTTL: 50 * time.Millisecond})
	o := made(t, s, inRange("k", 20_000, true))
	idle := newMultidraws(t, &mortal{Multidraws: store}, multidraw.Options{})
	testwait.Eventually(t, patience, "the lease has expired", func() bool {
		_, err := change(t, idle, o.ID, multidraw.Resume{})
		return err == nil
	})
	d, err := multidraw.New(drawSeedOf(t, db, o), o.ID.String(), o.Spec)
	testwait.Must(t, err)
	testwait.Eventually(t, patience, "the second run has ended", func() bool { return operation(t, idle, o.ID).Status == multidraw.StatusInterrupted })
	resumed := operation(t, idle, o.ID)
	exec(t, db, `UPDATE multidraws SET status = 'running'`)
	send := func(term int64, change func(*multidraw.Checkpoint)) error {
		stop := errors.New("one is enough")
		var sent error
		_, err := multidraw.Run(t.Context(), d, operation(t, idle, o.ID).State(), func(ctx context.Context, c multidraw.Chunk) error {
			checkpoint := &multidraw.Checkpoint{ID: o.ID, Term: term, From: c.First, Chunk: c, TTL: time.Minute}
			change(checkpoint)
			sent = store.Checkpoint(ctx, checkpoint)
			return stop
		})
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		return sent
	}
	asIs := func(*multidraw.Checkpoint) {}
	fenced := func(what string, err error, completed int64) {
		t.Helper()
		if e, ok := errors.AsType[*multidraw.FencedError](err); !ok || e.Term != resumed.Term || e.Completed != completed {
			t.Errorf("%s: %v", what, err)
		}
	}
	fenced("an older term", send(resumed.Term-1, asIs), 0)
	fenced("a term to come", send(resumed.Term+1, asIs), 0)
	fenced("another place", send(resumed.Term, func(c *multidraw.Checkpoint) { c.From = 1000 }), 0)
	var kept multidraw.Checkpoint
	if err := send(resumed.Term, func(c *multidraw.Checkpoint) {
		kept = *c
		kept.Chunk.Saved = append([]byte(nil), c.Chunk.Saved...)
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Checkpoint(t.Context(), &kept); err != nil {
		t.Errorf("what was committed already, again: %v", err)
	}
	older := kept
	older.Term--
	fenced("the same in an older term", store.Checkpoint(t.Context(), &older), 1000)
	absent := kept
	absent.ID = uuid.New()
	if err := store.Checkpoint(t.Context(), &absent); !isAbsent(err) {
		t.Errorf("of nothing: %v", err)
	}
	if n := ask[int64](t, db, `SELECT count(*) FROM multidraw_chunks`); n != 1 {
		t.Errorf("%d chunks", n)
	}
	exec(t, db, `UPDATE multidraws SET status = 'interrupted'`)
	fenced("an operation that is interrupted", send(resumed.Term, asIs), 1000)
	checkSaved(t, db, idle, operation(t, idle, o.ID))
}
