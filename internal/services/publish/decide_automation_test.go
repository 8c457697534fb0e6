package publish

import (
	"errors"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// failer is what a test and a property have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func zone(t failer, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	testwait.Must(t, err)
	return z
}

func everyDay() []time.Weekday {
	return []time.Weekday{time.Sunday, time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday}
}

// TestClockChanges holds rules to what they do on the days on which clocks are changed.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, zone, from string
		times            []time.Duration
		want             []string // in UTC
	}{
		{
			"forward: 02:30 is passed over and becomes 03:30", "Europe/Berlin", "2026-03-27T12:00:00Z",
			[]time.Duration{150 * time.Minute},
			[]string{"2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"},
		},
		{
			"forward: the first moment after the gap is the one after it", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]time.Duration{2 * time.Hour, 3 * time.Hour},
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T01:00:00Z"},
		},
		{
			"back: 02:30 comes twice and fires the first time", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]time.Duration{150 * time.Minute},
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		{"back: not again between the two", "Europe/Berlin", "2026-10-25T00:30:00Z", []time.Duration{150 * time.Minute}, []string{"2026-10-26T01:30:00Z"}},
		{
			"back: what is after the change is not moved", "America/New_York", "2026-11-01T04:00:00Z",
			[]time.Duration{9 * time.Hour},
			[]string{"2026-11-01T14:00:00Z", "2026-11-02T14:00:00Z"},
		},
		{
			"a change of half an hour", "Australia/Lord_Howe", "2026-10-03T10:00:00Z",
			[]time.Duration{135 * time.Minute},
			[]string{"2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"},
		},
		{"midnight is passed over", "America/Santiago", "2026-09-05T12:00:00Z", []time.Duration{0}, []string{"2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}},
		{
			"the last hour of a day is passed over", "America/Nuuk", "2024-03-31T01:10:00Z",
			[]time.Duration{23*time.Hour + 30*time.Minute},
			[]string{"2024-03-31T01:30:00Z", "2024-04-01T00:30:00Z"},
		},
		{
			"a day that never was", "Pacific/Apia", "2011-12-29T00:00:00Z",
			[]time.Duration{9 * time.Hour},
			[]string{"2011-12-29T19:00:00Z", "2011-12-30T19:00:00Z", "2011-12-31T19:00:00Z"},
		},
		{
			"no changes", "Asia/Kathmandu", "2026-01-01T00:00:00Z",
			[]time.Duration{9*time.Hour + 15*time.Second},
			[]string{"2026-01-01T03:15:15Z", "2026-01-02T03:15:15Z"},
		},
	} {
		r := Rule{Weekdays: everyDay(), Times: c.times, Zone: zone(t, c.zone)}
		at, err := time.Parse(time.RFC3339, c.from)
		testwait.Must(t, err)
		for i, want := range c.want {
			if at = r.Next(at); at.UTC().Format(time.RFC3339) != want {
				t.Errorf("%s: time %d is %s, want %s", c.name, i, at.UTC().Format(time.RFC3339), want)
			}
		}
	}
}

// TestEveryDayHasItsTime goes through years of several zones: a daily rule fires once for every day of the calendar, at its time
// or, where there is none, at most two hours later; a rule of one weekday on that weekday.
func TestEveryDayHasItsTime(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza"} {
		z := zone(t, name)
		for _, at := range []time.Duration{0, 30 * time.Minute, 150 * time.Minute, 23*time.Hour + 59*time.Minute} {
			r := Rule{Weekdays: everyDay(), Times: []time.Duration{at}, Zone: z}
			when := time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)
			year, month, day := r.Next(when).In(z).Date()
			for i := range 800 {
				when = r.Next(when)
				midnight := time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC)
				y, m, d := when.In(z).Date()
				shown := time.Date(y, m, d, when.In(z).Hour(), when.In(z).Minute(), 0, 0, time.UTC)
				if late := shown.Sub(midnight.Add(at)); late < 0 || late > 2*time.Hour {
					t.Fatalf("%s at %v: day %s has %s", name, at, midnight.Format(time.DateOnly), shown)
				}
			}
		}
	}
}

