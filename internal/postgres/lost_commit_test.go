package postgres

import (
	"errors"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestALostCommitHoldsTheRow: a COMMIT waits for a standby when its connection is cut. The transaction keeps its accounts locked, and
// is there once the standby has it. Runs that find the accounts locked must not say that nothing was applied.
func TestALostCommitHoldsTheRow(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]func(hold ledger.Hold) ledger.Op{
		"speculative": func(ledger.Hold) ledger.Op { return ledger.MakeTransfer{From: "ann", To: "ben", Amount: 30} },
		"locked":      func(h ledger.Hold) ledger.Op { return ledger.CaptureHold{Hold: h.ID, To: "ben"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Server(t)
			testwait.Must(t, testwait.Err(Migrate(t.Context(), server.URL())))
			admin := open(t, Options{URL: server.URL()})
			// A request to cancel the COMMIT would have it stop waiting for the standby.
			proxy, through := wire.Through(t, server.URL(), wire.Options{LoseCancels: true})
			db := open(t, Options{URL: through})
			s := newLedgerService(t, db)
			fund(t, s, 100, "ann", "ben")
			placed, err := s.Execute(t.Context(), own[ledger.Op](ledger.PlaceHold{Account: "ann", Amount: 30}))
			if err = errors.Join(err, placed.Err); err != nil {
				t.Fatal(err)
			}
			do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1}) // The accounts are remembered now.
			knowTheTime(t, db)

			exec(t, admin, `CREATE TABLE notes (n int)`)
			execAll(t, admin, `ALTER SYSTEM SET synchronous_standby_names = 'missing'`, `SELECT pg_reload_conf()`)
			missStandby(t, admin)
			c := func() command.Command[ledger.Op] {
				return keyed(op(placed.Result.(ledger.Hold)), "lost", "") //nolint:errcheck // Else the test panics.
			}
			type ended struct {
				answer command.Answer
				err    error
			}
			done := make(chan ended, 1)
			go func() {
				a, err := s.Execute(t.Context(), c())
				done <- ended{a, err}
			}()
			testwait.Eventually(t, patience, "the COMMIT waits for the standby", func() bool {
				select {
				case early := <-done:
					t.Fatalf("it ended before its COMMIT was seen to wait: %+v, %v", early.answer, early.err)
				default:
				}
				return ask[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
			})
			proxy.Refuse(true)
			proxy.Refuse(false)
			if got := <-done; !errors.Is(got.err, command.ErrUnknownOutcome) || errors.Is(got.err, command.ErrNotApplied) {
				t.Errorf("a command whose COMMIT may still end well: %+v, %v", got.answer, got.err)
			}

			execAll(t, admin, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
			testwait.Eventually(t, patience, "the same key settles it", func() bool {
				a, err := s.Execute(t.Context(), c())
				return err == nil && a.Err == nil && a.Status == 201
			})
			if a, err := s.Account(t.Context(), "ben"); err != nil || a.Available != 131 {
				t.Errorf("ben has %+v, %v", a, err)
			}
			auditDatabase(t, server.URL())
		})
	}
}

// TestACommitThatNobodyKnowsOf: the database answers COMMIT with the code of distributed engines for an outcome that they do not know. The command is looked
// up and decided again, and no client is told that it failed.
func TestACommitThatNobodyKnowsOf(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	db := open(t, Options{URL: database(t), Observer: seen})
	s := newLedgerService(t, db)
	fund(t, s, 100, "ann", "ben")
	placed, err := s.Execute(t.Context(), own[ledger.Op](ledger.PlaceHold{Account: "ann", Amount: 30}))
	if err = errors.Join(err, placed.Err); err != nil {
		t.Fatal(err)
	}
	do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1}) // The accounts are remembered now.
	knowTheTime(t, db)
	execAll(t, db, `CREATE SEQUENCE commits`, `CREATE FUNCTION is_it_known() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('commits') <= 2 THEN RAISE EXCEPTION 'result is ambiguous' USING ERRCODE = '40003'; END IF;
			RETURN NULL;
		END $$`, `CREATE CONSTRAINT TRIGGER known AFTER UPDATE ON accounts DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION is_it_known()`)
	for what, op := range map[string]ledger.Op{
		"speculative": ledger.MakeTransfer{From: "ann", To: "ben", Amount: 20},
		"locked":      ledger.CaptureHold{Hold: placed.Result.(ledger.Hold).ID, To: "ben"}, //nolint:errcheck // Else the test panics.
	} {
		exec(t, db, `SELECT setval('commits', 1, false)`)
		a, err := s.Execute(t.Context(), keyed(op, what, ""))
		if err = errors.Join(err, a.Err); err != nil || a.Replayed {
			t.Errorf("%s: %+v, %v", what, a, err)
		}
		if n := ask[int](t, db, `SELECT last_value::integer FROM commits`); n < 3 {
			t.Errorf("%s: %d rows were updated, so that no COMMIT was answered so", what, n)
		}
	}
	if fell := seen.fallbacks(); fell["commit_unknown"] == 0 { // Else whoever finds the account locked would say that nothing was applied.
		t.Errorf("the fast path was left for %v", fell)
	}
	if n := ask[int](t, db, `SELECT available::integer FROM accounts WHERE id = 'ben'`); n != 151 {
		t.Errorf("ben has %d, want 151", n)
	}
}
