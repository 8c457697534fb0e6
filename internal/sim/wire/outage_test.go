package wire_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestTheDatabaseGoesAwayAtTheStepThatWasAskedFor writes one row a step, and counts which rows are there.
func TestTheDatabaseGoesAwayAtTheStepThatWasAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		manner wire.Manner
		rows   int
	}{"unsent": {wire.Unsent, 2}, "carried": {wire.Carried, 3}, "silent": {wire.Silent, 2}} {
		t.Run(name, func(t *testing.T) {
			proxy, through, around := start(t, wire.Options{})
			direct := connect(t, around)
			testwait.Must(t, testwait.Err(direct.Exec(t.Context(), `CREATE TABLE marks (n int)`)))
			conn, bystander := connect(t, through), connect(t, through)
			proxy.TakeAway(2, c.manner)
			for n := range 3 {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if n == 2 && c.manner == wire.Silent {
					ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond) // Nothing else ends it.
				}
				// The simple protocol has one step a statement.
				_, err := conn.Exec(ctx, `INSERT INTO marks VALUES ($1)`, pgx.QueryExecModeSimpleProtocol, n)
				cancel()
				if (err == nil) != (n < 2) {
					t.Fatalf("step %d: %v", n, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if bystander.Ping(ctx) == nil {
				t.Error("a bystander was answered")
			}
			if c, err := pgx.Connect(ctx, through); err == nil {
				t.Error("somebody got in", c.Close(t.Context()))
			}
			if !proxy.GiveBack() || proxy.GiveBack() {
				t.Error("an outage is given back once")
			}
			back := connect(t, through)
			var rows int
			if err := back.QueryRow(t.Context(), `SELECT count(*) FROM marks`).Scan(&rows); err != nil || rows != c.rows {
				t.Errorf("%d rows, want %d: %v", rows, c.rows, err)
			}
		})
	}
}

// TestARefusedConnectionReachesNobody looks at what the database hears of an outage.
func TestARefusedConnectionReachesNobody(t *testing.T) {
	database, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	defer database.Close()
	proxy, err := wire.Listen(t.Context(), wire.Options{Network: "tcp", Address: database.Addr().String()})
	testwait.Must(t, err)
	defer proxy.Close()
	dial := func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", proxy.Addr())
		testwait.Must(t, err)
		return conn
	}
	ended := func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection that was cut has said something")
		}
	}
	proxy.Refuse(true)
	for range 10 {
		ended(dial())
	}
	proxy.Refuse(false)
	last := dial()
	defer last.Close()
	first, err := database.Accept()
	testwait.Must(t, err)
	testwait.Must(t, first.Close())
	testwait.Must(t, last.SetReadDeadline(time.Now().Add(testwait.Patience)))
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the first connection that the database heard of is not the one that was let through: %v", err)
	}
}
