package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// laterSteps are the steps of a later version: those of this one and some more.
func laterSteps(t *testing.T, more map[string]string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	testwait.Must(t, err)
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		testwait.Must(t, err)
		files[name] = &fstest.MapFile{Data: text}
	}
	for name, sql := range more {
		files["migrations/"+name] = &fstest.MapFile{Data: []byte(annotated(sql))}
	}
	return files
}

// annotated is a step's text with goose's annotations.
func annotated(sql string) string {
	const alone = "-- +goose NO TRANSACTION\n"
	if rest, ok := strings.CutPrefix(sql, alone); ok {
		return alone + "-- +goose Up\n" + rest
	}
	return "-- +goose Up\n" + sql
}

const (
	expanding   = stepLockTimeout + `; ALTER TABLE accounts ADD COLUMN nickname text;`
	contracting = `UPDATE ` + removing + `102; ` + stepLockTimeout + `; ALTER TABLE accounts DROP COLUMN nickname;`
)

// TestLaterVersions has a later version migrate under this one: what only adds leaves this one at work; what removes is refused
// while a server of this version is at work, and ends it.
func TestLaterVersions(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrated)
	db := open(t, Options{URL: url, Watch: &Watch{Version: "v1.2.3", KeysKept: time.Hour}})
	becomes(t, db, "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		db.WatchHistory(ctx)
	}()
	testwait.Eventually(t, patience, "a beat", func() bool { return ask[int](t, db, `SELECT count(*) FROM servers`) == 1 })

	applied, err := migrateWith(t.Context(), url, electionSchema, laterSteps(t, map[string]string{"00100_expand.sql": expanding}), nil)
	if err != nil || len(applied) != 1 {
		t.Fatalf("%+v, %v", applied, err)
	}
	becomes(t, db, "")
	if applied, err := Migrate(t.Context(), url); err != nil || len(applied) != 0 {
		t.Errorf("this version on the later schema: %+v, %v", applied, err)
	}

	// It takes away what only servers of before this version need.
	allowed := fmt.Sprintf(`UPDATE %s%d; %s; ALTER TABLE accounts ADD COLUMN surname text;`, removing, db.ready.newest, stepLockTimeout)
	steps := map[string]string{"00100_expand.sql": expanding, "00101_allowed.sql": allowed}
	if applied, err = migrateWith(t.Context(), url, electionSchema, laterSteps(t, steps), nil); err != nil || len(applied) != 1 {
		t.Fatalf("a step for which this version is new enough: %+v, %v", applied, err)
	}
	becomes(t, db, "")

	steps["00102_contract.sql"] = contracting
	later := laterSteps(t, steps)
	_, err = migrateWith(t.Context(), url, electionSchema, later, nil)
	if !errors.Is(err, ErrOldServers) || !strings.Contains(err.Error(), "v1.2.3") {
		t.Fatalf("with a server at work: %v", err)
	}
	becomes(t, db, "")
	cancel()
	<-ended
	if applied, err = migrateWith(t.Context(), url, electionSchema, later, nil); err != nil || len(applied) != 1 {
		t.Fatalf("%+v, %v", applied, err)
	}
	becomes(t, db, operator.UnreadySchema)
	if _, err := Migrate(t.Context(), url); !errors.Is(err, ErrTooNew) || !strings.Contains(err.Error(), "102") {
		t.Errorf("this version on a schema without what it needs: %v", err)
	}
}

