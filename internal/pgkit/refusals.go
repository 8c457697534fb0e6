package pgkit

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// refusedPause is the least time between two attempts to connect to a database that refuses sessions.
const refusedPause = 100 * time.Millisecond

// SpaceRefused has a pool connect at most every 100 ms while the database refuses its sessions, because it has too many, is starting, or for
// another reason of its own. Each refused session costs the database a process, and without a limit there is one for each attempt of each command
// that waits. The first session that begins lets all go on. Pools whose configurations are copies of c share the limit.
func SpaceRefused(c *pgxpool.Config) {
	g := &refusals{}
	onError, connect, connected := c.ConnConfig.OnPgError, c.BeforeConnect, c.AfterConnect
	c.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if conn.PID() == 0 { // No session has begun.
			g.refuse()
		}
		return onError == nil || onError(conn, err)
	}
	c.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		if err := g.pass(ctx); err != nil || connect == nil {
			return err
		}
		return connect(ctx, config)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		g.accept()
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
}

// refusals is what is known of a database that refuses sessions.
type refusals struct {
	mu   sync.Mutex
	next time.Time     // no attempt before
	open chan struct{} // closed when a session begins; nil while none is refused
}

func (g *refusals) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open, g.next = make(chan struct{}), time.Now().Add(refusedPause)
	}
}

func (g *refusals) accept() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// pass waits until there may be an attempt.
func (g *refusals) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		open, left := g.open, time.Until(g.next)
		if open == nil || left <= 0 {
			g.next = time.Now().Add(refusedPause)
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-open:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
