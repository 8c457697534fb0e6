//go:build unix

package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// oldDeposits are as many as make a ledger a large one: they have long memos. They are on twelve accounts, of 1000 deposits each.
const oldDeposits = `
	WITH numbers AS (SELECT i, 'old-' || lpad((i % 12)::text, 2, '0') AS account,
			(lpad(to_hex(1700000000000 + i), 12, '0') || '70008000000000000000')::uuid AS transfer,
			(lpad(to_hex(1700000000000 + i), 12, '0') || '70018000000000000000')::uuid AS id,
			to_timestamp(1700000000 + i / 1000.0) AS at, repeat('m', 400) AS memo
		FROM generate_series(0, 11999) AS i),
	moved AS (INSERT INTO transfers SELECT transfer, 'deposit', 'outside/SIM', account, 5, 'SIM', 'completed', '', memo, at FROM numbers),
	opened AS (INSERT INTO accounts SELECT account, 'SIM', 5 * count(*), 0, count(*), min(at) FROM numbers GROUP BY account),
	paid AS (INSERT INTO entries SELECT 'outside/SIM', id, 0, transfer, -5, 'SIM', at, memo FROM numbers)
	INSERT INTO entries SELECT account, id, i / 12 + 1, transfer, 5, 'SIM', at, memo FROM numbers`

// recountRow is what a recount has kept in the database.
type recountRow struct {
	ID    uuid.UUID
	Began time.Time
	Round int64
	Ended bool
}

// recountOf reads the newest recount of a runner; the zero value where there is none.
func recountOf(t *testing.T, conn *pgx.Conn, runner string) (r recountRow) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `SELECT id, began_at, round, finished_at IS NOT NULL FROM ledger_recounts WHERE runner = $1 ORDER BY began_at DESC LIMIT 1`,
		runner).Scan(&r.ID, &r.Began, &r.Round, &r.Ended)
	if !errors.Is(err, pgx.ErrNoRows) {
		testwait.Check(t, err)
	}
	return r
}

// integrityOf asks a server for the state of the books.
func integrityOf(t *testing.T, c *sim.Client) (in client.Integrity) {
	t.Helper()
	testwait.Must(t, c.GetJSON(testwait.Context(t, patience), "/v1/integrity", &in))
	return in
}

// integrityVerb runs fairlead integrity on a database. It may be told to kill itself at a crash point.
func integrityVerb(t *testing.T, database, at string) (said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(testwait.Context(t, patience), binary(t), "integrity", "--database-url", database)
	cmd.Env = append(os.Environ(), "FAIRLEAD_CRASH_AT="+at)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// verbDies has fairlead integrity kill itself at a crash point.
func verbDies(t *testing.T, database, at string) {
	t.Helper()
	said, err := integrityVerb(t, database, at)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("fairlead integrity is not dead at %s: %v\n%s", at, err, said)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("fairlead integrity at %s: %v\n%s", at, err, said)
	}
	testwait.Recorder(t).Fault(tally.Crash(at), time.Now())
}

// TestBooksAreKeptThroughEveryCrash kills the only server, and fairlead integrity, at each named place of closings and recounts, under load.
// The same recount goes on in the next process, with the part after the last that was kept. In the end the books are valid, and a balance that
// somebody changes by hand is found.
func TestBooksAreKeptThroughEveryCrash(t *testing.T) {
	beside(t)
	rng, seed := testwait.Rand(t)
	database := newDatabase(t)
	conn := connect(t, database)
	server := newServer(t, database, "--leader-ttl", "1s", "--close-books-every", "1s", "--recount-every", "1h")
	testwait.Must(t, server.Kill(testwait.Context(t, patience)))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), oldDeposits)))
	start(t, server)
	asks, history := newClient(t, server)
	history.Scope.Prefix = "books-"
	l := startLoad(t, asks, sim.WorkloadOptions{
		Seed: seed, Prefix: "books", Accounts: 6, Workers: 3, Mix: sim.Mix{Transfers: 20, Legs: 5, Holds: 15, Deposits: 5, Withdrawals: 5},
	})
	for round := range testwait.Count(1, 25) {
		serverRecounts(t, server, conn, round)
		serverCloses(t, server, conn, fmt.Sprintf("books.closed:%d", 1+rng.IntN(3)))
		if in := integrityOf(t, asks); !in.Valid || !in.ClosedAt.Before(in.CheckedAt) || !in.RecountedAt.Before(in.ClosedAt) {
			t.Fatalf("after the server's deaths: %+v", in)
		}
		verbRecounts(t, database, conn)
		auditNow(t, database)
		if in := integrityOf(t, asks); !in.Valid || t.Failed() {
			t.Fatalf("after round %d: %+v", round, in)
		}
	}
	l.finish(t)
	closeBooks(t, database, asks, history, 1)

	exec := func(sql string) { t.Helper(); testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql))) }
	exec(`UPDATE accounts SET available = available + 7 WHERE id = 'old-03'`)
	if in := integrityOf(t, asks); in.Valid || in.FirstBadAccount != "old-03" || in.Difference.Int64() != 7 {
		t.Errorf("a balance was changed: %+v", in)
	}
	if said, err := integrityVerb(t, database, ""); err == nil || !strings.Contains(said, "first bad account old-03") {
		t.Errorf("fairlead integrity, where a balance was changed: %v\n%s", err, said)
	}
	exec(`UPDATE accounts SET available = available - 7 WHERE id = 'old-03'`)
	if in := integrityOf(t, asks); in.Valid {
		t.Errorf("valid after a repair, before a recount has found nothing: %+v", in)
	}
	if said, err := integrityVerb(t, database, ""); err != nil {
		t.Errorf("fairlead integrity, after the repair: %v\n%s", err, said)
	}
	if in := integrityOf(t, asks); !in.Valid {
		t.Errorf("after the repair: %+v", in)
	}
}

