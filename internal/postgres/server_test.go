package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestPostgresDies kills PostgreSQL under a transaction, and then stops it for good.
func TestPostgresDies(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	testwait.Must(t, testwait.Err(Migrate(t.Context(), server.URL())))
	seen := &recorder{}
	db := open(t, Options{URL: server.URL(), Observer: seen})
	s := newLedgerService(t, db)
	fund(t, s, 100, "ann", "ben")
	store := NewLedger(db)

	runs := 0
	err := store.Commit(t.Context(), ledger.Want{Accounts: []string{"ann", "ben"}}, func(u *ledger.Unit) {
		if runs++; runs == 1 {
			testwait.Check(t, syscall.Kill(server.PID(), syscall.SIGKILL))
			testwait.Eventually(t, patience, "a restart", func() bool { return server.Restarts() > 0 })
		}
		testwait.Check(t, testwait.Err(u.Book.Move(ledger.KindTransfer, "ann", "ben", 30, "")))
	})
	if err != nil || runs < 2 {
		t.Fatalf("%d runs: %v", runs, err)
	}
	if a, err := s.Account(t.Context(), "ann"); err != nil || a.Available != 70 {
		t.Errorf("ann has %+v, %v", a, err)
	}
	auditDatabase(t, server.URL())

	testwait.Must(t, server.Stop(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = store.Commit(ctx, ledger.Want{Accounts: []string{"ann"}}, func(u *ledger.Unit) {
		// A decision on what is remembered may be made in vain, as long as nobody is told of it.
		testwait.Check(t, testwait.Err(u.Book.Deposit("ann", 1, "")))
	})
	if !errors.Is(err, command.ErrUnavailable) || errors.Is(err, command.ErrUnknownOutcome) {
		t.Errorf("a command: %v", err)
	}
	if _, err := s.Account(t.Context(), "ann"); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("a reader: %v", err)
	}
	if _, err := s.Integrity(t.Context()); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("integrity: %v", err)
	}
	if _, err := db.Check(t.Context()); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("check: %v", err)
	}
	if err := db.pool.Ping(t.Context()); err == nil {
		t.Error("it answers")
	}
}

// names lists what was found, fatal ones with an exclamation mark.
func names(findings []Finding) (out []string) {
	for _, f := range findings {
		name := f.Check
		if f.Fatal {
			name += "!"
		}
		out = append(out, name)
	}
	return out
}

// besidesEngine are the findings that do not depend on what the run switches off. Those of the engine have tests of their own.
func besidesEngine(findings []Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return f.Check == "engine" })
}

func expectFindings(t *testing.T, db *DB, want ...string) {
	t.Helper()
	findings, err := db.Check(t.Context())
	if findings = besidesEngine(findings); err != nil || !slices.Equal(names(findings), want) {
		t.Errorf("found %+v, %v; want %q", findings, err, want)
	}
}

