//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestDown kills the only server.
func TestDown(t *testing.T) {
	_, server, s := scene(t)
	s.breaks()
	server.kill(t)
	s.fires("FairleadDown")
	sectionOf(t, "FairleadDown").says(t, "restart it")
	server.start(t)
	s.ends("FairleadDown", "the server was started again")
}

// blocks has somebody else lock what sql selects and forget about it.
func blocks(t *testing.T, database, sql string) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	for _, step := range []string{`SET application_name = 'somebody'`, `BEGIN`, sql} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), step)))
	}
}

// unblocks looks who blocks, as the runbook says, and ends it.
func unblocks(t *testing.T, s *stage) {
	t.Helper()
	section := sectionOf(t, "FairleadCommitSlow")
	testwait.Eventually(t, patience, "a blocker is found", func() bool {
		out := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT pid`)
		m := regexp.MustCompile(`(?m)^ *(\d+) \|.*somebody`).FindStringSubmatch(out)
		if m == nil {
			return false
		}
		s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT pg_terminate_backend`, "PID", m[1])
		return true
	})
}

// TestQueueFull sends more commands than may wait, while somebody else has locked the table of accounts.
func TestQueueFull(t *testing.T) {
	database, server, s := scene(t)
	server.accounts(t, "hot")
	blocks(t, database, `LOCK TABLE accounts IN EXCLUSIVE MODE`)
	s.breaks()
	stop := load(t, 9500, func(ctx context.Context) {
		status, _ := server.tries(ctx, http.MethodPost, "/v1/deposits", `{"account":"hot","amount":1}`)
		if status != http.StatusCreated {
			wait.For(ctx, time.Second)
		} else {
			wait.For(ctx, 20*time.Second) // Then there is no more than the server can do.
		}
	})
	s.fires("FairleadQueueFull")
	sectionOf(t, "FairleadQueueFull").says(t, "see [FairleadCommitSlow](#fairleadcommitslow)")
	unblocks(t, s)
	s.ends("FairleadQueueFull", "pg_terminate_backend of who blocked")
	stop()
}

// TestRowsBlocked has somebody else lock an account and forget about it.
func TestRowsBlocked(t *testing.T) {
	database, server, s := scene(t)
	server.accounts(t, "locked", "free")
	blocks(t, database, `SELECT FROM accounts WHERE id = 'locked' FOR UPDATE`)
	s.breaks()
	stop := load(t, 2, func(ctx context.Context) {
		_, _ = server.tries(ctx, http.MethodPost, "/v1/deposits", `{"account":"locked","amount":1}`)
	})
	s.fires("FairleadRowsBlocked")
	if status, answer := server.tries(t.Context(), http.MethodPost, "/v1/deposits", `{"account":"free","amount":1}`); status != http.StatusCreated {
		t.Errorf("a deposit on another account: %d %s", status, answer)
	}
	section := sectionOf(t, "FairleadRowsBlocked")
	out := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT pid`)
	m := regexp.MustCompile(`(?m)^ *(\d+) \|.*somebody`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the runbook does not find the session: %s", out)
	}
	s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT pg_terminate_backend`, "PID", m[1])
	s.ends("FairleadRowsBlocked", "pg_terminate_backend of the session")
	stop()
}

// TestSnapshotOld has a reader forget its repeatable-read transaction.
func TestSnapshotOld(t *testing.T) {
	database, _, s := scene(t)
	s.breaks()
	reader := pgtest.Connect(t, database)
	for _, step := range []string{`SET application_name = 'somebody'`, `BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM accounts`} {
		testwait.Must(t, testwait.Err(reader.Exec(t.Context(), step)))
	}
	s.fires("FairleadSnapshotOld")
	section := sectionOf(t, "FairleadSnapshotOld")
	out := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT pid`)
	m := regexp.MustCompile(`(?m)^ *(\d+) \|.*somebody`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the runbook does not find the session: %s", out)
	}
	s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT pg_terminate_backend`, "PID", m[1])
	s.ends("FairleadSnapshotOld", "pg_terminate_backend of the reader")
}

// TestCommitSlow has somebody else's job lock the table of accounts for two seconds, again and again.
func TestCommitSlow(t *testing.T) {
	database, server, s := scene(t)
	server.accounts(t, "slow")
	job := pgtest.Connect(t, database)
	testwait.Must(t, testwait.Err(job.Exec(t.Context(), `SET application_name = 'somebody'`)))
	s.breaks()
	done := make(chan error, 1)
	go func() {
		_, err := job.Exec(t.Context(), `DO $$ BEGIN LOOP
			LOCK TABLE accounts IN EXCLUSIVE MODE; PERFORM pg_sleep(2); COMMIT; PERFORM pg_sleep(.01); END LOOP; END $$`)
		done <- err
	}()
	stop := load(t, 4, func(ctx context.Context) {
		_, _ = server.tries(ctx, http.MethodPost, "/v1/deposits", `{"account":"slow","amount":1}`)
		wait.For(ctx, 50*time.Millisecond)
	})
	s.fires("FairleadCommitSlow")
	unblocks(t, s)
	if err := <-done; err == nil {
		t.Error("the job was not ended")
	}
	s.ends("FairleadCommitSlow", "pg_terminate_backend of who blocked")
	stop()
}

