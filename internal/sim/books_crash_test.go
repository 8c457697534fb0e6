//go:build unix

package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// recountRow is what a recount has kept in the database.
type recountRow struct {
	ID    uuid.UUID
	Began time.Time
	Round int64
	Ended bool
}

// readRecount reads the newest recount of a runner; the zero value where there is none.
func readRecount(ctx context.Context, conn *pgx.Conn, runner string) (r recountRow, err error) {
	err = conn.QueryRow(ctx, `SELECT id, began_at, round, finished_at IS NOT NULL FROM ledger_recounts WHERE runner = $1 ORDER BY began_at DESC LIMIT 1`,
		runner).Scan(&r.ID, &r.Began, &r.Round, &r.Ended)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return r, err
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
// Short runs have one place of each, which the seed draws. The same recount goes on in the next process, with the part after the last that was kept. In the
// end the books are valid, and a balance that somebody changes by hand is found.
func TestBooksAreKeptThroughEveryCrash(t *testing.T) {
	beside(t)
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	rng, seed := testwait.Rand(t)
	database := newDatabase(t)
	conn := pgtest.Connect(t, database)
	server := newServer(t, database, "--leader-ttl", "1s", "--close-books-every", "1s", "--recount-every", "1h")
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sim.OldDeposits)))
	asks, history := newClient(t, server)
	history.Scope.Prefix = "books-"
	l := startLoad(t, asks, sim.WorkloadOptions{
		Seed: seed, Prefix: "books", Accounts: 6, Workers: 3, Mix: sim.Mix{Transfers: 20, Legs: 5, Holds: 15, Deposits: 5, Withdrawals: 5},
	})
	for round := range testwait.Count(1, 25) {
		serverRecounts(t, rng, server, conn)
		serverCloses(t, server, conn, fmt.Sprintf("books.closed:%d", 1+rng.IntN(3)))
		if in := integrityOf(t, asks); !in.Valid || !in.ClosedAt.Before(in.CheckedAt) || !in.RecountedAt.Before(in.ClosedAt) {
			t.Fatalf("after the server's deaths: %+v", in)
		}
		verbRecounts(t, rng, database, conn)
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

// recountDies has a process die at each place of one recount, and returns what is kept of it then.
func recountDies(t *testing.T, rng *rand.Rand, conn *pgx.Conn, runner string, die func(at string)) (began recountRow) {
	t.Helper()
	places := []struct {
		at    string
		parts int64 // that are kept
	}{{"books.begun", 0}, {"books.counted", 0}, {"books.saved", 1}}
	if !testwait.Torture() {
		i := rng.IntN(len(places))
		places = places[i : i+1]
	}
	for i, place := range places {
		die(place.at)
		r, err := readRecount(t.Context(), conn, runner)
		testwait.Must(t, err)
		if i == 0 {
			began = r
		}
		if r.Ended || r.ID != began.ID || !r.Began.Equal(began.Began) || r.Round != place.parts {
			t.Fatalf("%s: %+v, after %+v; want %d parts", place.at, r, began, place.parts)
		}
	}
	return began
}

// serverRecounts kills the server at places of one recount, which is due, and waits until the last server has ended it.
func serverRecounts(t *testing.T, rng *rand.Rand, server *sim.Server, conn *pgx.Conn) {
	t.Helper()
	// The recount that the first server found due may be under way: its row makes way, and later ones are of long ago.
	testwait.Must(t, server.Kill(testwait.Context(t, patience)))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `DELETE FROM ledger_recounts WHERE finished_at IS NULL`)))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE ledger_recounts SET began_at = began_at - interval '2 hours'`)))
	began := recountDies(t, rng, conn, "server", func(at string) {
		willDie(t, server, at)
		dies(t, server, at)
	})
	start(t, server)
	var ended recountRow
	testwait.Eventually(t, patience, "the end of the recount", func() (over bool) {
		var err error
		ended, err = readRecount(t.Context(), conn, "server")
		return err == nil && ended.Ended
	})
	if ended.ID != began.ID {
		t.Fatalf("ended as %+v, began as %+v", ended, began)
	}
}

// serverCloses kills the server after it has closed a part of the accounts. The next one closes the books.
func serverCloses(t *testing.T, server *sim.Server, conn *pgx.Conn, at string) {
	t.Helper()
	closed := func() (at time.Time, err error) {
		err = conn.QueryRow(t.Context(), `SELECT at FROM ledger_closing`).Scan(&at)
		return at, err
	}
	willDie(t, server, at)
	dies(t, server, at)
	before, err := closed()
	testwait.Must(t, err)
	start(t, server)
	testwait.Eventually(t, patience, "a closing after "+at, func() bool {
		now, err := closed()
		return err == nil && now.After(before)
	})
}

// verbRecounts kills fairlead integrity at places of one recount, and lets the next one end it.
func verbRecounts(t *testing.T, rng *rand.Rand, database string, conn *pgx.Conn) {
	t.Helper()
	began := recountDies(t, rng, conn, "operator", func(at string) { verbDies(t, database, at) })
	said, err := integrityVerb(t, database, "")
	if err != nil || !strings.Contains(said, "going on with the recount of "+began.Began.UTC().Format(time.RFC3339)) || !strings.Contains(said, "\nvalid: ") {
		t.Fatalf("fairlead integrity, after its deaths: %v\n%s", err, said)
	}
	if r, err := readRecount(t.Context(), conn, "operator"); err != nil || !r.Ended || r.ID != began.ID {
		t.Fatalf("ended as %+v, began as %+v: %v", r, began, err)
	}
}