// TestCheckRefusesWhatLosesData checks a server that does not wait for its disk, and then fills its log.
func TestCheckRefusesWhatLosesData(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "fairlead-") //nolint:usetesting // Paths of t.TempDir are too long for a socket.
	testwait.Must(t, err)
	t.Cleanup(func() {
		testwait.Check(t, os.RemoveAll(dir))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	server, err := localpg.Start(ctx, localpg.Options{Dir: dir, NonDurable: true, DieWithParent: true})
	if err != nil {
		t.Skipf("no private PostgreSQL: %v", err) // The other tests fail then.
	}
	t.Cleanup(func() { closing(t, server.Stop) })
	db := open(t, Options{URL: server.URL()})
	expectFindings(t, db, "fsync!", "full_page_writes!", "synchronous_commit")
	expectEarlyCheckpoints(t, db)
}

// TestOtherEncodings tries databases as initdb makes them where the locale is C and nobody names an encoding.
func TestOtherEncodings(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	made := open(t, Options{URL: database(t)})
	u, err := url.Parse(made.url)
	testwait.Must(t, err)
	beside, query := strings.TrimPrefix(u.Path, "/"), u.RawQuery
	for _, encoding := range []string{"SQL_ASCII", "LATIN1"} {
		name := beside + "_" + strings.ToLower(encoding)
		exec(t, made, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C'")
		u.Path, u.RawQuery = "/"+name, query
		if _, err := Migrate(ctx, u.String()); !errors.Is(err, ErrEncoding) || !strings.Contains(err.Error(), encoding) || !strings.Contains(err.Error(), "--encoding UTF8") {
			t.Errorf("Migrate: %v", err)
		}
		expectEncoding(t, u.String(), "encoding!")
		q := u.Query()
		q.Set("client_encoding", "UTF8")
		u.RawQuery = q.Encode()
		expectEncoding(t, u.String(), "encoding")
	}
}

func expectEncoding(t *testing.T, url, want string) {
	t.Helper()
	findings, err := open(t, Options{URL: url}).Check(t.Context())
	found := slices.DeleteFunc(findings, func(f Finding) bool { return f.Check != "encoding" })
	if err != nil || !slices.Equal(names(found), []string{want}) {
		t.Errorf("found %+v, %v; want %s", findings, err, want)
	}
}

// TestCheckOfReplication has what commits wait for changed, and a standby come and go.
func TestCheckOfReplication(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	conn := pgtest.Connect(t, server.URL())
	check := func(synchronous, named string, says ...string) {
		t.Helper()
		for _, sql := range []string{
			`SET synchronous_commit = local`, // The statements themselves wait for nobody.
			`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = ` + synchronous + `', current_database()); END $$`,
			`ALTER SYSTEM SET synchronous_standby_names = '` + named + `'`, `SELECT pg_reload_conf()`,
		} {
			testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql)))
		}
		db := open(t, Options{URL: server.URL()})
		testwait.Eventually(t, patience, "the settings", func() bool {
			settings, err := db.Settings(t.Context())
			testwait.Must(t, err)
			return slices.Contains(settings, Setting{"synchronous_commit", synchronous}) && slices.Contains(settings, Setting{"synchronous_standby_names", named})
		})
		findings, err := db.Check(t.Context())
		testwait.Must(t, err)
		said := []string{}
		for _, f := range besidesEngine(findings) {
			if f.Fatal || f.Remedy == "" {
				t.Errorf("%+v", f)
			}
			said = append(said, f.Check+": "+f.Message)
		}
		if len(said) != len(says) {
			t.Errorf("synchronous_commit %s, standbys %q: %q, want %q", synchronous, named, said, says)
			return
		}
		for i := range says {
			if !strings.HasPrefix(said[i], says[i]) {
				t.Errorf("synchronous_commit %s, standbys %q: %q, want %q", synchronous, named, said, says)
			}
		}
	}
	const off, local = "synchronous_commit: synchronous_commit is off: a crash", "synchronous_commit: synchronous_commit is local: a failover"
	check("on", "")
	check("off", "", off)
	check("local", "")
	check("local", "ghost", local)
	check("off", "ghost", off)
	check("on", "ghost", `replication: synchronous_standby_names is "ghost", and no such standby is connected`)
	check("remote_apply", "ghost", `replication: synchronous_standby_names is "ghost", and no such standby is connected`, "costs: synchronous_commit is remote_apply")

	config, err := pgconn.ParseConfig(server.URL())
	testwait.Must(t, err)
	config.RuntimeParams["replication"] = "database" // The rules for the database admit it.
	standby, err := pgconn.ConnectConfig(t.Context(), config)
	testwait.Must(t, err)
	check("on", "", "replication: replication is asynchronous: a failover may lose")
	check("off", "", off, "replication: replication is asynchronous: a failover may lose")
	testwait.Must(t, standby.Close(t.Context()))
	testwait.Eventually(t, patience, "the end of the standby", func() bool {
		var left int
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_replication`).Scan(&left))
		return left == 0
	})
	check("on", "")
}

// TestCheckNamesWhoBlocks has a session lock what another one waits for.
func TestCheckNamesWhoBlocks(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrated)
	db := open(t, Options{URL: url})
	conn := pgtest.Connect(t, url)
	for _, sql := range []string{`SET application_name = 'somebody'`, `BEGIN`, `LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE`} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql)))
	}
	done := make(chan error, 1)
	go func() {
		_, err := db.pool.Exec(t.Context(), `BEGIN; SET LOCAL lock_timeout = 0; SELECT count(*) FROM accounts; COMMIT`)
		done <- err
	}()
	blocked := func() string {
		findings, err := db.Blocked(t.Context())
		testwait.Check(t, err)
		at := slices.IndexFunc(findings, func(f Finding) bool { return f.Check == "blocked" && f.Fatal })
		if at < 0 {
			return ""
		}
		return findings[at].Message
	}
	who := fmt.Sprintf("session %d (somebody, idle in transaction)", conn.PgConn().PID())
	testwait.Eventually(t, patience, "the session is named", func() bool { return strings.Contains(blocked(), who) })
	testwait.Check(t, conn.Close(t.Context()))
	testwait.Check(t, <-done)
	if found := blocked(); found != "" {
		t.Errorf("nobody blocks: %s", found)
	}
}

// TestCheckNamesWhoLocksRows: commands don't wait on a connection for long, so that nobody need be seen to wait; and the doctor's role may see little of
// others' sessions.
func TestCheckNamesWhoLocksRows(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	testwait.Must(t, testwait.Err(Migrate(t.Context(), server.URL())))
	all := open(t, Options{URL: server.URL()})
	execAll(t, all, `CREATE ROLE watcher LOGIN PASSWORD 'w'`, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO watcher`)
	u, err := url.Parse(server.URL())
	testwait.Must(t, err)
	u.User = url.UserPassword("watcher", "w")
	little := open(t, Options{URL: u.String()})
	found := func(db *DB) (messages []string) {
		t.Helper()
		findings, err := db.Blocked(t.Context())
		testwait.Check(t, err)
		for _, f := range findings {
			messages = append(messages, f.Message)
		}
		return messages
	}
	if got := found(little); len(got) > 0 {
		t.Errorf("nobody has locked anything: %q", got)
	}
	for db, lacks := range map[*DB]string{all: "", little: "the role watcher lacks "} {
		findings, err := db.Privileges(t.Context())
		if err != nil || len(findings) > 0 != (lacks != "") || lacks != "" && (!strings.HasPrefix(findings[0].Message, lacks)) {
			t.Errorf("%+v, %v", findings, err)
		}
	}
	snapshots := func(db *DB) bool {
		t.Helper()
		findings, err := db.Check(t.Context())
		testwait.Check(t, err)
		return slices.ContainsFunc(findings, func(f Finding) bool { return f.Check == "costs" && strings.Contains(f.Message, "have held a snapshot") })
	}
	if little, all := snapshots(little), snapshots(all); little == pgtest.Off(pgkit.RowVersions) || all {
		t.Errorf("that it does not see others' snapshots, the doctor says of the role that sees little: %t, of the other one: %t", little, all)
	}
	conn := pgtest.Connect(t, server.URL())
	for _, sql := range []string{`SET application_name = 'somebody'`, `SET idle_in_transaction_session_timeout = 0`, `BEGIN`, `SELECT FROM accounts FOR UPDATE`} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql)))
	}
	who := fmt.Sprintf("session %d (somebody", conn.PgConn().PID())
	if got := found(little); len(got) != 1 || !strings.HasPrefix(got[0], who) || !strings.Contains(got[0], "has locked accounts, or rows there") || !strings.Contains(got[0], "can't see since when") {
		t.Errorf("found %q", got)
	}
	testwait.Eventually(t, patience, "the session is named once it has lasted", func() bool {
		got := found(all)
		return len(got) == 1 && strings.HasPrefix(got[0], who) && strings.Contains(got[0], " for ")
	})
	testwait.Must(t, conn.Close(t.Context()))
	if pgtest.Off(pgkit.Prepare) {
		return
	}
	execAll(t, all, `BEGIN; SELECT FROM auctions FOR UPDATE; PREPARE TRANSACTION 'left behind'`)
	testwait.Eventually(t, patience, "the prepared transaction is named", func() bool {
		got := found(little)
		return len(got) == 1 && strings.HasPrefix(got[0], `the prepared transaction "left behind" has locked auctions`)
	})
	execAll(t, all, `ROLLBACK PREPARED 'left behind'`)
	if got := found(little); len(got) > 0 {
		t.Errorf("nobody has locked anything any more: %q", got)
	}
}