// serverRecounts kills the server at each place of one recount, which is due, and waits until the last server has ended it.
func serverRecounts(t *testing.T, server *sim.Server, conn *pgx.Conn, round int) {
	t.Helper()
	// The recount that the load's beginning found due may be under way: its row makes way, and later ones are of long ago.
	testwait.Must(t, server.Kill(testwait.Context(t, patience)))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `DELETE FROM ledger_recounts WHERE finished_at IS NULL`)))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE ledger_recounts SET began_at = began_at - interval '2 hours'`)))
	die := func(at string, rounds int64) (r recountRow) {
		t.Helper()
		willDie(t, server, at)
		dies(t, server, at)
		if r = recountOf(t, conn, "server"); r.Ended || r.Round != rounds {
			t.Fatalf("round %d, %s: %+v, not after %d parts", round, at, r, rounds)
		}
		return r
	}
	began := die("books.begun", 0)
	counted := die("books.counted", 0)
	saved := die("books.saved", 1)
	start(t, server)
	var ended recountRow
	testwait.Eventually(t, patience, "the end of the recount", func() bool {
		ended = recountOf(t, conn, "server")
		return ended.Ended
	})
	if counted.ID != began.ID || saved.ID != began.ID || ended.ID != began.ID || !ended.Began.Equal(began.Began) {
		t.Fatalf("not one recount: %+v, %+v, %+v, %+v", began, counted, saved, ended)
	}
}

// serverCloses kills the server after it has closed a part of the accounts. The next one closes the books.
func serverCloses(t *testing.T, server *sim.Server, conn *pgx.Conn, at string) {
	t.Helper()
	closed := func() (at time.Time) {
		t.Helper()
		testwait.Check(t, conn.QueryRow(t.Context(), `SELECT at FROM ledger_closing`).Scan(&at))
		return at
	}
	willDie(t, server, at)
	dies(t, server, at)
	before := closed()
	start(t, server)
	testwait.Eventually(t, patience, "a closing after "+at, func() bool { return closed().After(before) })
}

// verbRecounts kills fairlead integrity at each place of one recount, and lets the next one end it.
func verbRecounts(t *testing.T, database string, conn *pgx.Conn) {
	t.Helper()
	var began recountRow
	for i, at := range []string{"books.begun", "books.counted", "books.saved"} {
		verbDies(t, database, at)
		r := recountOf(t, conn, "operator")
		if i == 0 {
			began = r
		}
		if r.Ended || r.ID != began.ID || r.Round != int64(i/2) {
			t.Fatalf("%s: %+v, after %+v", at, r, began)
		}
	}
	said, err := integrityVerb(t, database, "")
	if err != nil || !strings.Contains(said, "going on with the recount of "+began.Began.UTC().Format(time.RFC3339)) || !strings.Contains(said, "\nvalid: ") {
		t.Fatalf("fairlead integrity, after its deaths: %v\n%s", err, said)
	}
	if r := recountOf(t, conn, "operator"); !r.Ended || r.ID != began.ID {
		t.Fatalf("ended as %+v, began as %+v", r, began)
	}
}
