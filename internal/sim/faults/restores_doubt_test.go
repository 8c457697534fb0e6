//go:build unix

package faults_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// doubt is a two-phase transfer of 1 from account here of the database home to account there of the ledger eu.
type doubt struct{ home, eu string }

const prepared = `SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()`

// leaveInDoubt begins the transfer by a server that dies when both branches are prepared and nothing is decided. It returns that
// server.
func leaveInDoubt(t *testing.T, home string) (doubt, *server) {
	t.Helper()
	d := doubt{home, newDatabase(t)}
	newServer(t, d.eu).accounts(t, "there")
	s := newServer(t, home, "--ledger", "eu="+d.eu)
	s.accounts(t, "here")
	s.kill(t)
	s.start(t, "FAIRLEAD_CRASH_AT=cross.ready")
	_, _ = s.tries(testwait.Context(t, patience), http.MethodPost, "/v1/cross-transfers",
		`{"from":{"ledger":"local","account":"here"},"to":{"ledger":"eu","account":"there"},"amount":1,"mode":"twophase"}`)
	<-s.Exited()
	if n, m := queried[int](t, d.home, prepared), queried[int](t, d.eu, prepared); n != 1 || m != 1 {
		t.Fatalf("%d and %d transactions are prepared", n, m)
	}
	return d, s
}

// at is the same transfer on a restored home.
func (d doubt) at(home string) doubt { return doubt{home, d.eu} }

// settled waits until nothing is prepared in either ledger.
func (d doubt) settled(t *testing.T) {
	t.Helper()
	testwait.Eventually(t, patience, "nothing is prepared", func() bool {
		return queried[int](t, d.home, prepared)+queried[int](t, d.eu, prepared) == 0
	})
}

// moved returns how much has left account here, and come to account there.
func (d doubt) moved(t *testing.T) (left, came int64) {
	t.Helper()
	const balance = `SELECT available + held FROM accounts WHERE id = $1`
	return 1_000_000 - queried[int64](t, d.home, balance, "here"), queried[int64](t, d.eu, balance, "there") - 1_000_000
}

// ends waits until the transfer has ended, and fails the test unless it has happened once in both ledgers: who finds it goes on with it.
func (d doubt) ends(t *testing.T) {
	t.Helper()
	testwait.Eventually(t, patience, "the transfer ends", func() bool {
		return queried[int](t, d.home, `SELECT count(*) FROM sagas WHERE status = 'completed'`) == 1
	})
	d.settled(t)
	if left, came := d.moved(t); left != 1 || came != 1 {
		t.Errorf("%d has left one ledger, and %d has come to the other", left, came)
	}
}

// adopts lets the operator adopt the ledgers' transactions, as soon as no other coordinator has been at work for a while.
func (o operator) adopts(t *testing.T, s section) {
	t.Helper()
	testwait.Eventually(t, patience, "the adoption", func() bool {
		said, err := o.tries(t, s.command(t, "fairlead sagas adopt"))
		if err != nil && !strings.Contains(said, "coordinator_active") && !strings.Contains(said, "incarnation") {
			t.Fatal(err)
		}
		if err != nil {
			wait.For(t.Context(), time.Second) // An operator isn't faster.
		}
		return err == nil && strings.Contains(said, "adopted in eu")
	})
}

