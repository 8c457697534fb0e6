package publish

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Limits of an automation.
const (
	MaxTimes = 48 // how many times of the day a rule may have
	// MinEvery and MaxEvery bound a rule's interval.
	MinEvery = time.Minute
	MaxEvery = 366 * 24 * time.Hour
	// MaxDailyQuota bounds what a rule may publish in a day.
	MaxDailyQuota = 1000
	maxSkipped    = 10_000 // how far missed times are counted
)

// Rule says when an automation fires: at times of the day on days of the week, or at an interval.
type Rule struct {
	// Weekdays and Times are when it fires by the clocks of Zone; both are empty where Every is above 0. Times are since
	// midnight, in whole seconds, below 24 h.
	Weekdays []time.Weekday
	Times    []time.Duration
	// Zone also says when a day begins, for the quota.
	Zone *time.Location
	// Every is the interval, counted from From, where it fires first. It is time that passes: clocks that are changed do
	// not change it.
	Every time.Duration
	From  time.Time
}

// Next returns the first time after the given one at which the rule fires.
//
// A time of the day that the clocks pass over when they are set forward fires as much later as they were set: 02:30 becomes
// 03:30. One that comes twice when they are set back fires the first time. (RFC 5545, section 3.3.5, has both.)
func (r *Rule) Next(after time.Time) time.Time {
	if r.Every > 0 {
		if after.Before(r.From) {
			return r.From
		}
		return after.Add(r.Every - after.Sub(r.From)%r.Every)
	}
	var next time.Time
	year, month, day := after.In(r.Zone).Date()
	// The day before is tried too: where the clocks pass over its last hour, a time in that hour becomes one of this day. So is the
	// same day of the next week, because all times of this day may be past.
	for d := day - 1; d <= day+7; d++ {
		if !slices.Contains(r.Weekdays, time.Date(year, month, d, 12, 0, 0, 0, time.UTC).Weekday()) {
			continue
		}
		for _, at := range r.Times {
			if t := instant(year, month, d, at, r.Zone); t.After(after) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	if next.IsZero() {
		panic("publish: a rule without a time")
	}
	return next
}

// Day returns when the day begins that a time belongs to, and when the next one does.
func (r *Rule) Day(t time.Time) (begins, ends time.Time) {
	year, month, day := t.In(r.Zone).Date()
	return instant(year, month, day, 0, r.Zone), instant(year, month, day+1, 0, r.Zone)
}

// instant returns when the clocks of a zone show a time of a day: the first time when they show it twice, and when they
// never do, the time at which the earlier offset would have shown it.
func instant(year int, month time.Month, day int, at time.Duration, zone *time.Location) time.Time {
	shown := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(at)
	// No zone is further than this from UTC, so the one offset is in force before the clocks show the time, the other
	// after.
	const furthest = 26 * time.Hour
	earlier := shown.Add(-offset(shown.Add(-furthest), zone))
	later := shown.Add(-offset(shown.Add(furthest), zone))
	for _, t := range []time.Time{earlier, later} {
		if t.Add(offset(t, zone)).Equal(shown) {
			return t
		}
	}
	return earlier
}

// offset is how far the clocks of a zone are ahead of UTC.
func offset(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// Pick says which of the drafts an automation takes.
type Pick string

// The ways to pick.
const (
	PickRandom Pick = "random"
	PickFirst  Pick = "first" // the oldest draft
	PickLast   Pick = "last"  // the newest draft
)

// Picks are all of them.
func Picks() []Pick { return []Pick{PickRandom, PickFirst, PickLast} }

// AutomationStatus is where an automation stands.
type AutomationStatus string

// The statuses. A cancelled automation stays so.
const (
	AutomationActive    AutomationStatus = "active"
	AutomationPaused    AutomationStatus = "paused"
	AutomationCancelled AutomationStatus = "cancelled"
)

// Automation is a rule that schedules drafts of a target.
type Automation struct {
	ID         uuid.UUID
	Number     int64 // the order of lists
	Name       string
	Target     uuid.UUID
	TargetName string
	Status     AutomationStatus
	Rule       Rule
	Pick       Pick
	DailyQuota int // 0: none
	Jitter     time.Duration
	NextAt     *time.Time // nil while it is not active
	CreatedAt  time.Time
}

// Outcome is what a firing brought about.
type Outcome string

// The outcomes.
const (
	OutcomeScheduled Outcome = "scheduled"     // a draft was
	OutcomeNoDraft   Outcome = "no_draft"      // there was none
	OutcomeQuota     Outcome = "quota_reached" // of the day
)

// Firing is one time that an automation fired. Its automation and ScheduledFor are its key.
type Firing struct {
	Automation   uuid.UUID
	Number       int64 // the order of lists
	ScheduledFor time.Time
	FiredAt      time.Time
	Outcome      Outcome
	Publication  *uuid.UUID
	Skipped      int // times before ScheduledFor that were missed
}

type (
	// CreateAutomation makes an automation. Its rule's From is the database's clock where it is zero.
	CreateAutomation struct {
		Name       string
		Target     string // its name
		Rule       Rule
		Pick       Pick
		DailyQuota int
		Jitter     time.Duration
	}
	// PauseAutomation keeps an automation from firing.
	PauseAutomation struct{}
	// ResumeAutomation ends that. What it would have fired meanwhile is not made up for.
	ResumeAutomation struct{}
	// CancelAutomation ends an automation for good.
	CancelAutomation struct{}
)

func (CreateAutomation) action() string { return "automation.create" }
func (PauseAutomation) action() string  { return "automation.pause" }
func (ResumeAutomation) action() string { return "automation.resume" }
func (CancelAutomation) action() string { return "automation.cancel" }

// DecideCreateAutomation makes an automation for a target.
func DecideCreateAutomation(op CreateAutomation, target *Target, id uuid.UUID, now time.Time) *Automation {
	a := &Automation{
		ID: id, Name: op.Name, Target: target.ID, TargetName: target.Name, Status: AutomationActive, Rule: op.Rule, Pick: op.Pick,
		DailyQuota: op.DailyQuota, Jitter: op.Jitter, CreatedAt: now,
	}
	if a.Rule.From.IsZero() {
		a.Rule.From = now
	}
	a.activate(now)
	return a
}

// DecideAutomation carries an operation out on an automation, which it changes unless it returns [ErrBadTransition].
func DecideAutomation(a *Automation, op Op, now time.Time) error {
	switch op.(type) {
	case PauseAutomation:
		if a.Status != AutomationActive {
			return ErrBadTransition
		}
		a.Status, a.NextAt = AutomationPaused, nil
	case ResumeAutomation:
		if a.Status != AutomationPaused {
			return ErrBadTransition
		}
		a.activate(now)
	case CancelAutomation:
		if a.Status == AutomationCancelled {
			return ErrBadTransition
		}
		a.Status, a.NextAt = AutomationCancelled, nil
	default:
		panic(fmt.Sprintf("publish: %T is no operation on an automation", op))
	}
	return nil
}

func (a *Automation) activate(now time.Time) {
	next := a.Rule.Next(now)
	a.Status, a.NextAt = AutomationActive, &next
}

// Due returns the time that an active automation fires for, the last one that is not after now, and how many times before
// it are skipped: after an outage a rule fires once, not once for each missed time. ok is false when it is not due.
func (a *Automation) Due(now time.Time) (at time.Time, skipped int, ok bool) {
	if a.Status != AutomationActive || a.NextAt.After(now) {
		return at, 0, false
	}
	at = *a.NextAt
	if every := a.Rule.Every; every > 0 {
		behind := now.Sub(at)
		return at.Add(behind - behind%every), int(min(behind/every, maxSkipped)), true
	}
	for ; ; skipped = min(skipped+1, maxSkipped) {
		next := a.Rule.Next(at)
		if next.After(now) {
			return at, skipped, true
		}
		at = next
	}
}

// Fire fires a due automation: it schedules the draft and moves the automation on. used is how many drafts the automation
// has scheduled on the day of now, by its rule's clocks; draft is the one that was picked, nil when there is none.
func Fire(a *Automation, draft *Publication, used int, now time.Time, draw Draw) *Firing {
	at, skipped, ok := a.Due(now)
	if !ok {
		panic("publish: an automation fires before its time")
	}
	f := &Firing{Automation: a.ID, ScheduledFor: at, FiredAt: now, Skipped: skipped}
	next := a.Rule.Next(at)
	a.NextAt = &next
	switch {
	case a.DailyQuota > 0 && used >= a.DailyQuota:
		f.Outcome = OutcomeQuota
	case draft == nil:
		f.Outcome = OutcomeNoDraft
	default:
		if draft.Status != StatusDraft {
			panic("publish: an automation takes what is no draft")
		}
		f.Outcome, f.Publication = OutcomeScheduled, &draft.ID
		draft.PublishAt, draft.Jitter = &at, a.Jitter
		// The jitter is counted from now: the time of the rule is past already, if only by a moment.
		due(draft, now.Add(time.Duration(draw(a.Jitter.Microseconds()+1))*time.Microsecond))
		check(draft)
	}
	return f
}
