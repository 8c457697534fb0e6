package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestPace slows a target down that answers 429, and its breaker opens after three publications.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	p.target("u")
	policy := publish.Policy{Backoff: 2 * time.Second}
	var work []*publish.Work
	for range 3 {
		p.add("t", 0)
	}
	work = p.claim(p.slots())
	throttled := publish.Result{Class: publish.Transient, Throttled: true, StatusCode: 429}
	noDraw := func(int64) int64 { return 0 }
	var batch []publish.Conclusion
	for _, w := range work {
		batch = append(batch, publish.Conclusion{Claim: w.Claim, Target: w.Target.ID, Result: throttled, Verdict: publish.Conclude(throttled, 1, policy, noDraw)})
	}
	if _, err := p.store.Conclude(t.Context(), batch, func(c *publish.Conclusion, pace publish.Pace, now time.Time) publish.Pace {
		return pace.Refused(c.ID, 0, now, policy, noDraw)
	}); err != nil {
		t.Fatal(err)
	}
	target, err := p.store.Target(t.Context(), work[0].Target.ID)
	if err != nil || target.Pace.Interval != 12*time.Second || target.Pace.Refusals != 3 || target.Pace.OpenUntil == nil || time.Until(*target.Pace.OpenUntil) < 4*time.Minute {
		t.Errorf("%+v, %v", target, err)
	}
	p.add("t", 0)
	other := p.add("u", 0)
	if work = p.claim(p.slots()); len(work) != 1 || work[0].ID != other {
		t.Fatalf("claimed %+v", work)
	}
	if next, err := p.store.NextDue(t.Context(), p.slots()); err != nil || next.In == nil || *next.In < 4*time.Minute {
		t.Errorf("next due: %+v, %v", next, err)
	}
	// Half-open: one at a time.
	exec(t, p.db, `UPDATE targets SET next_send_at = clock_timestamp(), open_until = clock_timestamp()`)
	exec(t, p.db, `UPDATE publications SET due_at = clock_timestamp() WHERE status = 'scheduled'`)
	if work = p.claim(p.slots()); len(work) != 1 || !work[0].Target.Pace.Slowed() {
		t.Fatalf("claimed %d", len(work))
	}
	if more := p.claim(p.slots()); len(more) != 0 {
		t.Errorf("claimed %d more at once", len(more))
	}
	ok := publish.Conclusion{Claim: work[0].Claim, Target: work[0].Target.ID, Slowed: true, Verdict: publish.Verdict{Status: publish.StatusPublished, Result: publish.ResultPublished}}
	testwait.Must(t, testwait.Err(p.store.Conclude(t.Context(), []publish.Conclusion{ok}, func(_ *publish.Conclusion, pace publish.Pace, _ time.Time) publish.Pace { return pace.Eased(policy) })))
	if target, err = p.store.Target(t.Context(), work[0].Target.ID); err != nil || target.Pace.Interval != 10800*time.Millisecond || target.Pace.Refusals != 0 {
		t.Errorf("%+v, %v", target, err)
	}
}

// TestForeignSecretsAreLeftAlone has a process without the key of a target's secret: it claims nothing of that target.
func TestForeignSecretsAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	p.add("t", 0)
	s := p.slots()
	s.Keys = []string{"another"}
	if work := p.claim(s); len(work) != 0 {
		t.Error("claimed what it cannot sign")
	}
	if next, err := p.store.NextDue(t.Context(), s); next.In != nil || err != nil {
		t.Error("waits for what it cannot sign", err)
	}
	s.Keys = append(s.Keys, p.vault.KeyIDs()...)
	if work := p.claim(s); len(work) != 1 {
		t.Error("not claimed")
	}
}

// TestSlots holds a claim to its limits, in all and for each target.
func TestSlots(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	var targets []uuid.UUID
	for i := range 3 {
		name := fmt.Sprint("t", i)
		p.target(name)
		for range 5 {
			p.add(name, 0)
		}
		targets = append(targets, ask[uuid.UUID](t, p.db, `SELECT id FROM targets WHERE name = $1`, name))
	}
	s := publish.Slots{Total: 7, Each: 4, Keys: p.vault.KeyIDs(), Targets: map[uuid.UUID]int{targets[0]: 0, targets[1]: 1}}
	count := map[uuid.UUID]int{}
	for _, w := range p.claim(s) {
		count[w.Target.ID]++
	}
	if count[targets[0]] != 0 || count[targets[1]] != 1 || count[targets[2]] != 4 {
		t.Errorf("claimed %v", count)
	}
	s.Total, s.Targets = 2, nil
	if n := len(p.claim(s)); n != 2 {
		t.Errorf("claimed %d of 2", n)
	}
}
