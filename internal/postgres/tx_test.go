package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// marks is a database with a table of its own, and a pool whose transactions are recorded.
func marks(t *testing.T, maxConns int32) (db, other *DB, seen *recorder) {
	t.Helper()
	url := pgtest.NewDatabase(t, nil)
	seen = &recorder{}
	db = open(t, Options{URL: url, Observer: seen, MaxConns: maxConns})
	other = open(t, Options{URL: url})
	exec(t, other, `CREATE TABLE marks (n int PRIMARY KEY, v int NOT NULL CHECK (v >= 0))`)
	exec(t, other, `INSERT INTO marks VALUES (1, 0), (2, 0)`)
	return db, other, seen
}

// expectRuns compares what the observer saw of one transaction.
func expectRuns(t *testing.T, seen *recorder, outcome string, reasons ...string) {
	t.Helper()
	gotReasons, outcomes, attempts := seen.seen()
	if !slices.Equal(gotReasons, reasons) || !slices.Equal(outcomes, []string{outcome}) || !slices.Equal(attempts, []int{len(reasons) + 1}) {
		t.Errorf("reruns for %v, ended %v after %v runs; want reruns for %v and %s", gotReasons, outcomes, attempts, reasons, outcome)
	}
}

func add(ctx context.Context, tx pgx.Tx, n, by int) error {
	_, err := tx.Exec(ctx, `UPDATE marks SET v = v + $2 WHERE n = $1`, n, by)
	return err
}

