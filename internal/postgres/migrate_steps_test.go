package postgres

import (
	"context"
	"errors"
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
		files["migrations/"+name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql)}
	}
	return files
}

const (
	expanding   = stepLockTimeout + `; ALTER TABLE accounts ADD COLUMN nickname text;`
	contracting = `UPDATE ` + removing + `101; ` + stepLockTimeout + `; ALTER TABLE accounts DROP COLUMN nickname;`
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

	applied, err := migrateWith(t.Context(), url, laterSteps(t, map[string]string{"00100_expand.sql": expanding}))
	if err != nil || len(applied) != 1 {
		t.Fatalf("%+v, %v", applied, err)
	}
	becomes(t, db, "")
	if applied, err := Migrate(t.Context(), url); err != nil || len(applied) != 0 {
		t.Errorf("this version on the later schema: %+v, %v", applied, err)
	}

	later := laterSteps(t, map[string]string{"00100_expand.sql": expanding, "00101_contract.sql": contracting})
	_, err = migrateWith(t.Context(), url, later)
	if !errors.Is(err, ErrOldServers) || !strings.Contains(err.Error(), "v1.2.3") {
		t.Fatalf("with a server at work: %v", err)
	}
	becomes(t, db, "")
	cancel()
	<-ended
	if applied, err = migrateWith(t.Context(), url, later); err != nil || len(applied) != 1 {
		t.Fatalf("%+v, %v", applied, err)
	}
	becomes(t, db, operator.UnreadySchema)
	if _, err := Migrate(t.Context(), url); !errors.Is(err, ErrTooNew) || !strings.Contains(err.Error(), "101") {
		t.Errorf("this version on a schema without what it needs: %v", err)
	}
}

// TestStepWaitsForNobody has a step, and then the tables of locks, meet a table that a long read uses: commands on it go on, and
// the change is made when the read has ended.
func TestStepWaitsForNobody(t *testing.T) {
	t.Parallel()
	for _, change := range []struct{ table, column, before string }{
		{"accounts", "nickname", ""},
		{"lock_arbiter", "token_floor", `ALTER TABLE lock_arbiter DROP COLUMN token_floor`}, // As before there was one.
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
				_, err := migrateWith(t.Context(), url, laterSteps(t, map[string]string{"00100_expand.sql": expanding}))
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

// TestStepsSayTheirLockTimeout: each step that changes what older ones have made gives up soon where it must wait.
func TestStepsSayTheirLockTimeout(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations, "migrations/*.sql")
	testwait.Must(t, err)
	changes := regexp.MustCompile(`(?im)^\s*(ALTER|DROP|CREATE (UNIQUE )?INDEX|LOCK|TRUNCATE)\b[^;]*`)
	created := regexp.MustCompile(`CREATE TABLE (\w+)`)
	for _, name := range names[slices.Index(names, "migrations/00022_standing_by_account.sql")+1:] {
		text, err := migrations.ReadFile(name)
		testwait.Must(t, err)
		var own []string
		for _, m := range created.FindAllStringSubmatch(string(text), -1) {
			own = append(own, m[1])
		}
		for _, change := range changes.FindAllString(string(text), -1) {
			of := func(table string) bool { return regexp.MustCompile(`\b` + table + `\b`).MatchString(change) }
			if !slices.ContainsFunc(own, of) && !strings.Contains(string(text), stepLockTimeout) {
				t.Errorf("%s has no %q and says %q", name, stepLockTimeout, change)
			}
		}
	}
}
