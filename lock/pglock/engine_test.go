package pglock

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// without is a database that lacks capabilities, and has the tables all the same.
func without(t *testing.T, off ...pgkit.Capability) (url string, p *pgxpool.Pool) {
	t.Helper()
	url = pgtest.Without(t, pgtest.NewDatabase(t, nil), off...)
	testwait.Must(t, install(t.Context(), url))
	return url, pool(t, url)
}

func count(t *testing.T, p *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	testwait.Must(t, p.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// TestLocksPassBetweenProcessesWithout has a lock go from one process to another and back, in turns, on databases that lack something.
func TestLocksPassBetweenProcessesWithout(t *testing.T) {
	t.Parallel()
	for _, off := range [][]pgkit.Capability{{pgkit.Notify}, {pgkit.Functions}, {pgkit.Notify, pgkit.Functions, pgkit.AdvisoryLocks}} {
		url, p := without(t, off...)
		one, other := open(t, url, Options{}), open(t, url, Options{})
		lockers := []*lock.Locker{lock.New(one, lock.LockerOptions{}), lock.New(other, lock.LockerOptions{})}
		held := acquire(t, lockers[0], "k", lock.Options{})
		var last int64
		for turn := range 6 {
			b := []*Backend{one, other}[(turn+1)%2]
			waiting := line(t, b, "k", 1, time.Minute)
			if token := held.Token("k"); token <= last {
				t.Errorf("%v: token %d follows %d", off, token, last)
			}
			last = held.Token("k")
			let(t, held)
			held = got(t, waiting[0])
		}
		let(t, held)
		if listening := count(t, p, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`); listening > 0 && off[0] == pgkit.Notify {
			t.Errorf("%v: %d sessions listen", off, listening)
		}
		functions := count(t, p, `SELECT count(*) FROM pg_proc WHERE proname LIKE 'lock\_%' AND pronamespace = '"some locks"'::regnamespace`)
		if (functions == 0) != (off[0] == pgkit.Functions || len(off) > 1) {
			t.Errorf("%v: there are %d functions", off, functions)
		}
	}
}

// TestInstallLeavesOutFunctions installs where the engine itself refuses PL/pgSQL, and again where it does not any more.
func TestInstallLeavesOutFunctions(t *testing.T) {
	t.Parallel()
	url := pgtest.Without(t, pgtest.NewDatabase(t, nil))
	p := pool(t, url)
	testwait.Must(t, testwait.Err(p.Exec(t.Context(), `DROP EXTENSION plpgsql`)))
	engine := func() pgkit.Capabilities {
		conn, err := pgx.Connect(t.Context(), url)
		testwait.Must(t, err)
		defer func() { testwait.Check(t, conn.Close(context.WithoutCancel(t.Context()))) }()
		c, err := pgkit.Probe(t.Context(), conn, pgkit.Functions, pgkit.Notify)
		testwait.Must(t, err)
		return c
	}
	if c := engine(); c.Has(pgkit.Functions) || !c.Has(pgkit.Notify) {
		t.Errorf("found %+v", c.Lacks())
	}
	testwait.Must(t, testSchema.Install(t.Context(), p))
	b := open(t, url, Options{})
	let(t, acquire(t, lock.New(b, lock.LockerOptions{}), "k", lock.Options{}))
	testwait.Must(t, testwait.Err(p.Exec(t.Context(), `CREATE EXTENSION plpgsql`)))
	testwait.Must(t, testSchema.Install(t.Context(), p))
	if n := count(t, p, `SELECT count(*) FROM pg_proc WHERE proname LIKE 'lock\_%'`); !engine().Has(pgkit.Functions) || n != 7 {
		t.Errorf("%d functions, lacks %+v", n, engine().Lacks())
	}
}
