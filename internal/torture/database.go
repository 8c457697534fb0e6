package torture

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// connectLimit bounds one attempt to connect, and closeLimit the end of a connection.
	connectLimit = 10 * time.Second
	closeLimit   = 5 * time.Second
	// takeLimit bounds how long all connections may take to be taken.
	takeLimit = time.Minute
	takePause = 20 * time.Millisecond
	// takers connect at once. Servers whose sessions were ended want the same connections, each for many commands.
	takers = 16
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

// TakeConnections takes all connections that there can be, those of the database's other sessions first, until release is called. Servers want the
// same ones again at once, each for many commands: so several takers try all the time, while the others' sessions are ended.
func TakeConnections(ctx context.Context, url string) (release func(), err error) {
	within, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	t := &taking{url: url}
	release = func() { //nolint:contextcheck // It is called when ctx may have ended.
		for _, conn := range t.taken {
			closing(conn)
		}
	}
	first, err := t.first(within)
	if err != nil {
		return release, fmt.Errorf("take all connections: %w", err)
	}
	trying, stop := context.WithCancel(within)
	var all sync.WaitGroup
	for range takers {
		all.Go(func() { t.take(trying) })
	}
	defer all.Wait()
	defer stop()
	for alone := 0; alone < 2; { // The first time, the place of a session that was just ended may become free only now.
		before := t.refused.Load()
		ended, err := EndSessions(within, first)
		if alone++; ended > 0 {
			alone = 0
		}
		for err == nil && t.refused.Load() < before+takers {
			if !wait.For(within, takePause) {
				err = within.Err()
			}
		}
		if err != nil {
			return release, fmt.Errorf("take all connections: %w", err)
		}
	}
	return release, nil
}

// taking is what several goroutines take.
type taking struct {
	url     string
	refused atomic.Int64 // attempts for which there was no connection
	mu      sync.Mutex
	taken   []*pgx.Conn
}

// first connects as soon as there is room for one.
func (t *taking) first(ctx context.Context) (*pgx.Conn, error) {
	for {
		conn, err := Connect(ctx, t.url)
		if err == nil {
			t.taken = append(t.taken, conn)
			return conn, nil
		}
		if !wait.For(ctx, takePause) {
			return nil, err
		}
	}
}

// take connects again and again until ctx ends.
func (t *taking) take(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := Connect(ctx, t.url)
		switch {
		case pgkit.Code(err) == pgkit.TooManyConnections:
			t.refused.Add(1)
			continue
		case err != nil:
			wait.For(ctx, takePause)
			continue
		}
		t.mu.Lock()
		t.taken = append(t.taken, conn)
		t.mu.Unlock()
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
