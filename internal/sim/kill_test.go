//go:build unix

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// crashPoints are the named places at which the server must be able to die.
func crashPoints() []string {
	return []string{
		"ledger.before_commit", "ledger.after_commit", "lottery.before_commit", "lottery.after_commit",
		"lottery.draw", "lottery.cancel_refunds",
	}
}

// TestServerDiesAtEveryCrashPoint lets the server kill itself at each named place, under load that settles everything
// by its keys when the server is back.
func TestServerDiesAtEveryCrashPoint(t *testing.T) {
	beside(t)
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		database := newDatabase(t)
		server := newServer(t, database)
		client, history := newClient(t, server)
		mix := sim.DefaultMix()
		mix.Cancels = 6
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "crash", Accounts: 12, Workers: 8, Mix: mix})
		var slowest time.Duration
		for round := range testwait.Count(1, 3) {
			for _, point := range crashPoints() {
				// The rare places are met once in a campaign, the others all the time.
				hit := 1 + rng.IntN(3)
				if point != "lottery.draw" && point != "lottery.cancel_refunds" {
					hit = 1 + rng.IntN(40)
				}
				at := fmt.Sprintf("%s:%d", point, hit)
				willDie(t, server, at)
				dies(t, server, at)
				slowest = max(slowest, start(t, server))
				await(t, "answers after "+at, history.After(30))
				auditNow(t, database)
				if t.Failed() {
					t.Fatalf("after round %d, %s", round, at)
				}
			}
		}
		l.finish(t)
		closeBooks(t, database, client, history, 1)
		t.Logf("slowest start %v", slowest)
	})
}

// TestServerIsKilledAtRandomMoments kills the server with SIGKILL in the middle of load and measures how soon the next
// one is ready.
func TestServerIsKilledAtRandomMoments(t *testing.T) {
	beside(t)
	sessions(t, 10, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		server := newServer(t, "")
		client, history := newClient(t, server)
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "kill", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		var slowest time.Duration
		for kill := range testwait.Count(3, 20) {
			await(t, "answers", history.After(1+rng.IntN(150)))
			pause(t, rng, 5*time.Millisecond)
			testwait.Must(t, server.Kill(testwait.Context(t, patience)))
			// PostgreSQL outlives its server. One time in three it dies with it, and the next server must recover it.
			if rng.IntN(3) == 0 {
				testwait.Must(t, sim.KillPostgres(server.DataDir(), rng.IntN(2) == 0))
			}
			slowest = max(slowest, start(t, server))
			auditNow(t, databaseOf(t, server))
			if t.Failed() {
				t.Fatalf("after kill %d", kill)
			}
		}
		await(t, "answers after the last kill", history.After(50))
		l.finish(t)
		closeBooks(t, databaseOf(t, server), client, history, 1)
		t.Logf("slowest start %v", slowest)
	})
}

// TestPostgresIsKilled kills PostgreSQL under a server that stays up and must bring it back.
func TestPostgresIsKilled(t *testing.T) {
	beside(t)
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		server := newServer(t, "")
		client, history := newClient(t, server)
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "postgres", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		var slowest time.Duration
		for kill := range testwait.Count(2, 10) {
			await(t, "answers", history.After(1+rng.IntN(200)))
			pause(t, rng, 5*time.Millisecond)
			testwait.Must(t, sim.KillPostgres(server.DataDir(), rng.IntN(2) == 0))
			began := time.Now()
			history.Recorder.Fault(tally.DatabaseKilled, began)
			await(t, "answers after the death of PostgreSQL", history.After(20))
			slowest = max(slowest, time.Since(began))
			if !server.Running() {
				t.Fatalf("kill %d: the server ended with code %d", kill, server.ExitCode())
			}
			auditNow(t, databaseOf(t, server))
			if t.Failed() {
				t.Fatalf("after kill %d", kill)
			}
		}
		l.finish(t)
		closeBooks(t, databaseOf(t, server), client, history, 1)
		t.Logf("slowest return to work %v", slowest)
	})
}

// TestSignalledServerDrains ends the server with SIGTERM under load. What it had accepted it answers: a command whose
// connection broke must not have been executed, which the answer to its retry tells.
func TestSignalledServerDrains(t *testing.T) {
	beside(t)
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		database := newDatabase(t)
		// The end of a connection is to mean that the server has cut it: neither may give up because the machine stalls.
		server := newServer(t, database, "--drain-timeout", patience.String())
		client, history := newClient(t, server)
		client.LimitAttempts(patience)
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "drain", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		for drain := range testwait.Count(2, 10) {
			await(t, "answers", history.After(50+rng.IntN(100)))
			code, err := server.Terminate(testwait.Context(t, patience))
			if err != nil || code != 0 {
				t.Fatalf("drain %d: code %d: %v", drain, code, err)
			}
			start(t, server)
		}
		l.finish(t)
		lost := 0
		for _, op := range history.Ops() {
			answers := op.Answers()
			if last := answers[len(answers)-1]; last.Final() && last.Replayed {
				lost++
				t.Errorf("executed and not answered: %s: %v", op, answers)
			}
		}
		closeBooks(t, database, client, history, 1)
	})
}
