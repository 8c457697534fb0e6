//go:build unix

package sim_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestOneOfThreeServersIsKilled spreads load over three servers on one database and kills one of them, again and again.
func TestOneOfThreeServersIsKilled(t *testing.T) {
	beside(t)
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		database := newDatabase(t)
		servers := []*sim.Server{newServer(t, database), newServer(t, database), newServer(t, database)}
		client, history := newClient(t, servers...)
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "three", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		for kill := range testwait.Count(2, 10) {
			await(t, "answers", history.After(testwait.Count(50, 1500)+rng.IntN(150)))
			victim := servers[rng.IntN(len(servers))]
			testwait.Must(t, victim.Kill(testwait.Context(t, patience)))
			history.Recorder.Fault(tally.ServerKilled, time.Now())
			await(t, "answers of the other servers", history.After(30))
			start(t, victim)
			auditNow(t, database)
			if t.Failed() {
				t.Fatalf("after kill %d", kill)
			}
		}
		l.finish(t)
		closeBooks(t, database, client, history, 1)
	})
}

// locksTakenBack is when PostgreSQL has long ended the transaction of a stopped server, and the other one goes on.
const locksTakenBack = 25 * time.Second

// TestStoppedServerWakes freezes one of two servers in the middle of its work and wakes it when the other has gone on.
func TestStoppedServerWakes(t *testing.T) {
	beside(t)
	sessions(t, 4, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		database := newDatabase(t)
		sleeper := newServer(t, database)
		client, history := newClient(t, sleeper, newServer(t, database))
		client.LimitAttempts(500 * time.Millisecond)
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "stop", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		for stop := range testwait.Count(2, 3) {
			await(t, "answers", history.After(50+rng.IntN(150)))
			testwait.Must(t, sleeper.Signal(syscall.SIGSTOP))
			history.Recorder.Fault(tally.ServerPaused, time.Now())
			// It may be stopped with rows locked, which PostgreSQL takes back after a while.
			asleep := time.Duration(testwait.Count(2, 5+rng.IntN(36))) * time.Second
			progress := history.After(100)
			wait.For(t.Context(), asleep)
			select {
			case <-progress:
			default:
				if asleep >= locksTakenBack {
					t.Errorf("the other server did not go on within %v", asleep)
				}
			}
			testwait.Must(t, sleeper.Signal(syscall.SIGCONT))
			await(t, "answers after waking", history.After(100))
			auditNow(t, database)
			if t.Failed() {
				t.Fatalf("after stop %d, %v asleep", stop, asleep)
			}
		}
		l.finish(t)
		closeBooks(t, database, client, history, 1)
	})
}

// TestLostAnswersToCommit puts a proxy between the server and PostgreSQL that loses the answers to COMMIT, and some
// commits, under mixed load, then sells a campaign through it.
func TestLostAnswersToCommit(t *testing.T) {
	beside(t)
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		_, seed := testwait.Rand(t)
		database := newDatabase(t)
		proxy, through := wire.Through(t, database, wire.Options{Seed: seed, LoseOneIn: 4, Blackout: 300 * time.Millisecond})
		server := newServer(t, through)
		client, history := newClient(t, server)
		l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "lost", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		history.Recorder.Also(tally.CommitAnswerLost, 0, 0) // How many is known at the end.
		history.Recorder.Also(tally.CommitLost, 0, 0)
		proxy.Arm(true)
		awaitLost(t, proxy, testwait.Count(15, 60))
		proxy.Arm(false)
		l.finish(t)
		auditNow(t, database)

		accounts := names("buyer", buyers)
		testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), client, append(accounts, "house"), 1_000_000))
		sales, before := testwait.Count(2, 5), proxy.Stats().Lost()
		for sale := range sales {
			name := fmt.Sprintf("sale-%d", sale)
			campaign, err := sim.Launch(testwait.Context(t, patience), client, name, triangle(name, "house"))
			testwait.Must(t, err)
			proxy.Arm(true)
			checkRace(t, sell(t, client, campaign.ID, name, accounts))
			proxy.Arm(false)
			checkDrawn(t, client, campaign.ID, 9)
			verify(t, client, campaign.ID, campaign.Commitment)
			if t.Failed() {
				break
			}
		}
		lost, all := proxy.Stats().Lost()-before, proxy.Stats()
		history.Recorder.Also(tally.CommitAnswerLost, all.AnswerLost+all.OutcomeOpen, 0)
		history.Recorder.Also(tally.CommitLost, all.CommitLost, 0)
		t.Logf("%+v, %d of them while %d campaigns were sold", proxy.Stats(), lost, sales)
		if lost == 0 {
			t.Error("no commit was lost while campaigns were sold")
		}
		closeBooks(t, database, client, history, 1)
	})
}