// TestReplication runs on a durable server: first its settings, then a standby that is not there.
func TestReplication(t *testing.T) { //nolint:tparallel // Its parts use one server, in order.
	t.Parallel()
	server := pgtest.Server(t)
	testwait.Must(t, testwait.Err(Migrate(t.Context(), server.URL())))
	db := open(t, Options{URL: server.URL()})
	expectFindings(t, db)
	checkSettings(t, db)
	exec(t, db, `ALTER ROLE CURRENT_USER SET synchronous_commit = 'off'`)
	expectFindings(t, open(t, Options{URL: server.URL()}), "synchronous_commit")
	exec(t, db, `ALTER ROLE CURRENT_USER RESET synchronous_commit`)
	exec(t, db, `ALTER ROLE CURRENT_USER SET log_statement = 'all'`)
	exec(t, db, `ALTER ROLE CURRENT_USER SET commit_delay = 100`)
	expectFindings(t, open(t, Options{URL: server.URL()}), "costs", "costs")
	exec(t, db, `ALTER ROLE CURRENT_USER RESET ALL`)

	fund(t, newLedgerService(t, db), 100, "ann", "ben")
	exec(t, db, `CREATE TABLE notes (n int)`)
	exec(t, db, `ALTER SYSTEM SET synchronous_standby_names = 'missing'`)
	exec(t, db, `SELECT pg_reload_conf()`)
	missStandby(t, db)
	expectFindings(t, db, "replication")
	t.Run("one", func(t *testing.T) { checkOneUnreplicated(t, server.URL(), db) })
	t.Run("several on few connections", func(t *testing.T) { checkManyUnreplicated(t, server.URL(), db) })
	t.Run("a term", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { giveUpWaiting(ctx, db) })
		defer group.Wait()
		defer cancel()
		if _, err := newElections(t, db).Acquire(t.Context(), candidate()); !errors.Is(err, command.ErrUnknownOutcome) {
			t.Errorf("a term that a failover could lose: %v", err)
		}
	})
	exec(t, db, `ALTER SYSTEM RESET synchronous_standby_names`)
	exec(t, db, `SELECT pg_reload_conf()`)
	testwait.Eventually(t, patience, "an acknowledged commit", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return db.run(ctx, "test", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO notes VALUES (0)`)
			return err
		}) == nil
	})
	s := newLedgerService(t, db)
	if a, err := s.Execute(t.Context(), transferUnreplicated()); err != nil || a.Status != 201 || !a.Replayed {
		t.Errorf("the same key, when commits count again: %+v, %v", a, err)
	}
	if acc, err := s.Account(t.Context(), "ann"); err != nil || acc.Available != 70 {
		t.Errorf("ann has %+v, %v", acc, err)
	}
	auditDatabase(t, server.URL())
}

// giveUpWaiting cancels whoever waits for a standby, until the context ends. Each statement is waited for, however long it takes: one
// that was given up could still reach PostgreSQL, and cancel who waits after the return.
func giveUpWaiting(ctx context.Context, db *DB) {
	for ctx.Err() == nil {
		// An error here shows as a test that does not end.
		_, _ = db.pool.Exec(context.WithoutCancel(ctx), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	}
}

// missStandby waits until PostgreSQL, which takes a new setting at its leisure, does wait for the standby.
func missStandby(t *testing.T, db *DB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() { giveUpWaiting(ctx, db) })
	defer watcher.Wait()
	defer cancel()
	testwait.Eventually(t, patience, "a commit that waits for the standby", func() bool {
		err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO notes VALUES (-1)`)
			return err
		})
		return errors.Is(err, command.ErrUnknownOutcome)
	})
}