// TestStepWaitsForNobody has a step, and then the tables of locks, meet a table that a long read uses: commands on it go on, and
// the change is made when the read has ended.
func TestStepWaitsForNobody(t *testing.T) {
	t.Parallel()
	for _, change := range []struct{ table, column, before string }{
		{"accounts", "nickname", ""},
		{"lock_arbiter", "token_floor", `ALTER TABLE lock_arbiter DROP COLUMN token_floor; DROP FUNCTION IF EXISTS lock_share`}, // As before there were any.
	} {
		t.Run(change.table, func(t *testing.T) {
			t.Parallel()
			url := pgtest.NewDatabase(t, migrated)
			db := open(t, Options{URL: url})
			exec(t, db, change.before)
			money := newLedgerService(t, db)
			fund(t, money, 100, "ann")
			reader, err := pgx.Connect(t.Context(), url)
			testwait.Must(t, err)
			defer func() { _ = reader.Close(context.WithoutCancel(t.Context())) }()
			_, err = reader.Exec(t.Context(), `BEGIN; SELECT count(*) FROM `+change.table)
			testwait.Must(t, err)

			done := make(chan error, 1)
			go func() {
				_, err := migrateWith(t.Context(), url, electionSchema, laterSteps(t, map[string]string{"00100_expand.sql": expanding}), nil)
				done <- err
			}()
			// The deadlock of a command behind a step behind the read would last until the read ends, which it does after the commands.
			testwait.Eventually(t, patience, "a change that has waited in vain twice", func() bool {
				c := keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, time.Now().String(), "")
				if a, err := money.Execute(t.Context(), c); err != nil || a.Status != 201 {
					t.Fatalf("deposit: %+v, %v", a, err)
				}
				ask[int](t, db, `SELECT count(*) FROM `+change.table)
				return ask[int](t, db, `SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`) >= 2
			})
			select {
			case err := <-done:
				t.Fatalf("the change did not wait: %v", err)
			default:
			}
			_, err = reader.Exec(t.Context(), `COMMIT`)
			testwait.Must(t, err)
			select {
			case err := <-done:
				testwait.Must(t, err)
			case <-time.After(patience):
				t.Fatal("the change was not made")
			}
			if ask[int](t, db, `SELECT count(*) FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2`, change.table, change.column) != 1 {
				t.Error("nothing was changed")
			}
		})
	}
}

// TestStepsAskAutovacuum has a step meet an autovacuum that would take minutes: it leaves the table, and the change is made.
func TestStepsAskAutovacuum(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	url := server.URL()
	testwait.Must(t, testwait.Err(Migrate(t.Context(), url)))
	db := open(t, Options{URL: url})
	exec(t, db, `ALTER SYSTEM SET autovacuum_naptime = '1s'`)
	exec(t, db, `SELECT pg_reload_conf()`)
	// A page each 100 ms.
	exec(t, db, `ALTER TABLE accounts SET (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_cost_delay = 100)`)
	exec(t, db, `INSERT INTO accounts (id, currency, available, held, version, created_at) SELECT 'many/' || n, 'SIM', 0, 0, 1, now() FROM generate_series(1, 100000) AS n`)
	exec(t, db, `DELETE FROM accounts WHERE id LIKE 'many/%'`)
	const atWork = `SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = 'accounts'::regclass AND phase IN ('scanning heap', 'vacuuming heap')`
	testwait.Eventually(t, patience, "an autovacuum", func() bool { return ask[int](t, db, atWork) == 1 })

	began := time.Now()
	applied, err := migrateWith(t.Context(), url, electionSchema, laterSteps(t, map[string]string{"00100_expand.sql": expanding}), nil)
	if err != nil || len(applied) != 1 {
		t.Fatalf("%+v, %v", applied, err)
	}
	if took := time.Since(began); took > migrateFor {
		t.Errorf("after %v: the step has waited for the autovacuum's end", took)
	}
}

// TestStepNamesWhoIsInTheWay has a step wait for a transaction in vain.
func TestStepNamesWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrated)
	reader := pgtest.Connect(t, url)
	testwait.Must(t, testwait.Err(reader.Exec(t.Context(), `SET application_name = 'a report'`)))
	testwait.Must(t, testwait.Err(reader.Exec(t.Context(), `BEGIN; SELECT count(*) FROM accounts`)))
	pid := reader.PgConn().PID()
	want := fmt.Sprintf("accounts (by process %d, a report, idle in transaction, for ", pid)
	testwait.Eventually(t, patience, "the name of who uses accounts", func() bool {
		return strings.Contains(inTheWay(t.Context(), url, errEmpty).Error(), want)
	})
	testwait.Must(t, testwait.Err(reader.Exec(t.Context(), `COMMIT`)))
	if err := inTheWay(t.Context(), url, errEmpty); !errors.Is(err, errEmpty) || err.Error() != errEmpty.Error() {
		t.Errorf("with nobody in the way: %v", err)
	}
}