// sell lets every account buy one position of any layer, a few at a time, so that the sale takes many commits, and
// settles each.
func sell(t *testing.T, client *sim.Client, campaign, keys string, accounts []string) []sim.Answer {
	t.Helper()
	const workers = 20
	ctx := testwait.Context(t, 3*patience)
	answers := make([]sim.Answer, len(accounts))
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(accounts)); i = next.Add(1) - 1 {
				answer, err := client.Settle(ctx, sim.NewPurchase(fmt.Sprintf("%s-%d", keys, i), campaign, accounts[i], 0))
				testwait.Check(t, err)
				answers[i] = answer
			}
		})
	}
	group.Wait()
	return answers
}

// awaitLost waits until the proxy has lost so many commits.
func awaitLost(t *testing.T, proxy *wire.Proxy, n int) {
	t.Helper()
	testwait.Eventually(t, 10*patience, fmt.Sprintf("%d lost commits", n), func() bool { return proxy.Stats().Lost() >= n })
}

// TestOpposedTransfers moves money back and forth between few accounts from many workers on two servers. The total is
// the same in every snapshot, and no client hears of a deadlock, because there is none.
func TestOpposedTransfers(t *testing.T) {
	beside(t)
	const workers, each = 32, 10_000
	fewSnapshots, fewIntegrities := int64(testwait.Count(2, 10)), int64(testwait.Count(1, 3))
	_, seed := testwait.Rand(t)
	database := newDatabase(t)
	servers := []*sim.Server{newServer(t, database), newServer(t, database)}
	client, history := newClient(t, servers...)
	l := sim.NewWorkload(sim.WorkloadOptions{
		Seed: seed, Prefix: "opposed", Accounts: 20, Workers: workers, Mix: sim.Mix{Transfers: 1},
	})
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), client, l.Accounts(), each))
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	var snapshots, integrities atomic.Int64
	var group sync.WaitGroup
	defer group.Wait()
	defer end()
	group.Go(func() { testwait.Check(t, l.Run(t.Context(), client, stop)) })
	group.Go(func() { watchTotal(t, database, stop, each*int64(len(l.Accounts())), &snapshots) })
	group.Go(func() { watchIntegrity(t, client, stop, &integrities) })
	await(t, "answers", history.After(testwait.Count(2_000, 20_000)))
	testwait.Eventually(t, patience, "looks at the total", func() bool {
		return t.Failed() || snapshots.Load() >= fewSnapshots && integrities.Load() >= fewIntegrities
	})
	end()
	group.Wait()

	var failed []error
	for _, op := range history.Ops() {
		for _, a := range op.Answers() {
			if a.Err != nil || a.Status >= 500 {
				failed = append(failed, fmt.Errorf("%s: %v", op, a))
			}
		}
	}
	complain(t, errors.Join(failed...))
	var deadlocks int
	const question = `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`
	if err := pgtest.Connect(t, database).QueryRow(t.Context(), question).Scan(&deadlocks); err != nil || deadlocks != 0 {
		t.Errorf("%d deadlocks: %v", deadlocks, err)
	}
	t.Logf("%d snapshots, %d integrity checks", snapshots.Load(), integrities.Load())
	closeBooks(t, database, client, history, 20)
}

// watchTotal compares the sum of all balances with what it must be, in one snapshot after another.
func watchTotal(t *testing.T, database string, stop <-chan struct{}, want int64, snapshots *atomic.Int64) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	for sim.GoesOn(t.Context(), stop) {
		var total int64
		var entries int64
		const question = `SELECT (SELECT sum(available + held) FROM accounts), (SELECT coalesce(sum(amount), 0) FROM entries)`
		if err := conn.QueryRow(t.Context(), question).Scan(&total, &entries); err != nil {
			t.Error(err)
			return
		}
		if total != want || entries != 0 {
			t.Errorf("snapshot %d: total %d, want %d; entries sum to %d", snapshots.Load(), total, want, entries)
			return
		}
		snapshots.Add(1)
	}
}

// watchIntegrity asks the servers the same, in turn.
func watchIntegrity(t *testing.T, client *sim.Client, stop <-chan struct{}, checks *atomic.Int64) {
	t.Helper()
	for sim.GoesOn(t.Context(), stop) {
		answer := answerTo(t, client, "/v1/integrity")
		var report struct {
			Valid      bool  `json:"valid"`
			Difference int64 `json:"difference"`
		}
		if err := answer.JSON(&report); err != nil || answer.Status != http.StatusOK || !report.Valid || report.Difference != 0 {
			t.Errorf("integrity check %d: %v: %v", checks.Load(), answer, err)
			return
		}
		checks.Add(1)
	}
}