func TestReruns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		// spoil makes the first run fail; it has added 1 to mark 1 before.
		spoil func(ctx context.Context, tx pgx.Tx, other *DB) error
		want  int
	}{
		"serialization failure": {"40001", func(ctx context.Context, tx pgx.Tx, other *DB) error {
			if _, err := other.pool.Exec(ctx, `UPDATE marks SET v = v + 100 WHERE n = 2`); err != nil {
				return err
			}
			return add(ctx, tx, 2, 1)
		}, 101},
		"unique violation": {"23505", func(ctx context.Context, tx pgx.Tx, other *DB) error {
			if _, err := other.pool.Exec(ctx, `INSERT INTO marks VALUES (3, 100)`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `INSERT INTO marks VALUES (3, 1)`)
			return err
		}, 1},
		"stale rows": {"stale", func(context.Context, pgx.Tx, *DB) error { return fmt.Errorf("guard: %w", errStale) }, 1},
		"backend terminated between statements": {"57P01", func(ctx context.Context, tx pgx.Tx, other *DB) error {
			if err := terminate(ctx, tx, other); err != nil {
				return err
			}
			return add(ctx, tx, 2, 1)
		}, 1},
		"backend terminated before commit": {"commit_unknown", terminate, 1},
		"idle in transaction for too long": {"25P03", func(ctx context.Context, tx pgx.Tx, other *DB) error {
			if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '20ms'`); err != nil {
				return err
			}
			return gone(ctx, tx, other)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, other, seen := marks(t, 0)
			runs := 0
			err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
				runs++
				if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
					return err
				}
				if err := add(ctx, tx, 1, 1); err != nil {
					return err
				}
				if runs == 1 {
					return c.spoil(ctx, tx, other)
				}
				return add(ctx, tx, 2, 1)
			})
			if err != nil || runs != 2 {
				t.Fatalf("%d runs: %v", runs, err)
			}
			reasons, _, _ := seen.seen()
			if name == "idle in transaction for too long" && len(reasons) == 1 && reasons[0] != c.reason {
				c.reason = "commit_unknown" // The server's last word may be lost with its connection.
			}
			if name == "backend terminated between statements" && len(reasons) == 1 && reasons[0] == "connection" {
				c.reason = "connection" // Likewise.
			}
			expectRuns(t, seen, "committed", c.reason)
			if v := ask[int](t, other, `SELECT v FROM marks WHERE n = 1`); v != 1 {
				t.Errorf("the first run left its mark: %d", v)
			}
			if v := ask[int](t, other, `SELECT v FROM marks WHERE n = 2`); v != c.want {
				t.Errorf("mark 2 is %d, want %d", v, c.want)
			}
		})
	}
}

// terminate ends the transaction's backend and waits until it is gone.
func terminate(ctx context.Context, tx pgx.Tx, other *DB) error {
	var ended bool
	err := other.pool.QueryRow(ctx, `SELECT pg_terminate_backend($1, 50000)`, int(tx.Conn().PgConn().PID())).Scan(&ended)
	if err == nil && !ended {
		err = errors.New("the backend did not end")
	}
	return err
}

// gone waits until the transaction's backend has ended by itself.
func gone(ctx context.Context, tx pgx.Tx, other *DB) error {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		var n int
		if err := other.pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, int(tx.Conn().PgConn().PID())).Scan(&n); err != nil || n == 0 {
			return err
		}
	}
	return errors.New("the backend did not end")
}

func TestDeadlocksAreRunAgain(t *testing.T) {
	t.Parallel()
	db, other, seen := marks(t, 0)
	var both sync.WaitGroup
	both.Add(2)
	var group sync.WaitGroup
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		group.Go(func() {
			first := true
			err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
				// A slow machine must not be too late for the deadlock.
				if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '60s'`); err != nil {
					return err
				}
				if err := add(ctx, tx, order[0], 1); err != nil {
					return err
				}
				if first { // Each has one row now and wants the other's.
					first = false
					both.Done()
					both.Wait()
				}
				return add(ctx, tx, order[1], 1)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	reasons, outcomes, _ := seen.seen() // The one that runs again may meet the other again.
	if len(reasons) == 0 || slices.ContainsFunc(reasons, func(r string) bool { return r != "40P01" }) || !slices.Equal(outcomes, []string{"committed", "committed"}) {
		t.Errorf("reruns for %v, ended %v", reasons, outcomes)
	}
	if v := ask[int](t, other, `SELECT sum(v) FROM marks`); v != 4 {
		t.Errorf("sum of marks is %d", v)
	}
}

func TestLockTimeoutsAreRunAgainUntilTheLockIsFree(t *testing.T) {
	t.Parallel()
	db, other, seen := marks(t, 0)
	holder, err := sessionOf(t, other).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := add(t.Context(), holder, 1, 5); err != nil {
		t.Fatal(err)
	}
	retries := 0
	seen.onRetry = func(string) {
		if retries++; retries == 2 {
			if err := holder.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	if err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '20ms'`); err != nil {
			return err
		}
		return add(ctx, tx, 1, 1)
	}); err != nil {
		t.Fatal(err)
	}
	expectRuns(t, seen, "committed", "55P03", "55P03")
	if v := ask[int](t, other, `SELECT v FROM marks WHERE n = 1`); v != 6 {
		t.Errorf("mark is %d", v)
	}
}

func TestFinalErrorsAreNotRunAgain(t *testing.T) {
	t.Parallel()
	own := errors.New("the closure's own")
	for name, c := range map[string]struct {
		sql  string
		is   error
		code string
	}{
		"of the closure":  {is: own},
		"check violation": {sql: `UPDATE marks SET v = -1`, code: "23514"},
		"bad arithmetic":  {sql: `SELECT 1/0`, code: "22012"},
		"syntax":          {sql: `SELEC`, code: "42601"},
		"lost row":        {is: errLostRow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, other, seen := marks(t, 1)
			err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
				if err := add(ctx, tx, 1, 1); err != nil {
					return err
				}
				if c.sql == "" {
					return c.is
				}
				_, err := tx.Exec(ctx, c.sql)
				return err
			})
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %v", err, c.is)
			}
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); c.code != "" && (!ok || pgErr.Code != c.code) {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if command.Undividable(err) {
				t.Errorf("%v is taken for a failure of the connection", err)
			}
			expectRuns(t, seen, "failed")
			// Undone, and the pool's only connection is fit for use.
			if v := ask[int](t, other, `SELECT v FROM marks WHERE n = 1`); v != 0 {
				t.Errorf("mark is %d", v)
			}
			if err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error { return add(ctx, tx, 1, 1) }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCancelledCallers(t *testing.T) {
	t.Parallel()
	t.Run("in a statement", func(t *testing.T) {
		t.Parallel()
		db, other, seen := marks(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		err := db.run(ctx, "test", func(ctx context.Context, tx pgx.Tx) error {
			if err := add(ctx, tx, 1, 1); err != nil {
				return err
			}
			time.AfterFunc(20*time.Millisecond, cancel)
			_, err := tx.Exec(ctx, `SELECT pg_sleep(50)`)
			return err
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, command.ErrUnknownOutcome) {
			t.Errorf("cancelled: %v", err)
		}
		expectRuns(t, seen, "failed")
		checkUnmarked(t, db, other)
	})
	t.Run("while it waits to run again", func(t *testing.T) {
		t.Parallel()
		db, other, seen := marks(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen.onRetry = func(string) { cancel() }
		err := db.run(ctx, "test", func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(add(ctx, tx, 1, 1), errStale)
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, command.ErrUnavailable) {
			t.Errorf("cancelled: %v", err)
		}
		checkUnmarked(t, db, other)
	})
	t.Run("before it begins", func(t *testing.T) {
		t.Parallel()
		db, other, _ := marks(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := db.run(ctx, "test", func(context.Context, pgx.Tx) error { t.Error("called"); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		checkUnmarked(t, db, other)
	})
	t.Run("when all is written", func(t *testing.T) {
		t.Parallel()
		db, other, seen := marks(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		if err := db.run(ctx, "test", func(ctx context.Context, tx pgx.Tx) error {
			defer cancel()
			return add(ctx, tx, 1, 1)
		}); err != nil {
			t.Errorf("COMMIT was given up: %v", err)
		}
		expectRuns(t, seen, "committed")
		if v := ask[int](t, other, `SELECT v FROM marks WHERE n = 1`); v != 1 {
			t.Errorf("mark is %d", v)
		}
	})
}

// checkUnmarked makes sure that nothing was written, no lock is left, and the pool works.
func checkUnmarked(t *testing.T, db, other *DB) {
	t.Helper()
	if v := ask[int](t, other, `SELECT v FROM marks WHERE n = 1 FOR UPDATE`); v != 0 {
		t.Errorf("mark is %d", v)
	}
	if err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error { return add(ctx, tx, 1, 1) }); err != nil {
		t.Error(err)
	}
}

func TestRunsWaitAndEndWithTheirContext(t *testing.T) {
	t.Parallel()
	db, _, seen := marks(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	runs := 0
	err := db.run(ctx, "test", func(context.Context, pgx.Tx) error {
		runs++
		return errStale
	})
	if !errors.Is(err, command.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("gave up with %v", err)
	}
	// Two seconds have no room for more runs with their waits, however short those turn out.
	if runs > 20 {
		t.Errorf("%d runs in two seconds", runs)
	}
	if _, outcomes, _ := seen.seen(); !slices.Equal(outcomes, []string{"failed"}) {
		t.Errorf("ended %v", outcomes)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://localhost:port/x", "postgres://fairlead@127.0.0.1:1/nothing?sslmode=disable"} {
		if db, err := Open(t.Context(), Options{URL: url}); err == nil {
			db.Close()
			t.Errorf("%s was opened", url)
		}
	}
	db := open(t, Options{URL: pgtest.NewDatabase(t, nil)})
	if err := db.pool.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"timezone": "UTC", "default_transaction_isolation": "read committed", "application_name": "fairlead",
	} {
		if got := ask[string](t, db, `SELECT current_setting($1)`, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"statement_timeout": statementTimeout, "lock_timeout": lockTimeout, "idle_in_transaction_session_timeout": idleInTxTimeout,
	} {
		if !ask[bool](t, db, `SELECT current_setting($1)::interval = $2::text::interval`, name, want) {
			t.Errorf("%s is not %s", name, want)
		}
	}
}

// TestAServerThatRunsOut: a full disk and its like are no defects of the command. It is unavailable, certainly not applied,
// and succeeds under its key when there is room again.
func TestAServerThatRunsOut(t *testing.T) {
	t.Parallel()
	url := database(t)
	s, calm := newLedgerService(t, open(t, Options{URL: url, UnavailableAfter: time.Second})), open(t, Options{URL: url})
	fund(t, newLedgerService(t, calm), 10, "ann")
	deposits := int64(0)
	for _, code := range []string{"53100", "53200", "53400", "58030"} {
		exec(t, calm, `CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'there is no room' USING ERRCODE = '`+code+`'; END $$`)
		exec(t, calm, `CREATE TRIGGER full_disk BEFORE INSERT ON transfers EXECUTE FUNCTION full_disk()`)
		var tried []command.Command[ledger.Op]
		for settled := false; !settled; {
			deposits++
			deposit := keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, fmt.Sprint(code, deposits), "a")
			tried = append(tried, deposit)
			_, err := s.Execute(t.Context(), deposit)
			if settled = !errors.Is(err, command.ErrUnknownOutcome); !errors.Is(err, command.ErrUnavailable) || !settled && len(tried) == 5 {
				t.Fatalf("%s: %v", code, err)
			}
			// On a slow machine, the database may not have answered for a second: then nobody knows, and the next one tells.
		}
		exec(t, calm, `DROP TRIGGER full_disk ON transfers`)
		for _, deposit := range tried {
			testwait.Eventually(t, patience, "the deposit is made", func() bool {
				a, err := s.Execute(t.Context(), deposit)
				return err == nil && a.Status == 201
			})
		}
	}
	if a, err := newLedgerService(t, calm).Account(t.Context(), "ann"); err != nil || a.Available != 10+deposits {
		t.Errorf("ann has %+v, %v", a, err)
	}
}