// checkOneUnreplicated sends one keyed transfer: its outcome is unknown, and the key settles it.
func checkOneUnreplicated(t *testing.T, url string, admin *DB) {
	t.Helper()
	seen := &recorder{}
	s := newLedgerService(t, open(t, Options{URL: url, Observer: seen}))
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { giveUpWaiting(ctx, admin) })
	defer group.Wait()
	defer cancel()
	if _, err := s.Execute(t.Context(), transferUnreplicated()); !errors.Is(err, command.ErrUnknownOutcome) {
		t.Fatalf("a commit on the primary alone: %v", err)
	}
	// On a machine that stalls, the answer to COMMIT comes too late: the next run finds what it did.
	if reasons, outcomes, _ := seen.seen(); slices.ContainsFunc(reasons, func(r string) bool { return r != "commit_unknown" }) || !slices.Equal(outcomes, []string{"unknown"}) {
		t.Errorf("reruns for %v, ended %v", reasons, outcomes)
	}
	// The same key does not turn it into a success as long as no standby has it.
	if _, err := s.Execute(t.Context(), transferUnreplicated()); !errors.Is(err, command.ErrUnknownOutcome) {
		t.Errorf("the same key: %v", err)
	}
}

func transferUnreplicated() command.Command[ledger.Op] {
	return keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 30}, "unreplicated", "")
}