// TestRules draws rules and times: the next time is after, on one of its weekdays, and no time lies between.
func TestRules(t *testing.T) {
	t.Parallel()
	names := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"}
	rapid.Check(t, func(t *rapid.T) {
		after := time.Unix(rapid.Int64Range(1.6e9, 2e9).Draw(t, "after"), 0).UTC()
		every := time.Duration(rapid.Int64Range(60, 1e6).Draw(t, "every")) * time.Second
		from := time.Unix(rapid.Int64Range(1.6e9, 2e9).Draw(t, "from"), 0).UTC()
		i := Rule{Every: every, From: from, Zone: time.UTC}
		next := i.Next(after)
		if !next.After(after) || next.Sub(from)%every != 0 || next.Before(from) || next.After(from) && next.Add(-every).After(after) {
			t.Fatalf("every %v from %v: %v after %v", every, from, next, after)
		}
		z := zone(t, rapid.SampledFrom(names).Draw(t, "zone"))
		days := rapid.SliceOfNDistinct(rapid.SampledFrom(everyDay()), 1, 7, rapid.ID).Draw(t, "days")
		at := time.Duration(rapid.IntRange(4*3600, 86399).Draw(t, "at")) * time.Second // No clock is changed in those hours there.
		w := Rule{Weekdays: days, Times: []time.Duration{at}, Zone: z}
		next = w.Next(after)
		local := next.In(z)
		onDay := false
		for _, d := range days {
			onDay = onDay || d == local.Weekday()
		}
		if shown := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute + time.Duration(local.Second())*time.Second; !onDay || shown != at ||
			!next.After(after) || next.Sub(after) > 7*24*time.Hour+2*time.Hour {
			t.Fatalf("%v at %v in %v: %v after %v", days, at, z, next, after)
		}
		begins, ends := w.Day(next)
		if next.Before(begins) || !next.Before(ends) || ends.Sub(begins) < 22*time.Hour || ends.Sub(begins) > 26*time.Hour {
			t.Fatalf("%v lies in the day from %v to %v", next, begins, ends)
		}
	})
}

