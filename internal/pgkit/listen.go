package pgkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// listenCheck is how often a silent connection is made to show that it hears.
	listenCheck   = 10 * time.Second
	listenTimeout = 5 * time.Second
)

// errDeaf is returned when a notification of our own does not arrive, as behind a pooler.
var errDeaf = errors.New("notifications do not arrive")

// ErrNoNotify is returned where the database refuses LISTEN, or the setting [Without] has switched notifications off: listening again
// would be no better.
var ErrNoNotify = errors.New("the database has no notifications")

// Listener hears a channel's notifications on a connection of its own, outside of any pool.
type Listener struct {
	Config  *pgx.ConnConfig
	Channel string
	Heard   func(payload string)
	// Notify sends to the channel by another connection. Where it is set, the listener notifies itself at first and after each
	// silence, calls Hearing when that arrives, and ends when it does not. Where it is nil, a silent connection is pinged.
	Notify  func(ctx context.Context, payload string) error
	Hearing func()
}

// Listen hears until ctx ends or the connection fails. A caller who wants to hear more listens again: what was sent meanwhile
// is lost, so it looks for itself what it has missed.
func (l *Listener) Listen(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = conn.Close(closing) // Nothing hangs on a goodbye.
	}()
	me, limit := "probe"+uuid.NewString(), listenCheck
	check := func() error {
		ctx, cancel := context.WithTimeout(ctx, listenTimeout)
		defer cancel()
		if l.Notify == nil {
			return conn.Ping(ctx)
		}
		limit = listenTimeout
		return l.Notify(ctx, me)
	}
	if l.Notify != nil {
		err = check()
	}
	for err == nil {
		waiting, cancel := context.WithTimeout(ctx, limit)
		n, failed := conn.WaitForNotification(waiting)
		silent := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case failed == nil && n.Payload == me:
			limit = listenCheck
			l.Hearing()
		case failed == nil:
			l.Heard(n.Payload)
		case !silent:
			return failed
		case limit == listenTimeout:
			return errDeaf
		default:
			err = check()
		}
	}
	return err
}

func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.Config.Copy())
	if err != nil {
		return nil, err
	}
	results, err := conn.PgConn().Exec(ctx, "LISTEN "+l.Channel+"; "+selectSwitchedOff).ReadAll()
	switch {
	case Refused(err):
		err = fmt.Errorf("%w: %w", ErrNoNotify, err)
	case err == nil && slices.Contains(listed(string(results[1].Rows[0][0])), Notify):
		err = ErrNoNotify
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}
