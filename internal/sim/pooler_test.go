//go:build unix

package sim_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestServersBehindAPooler loads two servers whose connections go through a PgBouncer in session mode, and again and again ends all
// of PostgreSQL's sessions, or kills a server. What becomes of a COMMIT is then told by the pooler, in words of its own.
func TestServersBehindAPooler(t *testing.T) {
	beside(t)
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		database := newDatabase(t)
		through := pgtest.PgBouncer(t, database, "pool_mode = session", "default_pool_size = 80").Through(t, database)
		servers := []*sim.Server{newServer(t, through), newServer(t, through)}
		client, history := newClient(t, servers...)
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "pooled", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		for fault := range testwait.Count(2, 20) {
			await(t, "answers", history.After(50+rng.IntN(150)))
			if fault%2 == 1 {
				victim := servers[rng.IntN(2)]
				testwait.Must(t, victim.Kill(testwait.Context(t, patience)))
				await(t, "answers of the other server", history.After(30))
				start(t, victim)
			} else {
				endSessions(t, database)
			}
			await(t, "answers after the fault", history.After(30))
			auditNow(t, database)
			if t.Failed() {
				t.Fatalf("after fault %d", fault)
			}
		}
		l.finish(t)
		closeBooks(t, database, client, history, 1)
	})
}

// endSessions ends all other sessions of a database.
func endSessions(t *testing.T, database string) {
	t.Helper()
	ctx := testwait.Context(t, patience)
	conn, err := pgx.Connect(ctx, database)
	testwait.Must(t, err)
	var ended int
	err = conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&ended)
	testwait.Must(t, err)
	testwait.Check(t, conn.Close(ctx))
	if ended == 0 {
		t.Error("there was no session to end")
	}
}
