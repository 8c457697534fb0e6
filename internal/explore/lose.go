//go:build unix

package explore

import (
	"context"
	"fmt"
)

// ask is something that somebody wants to happen to the database.
type ask struct {
	what  string
	since int
	ready func() (bool, error) // nil: at any time
	run   func() error
	done  chan struct{}
}

// ask waits until the schedule lets something happen.
func (g *gate) ask(ctx context.Context, a *ask) error {
	a.done = make(chan struct{})
	g.mu.Lock()
	g.asks = append(g.asks, a)
	g.mu.Unlock()
	g.signal()
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askOptions are what may happen to the database. The gate's mutex is held.
func (g *gate) askOptions() (all []Option) {
	for n, a := range g.asks {
		ready := true
		if a.ready != nil {
			var err error
			if ready, err = a.ready(); err != nil { // Whoever comes next gets it, too.
				continue
			}
		}
		if !ready {
			continue
		}
		if a.since == 0 {
			a.since = g.step
		}
		all = append(all, Option{Label: "database " + a.what, Thread: "database", Since: a.since, run: func(Mode) error {
			g.mu.Lock()
			g.asks = append(g.asks[:n:n], g.asks[n+1:]...)
			g.mu.Unlock()
			defer close(a.done)
			return a.run()
		}})
	}
	return all
}

// Life counts what happened to the database: 0 before it was copied, 1 then, and 2 when it has come back as the copy.
func (w *World) Life() int32 { return w.life.Load() }

// Copy has the database copied, as an asynchronous standby or a backup has it, when the schedule comes to it. It is not copied while
// a transaction is prepared there, which only a physical copy could show.
func (w *World) Copy(ctx context.Context) error {
	db := w.gate.db
	return w.gate.ask(ctx, &ask{
		what: "is copied",
		ready: func() (bool, error) {
			prepared, err := db.prepared()
			return len(prepared) == 0, err
		},
		run: func() (err error) {
			db.past, err = db.copyTo("past")
			w.life.Store(1)
			return err
		},
	})
}

// Lose has the database come back as the copy when the schedule comes to it, as the primary on another timeline. All connections to it are cut,
// and what was on its way there is lost. before, which may be nil, looks at what is there until then.
func (w *World) Lose(ctx context.Context, before func() error) error {
	g := w.gate
	return g.ask(ctx, &ask{what: "fails, and an older state takes its place", run: func() error {
		_, err := g.finish(g.db)
		if err == nil && before != nil {
			err = before()
		}
		if err == nil {
			w.keptAll, err = g.db.keepsAll()
		}
		if err == nil {
			g.db.life++
			err = g.db.bring(g.db.past)
		}
		w.life.Store(2)
		if err != nil {
			return fmt.Errorf("fail over: %w", err)
		}
		return nil
	}})
}

// Rows asks the database, or the other one, for the first column of some rows, beside the schedule. It is for what is called by the scheduler.
func (w *World) Rows(other bool, sql string) ([]string, error) {
	if other {
		return w.gate.other.control.query(sql)
	}
	return w.gate.db.control.query(sql)
}
