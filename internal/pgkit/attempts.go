package pgkit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// While a database is in trouble, it is asked for few sessions at a time.
const (
	troubledPause = 100 * time.Millisecond // the least time between the beginnings of two attempts
	troubledMost  = 2                      // attempts under way; those that began before count, too
)

// SpareTroubled has a pool begin at most one attempt to connect every 100 ms, and have two under way, while the database is in trouble: the last
// attempt to end was refused, because there are too many sessions, it is starting, or for another reason of the database's own, or no session began
// in time. Each attempt costs the database a process. Without a limit a slow one is asked by all who wait at once, so that no session begins in
// time, and all ask again. The first session that begins lets all go on. Pools whose configurations are copies of c share the limit.
func SpareTroubled(c *pgxpool.Config) {
	a := &attempts{changed: make(chan struct{})}
	before := c.BeforeConnect
	c.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, config); err != nil {
				return err
			}
		}
		if err := a.begin(ctx); err != nil {
			return err
		}
		config.Tracer = attempt{of: a} // This configuration is this attempt's own.
		return nil
	}
}

// attempts is what is known of attempts to connect.
type attempts struct {
	mu       sync.Mutex
	troubled bool
	next     time.Time     // while troubled, none begins before
	running  int           // under way
	changed  chan struct{} // closed when one ends
}

// begin waits until an attempt may begin, and counts it. Its error is that of ctx.
func (a *attempts) begin(ctx context.Context) error {
	for {
		left, changed := a.may()
		if changed == nil {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// may counts an attempt, unless it must wait: until changed is closed, and no longer than left.
func (a *attempts) may() (left time.Duration, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left = time.Until(a.next)
	if !a.troubled || left <= 0 && a.running < troubledMost {
		a.next = time.Now().Add(troubledPause)
		a.running++
		return 0, nil
	}
	return max(left, troubledPause), a.changed
}

func (a *attempts) ended(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	_, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		a.troubled = false
	case (refused || pgconn.Timeout(err)) && !a.troubled:
		a.troubled, a.next = true, time.Now().Add(troubledPause)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// attempt tells how one ends. It is no tracer of queries: the connection forgets it before it has any.
type attempt struct {
	pgx.QueryTracer

	of *attempts
}

func (attempt) TraceConnectStart(ctx context.Context, data pgx.TraceConnectStartData) context.Context {
	data.ConnConfig.Tracer = nil
	return ctx
}

func (t attempt) TraceConnectEnd(_ context.Context, data pgx.TraceConnectEndData) {
	t.of.ended(data.Err)
}