// TestStepsSayTheirLockTimeout: each step that changes what older ones have made gives up soon where it must wait. Indexes on tables that
// older ones have made are built without a lock that commands would wait for, and what a step left that did not end is dropped.
func TestStepsSayTheirLockTimeout(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations, "migrations/*.sql")
	testwait.Must(t, err)
	changes := regexp.MustCompile(`(?im)^\s*(ALTER|DROP|CREATE (UNIQUE )?INDEX|LOCK|TRUNCATE)\b[^;]*`)
	created := regexp.MustCompile(`CREATE TABLE (\w+)`)
	builds := regexp.MustCompile(`CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)`)
	for _, name := range names[slices.Index(names, "migrations/00022_standing_by_account.sql")+1:] {
		text, err := migrations.ReadFile(name)
		testwait.Must(t, err)
		var own []string
		for _, m := range created.FindAllStringSubmatch(string(text), -1) {
			own = append(own, m[1])
		}
		for _, change := range changes.FindAllString(string(text), -1) {
			of := func(table string) bool { return regexp.MustCompile(`\b` + table + `\b`).MatchString(change) }
			switch index := builds.FindStringSubmatch(change); {
			case slices.ContainsFunc(own, of):
			case index != nil:
				if !strings.Contains(string(text), "-- +goose NO TRANSACTION") || !strings.Contains(string(text), "DROP INDEX CONCURRENTLY IF EXISTS "+index[1]+";\nCREATE") {
					t.Errorf("%s does not begin anew: %q", name, change)
				}
			case strings.Contains(change, "CREATE INDEX") || strings.Contains(change, "UNIQUE INDEX"):
				t.Errorf("%s locks out commands: %q", name, change)
			case strings.HasPrefix(strings.TrimSpace(change), "DROP INDEX CONCURRENTLY"):
			case !strings.Contains(string(text), stepLockTimeout):
				t.Errorf("%s has no %q and says %q", name, stepLockTimeout, change)
			}
		}
	}
}

