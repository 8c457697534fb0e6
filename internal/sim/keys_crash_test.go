//go:build unix

package sim_test

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestKeySlotsAreTurnedThroughEveryCrash kills the only server, under load, when it has emptied a slot of idempotency keys, and when it has
// turned the slots, before each is committed. Nothing of it stays then, and the next server does it again. All keys of the load are kept.
func TestKeySlotsAreTurnedThroughEveryCrash(t *testing.T) { //nolint:tparallel // One after the other: each has its load.
	beside(t)
	pgtest.Needs(t, pgkit.RowPlaces)
	for round := range testwait.Count(1, 25) {
		t.Run(fmt.Sprint(round), turnedThroughCrashes)
	}
}

func turnedThroughCrashes(t *testing.T) {
	_, seed := testwait.Rand(t)
	database := newDatabase(t)
	conn := pgtest.Connect(t, database)
	server := newServer(t, database, "--leader-ttl", "1s")
	asks, history := newClient(t, server)
	l := startLoad(t, asks, sim.WorkloadOptions{
		Seed: seed, Prefix: "keys", Accounts: 6, Workers: 3, Mix: sim.Mix{Transfers: 20, Legs: 5, Holds: 15, Deposits: 5, Withdrawals: 5},
	})
	// The other slot has keys of long ago, and the one that is written was entered long ago.
	for _, sql := range []string{
		`INSERT INTO idempotency_keys_1 SELECT sha256(n::text::bytea), sha256(''), gen_random_uuid(), 409, '{}'::bytea, now() - interval '3 days' FROM generate_series(1, 1000) AS n`,
		`UPDATE key_slots SET since = now() - interval '4 days', left_at = now() - interval '2 days' WHERE slot = 1`,
		`UPDATE key_slots SET since = now() - interval '2 days' WHERE slot = 0`,
	} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql)))
	}
	state := func() (written, old int) {
		t.Helper()
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT (SELECT slot FROM key_slots WHERE since IS NOT NULL AND left_at IS NULL),
			(SELECT count(*) FROM idempotency_keys_1 WHERE created_at < now() - interval '1 day')`).Scan(&written, &old))
		return written, old
	}
	for _, place := range []struct {
		at  string
		old int // keys that are left
	}{{"keys.empty", 1000}, {"keys.turn", 0}} {
		// A sweep does not wait long for what a killed server has left under way.
		testwait.Must(t, server.Kill(testwait.Context(t, patience)))
		testwait.Eventually(t, patience, "its sessions have ended", func() (ended bool) {
			testwait.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) = 0 FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&ended))
			return ended
		})
		willDie(t, server, place.at)
		dies(t, server, place.at)
		if written, old := state(); written != 0 || old != place.old {
			t.Fatalf("%s: slot %d is written, %d old keys are there", place.at, written, old)
		}
	}
	start(t, server)
	testwait.Eventually(t, patience, "a turn", func() bool { written, _ := state(); return written == 1 })
	l.finish(t)
	auditNow(t, database)
	closeBooks(t, database, asks, history, 1)
}
