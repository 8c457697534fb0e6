package publish

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

// automatorPoll is how often the rules are looked at: no rule fires later than that after its time while a process runs.
const automatorPoll = time.Second

// Firer is what an automator needs of a database.
type Firer interface {
	// FireDue fires one automation that is due by the database's clock, in one transaction that decide decides, and returns
	// the firing and the publication that it scheduled; all are nil when none is due. Any number of processes may call it
	// at once.
	FireDue(ctx context.Context, draw Draw) (*Automation, *Firing, *Publication, error)
}

// AutomationObserver receives firings, for metrics. It must not block and may be called concurrently.
type AutomationObserver interface {
	// Fired reports a firing, and how late it was.
	Fired(outcome Outcome, late time.Duration)
}

// AutomatorOptions make an automator. Firer is required.
type AutomatorOptions struct {
	Firer Firer
	// Scheduled is called after a commit with the time until something is due. It must not block.
	Scheduled func(in time.Duration)
	Observer  AutomationObserver
	Logger    *slog.Logger
}

// Automator fires automations. Any number of them may run on one database.
type Automator struct{ o AutomatorOptions }

// NewAutomator returns an automator; Run makes it work.
func NewAutomator(o AutomatorOptions) *Automator {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Scheduled == nil {
		o.Scheduled = func(time.Duration) {}
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	return &Automator{o: o}
}

// Run fires what is due, until ctx ends.
func (a *Automator) Run(ctx context.Context) {
	ticker := time.NewTicker(automatorPoll)
	defer ticker.Stop()
	for {
		a.fireAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// fireAll fires until nothing is due any more, or the database fails.
func (a *Automator) fireAll(ctx context.Context) {
	for ctx.Err() == nil {
		rule, f, p, err := a.o.Firer.FireDue(ctx, draw)
		if err != nil {
			if ctx.Err() == nil {
				a.o.Logger.WarnContext(ctx, "fire automations", "error", err)
			}
			return
		}
		if f == nil {
			return
		}
		a.o.Observer.Fired(f.Outcome, f.FiredAt.Sub(f.ScheduledFor))
		a.o.Logger.InfoContext(ctx, "automation fired", "automation", rule.ID, "name", rule.Name, "scheduled_for", f.ScheduledFor,
			"outcome", string(f.Outcome), "skipped", f.Skipped)
		if p != nil {
			a.o.Scheduled(p.DueAt.Sub(f.FiredAt))
		}
	}
}
