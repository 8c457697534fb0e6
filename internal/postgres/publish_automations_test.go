package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// draft makes one for a target.
func (p *press) draft(target string) uuid.UUID {
	p.Helper()
	a, err := p.service.Create(p.Context(), own[publish.Op](publish.Create{Target: target, Payload: []byte(`1`)}))
	if err != nil || a.Err != nil {
		p.Fatal(err, a.Err)
	}
	made, ok := a.Result.(*publish.Publication)
	if !ok {
		p.Fatalf("%T", a.Result)
	}
	return made.ID
}

// automate makes an automation that fires every hour.
func (p *press) automate(name, target string, pick publish.Pick, quota int) uuid.UUID {
	p.Helper()
	op := publish.CreateAutomation{Name: name, Target: target, Rule: publish.Rule{Every: time.Hour, Zone: time.UTC}, Pick: pick, DailyQuota: quota}
	a, err := p.service.Create(p.Context(), own[publish.Op](op))
	if err != nil || a.Err != nil {
		p.Fatal(err, a.Err)
	}
	made, ok := a.Result.(*publish.Automation)
	if !ok {
		p.Fatalf("%T", a.Result)
	}
	return made.ID
}

func firstDraw(int64) int64 { return 0 }

// fire fires what is due, and fails where that is nothing.
func (p *press) fire() *publish.Firing {
	p.Helper()
	_, f, _, err := p.store.FireDue(p.Context(), firstDraw)
	if err != nil {
		p.Fatal(err)
	}
	return f
}

// anHourPasses moves the automations of rules, or all of them when there are none, and what they have fired back by an hour.
//
// The firings go by way of a far past: one statement that moved each by the hour between them would meet, where it came to a later one
// first, the key of the one that it had not moved yet.
func (p *press) anHourPasses(rules ...uuid.UUID) {
	p.Helper()
	for _, statement := range []string{
		`UPDATE automation_firings SET scheduled_for = scheduled_for - interval '1000001 hours' WHERE $1::uuid[] IS NULL OR automation = ANY ($1)`,
		`UPDATE automation_firings SET scheduled_for = scheduled_for + interval '1000000 hours' WHERE $1::uuid[] IS NULL OR automation = ANY ($1)`,
		`UPDATE automations SET next_at = next_at - interval '1 hour', starts_at = starts_at - interval '1 hour' WHERE $1::uuid[] IS NULL OR id = ANY ($1)`,
	} {
		exec(p.T, p.db, statement, rules)
	}
}

// TestManyProcessesFireOnce has several processes look for the same automations at the same time, again and again: each time of
// each rule is fired once, and takes one draft.
func TestManyProcessesFireOnce(t *testing.T) {
	t.Parallel()
	const processes, rules, rounds = 5, 4, 6
	p := newPress(t)
	p.target("t")
	for i := range rules {
		p.automate(fmt.Sprint("a", i), "t", publish.Picks()[i%3], 0)
	}
	for range rules * rounds {
		p.draft("t")
	}
	stores := make([]*Publications, processes)
	for i := range stores {
		stores[i] = NewPublications(open(t, Options{URL: p.db.pool.Config().ConnString(), MaxConns: 4}))
	}
	if f := p.fire(); f != nil {
		t.Fatalf("fired before its time: %+v", f)
	}
	for round := range rounds {
		p.anHourPasses()
		var wg sync.WaitGroup
		for _, store := range stores {
			wg.Go(func() {
				for {
					_, f, scheduled, err := store.FireDue(t.Context(), firstDraw)
					testwait.Check(t, err)
					if f == nil {
						return
					}
					if scheduled == nil || f.Publication == nil || scheduled.ID != *f.Publication || f.Outcome != publish.OutcomeScheduled {
						t.Errorf("%+v", f)
					}
				}
			})
		}
		wg.Wait()
		if n := ask[int](t, p.db, `SELECT count(DISTINCT (automation, scheduled_for, publication))::int FROM automation_firings`); n != rules*(round+1) {
			t.Fatalf("%d firings after %d rounds", n, round+1)
		}
	}
	if n := ask[int](t, p.db, `SELECT count(DISTINCT publication)::int FROM automation_firings JOIN publications p ON p.id = publication AND p.status = 'scheduled'`); n != rules*rounds {
		t.Errorf("%d drafts were taken", n)
	}
}

