//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// address is the database's, as servers and processes have it. The gate answers there.
const address = "postgres://fairlead@" + mainHost + "/fairlead?sslmode=disable"

// The hosts of the databases.
const (
	mainHost  = "192.0.2.1"
	otherHost = "192.0.2.2"
)

// poolSize is more than a process needs at a time. Which of two goroutines that wait for the last connection gets it is the machine's choice.
const poolSize = 16

// errKilled is why the context of a process ends that is killed.
var errKilled = errors.New("the process was killed")

// Process runs f as a program of its own, which uses the libraries on a pool of connections. The schedule doesn't end before f returns.
// When the process is killed, ctx ends, nothing that was written reaches it any more, and f is begun anew.
func (w *World) Process(ctx context.Context, name string, f func(ctx context.Context, pool *pgxpool.Pool) error) {
	w.Go(func() error {
		for {
			life, end := context.WithCancelCause(ctx)
			w.mu.Lock()
			w.processes[name] = end
			w.mu.Unlock()
			err := w.live(life, name, f)
			w.mu.Lock()
			delete(w.processes, name)
			delete(w.handlers, name)
			w.mu.Unlock()
			killed := errors.Is(context.Cause(life), errKilled)
			end(nil)
			if !killed {
				return err
			}
		}
	})
}

// live is one life of a process.
func (w *World) live(ctx context.Context, name string, f func(ctx context.Context, pool *pgxpool.Pool) error) error {
	pool, err := w.pool(ctx, name, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(ctx, pool)
}

func (w *World) pool(ctx context.Context, name, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.HealthCheckPeriod = poolSize, time.Hour
	config.ConnConfig.DialFunc = w.gate.dial(name)
	config.ConnConfig.RuntimeParams["lock_timeout"] = "2s"
	return pgxpool.NewWithConfig(ctx, config)
}

// Other returns a pool of connections to the other database for a process that has just begun, which closes it.
func (w *World) Other(ctx context.Context, name string) (*pgxpool.Pool, error) {
	return w.pool(ctx, name, strings.Replace(address+"&application_name=other", mainHost, otherHost, 1))
}

// Serve has a process answer requests until it ends.
func (w *World) Serve(name string, h http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers[name] = h
}

// names are the servers and processes that are alive, in order.
func (w *World) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(w.servers)), maps.Keys(w.processes))
	slices.Sort(all)
	return all
}

// faults are the options that kill a server or a process, which is started anew at once, and those that stop its messages for a while:
// what it writes stays on its way, and so do requests to it and its answers.
func (w *World) faults(ctx context.Context) (all []Option) {
	if !w.faulty {
		return nil
	}
	for _, name := range w.names() {
		if w.scenario.Kills {
			all = append(all, Option{Label: "kill " + name, Thread: faultThread, run: func(Mode) error { w.kill(ctx, name); return nil }})
		}
		if until := w.stalled[name]; w.scenario.Stall > 0 && !time.Now().Before(until) {
			all = append(all, Option{Label: fmt.Sprintf("stall %s for %v", name, w.scenario.Stall), Thread: faultThread, run: func(Mode) error {
				w.stalled[name] = time.Now().Add(w.scenario.Stall)
				return nil
			}})
		}
	}
	return all
}

func (w *World) kill(ctx context.Context, name string) {
	w.mu.Lock()
	end, server := w.processes[name], w.servers[name] != nil
	delete(w.servers, name)
	delete(w.processes, name)
	delete(w.handlers, name)
	delete(w.stalled, name)
	w.mu.Unlock()
	w.gate.kill(name)
	if end != nil {
		end(errKilled)
	}
	if server {
		mark := w.gate.who.next()
		w.restarts.Go(func() {
			w.gate.who.mark(w.gate.who.here(), mark)
			for ctx.Err() == nil && w.open(ctx, name) != nil && wait.For(ctx, time.Second) {
				continue
			}
		})
	}
}

// moving are the options of those whose messages are not stopped.
func (w *World) moving(all []Option) []Option {
	now := time.Now()
	return slices.DeleteFunc(all, func(o Option) bool { return o.process != "" && now.Before(w.stalled[o.process]) })
}

// parting has servers cut off with the loss of what the database answers them.
func (w *World) parting(all []Option) []Option {
	for i, o := range all {
		if w.faulty && w.scenario.Outage > 0 && o.process != "" && strings.HasPrefix(o.Thread, o.process+"/") && slices.Contains(o.Faults, Lose) {
			all[i].Faults = append(slices.Clip(o.Faults), Part)
		}
	}
	return all
}

// stalls returns when the next one whose messages are stopped goes on.
func (w *World) stalls() (next time.Time) {
	now := time.Now()
	for _, until := range w.stalled {
		if now.Before(until) && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	return next
}
