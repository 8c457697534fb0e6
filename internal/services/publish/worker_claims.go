package publish

import (
	"context"
	"time"
)

// beat keeps the claims of the running attempts alive, until ctx ends.
func (w *Worker) beat(ctx context.Context) {
	every := min(w.o.StaleAfter/beatsPerLife, longestBeat)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if alive := w.alive(); len(alive) > 0 {
			// Trust begins at the start of the attempt, not at its answer.
			since := time.Now()
			beating, cancel := context.WithTimeout(ctx, w.o.StaleAfter)
			lost, err := w.o.Queue.Heartbeat(beating, alive)
			cancel()
			if err != nil && ctx.Err() == nil {
				w.o.Logger.WarnContext(ctx, "heartbeat of claims", "error", err)
			}
			if err == nil {
				w.beaten(alive, lost, since)
			}
		}
		w.giveUpStale()
	}
}

func (w *Worker) alive() []Claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive := make([]Claim, 0, len(w.running))
	for c := range w.running {
		alive = append(alive, c)
	}
	return alive
}

func (w *Worker) beaten(alive, lost []Claim, since time.Time) {
	gone := make(map[Claim]struct{}, len(lost))
	for _, c := range lost {
		gone[c] = struct{}{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range alive {
		a := w.running[c]
		if a == nil {
			continue // It has ended meanwhile, and that is why its claim is gone.
		}
		if _, ok := gone[c]; !ok {
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

// sweep releases stale claims now and then every while, until ctx ends.
func (w *Worker) sweep(ctx context.Context) {
	ticker := time.NewTicker(w.o.SweepEvery)
	defer ticker.Stop()
	for {
		w.reseal(ctx)
		n, err := w.o.Queue.ReleaseStale(ctx, w.o.StaleAfter)
		switch {
		case err != nil && ctx.Err() == nil:
			w.o.Logger.WarnContext(ctx, "release stale claims", "error", err)
		case n > 0:
			w.o.Observer.Released(n)
			w.o.Logger.InfoContext(ctx, "stale claims released", "count", n)
			signal(w.wake)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
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
	if w.o.Resealer == nil {
		return
	}
	switch n, err := w.o.Resealer.Reseal(ctx, w.o.Vault); {
	case err != nil && ctx.Err() == nil:
		w.o.Logger.WarnContext(ctx, "seal secrets under the new key", "error", err)
	case n > 0:
		w.o.Logger.InfoContext(ctx, "secrets sealed under the new key", "count", n)
	}
}
