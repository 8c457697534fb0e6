//go:build unix

package sim_test

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// versionBefore is what servers are upgraded from: the last commit whose newest step of the schema was 22.
const versionBefore = "5376c076be39a1797e49e345cf927819c053ef28"

// TestRollingUpgrade replaces two servers under load, one after the other, by those of a newer version, goes back to the old one
// in the same way, and then to the newer one again. Clients see nothing that a retry does not settle.
func TestRollingUpgrade(t *testing.T) {
	if os.Getenv("FAIRLEAD_TORTURE") == "" {
		t.Skip("it builds the version before: make torture runs it")
	}
	old, err := sim.BuildAt(testwait.Context(t, 10*patience), versionBefore, tempDir(t))
	testwait.Must(t, err)
	_, seed := testwait.Rand(t)
	database := newDatabase(t)
	servers := []*sim.Server{newServerOf(t, old, database), newServerOf(t, old, database)}
	client, history := newClient(t, servers...)
	mix := sim.DefaultMix()
	mix.Legs = 0 // The version before knows none.
	l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "upgrade", Accounts: 20, Workers: 16, Mix: mix})
	for _, version := range []string{binary(t), old, binary(t)} {
		for _, server := range servers {
			await(t, "answers", history.After(300))
			code, err := server.Terminate(testwait.Context(t, patience))
			if err != nil || code != 0 {
				t.Fatalf("server ended with code %d: %v", code, err)
			}
			server.Replace(version)
			start(t, server)
			await(t, "answers of both versions", history.After(300))
			auditNow(t, database)
		}
	}
	l.finish(t)
	closeBooks(t, database, client, history, 1)
}
