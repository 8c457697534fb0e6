package postgres

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// marked is a press on which two targets have been claimed from while somebody held a snapshot: of busy all that was due but one, of full nothing,
// for lack of slots, and of idle everything.
func marked(t *testing.T) (p *press, busy, full uuid.UUID) {
	t.Helper()
	p = newPress(t)
	p.db.chapters.Store(true)
	for _, name := range []string{"busy", "full", "idle"} {
		p.target(name)
		for range 3 {
			p.add(name, 0)
		}
	}
	// As after an outage: much earlier than a commit can be late.
	exec(t, p.db, `UPDATE publications SET due_at = statement_timestamp() - interval '1 minute' + number * interval '1 second', publish_at = NULL, actual_publish_at = NULL`)
	busy, full = ask[uuid.UUID](t, p.db, `SELECT id FROM targets WHERE name = 'busy'`), ask[uuid.UUID](t, p.db, `SELECT id FROM targets WHERE name = 'full'`)
	s := p.slots()
	s.Targets = map[uuid.UUID]int{busy: 2, full: 0}
	if work := p.claim(s); len(work) != 5 {
		t.Fatalf("claimed %d", len(work))
	}
	return p, busy, full
}

// putBack makes one of a target's claimed publications due again, earlier than all others.
func (p *press) putBack(name string) uuid.UUID {
	p.Helper()
	return ask[uuid.UUID](p.T, p.db, `WITH back AS (
			UPDATE publications SET status = 'scheduled', execution_lock_id = NULL, execution_locked_at = NULL, due_at = statement_timestamp() - interval '1 hour'
			WHERE id = (SELECT p.id FROM publications AS p JOIN targets AS t ON t.id = p.target WHERE t.name = $1 AND p.status = 'publishing' LIMIT 1) RETURNING id
		) UPDATE publication_attempts SET ended_at = statement_timestamp(), result = 'lost' FROM back WHERE publication = id RETURNING id`, name)
}

func TestClaimsBehindTheirMarks(t *testing.T) {
	t.Parallel()
	p, _, full := marked(t)
	p.store.marks.until = time.Now().Add(time.Hour) // A look from the beginning shall come only when the test wants it.
	early := map[uuid.UUID]bool{p.putBack("busy"): true, p.putBack("idle"): true}
	s := p.slots()
	s.Targets = map[uuid.UUID]int{full: 2}
	work := p.claim(s)
	claimed := map[string]int{}
	for _, w := range work {
		claimed[w.Target.Name]++
		if early[w.ID] {
			t.Errorf("what was put back before the mark of %s was looked for", w.Target.Name)
		}
	}
	// Of the one its rest, of the other, which nobody had looked at, what its slots take.
	if claimed["busy"] != 1 || claimed["full"] != 2 || len(work) != 3 {
		t.Errorf("claimed %v", claimed)
	}
	fresh := p.add("idle", 0)
	if work = p.claim(p.slots()); len(work) != 2 || work[0].ID != fresh && work[1].ID != fresh {
		t.Errorf("claimed %d, want what has come since, and the rest of full", len(work))
	}
	p.store.marks.until = time.Now()
	work = p.claim(p.slots())
	for _, w := range work {
		delete(early, w.ID)
	}
	if len(work) != 2 || len(early) > 0 {
		t.Errorf("a look from the beginning claimed %d, and not %v", len(work), early)
	}
	if !p.store.marks.until.After(time.Now()) {
		t.Error("the next look is from the beginning again")
	}
}

// TestMarkOfASlowedTarget has a look from the beginning come while a target waits for its turn: what it still has is found as soon as it is open.
func TestMarkOfASlowedTarget(t *testing.T) {
	t.Parallel()
	p, busy, full := marked(t)
	exec(t, p.db, `UPDATE targets SET next_send_at = clock_timestamp() + interval '1 hour' WHERE name = 'busy'`)
	p.add("idle", 0)
	s := p.slots()
	s.Targets = map[uuid.UUID]int{busy: 2, full: 0}
	p.store.marks.until = time.Now()
	if work := p.claim(s); len(work) != 1 || work[0].Target.Name != "idle" {
		t.Fatalf("claimed %d", len(work))
	}
	p.store.marks.until = time.Now().Add(time.Hour)
	exec(t, p.db, `UPDATE targets SET next_send_at = NULL WHERE name = 'busy'`)
	if work := p.claim(s); len(work) != 1 || work[0].Target.Name != "busy" {
		t.Errorf("claimed %d of the target that is open again", len(work))
	}
}

// TestMarksEnd has claims look from the beginning as soon as nobody holds a snapshot.
func TestMarksEnd(t *testing.T) {
	t.Parallel()
	p, _, _ := marked(t)
	p.store.marks.until = time.Now().Add(time.Hour)
	early := p.putBack("idle")
	p.db.chapters.Store(false)
	for _, w := range p.claim(p.slots()) {
		if w.ID == early {
			return
		}
	}
	t.Error("it was not claimed")
}

// TestNextDueBehindMarks has a worker told what is due behind the marks, and now and then of everything.
func TestNextDueBehindMarks(t *testing.T) {
	t.Parallel()
	p, busy, _ := marked(t)
	s := p.slots()
	s.Targets = map[uuid.UUID]int{busy: 0}
	next := func(whole bool) publish.Next {
		t.Helper()
		n, err := p.store.NextDue(t.Context(), s)
		if err != nil || n.Whole != whole {
			t.Fatalf("%+v, %v", n, err)
		}
		return n
	}
	testwait.Must(t, p.do(ask[uuid.UUID](t, p.db, `SELECT id FROM targets WHERE name = 'full'`), publish.PauseTarget{}))
	p.putBack("idle")
	if n := next(true); n.In == nil || *n.In > -50*time.Minute {
		t.Errorf("next due: %+v", n)
	}
	p.store.marks.next = time.Now().Add(time.Hour)
	if n := next(false); n.In != nil {
		t.Errorf("something is due in %v", *n.In)
	}
	p.add("idle", 10*time.Minute)
	if n := next(false); n.In == nil || *n.In < 5*time.Minute {
		t.Errorf("next due: %+v", n)
	}
	p.store.marks.next = time.Now()
	next(true)
	if !p.store.marks.next.After(time.Now()) {
		t.Error("the next look is from the beginning again")
	}
}