// checkManyUnreplicated commits more transactions at once than there are connections, so that one transaction's
// warning is read while the next wants its connection. None may be taken for acknowledged.
func checkManyUnreplicated(t *testing.T, url string, admin *DB) {
	t.Helper()
	db := open(t, Options{URL: url, MaxConns: 2})
	ctx, cancel := context.WithCancel(t.Context())
	var watcher, group sync.WaitGroup
	watcher.Go(func() { giveUpWaiting(ctx, admin) })
	defer watcher.Wait()
	defer cancel()
	var acknowledged atomic.Int64
	for range 8 {
		group.Go(func() {
			for n := range 5 {
				err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, n)
					return err
				})
				if err == nil {
					acknowledged.Add(1)
				} else if !errors.Is(err, command.ErrUnknownOutcome) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := acknowledged.Load(); n > 0 {
		t.Errorf("%d of 40 commits were acknowledged that no standby has", n)
	}
}

func checkSettings(t *testing.T, db *DB) {
	t.Helper()
	settings, err := db.Settings(t.Context())
	testwait.Must(t, err)
	got := map[string]string{}
	for _, s := range settings {
		got[s.Name] = s.Value
	}
	if got["server_version"] == "" || got["fsync"] != "on" || got["full_page_writes"] != "on" || got["default_transaction_isolation"] != "read committed" {
		t.Errorf("settings %v", got)
	}
}

// TestTextForm has the database say how text is to be written and read: sessions have their own way all the same.
func TestTextForm(t *testing.T) {
	t.Parallel()
	url := database(t)
	for name, value := range map[string]string{"client_encoding": "LATIN1", "datestyle": "SQL, DMY", "standard_conforming_strings": "off"} {
		testwait.Must(t, testwait.Err(pgtest.Connect(t, url).Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+name+` = ''`+value+`''', current_database()); END $$`)))
	}
	applied, err := Migrate(t.Context(), url)
	if err != nil || len(applied) > 0 {
		t.Errorf("Migrate: %v, %v", applied, err)
	}
	db := open(t, Options{URL: url})
	s := newLedgerService(t, db)
	fund(t, s, 100, "ann", "ben")
	const reference = "Rechnung-ä-€"
	first := do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 30, Reference: reference}).(ledger.Transfer) //nolint:errcheck // Else the test panics.
	direct := ask[bool](t, db, `SELECT EXISTS (SELECT FROM transfer_references WHERE convert_to(reference, 'UTF8') = '\x526563686e756e672dc3a42de282ac'::bytea)`)
	if again, err := s.Transfer(t.Context(), first.ID); err != nil || again.Reference != reference || !direct {
		t.Errorf("kept as it was given: %v; read as %q, %v", direct, again.Reference, err)
	}
	findings, err := db.Check(t.Context())
	if found := slices.DeleteFunc(findings, func(f Finding) bool { return f.Check != "encoding" }); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := db.SchemaRange(t.Context()); err != nil {
		t.Error(err)
	}
}