// TestPicks takes drafts in the order that the rule says, and says so when there is none, or no more for the day.
func TestPicks(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	for _, pick := range publish.Picks() {
		name := string(pick)
		p.target(name)
		rule := p.automate(name, name, pick, 0)
		drafts := []uuid.UUID{p.draft(name), p.draft(name), p.draft(name)}
		var taken []uuid.UUID
		for range 4 {
			p.anHourPasses()
			f := p.fire()
			if f == nil || f.Automation != rule {
				t.Fatalf("%+v", f)
			}
			if f.Publication != nil {
				taken = append(taken, *f.Publication)
			} else if f.Outcome != publish.OutcomeNoDraft || len(taken) != 3 {
				t.Errorf("%+v", f)
			}
		}
		if first, last := taken[0], taken[2]; pick == publish.PickFirst && (first != drafts[0] || last != drafts[2]) || pick == publish.PickLast && (first != drafts[2] || last != drafts[0]) {
			t.Errorf("%s takes %v of %v", pick, taken, drafts)
		}
		testwait.Must(t, p.do(rule, publish.CancelAutomation{}))
	}
	// The drawn place decides, and each has one.
	p.target("drawn")
	p.automate("drawn", "drawn", publish.PickRandom, 0)
	drafts := []uuid.UUID{p.draft("drawn"), p.draft("drawn"), p.draft("drawn")}
	for _, place := range []int64{1, 1, 0} {
		p.anHourPasses()
		_, f, _, err := p.store.FireDue(t.Context(), func(n int64) int64 { return min(place, n-1) })
		if err != nil || f == nil || f.Publication == nil || *f.Publication != drafts[place] {
			t.Fatalf("place %d: %+v, %v", place, f, err)
		}
		drafts = append(drafts[:place], drafts[place+1:]...)
	}
	// A quota counts the firings of a day in the rule's time zone.
	p.target("q")
	limited := p.automate("q", "q", publish.PickFirst, 2)
	for range 4 {
		p.draft("q")
	}
	outcomes := func() (out []publish.Outcome) {
		for range 3 {
			p.anHourPasses(limited)
			out = append(out, p.fire().Outcome)
		}
		return out
	}
	if got := fmt.Sprint(outcomes()); got != "[scheduled scheduled quota_reached]" {
		t.Error(got)
	}
	exec(t, p.db, `UPDATE automation_firings SET fired_at = fired_at - interval '1 day'`)
	if got := fmt.Sprint(outcomes()); got != "[scheduled scheduled quota_reached]" {
		t.Error(got)
	}
}

// TestMissedTimesFireOnce has no server run for a while.
func TestMissedTimesFireOnce(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	rule := p.automate("a", "t", publish.PickFirst, 0)
	p.draft("t")
	p.draft("t")
	for range 6 {
		p.anHourPasses()
	}
	if f := p.fire(); f == nil || f.Skipped != 5 || f.FiredAt.Sub(f.ScheduledFor) > 10*time.Minute {
		t.Errorf("%+v", f)
	}
	if f := p.fire(); f != nil {
		t.Errorf("fired again: %+v", f)
	}
	p.anHourPasses()
	if err := p.do(rule, publish.PauseAutomation{}); err != nil || p.fire() != nil {
		t.Error("fired while paused", err)
	}
	if err := p.do(rule, publish.ResumeAutomation{}); err != nil || p.fire() != nil {
		t.Error("what passed in a pause is made up for", err)
	}
	if err := p.do(uuid.New(), publish.PauseAutomation{}); err == nil {
		t.Error("paused what is not there")
	}
}

// TestAutomatorRuns has two workers fire automations on one database: what they schedule is sent at once.
func TestAutomatorRuns(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	p.automate("a", "t", publish.PickFirst, 0)
	id := p.draft("t")
	var sender scripted
	for range 2 {
		p.work(&sender, nil)
	}
	p.anHourPasses()
	testwait.Eventually(t, patience, "the draft is published", func() bool { return p.status(id) == "published 1" })
	if n := ask[int](t, p.db, `SELECT count(*)::int FROM automation_firings`); n != 1 {
		t.Errorf("%d firings", n)
	}
	var absent *publish.NotFoundError
	if _, err := p.store.Firings(context.Background(), uuid.New(), 0, 1); !errors.As(err, &absent) {
		t.Error(err)
	}
}