func TestAutomations(t *testing.T) {
	t.Parallel()
	now := epoch()
	fresh := func() *Automation {
		return DecideCreateAutomation(CreateAutomation{Rule: Rule{Every: time.Hour, Zone: time.UTC}, Pick: PickFirst}, &Target{}, uuid.New(), now)
	}
	a := fresh()
	if a.Status != AutomationActive || !a.NextAt.Equal(now.Add(time.Hour)) {
		t.Fatalf("%+v", a)
	}
	ops := map[string]Op{"pause": PauseAutomation{}, "resume": ResumeAutomation{}, "cancel": CancelAutomation{}}
	allowed := map[AutomationStatus]map[string]AutomationStatus{
		AutomationActive: {"pause": AutomationPaused, "cancel": AutomationCancelled},
		AutomationPaused: {"resume": AutomationActive, "cancel": AutomationCancelled},
	}
	for _, status := range []AutomationStatus{AutomationActive, AutomationPaused, AutomationCancelled} {
		for name, op := range ops {
			a := fresh()
			a.Status = status
			err := DecideAutomation(a, op, now.Add(90*time.Minute))
			want, ok := allowed[status][name]
			if ok && (err != nil || a.Status != want || (a.NextAt != nil) != (want == AutomationActive)) || !ok && (!errors.Is(err, ErrBadTransition) || a.Status != status) {
				t.Errorf("%s %s: %+v, %v", name, status, a, err)
			}
			if ok && want == AutomationActive && !a.NextAt.Equal(now.Add(2*time.Hour)) {
				t.Errorf("resumed for %v", a.NextAt)
			}
		}
	}
	if _, _, ok := a.Due(now.Add(time.Hour - 1)); ok {
		t.Error("due before its time")
	}
	// A rule that nobody was there for fires once, for its last time.
	at, skipped, ok := a.Due(now.Add(5*time.Hour + time.Minute))
	if !ok || skipped != 4 || !at.Equal(now.Add(5*time.Hour)) {
		t.Errorf("due for %v, %d skipped", at, skipped)
	}
	weekly := &Automation{Status: AutomationActive, NextAt: &now, Rule: Rule{Weekdays: everyDay(), Times: []time.Duration{0, 12 * time.Hour}, Zone: time.UTC}}
	if at, skipped, ok := weekly.Due(now.Add(49 * time.Hour)); !ok || skipped != 4 || !at.Equal(now.Add(48*time.Hour)) {
		t.Errorf("due for %v, %d skipped", at, skipped)
	}
	late := now.Add(time.Hour + time.Second)
	for name, c := range map[string]struct {
		quota, used int
		draft       *Publication
		want        Outcome
	}{
		"free":           {0, 100, &Publication{Status: StatusDraft}, OutcomeScheduled},
		"within quota":   {2, 1, &Publication{Status: StatusDraft}, OutcomeScheduled},
		"quota reached":  {2, 2, &Publication{Status: StatusDraft}, OutcomeQuota},
		"nothing there":  {0, 0, nil, OutcomeNoDraft},
		"quota and none": {1, 1, nil, OutcomeQuota},
	} {
		a := fresh()
		a.DailyQuota, a.Jitter = c.quota, time.Minute
		f := Fire(a, c.draft, c.used, late, func(n int64) int64 { return n - 1 })
		if f.Outcome != c.want || !f.ScheduledFor.Equal(now.Add(time.Hour)) || !a.NextAt.Equal(now.Add(2*time.Hour)) || (f.Publication != nil) != (c.want == OutcomeScheduled) {
			t.Errorf("%s: %+v, then %v", name, f, a.NextAt)
		}
		if p := c.draft; p != nil && c.want == OutcomeScheduled && (p.Status != StatusScheduled || !p.PublishAt.Equal(f.ScheduledFor) || !p.DueAt.Equal(late.Add(time.Minute))) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestTargetOperations(t *testing.T) {
	t.Parallel()
	now := epoch()
	old, fresh := Sealed{KeyID: "old"}, Sealed{KeyID: "new"}
	hook := &Target{Kind: KindWebhook, Secret: old}
	if err := DecideTarget(hook, RotateSecret{Overlap: time.Hour}, &fresh, now); err != nil || hook.Secret.KeyID != "new" || hook.Previous.KeyID != "old" || !hook.PreviousUntil.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v, %v", hook, err)
	}
	if err := DecideTarget(hook, RotateSecret{}, &old, now); err != nil || hook.Previous.Bytes != nil || hook.PreviousUntil != nil {
		t.Errorf("%+v, %v", hook, err)
	}
	if err := DecideTarget(hook, ReplaceCredentials{}, nil, now); !errors.Is(err, ErrWrongKind) {
		t.Error(err)
	}
	art := &Target{Kind: KindDeviantArt, Secret: old, PausedAt: &now, PausedReason: PausedAuthExpired}
	if err := DecideTarget(art, RotateSecret{}, &fresh, now); !errors.Is(err, ErrWrongKind) {
		t.Error(err)
	}
	if err := DecideTarget(art, ReplaceCredentials{}, nil, now); err != nil || art.Secret.KeyID != "old" || art.PausedAt != nil || art.PausedReason != "" || art.ResumedAt == nil {
		t.Errorf("%+v, %v", art, err)
	}
	for _, step := range []struct {
		op   Op
		want error
	}{{ResumeTarget{}, ErrBadTransition}, {PauseTarget{}, nil}, {PauseTarget{}, ErrBadTransition}, {ResumeTarget{}, nil}} {
		if err := DecideTarget(art, step.op, nil, now); !errors.Is(err, step.want) {
			t.Errorf("%T: %v", step.op, err)
		}
	}
	v := Conclude(Result{Class: AuthExpired}, MaxAttempts, Policy{}, noDraw)
	if v.Status != StatusScheduled || v.Result != ResultFailed || !v.Free || !v.Pause || v.Delay != 0 {
		t.Errorf("%+v", v)
	}
}

func TestPaceStates(t *testing.T) {
	t.Parallel()
	now := epoch()
	policy := Policy{Backoff: time.Second, PaceBase: 5 * time.Second, PaceMax: 15 * time.Second, BreakerRefusals: 2, BreakerOpen: time.Minute}
	p := Pace{}
	for i, want := range []PaceState{PaceFree, PaceSlowed, PaceOpen, PaceOpen} {
		if got := p.State(now); got != want {
			t.Errorf("after %d refusals: %s", i, got)
		}
		p = p.Refused(uuid.New(), 0, now, policy, func(n int64) int64 { return n / 2 })
	}
	if p.Interval != policy.PaceMax || !p.OpenUntil.Equal(now.Add(time.Minute)) || p.State(now.Add(time.Minute)) != PaceHalfOpen {
		t.Errorf("%+v", p)
	}
	if p = p.Eased(policy); p.State(now) != PaceSlowed || p.OpenUntil != nil {
		t.Errorf("%+v", p)
	}
}
