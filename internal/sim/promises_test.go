//go:build unix

package sim_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// leaderTTL is what servers have without --leader-ttl.
const leaderTTL = 3 * time.Second

// TestLeaderDies kills the leader a moment before a round's end: another server leads, and closes the round.
func TestLeaderDies(t *testing.T) {
	beside(t)
	h := openHouse(t, 2, []string{"ann", "gallery"}, 1000)
	run := 0
	testpromise.CheckEach(t, []string{"leader-after-death", "round-closes-after-death"}, func(seen func(string, time.Duration)) {
		run++
		leader, others := h.leader(t)
		rules := calm(1)
		rules.Rounds[0].Duration = 500 * time.Millisecond
		b := h.launch(t, fmt.Sprintf("death-%d", run), []string{"ann"}, rules)
		testwait.Must(t, leader.Kill(testwait.Context(t, patience)))
		died := time.Now()
		testwait.Eventually(t, patience, "the other one leads", func() bool { return leads(t, others[0]) })
		seen("leader-after-death", time.Since(died)-leaderTTL)
		start(t, leader)
		closes(b.finish(t, patience), []time.Time{died}, seen)
	})
	h.close(t, 1)
}

// TestLeaderResigns ends the leader in good order.
func TestLeaderResigns(t *testing.T) {
	beside(t)
	h := openHouse(t, 2, []string{"ann"}, 1)
	testpromise.Check(t, "leader-after-resignation", func() time.Duration {
		leader, others := h.leader(t)
		testwait.Must(t, leader.Signal(syscall.SIGTERM))
		began := time.Now()
		testwait.Eventually(t, patience, "the other one leads", func() bool { return leads(t, others[0]) })
		took := time.Since(began)
		testwait.Must(t, leader.AwaitExit(testwait.Context(t, patience)))
		start(t, leader)
		return took
	})
	h.close(t, 1)
}

// TestServerStartsAfterSIGKILL kills the server, which leaves its private PostgreSQL at work, and every other time that, too.
func TestServerStartsAfterSIGKILL(t *testing.T) {
	beside(t)
	server := newServer(t, "")
	run := 0
	testpromise.Check(t, "restart", func() time.Duration {
		run++
		if run%2 == 0 {
			testwait.Must(t, sim.KillPostgres(server.DataDir(), true))
		}
		testwait.Must(t, server.Kill(testwait.Context(t, patience)))
		return start(t, server)
	})
}

// TestDeadPublisherIsNoticed kills the server that publishes: the other one attempts the publication again.
func TestDeadPublisherIsNoticed(t *testing.T) {
	beside(t)
	const staleAfter = 2 * time.Second
	database := newDatabase(t)
	args := []string{"--allow-private-targets", "--claim-stale-after", staleAfter.String(), "--claim-sweep-every", "1s", "--retry-backoff", "50ms"}
	servers := []*sim.Server{newServer(t, database, args...), newServer(t, database, args...)}
	in := newInbox(t)
	in.register(t, servers[0])
	testpromise.Check(t, "dead-publisher", func() time.Duration {
		arrived, finish := make(chan struct{}, 10), make(chan struct{})
		in.mu.Lock()
		in.answer = func(string, int) {
			arrived <- struct{}{}
			<-finish
		}
		in.mu.Unlock()
		var made publication
		ask(t, servers[0], "/v1/publications", `{"target":"inbox","publish_at":"2020-01-01T00:00:00Z","payload":1}`, &made)
		await(t, "the first attempt", arrived)
		dead, alive := servers[0], servers[1]
		if running(t, dead) == 0 {
			dead, alive = alive, dead
		}
		testwait.Must(t, dead.Kill(testwait.Context(t, patience)))
		killed := time.Now()
		await(t, "the second attempt", arrived)
		took := time.Since(killed)
		close(finish)
		// On a machine that stalls, the other one may seem dead, too.
		if p := published(t, alive, made.ID); p.Version < 2 || p.Version > 2 && testpromise.On() {
			t.Errorf("published by attempt %d", p.Version)
		}
		start(t, dead)
		return took - staleAfter
	})
}
