package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

func debitLeg(id uuid.UUID, account string, amount int64) *cross.Leg {
	return &cross.Leg{Call: saga.Call{Saga: id, Step: cross.LegDebit}, Input: cross.Input{
		From: cross.End{Ledger: cross.Local, Account: account}, To: cross.End{Ledger: "eu", Account: "bob"}, Amount: amount, Currency: "EUR",
	}}
}

func available(t *testing.T, db *DB, account string) int64 {
	t.Helper()
	return ask[int64](t, db, `SELECT available FROM accounts WHERE id = $1`, account)
}

// TestALegHappensOnce executes a leg from several processes at once, and again later.
func TestALegHappensOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	fund(t, newLedgerService(t, db), 100, "alice")
	id := uuid.New()
	outcomes := make([]saga.Outcome, 8)
	var group sync.WaitGroup
	for i := range outcomes {
		l := NewCrossLedger(open(t, Options{URL: url, MaxConns: 2}))
		group.Go(func() {
			var err error
			if outcomes[i], err = l.Execute(t.Context(), debitLeg(id, "alice", 30)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, o := range outcomes {
		if o != outcomes[0] || o.Refused || o.Result == "" {
			t.Errorf("outcomes: %+v", outcomes)
		}
	}
	if got := available(t, db, "alice"); got != 70 {
		t.Errorf("alice has %d", got)
	}
}

// TestARefusalStands lets money come after a debit was refused: a late execution must not take it.
func TestARefusalStands(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	service := newLedgerService(t, db)
	fund(t, service, 10, "alice")
	l, id := NewCrossLedger(db), uuid.New()
	for range 2 {
		o, err := l.Execute(t.Context(), debitLeg(id, "alice", 30))
		if err != nil || !o.Refused || o.Reason != cross.ReasonInsufficientFunds {
			t.Fatalf("%+v, %v", o, err)
		}
		do(t, service, ledger.Deposit{Account: "alice", Amount: 100})
	}
	if got := available(t, db, "alice"); got != 210 {
		t.Errorf("alice has %d", got)
	}
	// An account that isn't there can't be locked; the mark alone arbitrates.
	o, err := l.Execute(t.Context(), debitLeg(uuid.New(), "nobody", 30))
	if err != nil || o.Reason != cross.ReasonAccountNotFound {
		t.Errorf("%+v, %v", o, err)
	}
	must := debitLeg(uuid.New(), "nobody", 30)
	must.Undo = true
	if o, err := l.Execute(t.Context(), must); err == nil {
		t.Errorf("a compensation was refused: %+v", o)
	}
}

// newCross makes a service on two databases whose runs never begin by themselves: it isn't tended.
func newCross(t *testing.T, own, other *DB) (*saga.Service, *pgsaga.Log, string, map[string]*CrossLedger) {
	t.Helper()
	log := NewSagas(own)
	coordinator, err := log.Coordinator(t.Context())
	testwait.Must(t, err)
	ledgers := map[string]*CrossLedger{cross.Local: NewCrossLedger(own), "eu": NewCrossLedger(other)}
	s := saga.NewService(log, saga.Options{
		Coordinator: coordinator, Home: cross.Local, DoubtAge: time.Microsecond,
		Participants: map[string]saga.Participant{cross.Local: ledgers[cross.Local], "eu": ledgers["eu"]},
	})
	t.Cleanup(func() { closing(t, s.Close) })
	return s, log, coordinator, ledgers
}

// pendingSagaRow writes the intent of a two-phase transfer, as a run in term 1 that has died would have left it.
func pendingSagaRow(t *testing.T, log *pgsaga.Log, coordinator string) *saga.Saga {
	t.Helper()
	s := &saga.Saga{
		ID: uuid.New(), Name: "test", Protocol: saga.TwoPhase, Input: []byte("{}"), Status: saga.Pending, Coordinator: coordinator,
		Steps: []saga.StepState{{Name: cross.LegDebit, Status: saga.StepPending}}, Owner: uuid.New(), Term: 1, Version: 1,
		LeaseExpiresAt: time.Now().Add(-time.Second), NextAt: time.Now().Add(-time.Second), CreatedAt: time.Now(), UpdatedAt: time.Now(),
	}
	testwait.Must(t, log.Create(t.Context(), s.ID, nil, func(u *saga.Unit) { u.Made = s }))
	return s
}

// TestResolver settles prepared transactions that were left behind by what the log says of them.
func TestResolver(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	own, other := open(t, Options{URL: database(t)}), open(t, Options{URL: database(t)})
	fund(t, newLedgerService(t, own), 100, "alice")
	fund(t, newLedgerService(t, other), 100, "alice")
	s, log, coordinator, ledgers := newCross(t, own, other)
	prepare := func(id uuid.UUID, term int64, account string) {
		t.Helper()
		o, err := ledgers["eu"].Prepare(t.Context(), debitLeg(id, account, 10), saga.GID(coordinator, id, term, 0))
		if err != nil || o.Refused {
			t.Fatalf("%+v, %v", o, err)
		}
	}
	resolve := func(left int) {
		t.Helper()
		testwait.Must(t, s.Resolve(t.Context()))
		gids, err := ledgers["eu"].InDoubt(t.Context(), coordinator+":")
		if err != nil || len(gids) != left {
			t.Fatalf("in doubt: %v, %v; want %d", gids, err, left)
		}
	}
	// Nothing in the log, and no sibling that was committed: presumed aborted.
	prepare(uuid.New(), 1, "alice")
	resolve(0)
	// Nothing in the log, which has lost it: a sibling was committed.
	lost := uuid.New()
	testwait.Must(t, testwait.Err(ledgers[cross.Local].Prepare(t.Context(), debitLeg(lost, "alice", 5), saga.GID(coordinator, lost, 1, 0))))
	testwait.Must(t, end(t, ledgers[cross.Local], saga.GID(coordinator, lost, 1, 0), true))
	prepare(lost, 1, "alice")
	resolve(0)
	if got := available(t, other, "alice"); got != 90 {
		t.Errorf("alice has %d", got)
	}
	// Its run may be at work.
	undecided := pendingSagaRow(t, log, coordinator)
	prepare(undecided.ID, 1, "alice")
	resolve(1)
	// Another term has begun: it was not decided, and never will be.
	claimed, err := log.Claim(t.Context(), uuid.New(), []string{"test"}, time.Minute, 10)
	if err != nil || len(claimed) != 1 || claimed[0].Term != 2 {
		t.Fatalf("%+v, %v", claimed, err)
	}
	resolve(0)
	undecided.Decided = 1
	fenced, ok := errors.AsType[*saga.FencedError](log.Save(t.Context(), undecided, nil))
	if !ok || fenced.Term != 2 {
		t.Errorf("a run in an older term has decided: %v", fenced)
	}
	if got := available(t, other, "alice"); got != 90 {
		t.Errorf("alice has %d", got)
	}
	// Decided: committed, and only the branch of that term.
	decided := claimed[0]
	prepare(decided.ID, 2, "alice")
	decided.Decided = 2
	testwait.Must(t, log.Save(t.Context(), decided, nil))
	resolve(0)
	if got := available(t, other, "alice"); got != 80 {
		t.Errorf("alice has %d", got)
	}
	gid := saga.GID(coordinator, decided.ID, 2, 0)
	if err := end(t, ledgers["eu"], gid, true); err != nil {
		t.Errorf("committed again: %v", err)
	}
	if err := end(t, ledgers[cross.Local], gid, true); !errors.Is(err, saga.ErrNotPrepared) {
		t.Errorf("a branch that was lost: %v", err)
	}
}

// end ends a prepared transaction as an operator would, who asks no log.
func end(t *testing.T, p saga.Participant, gid string, commit bool) error {
	t.Helper()
	other, incarnation := "test:"+uuid.NewString(), uuid.New()
	testwait.Must(t, testwait.Err(p.MoveFence(t.Context(), other, uuid.Nil, uuid.New(), incarnation)))
	return p.EndPrepared(t.Context(), gid, commit, other, incarnation)
}

// TestPreparedIsInTheWay meets an account whose transaction is prepared: the branch gives up within its limit, and leaves
// nothing.
func TestPreparedIsInTheWay(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	db := open(t, Options{URL: database(t)})
	fund(t, newLedgerService(t, db), 100, "alice")
	l := NewCrossLedger(db)
	first, second := "fairlead:x:"+uuid.NewString()+":1:0", "fairlead:x:"+uuid.NewString()+":1:0"
	testwait.Must(t, testwait.Err(l.Prepare(t.Context(), debitLeg(uuid.New(), "alice", 10), first)))
	_, err := l.Prepare(testwait.Context(t, patience), debitLeg(uuid.New(), "alice", 10), second)
	if v, code := pgkit.Classify(err); v != pgkit.Conflict || code != "55P03" {
		t.Errorf("it ended by %v", err)
	}
	testwait.Check(t, errors.Join(end(t, l, second, false), end(t, l, first, false), end(t, l, first, false)))
	nothingBlocked(t, db) // Until the account has been looked at, it counts as blocked.
	if o, err := l.Prepare(t.Context(), debitLeg(uuid.New(), "alice", 1000), first); err != nil || !o.Refused {
		t.Errorf("%+v, %v", o, err)
	}
	if gids, err := l.InDoubt(t.Context(), "fairlead:"); err != nil || len(gids) != 0 {
		t.Errorf("%v, %v", gids, err)
	}
	for _, bad := range []string{"", "a'b", "A", "a b", strings.Repeat("a", 200)} {
		if err := end(t, l, bad, true); err == nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestClaimsOfSagas lets processes race for sagas: each goes to one, in a new term.
func TestClaimsOfSagas(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	log := NewSagas(db)
	const sagas = 20
	for range sagas {
		pendingSagaRow(t, log, "fairlead:x")
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		terms = map[uuid.UUID]int64{}
	)
	for range 4 {
		own := NewSagas(open(t, Options{URL: url, MaxConns: 2}))
		group.Go(func() {
			for range 5 {
				claimed, err := own.Claim(t.Context(), uuid.New(), []string{"other", "test"}, time.Minute, 7)
				testwait.Check(t, err)
				mu.Lock()
				for _, s := range claimed {
					if terms[s.ID] != 0 || s.Term != 2 {
						t.Errorf("claimed twice: %s, term %d", s.ID, s.Term)
					}
					terms[s.ID] = s.Term
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(terms) != sagas {
		t.Errorf("%d were claimed", len(terms))
	}
	exec(t, db, `UPDATE sagas SET status = 'failed', ended_at = now(), reason = 'test'`)
}

// TestTwoPhaseRefused says so where the database takes no prepared transactions.
func TestTwoPhaseRefused(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	pg := pgtest.Server(t)
	testwait.Must(t, migrated(t.Context(), pg.URL()))
	db := open(t, Options{URL: pg.URL()})
	testwait.Must(t, NewCrossLedger(db).CanPrepare(t.Context()))
	exec(t, db, `ALTER SYSTEM SET max_prepared_transactions = 0`)
	pgtest.Restart(t, pg)
	testwait.Eventually(t, patience, "an answer", func() bool { return db.pool.Ping(t.Context()) == nil })
	if err := NewCrossLedger(db).CanPrepare(t.Context()); !errors.Is(err, cross.ErrTwoPhaseUnavailable) {
		t.Errorf("CanPrepare: %v", err)
	}
	service := cross.NewService(NewSagas(db), map[string]cross.Ledger{cross.Local: NewCrossLedger(db), "eu": NewCrossLedger(db)}, saga.Options{Coordinator: "fairlead:x"})
	defer closing(t, service.Close)
	fund(t, newLedgerService(t, db), 10, "alice", "bob")
	a, err := service.Create(t.Context(), command.Command[cross.Request]{Render: render, Key: &idempotency.Request{Execution: uuid.New()}, Op: cross.Request{
		From: cross.End{Ledger: cross.Local, Account: "alice"}, To: cross.End{Ledger: "eu", Account: "bob"}, Amount: 1, Mode: saga.TwoPhase,
	}})
	if err != nil || a.Status != 409 || !strings.Contains(string(a.Body), "max_prepared_transactions") {
		t.Errorf("%d %s, %v", a.Status, a.Body, err)
	}
	// The database was restarted after it had been asked: the first attempt is the last.
	late := cross.NewService(NewSagas(db), map[string]cross.Ledger{cross.Local: hopeful{NewCrossLedger(db)}, "eu": hopeful{NewCrossLedger(db)}}, saga.Options{Coordinator: "fairlead:x"})
	defer closing(t, late.Close)
	a, err = late.Create(t.Context(), command.Command[cross.Request]{Render: render, Key: &idempotency.Request{ID: idempotency.NewID("me", "POST", "/", "late"), Execution: uuid.New()}, Op: cross.Request{
		From: cross.End{Ledger: cross.Local, Account: "alice"}, To: cross.End{Ledger: "eu", Account: "bob"}, Amount: 1, Mode: saga.TwoPhase,
	}})
	if err != nil || a.Status != 409 || !strings.Contains(string(a.Body), "max_prepared_transactions") {
		t.Errorf("%d %s, %v", a.Status, a.Body, err)
	}
	ended, err := late.Transfers(t.Context(), false, 0, 10)
	if err != nil || len(ended) != 1 || ended[0].Status != saga.Failed || ended[0].Reason != saga.ReasonTwoPhaseUnavailable || ended[0].Term != 1 || ended[0].LastError == "" {
		t.Errorf("%+v, %v", ended, err)
	}
}

// hopeful believes that its database can prepare.
type hopeful struct{ *CrossLedger }

func (hopeful) CanPrepare(context.Context) error { return nil }

// TestIdentity asks as a role that is not a superuser.
func TestIdentity(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	id, err := db.Identity(t.Context())
	testwait.Must(t, err)
	conn := pgtest.Connect(t, url)
	role := fmt.Sprintf("plain_%d", time.Now().UnixNano())
	for _, sql := range []string{"CREATE ROLE " + role, "SET ROLE " + role} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql)))
	}
	var again string
	const q = `SELECT c.system_identifier::text || '/' || d.oid FROM pg_control_system() AS c, pg_database AS d WHERE d.datname = current_database()`
	if err := conn.QueryRow(t.Context(), q).Scan(&again); err != nil || again != id {
		t.Errorf("%q, %v; a superuser reads %q", again, err, id)
	}
	if _, err := conn.Exec(t.Context(), "RESET ROLE; DROP ROLE "+role); err != nil {
		t.Error(err)
	}
	other, err := open(t, Options{URL: database(t)}).Identity(t.Context())
	if err != nil || other == id {
		t.Errorf("another database: %q, %v", other, err)
	}
}