// TestOutcomesUnknown cuts the way to the database at every commit, and keeps it cut.
func TestOutcomesUnknown(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	proxy, through := wire.Through(t, database, wire.Options{LoseOneIn: 1, Blackout: time.Hour, Seed: 1})
	server := newServer(t, through)
	server.accounts(t, "cut")
	s := newStage(t, database, server)
	s.breaks()
	proxy.Arm(true)
	stop := load(t, 4, func(ctx context.Context) {
		_, _ = server.tries(ctx, http.MethodPost, "/v1/deposits", `{"account":"cut","amount":1}`)
		wait.For(ctx, 100*time.Millisecond)
	})
	s.fires("FairleadOutcomesUnknown")
	sectionOf(t, "FairleadOutcomesUnknown").says(t, "bring the database back")
	proxy.Arm(false)
	s.ends("FairleadOutcomesUnknown", "the way to the database was mended")
	stop()
	s.operator.runs(t, preface(t), "fairlead integrity")
}

// TestErrors makes the database read-only behind the server's back.
func TestErrors(t *testing.T) {
	database, server, s := scene(t)
	server.accounts(t, "errors")
	s.breaks()
	execute(t, database, `ALTER TABLE accounts RENAME TO accounts_old`)
	stop := load(t, 2, func(ctx context.Context) {
		_, _ = server.tries(ctx, http.MethodPost, "/v1/deposits", `{"account":"errors","amount":1}`)
		wait.For(ctx, 100*time.Millisecond)
	})
	s.fires("FairleadErrors")
	sectionOf(t, "FairleadErrors").says(t, "fix the cause that the errors name")
	if log := server.Log(); !strings.Contains(log, `relation \"accounts\" does not exist`) {
		t.Errorf("the log does not name the error: %s", log[max(0, len(log)-1000):])
	}
	execute(t, database, `ALTER TABLE accounts_old RENAME TO accounts`)
	s.ends("FairleadErrors", "the table that the log named got its name back")
	stop()
}

// TestLeaderAbsent takes the leader away in two ways: both servers hang; and somebody locks the lease.
func TestLeaderAbsent(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	first, second := newServer(t, database), newServer(t, database)
	s := newStage(t, database, first, second)
	section := sectionOf(t, "FairleadLeaderAbsent")
	s.breaks()
	for _, server := range []*server{first, second} {
		testwait.Must(t, server.Signal(syscall.SIGSTOP))
	}
	s.fires("FairleadLeaderAbsent")
	section.says(t, "restart one")
	first.kill(t)
	first.start(t)
	s.ends("FairleadLeaderAbsent", "both servers hung; one was restarted")

	testwait.Must(t, second.Signal(syscall.SIGCONT))
	s.breaks()
	blocks(t, database, `SELECT FROM fairlead_elections.lock_keys, fairlead_elections.lock_grants FOR UPDATE`)
	s.fires("FairleadLeaderAbsent")
	section.says(t, "[FairleadCommitSlow](#fairleadcommitslow)")
	unblocks(t, s)
	s.ends("FairleadLeaderAbsent", "the lease was locked; pg_terminate_backend of who blocked")
}

// TestTwoLeaders restarts one of two servers with another database than the one that they shared.
func TestTwoLeaders(t *testing.T) {
	torture(t)
	database, other := newDatabase(t), newDatabase(t)
	first, second := newServer(t, database), newServer(t, database)
	s := newStage(t, database, first, second)
	s.breaks()
	second.kill(t)
	stray := newServer(t, other, "--listen", second.address)
	s.fires("FairleadTwoLeaders")
	sectionOf(t, "FairleadTwoLeaders").says(t, "start it with the others' database")
	stray.kill(t)
	second.start(t)
	s.ends("FairleadTwoLeaders", "the stray server was stopped and started with the database of the other")
}

// TestTargetShared bids in one auction on two servers by turns, as behind a proxy that does not look at the id.
func TestTargetShared(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	first, second := newServer(t, database), newServer(t, database)
	first.accounts(t, "seller", "bidder")
	var auction thing
	first.posts(t, "/v1/auctions", `{"title":"shared","currency":"SIM","seller":"seller","rounds":[{"winners":1,"duration":"1h"}],"cooldown":"0s"}`, &auction)
	first.posts(t, "/v1/auctions/"+auction.ID+"/start", ``, nil)
	s := newStage(t, database, first, second)
	s.breaks()
	var turns atomic.Int64
	var routed atomic.Bool
	stop := load(t, 1, func(ctx context.Context) {
		n, to := turns.Add(1), first
		if n%2 == 0 && !routed.Load() {
			to = second
		}
		_, _ = to.tries(ctx, http.MethodPost, "/v1/auctions/"+auction.ID+"/bids", fmt.Sprintf(`{"account":"bidder","amount":%d}`, n))
	})
	s.fires("FairleadTargetShared")
	sectionOf(t, "FairleadTargetShared").says(t, "let the proxy send all commands for one target to one")
	routed.Store(true)
	s.ends("FairleadTargetShared", "all bids were sent to one server")
	stop()
}
