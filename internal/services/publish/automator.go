package publish

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// automatorPoll is how often the rules are looked at: no rule fires later than that after its time while a process runs.
const automatorPoll = time.Second

// fireAll fires until nothing is due any more, or the database fails.
func (w *Worker) fireAll(ctx context.Context, failures *wait.News) {
	for ctx.Err() == nil {
		rule, f, p, err := w.o.Queue.FireDue(ctx, draw)
		if news := failures.Is(err); err != nil {
			if news && ctx.Err() == nil {
				w.o.Logger.WarnContext(ctx, "fire automations", "error", err)
			}
			return
		}
		if f == nil {
			return
		}
		w.o.Observer.Fired(f.Outcome, f.FiredAt.Sub(f.ScheduledFor))
		w.o.Logger.InfoContext(ctx, "automation fired", "automation", rule.ID, "name", rule.Name, "scheduled_for", f.ScheduledFor,
			"outcome", string(f.Outcome), "skipped", f.Skipped)
		if p != nil {
			w.Scheduled(p.DueAt.Sub(f.FiredAt))
		}
	}
}
