package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// connectLimit bounds one attempt to connect, and closeLimit the end of a connection.
	connectLimit = 10 * time.Second
	closeLimit   = 5 * time.Second
	// takeLimit bounds how long all connections may take to be taken.
	takeLimit = 30 * time.Second
	takePause = 20 * time.Millisecond
)

// name is how the sessions here call themselves.
const name = "fairlead torture"

// Connect opens a session of its own, which no fault here ends.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = name
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	return pgx.ConnectConfig(ctx, config)
}

// closing ends a session, whatever has become of it.
func closing(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = conn.Close(ctx)
}

// EndSessions ends all sessions of the database but those of this package, and returns how many there were.
func EndSessions(ctx context.Context, conn *pgx.Conn) (ended int, err error) {
	err = conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name <> $1 AND backend_type = 'client backend'`, name).Scan(&ended)
	return ended, err
}

// TakeConnections takes all connections that there can be, those of the database's other sessions first, until release is called.
func TakeConnections(ctx context.Context, url string) (release func(), err error) {
	var taken []*pgx.Conn
	release = func() { //nolint:contextcheck // It is called when ctx may have ended.
		for _, conn := range taken {
			closing(conn)
		}
	}
	within, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	for {
		var failed error
		for failed == nil {
			var conn *pgx.Conn
			if conn, failed = Connect(within, url); failed == nil {
				taken = append(taken, conn)
			}
		}
		if len(taken) > 0 {
			ended, err := EndSessions(within, taken[0])
			if err != nil {
				return release, fmt.Errorf("take all connections: %w", err)
			}
			if ended == 0 {
				return release, nil
			}
		}
		if !wait.For(within, takePause) {
			return release, fmt.Errorf("take all connections: %w", errors.Join(within.Err(), failed))
		}
	}
}

// Hold runs statements in a transaction, which it keeps open until release is called.
func Hold(ctx context.Context, url string, statements ...string) (release func(), err error) {
	conn, err := Connect(ctx, url)
	if err != nil {
		return func() {}, err
	}
	release = func() { closing(conn) } //nolint:contextcheck // As above.
	for _, sql := range append([]string{"BEGIN"}, statements...) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			release()
			return func() {}, err
		}
	}
	return release, nil
}