// TestRestoreOfADumpInDoubt dumps a database in which a transaction is prepared. The dump has nothing of that.
func TestRestoreOfADumpInDoubt(t *testing.T) {
	torture(t)
	old := pgtest.Server(t)
	d, s := leaveInDoubt(t, old.URL())
	page := sectionIn(t, restoresPage, "Dump and restore")
	u, err := url.Parse(old.URL())
	testwait.Must(t, err)
	u.Path = "/restored"
	o := operator{s.URL(), old.URL()}
	names := []string{"fairlead.dump", filepath.Join(t.TempDir(), "fairlead.dump"), `"$RESTORED_URL"`, "'" + u.String() + "'"}
	for _, command := range []string{"pg_dump", "createdb", "pg_restore", "fairlead migrate up", "fairlead integrity", "fairlead doctor --accept-history"} {
		o.runs(t, page, command, names...)
	}
	if n := queried[int](t, u.String(), prepared); n != 0 {
		t.Errorf("%d transactions are prepared in the restored database", n)
	}
	next := newServer(t, u.String(), "--ledger", "eu="+d.eu)
	o.server = next.URL()
	testwait.Eventually(t, patience, "the ledger disowns the restored log", func() bool {
		return strings.Contains(o.runs(t, page, "fairlead sagas in-doubt"), "log_disowned")
	})
	o.adopts(t, page)
	d.at(u.String()).ends(t)
	// The old database keeps what was prepared in it, until somebody ends it.
	if n := queried[int](t, old.URL(), prepared); n != 1 {
		t.Errorf("%d transactions are prepared in the old database", n)
	}
	for gid := range strings.FieldsSeq(o.runs(t, page, "psql", names...)) {
		execute(t, old.URL(), "ROLLBACK PREPARED '"+gid+"'")
	}
	if n := queried[int](t, old.URL(), prepared); n != 0 {
		t.Errorf("%d transactions are still prepared in the old database", n)
	}
}

// TestRestoreToAPointInDoubt recovers a database to a point at which a transfer was in doubt. It was carried out since. The ledger that
// was not restored keeps its part; that of the restored one is lost, and the transfer is shown to the operator.
func TestRestoreToAPointInDoubt(t *testing.T) {
	torture(t)
	old, archive := archiving(t)
	page, dump := sectionIn(t, restoresPage, "Point-in-time recovery"), sectionIn(t, restoresPage, "Dump and restore")
	base := filepath.Join(t.TempDir(), "base")
	(operator{"", old.URL()}).runs(t, page, "pg_basebackup", "--pgdata=base", "--pgdata="+base)
	d, s := leaveInDoubt(t, old.URL())
	execute(t, old.URL(), `SELECT pg_create_restore_point('noon')`)
	s.start(t)
	d.ends(t)
	s.kill(t)
	restored := recovers(t, old, archive, base, page)
	o := operator{s.URL(), restored.URL()}
	testwait.Eventually(t, patience, "the end of the recovery", func() bool { return strings.TrimSpace(o.runs(t, page, "psql")) == "f" })
	if n := queried[int](t, restored.URL(), prepared); n != 1 {
		t.Errorf("%d transactions are prepared in the restored database", n)
	}
	o.runs(t, page, "fairlead doctor --accept-history")
	next := newServer(t, restored.URL(), "--ledger", "eu="+d.eu)
	o.server = next.URL()
	testwait.Eventually(t, patience, "the ledger disowns the restored log", func() bool {
		return strings.Contains(o.runs(t, dump, "fairlead sagas in-doubt"), "log_disowned")
	})
	o.adopts(t, dump)
	d = d.at(restored.URL())
	d.settled(t)
	testwait.Eventually(t, patience, "the transfer is shown", func() bool {
		wait.For(t.Context(), time.Second)
		return strings.Contains(o.runs(t, sectionIn(t, restoresPage, "Two-phase transactions"), "fairlead sagas list --stuck"), "neither prepared nor committed")
	})
	if left, came := d.moved(t); left != 0 || came != 1 {
		t.Errorf("%d has left one ledger, and %d has come to the other", left, came)
	}
}

// TestCloneInDoubt clones a database in which a transaction is prepared. The clone takes the original's place, which has done nothing
// since.
func TestCloneInDoubt(t *testing.T) {
	torture(t)
	old := pgtest.Server(t)
	d, _ := leaveInDoubt(t, old.URL())
	clone := pgtest.CopyOf(t, old)
	d = d.at(clone.URL())
	alone := newServer(t, clone.URL())
	o := operator{alone.URL(), clone.URL()}
	page := sectionIn(t, restoresPage, "Dump and restore")
	testwait.Eventually(t, patience, "it ends its own branch", func() bool { return queried[int](t, d.home, prepared) == 0 })
	if n := queried[int](t, d.eu, prepared); n != 1 {
		t.Errorf("%d transactions are prepared in the other ledger", n)
	}
	alone.kill(t)
	o.runs(t, page, "fairlead doctor --accept-history", `"$RESTORED_URL"`, "'"+clone.URL()+"'")
	newServer(t, clone.URL(), "--ledger", "eu="+d.eu)
	d.ends(t)
}