// TestIndexesAreBuiltBesideCommands has the index of a step wait for a transaction that began before it. Commands on its table go on
// meanwhile, and a build that was interrupted is done again. What it waits for is told.
func TestIndexesAreBuiltBesideCommands(t *testing.T) {
	t.Parallel()
	const (
		index = "accounts_by_currency"
		build = "-- +goose NO TRANSACTION\nDROP INDEX CONCURRENTLY IF EXISTS " + index + ";\nCREATE INDEX CONCURRENTLY " + index + " ON accounts (currency);"
	)
	url := pgtest.NewDatabase(t, migrated)
	db := open(t, Options{URL: url})
	money := newLedgerService(t, db)
	fund(t, money, 100, "ann")
	writer, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	defer func() { _ = writer.Close(context.WithoutCancel(t.Context())) }()
	_, err = writer.Exec(t.Context(), `BEGIN; UPDATE accounts SET currency = currency WHERE false`)
	testwait.Must(t, err)
	told := make(chan string, 100)
	migrate := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := migrateWith(ctx, url, electionSchema, laterSteps(t, map[string]string{"00100_index.sql": build}), func(slow string) { told <- slow })
			done <- err
		}()
		testwait.Eventually(t, patience, "a build of the index waits, or the removal of the one before", func() bool {
			return ask[int](t, db, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND query LIKE '%INDEX CONCURRENTLY %' AND wait_event_type = 'Lock'`) == 1
		})
		return done
	}
	ctx, interrupt := context.WithCancel(t.Context())
	first := migrate(ctx)
	deposit := func(key string) {
		t.Helper()
		if a, err := money.Execute(t.Context(), keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, key, "")); err != nil || a.Status != 201 {
			t.Fatalf("deposit: %+v, %v", a, err)
		}
	}
	deposit("first")
	who := fmt.Sprintf("process %d", writer.PgConn().PID())
	for waits := false; !waits; {
		select {
		case slow := <-told: // The first may be of before it waits.
			if !strings.HasPrefix(slow, "00100_index.sql: ") || !strings.Contains(slow, " s so far") {
				t.Fatalf("of a build that waits for %s is told %q", who, slow)
			}
			waits = strings.Contains(slow, who)
		case <-time.After(patience):
			t.Fatal("nobody is told what the build waits for")
		}
	}
	interrupt()
	if err := <-first; err == nil {
		t.Fatal("it was not interrupted")
	}
	testwait.Eventually(t, patience, "what it left", func() bool {
		return ask[int](t, db, `SELECT count(*) FROM pg_index WHERE indexrelid = $1::regclass AND NOT indisvalid`, index) == 1
	})
	second := migrate(t.Context())
	deposit("second")
	_, err = writer.Exec(t.Context(), `COMMIT`)
	testwait.Must(t, err)
	select {
	case err := <-second:
		testwait.Must(t, err)
	case <-time.After(patience):
		t.Fatal("the index was not built")
	}
	if ask[int](t, db, `SELECT count(*) FROM pg_index WHERE indexrelid = $1::regclass AND indisvalid`, index) != 1 {
		t.Error("the index is not valid")
	}
}

// TestAMigratorThatWakesUp ends a process's lease in the middle of a step, as where it is stopped for long. The next one takes the same step. One of them is
// undone, and neither fails.
func TestAMigratorThatWakesUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, step string }{
		{"a step that can be repeated", "INSERT INTO steps_taken VALUES (1);"},
		{"a step that cannot", "ALTER TABLE steps_taken ADD COLUMN more int;\nINSERT INTO steps_taken VALUES (1);"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			db := open(t, Options{URL: url})
			exec(t, db, `CREATE TABLE steps_taken (n int)`)
			blocker := sessionOf(t, db)
			testwait.Must(t, testwait.Err(blocker.Exec(t.Context(), `SELECT pg_advisory_lock(7101)`)))
			files := laterSteps(t, map[string]string{"00100_wait.sql": c.step + "\nSELECT pg_advisory_xact_lock(7101);"})
			type ended struct {
				applied []Migration
				err     error
			}
			migrators := make(chan ended, 2)
			begin := func() {
				applied, err := migrateWith(t.Context(), url, electionSchema, files, nil)
				migrators <- ended{applied, err}
			}
			migrating := func(n int, also string) bool {
				return ask[int](t, db, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event_type = 'Lock'
					AND (query LIKE '%pg_advisory_xact_lock(7101)%' OR query LIKE '%steps_taken%')`+also) == n
			}
			go begin()
			testwait.Eventually(t, patience, "the first one is in the step", func() bool { return migrating(1, "") })
			first := ask[string](t, db, `SELECT locked_by FROM goose_lock WHERE locked`)
			go begin()
			testwait.Eventually(t, patience, "the second one takes the lease", func() bool {
				exec(t, db, `UPDATE goose_lock SET lease_expires_at = clock_timestamp() - interval '1 hour' WHERE locked AND locked_by = $1`, first)
				return ask[int](t, db, `SELECT count(*)::int FROM goose_lock WHERE locked AND locked_by <> $1`, first) == 1
			})
			testwait.Eventually(t, patience, "the second one is in the step", func() bool { return migrating(2, "") })
			testwait.Must(t, testwait.Err(blocker.Exec(t.Context(), `SELECT pg_advisory_unlock(7101)`)))
			for range 2 {
				testwait.Check(t, (<-migrators).err)
			}
			if taken, rows := ask[int](t, db, `SELECT count(*)::int FROM steps_taken`), ask[int](t, db, `SELECT count(*)::int FROM goose_db_version WHERE version_id = 100`); taken != 1 || rows != 1 {
				t.Errorf("the step was taken %d times, and has %d rows", taken, rows)
			}
		})
	}
}
