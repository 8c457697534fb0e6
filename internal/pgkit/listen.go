package pgkit

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// listenCheck is how often a silent connection is made to answer.
	listenCheck   = 15 * time.Second
	listenTimeout = 5 * time.Second
)

// Listen hears a channel's notifications on a connection of its own, outside of any pool, until ctx ends or the connection
// fails. It calls heard with each payload. A caller who wants to hear more listens again: what was sent meanwhile is lost,
// so it looks for itself what it has missed.
func Listen(ctx context.Context, config *pgx.ConnConfig, channel string, heard func(payload string)) error {
	conn, err := listen(ctx, config, channel)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = conn.Close(closing) // Nothing hangs on a goodbye.
	}()
	for {
		n, err := next(ctx, conn)
		if err != nil {
			return err
		}
		if n != nil {
			heard(n.Payload)
		}
	}
}

func listen(ctx context.Context, config *pgx.ConnConfig, channel string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// next waits for a notification. After a long silence the connection has to show that it is alive; it then returns nil.
func next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	notification, err := conn.WaitForNotification(waiting)
	if err == nil || ctx.Err() != nil || waiting.Err() == nil {
		return notification, err
	}
	asking, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	return nil, conn.Ping(asking)
}
