package wire_test

import (
	"context"
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
