package publish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// beat keeps the claims of the running attempts alive.
func (w *Worker) beat(ctx context.Context) {
	if alive := w.alive(); len(alive) > 0 {
		beating, cancel := context.WithTimeout(ctx, w.o.StaleAfter)
		err := w.beatFor(beating, alive)
		if _, blocked := errors.AsType[*command.BlockedError](err); blocked && len(alive) > 1 {
			// Another session has locked one of them: the others live on.
			for _, c := range alive {
				if one := w.beatFor(beating, []Claim{c}); one != nil {
					err = one
				}
			}
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			w.o.Logger.WarnContext(ctx, "heartbeat of claims", "error", err)
		}
	}
	w.giveUpStale()
}

func (w *Worker) beatFor(ctx context.Context, alive []Claim) error {
	since := time.Now() // Trust begins at the start of the attempt, not at its answer.
	lost, err := w.o.Queue.Heartbeat(ctx, alive)
	if err == nil {
		w.beaten(alive, lost, since)
	}
	return err
}

func (w *Worker) alive() []Claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.running))
}

func (w *Worker) beaten(alive, lost []Claim, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range alive {
		// An attempt may have ended meanwhile.
		if a := w.running[c]; a != nil && !slices.Contains(lost, c) {
			a.until = since.Add(w.life())
		}
	}
}

// giveUpStale ends the attempts whose claim may be another's by now. What they have sent is sent; they must not go on.
func (w *Worker) giveUpStale() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, a := range w.running {
		if now.After(a.until) {
			a.cancel(errClaimLost)
		}
	}
}

// sweep releases stale claims.
func (w *Worker) sweep(ctx context.Context) {
	w.reseal(ctx)
	switch n, err := w.o.Queue.ReleaseStale(ctx, w.o.StaleAfter); {
	case err != nil && ctx.Err() == nil:
		w.o.Logger.WarnContext(ctx, "release stale claims", "error", err)
	case n > 0:
		w.o.Observer.Released(n)
		w.o.Logger.InfoContext(ctx, "stale claims released", "count", n)
		wait.Signal(w.wake)
	}
}

// nobody is the observer that does nothing.
type nobody struct{}

func (nobody) Claimed(int, time.Duration)                  {}
func (nobody) Attempted(time.Duration, time.Duration, int) {}
func (nobody) Recorded(AttemptResult)                      {}
func (nobody) Running(int)                                 {}
func (nobody) Released(int)                                {}
func (nobody) Fired(Outcome, time.Duration)                {}

// reseal seals what is under an old key under the new one, so that the old one can go.
func (w *Worker) reseal(ctx context.Context) {
	switch n, err := w.o.Queue.Reseal(ctx, w.o.Vault); {
	case err != nil && ctx.Err() == nil:
		w.o.Logger.WarnContext(ctx, "seal secrets under the new key", "error", err)
	case n > 0:
		w.o.Logger.InfoContext(ctx, "secrets sealed under the new key", "count", n)
	}
}
