package postgres

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// pair is a service with accounts that it remembers, and a connection around it.
func pair(t *testing.T) (l *Ledger, seen *recorder, around *pgx.Conn) {
	t.Helper()
	seen = &recorder{}
	db := open(t, Options{URL: database(t), Observer: seen})
	waitLong(db)
	fund(t, newLedgerService(t, db), 100, "ann", "ben", "cid", "dan")
	l = NewLedger(db)
	knowTheTime(t, db)
	if err := new(decided).transfer(t, l, "ann", "ben", 1); err != nil { // It connects.
		t.Fatal(err)
	}
	return l, seen, sessionOf(t, db)
}

// knowTheTime has a process carry the database's clock on for an hour. Transactions that it sends ahead must know the time, or
// read under locks, and so does one that comes after the machine has stalled.
func knowTheTime(t *testing.T, db *DB) {
	t.Helper()
	now := ask[time.Time](t, db, `SELECT clock_timestamp()`)
	at := time.Now().Add(time.Hour)
	db.spec.Clock.Learned(now.Add(time.Hour), at, at)
}

// waitLong has speculative transactions wait for locked rows as long as a test may take. It is called before the
// first of them.
func waitLong(db *DB) {
	db.spec.Pipeline(0).Config.RuntimeParams["lock_timeout"] = "60s" // All have one configuration.
}

// oneWaits waits until a session of the database waits for a lock.
func oneWaits(t *testing.T, db *DB) {
	t.Helper()
	testwait.Eventually(t, patience, "one waits for the lock", func() bool {
		return ask[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
}

// lockAnn keeps ann's row until the transaction ends.
func lockAnn(t *testing.T, around *pgx.Conn) pgx.Tx {
	t.Helper()
	tx, err := around.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `SELECT FROM accounts WHERE id = 'ann' FOR UPDATE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// sentBehind makes three transfers, each sent behind the one before it, the first of which waits for ann's row. The second
// spends what the first brings, the third has nothing to do with them.
func sentBehind(t *testing.T, l *Ledger) (ended chan error) {
	t.Helper()
	ended = make(chan error, 3)
	for i, m := range []ledger.MakeTransfer{{From: "ann", To: "ben", Amount: 50}, {From: "ben", To: "cid", Amount: 140}, {From: "cid", To: "dan", Amount: 1}} {
		go func() {
			_, err := command.Execute(t.Context(), nil, func() (a command.Answer, err error) { // It may have to wait for ann again.
				err = l.Commit(t.Context(), ledger.Want{Accounts: []string{m.From, m.To}}, func(u *ledger.Unit) {
					_, a.Err = ledger.Decide(u.Book, m)
					u.Refused = a.Err != nil
				})
				return a, errors.Join(err, decidedErr(a.Err))
			})
			ended <- err
		}()
		testwait.Eventually(t, patience, "it is sent", func() bool {
			n, _ := l.db.spec.Pipeline(0).UnderWay()
			return n == i+1
		})
	}
	return ended
}

// decidedErr is what a command was refused with, once it was decided.
func decidedErr(err error) error {
	if isBlocked(err) {
		return nil
	}
	return err
}

func balances(t *testing.T, l *Ledger) []int64 {
	t.Helper()
	return ask[[]int64](t, l.db, `SELECT array_agg(available ORDER BY id) FROM accounts`)
}

func TestPipelineSendsBehindWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	l, seen, around := pair(t)
	tx := lockAnn(t, around)
	ended := sentBehind(t, l)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if got := balances(t, l); !slices.Equal(got, []int64{49, 11, 239, 101}) {
		t.Errorf("balances %v", got)
	}
	if reasons, _, _ := seen.seen(); len(reasons) != 0 {
		t.Errorf("reruns for %v", reasons)
	}
}

// TestPipelineUndoesWhatRestsOnAFailure has somebody else change ann while transfers are under way: the first of them finds
// that, and so does the second, which had spent what the first was to bring.
func TestPipelineUndoesWhatRestsOnAFailure(t *testing.T) {
	t.Parallel()
	l, seen, around := pair(t)
	tx := lockAnn(t, around)
	ended := sentBehind(t, l)
	// As a deposit of another process would.
	for _, sql := range []string{
		`UPDATE accounts SET available = available + 1000, version = version + 1 WHERE id = 'ann'`,
		`INSERT INTO transfers VALUES ('00000000-0000-7000-8000-000000000001', 'deposit', 'outside/EUR', 'ann', 1000, 'EUR', 'completed', '', '', now())`,
		`INSERT INTO entries SELECT 'ann', '00000000-0000-7000-8000-000000000002', version, '00000000-0000-7000-8000-000000000001', 1000, 'EUR', now() FROM accounts WHERE id = 'ann'`,
		`INSERT INTO entries VALUES ('outside/EUR', '00000000-0000-7000-8000-000000000003', 0, '00000000-0000-7000-8000-000000000001', -1000, 'EUR', now())`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for range 3 {
		err := <-ended
		if _, short := errors.AsType[*ledger.InsufficientFundsError](err); short {
			refused++ // The second came before the first when they ran again.
		} else if err != nil {
			t.Error(err)
		}
	}
	want := []int64{1049, 11, 239, 101}
	if refused > 0 {
		want = []int64{1049, 151, 99, 101}
	}
	if got := balances(t, l); refused > 1 || !slices.Equal(got, want) {
		t.Errorf("balances %v, want %v", got, want)
	}
	// Those that rest on the first run again, too, unless its rerun has made true by then what they were decided on.
	if reasons, _, _ := seen.seen(); !slices.Contains(reasons, "stale") {
		t.Errorf("reruns for %v", reasons)
	}
}

// TestPipelineThatIsCut loses the connection with three transactions under way.
func TestPipelineThatIsCut(t *testing.T) {
	t.Parallel()
	l, seen, around := pair(t)
	tx := lockAnn(t, around)
	ended := sentBehind(t, l)
	oneWaits(t, l.db)
	if n := exec(t, l.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`); n != 1 {
		t.Fatalf("%d connections wait for the lock", n)
	}
	testwait.Eventually(t, patience, "those that were sent run again", func() bool { reasons, _, _ := seen.seen(); return len(reasons) >= 2 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; err != nil {
			if _, short := errors.AsType[*ledger.InsufficientFundsError](err); !short {
				t.Error(err)
			}
		}
	}
	reasons, outcomes, _ := seen.seen()
	if slices.ContainsFunc(reasons, func(r string) bool { return r != "commit_unknown" && r != "55P03" }) || slices.Contains(outcomes, "unknown") {
		t.Errorf("reruns for %v, ended %v", reasons, outcomes)
	}
	if got := balances(t, l); got[0] != 49 || got[0]+got[1]+got[2]+got[3] != 400 {
		t.Errorf("balances %v", got)
	}
	// It connects again.
	testwait.Eventually(t, patience, "transactions are speculative again", func() bool {
		if err := new(decided).transfer(t, l, "ann", "ben", 1); err != nil {
			t.Fatal(err)
		}
		_, connected := l.db.spec.Pipeline(0).UnderWay()
		return connected
	})
}

// TestPipelineWithoutAnswer closes a pipeline whose transactions can't end: their outcomes are unknown.
func TestPipelineWithoutAnswer(t *testing.T) {
	t.Parallel()
	l, _, around := pair(t)
	version := ask[int64](t, l.db, `SELECT version FROM accounts WHERE id = 'ann'`)
	tx := lockAnn(t, around)
	done := make(chan error, 1)
	go func() {
		done <- l.db.spec.Pipeline(0).Commit(t.Context(), speculation.Work{}, func(b *pgx.Batch) error {
			b.Queue(guardedUpdateAccounts, []string{"ann"}, []int64{99}, []int64{0}, []int64{version}, []int64{0}, []int64{99}, []int64{0}, []int64{version}, []int64{0}, 1)
			return nil
		})
	}()
	oneWaits(t, l.db)
	l.db.spec.Pipeline(0).Close()
	if err := <-done; !errors.Is(err, speculation.ErrLinkLost) {
		t.Errorf("outcome: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.db.spec.Pipeline(0).Commit(t.Context(), speculation.Work{}, func(*pgx.Batch) error { t.Error("asked after the end"); return nil }); !speculation.IsNotSent(err) {
		t.Errorf("after the end: %v", err)
	}
	// The ledger goes on without.
	if err := new(decided).transfer(t, l, "ann", "ben", 1); err != nil {
		t.Error(err)
	}
}

func TestPipelineRefusesWhatItCannotSend(t *testing.T) {
	t.Parallel()
	l, _, _ := pair(t)
	for name, fill := range map[string]func(*pgx.Batch) error{
		"nothing to send":            func(*pgx.Batch) error { return speculation.NotSent("nothing", nil) },
		"an unknown statement":       func(b *pgx.Batch) error { b.Queue(`SELECT 1`); return nil },
		"a parameter without a type": func(b *pgx.Batch) error { b.Queue(guardAbsentAccounts, struct{}{}); return nil },
	} {
		if err := l.db.spec.Pipeline(0).Commit(t.Context(), speculation.Work{}, fill); !speculation.IsNotSent(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A panic leaves the pipeline as it was.
	func() {
		defer func() { _ = recover() }()
		_ = l.db.spec.Pipeline(0).Commit(t.Context(), speculation.Work{}, func(*pgx.Batch) error { panic("no decision") })
	}()
	var d decided
	if err := d.transfer(t, l, "ann", "ben", 1); err != nil || d.runs != 1 {
		t.Errorf("after that: %v, decided %d times", err, d.runs)
	}
}

// TestNobodyWaitsWhileAPipelineConnects: a transaction that comes meanwhile goes another way at once.
func TestNobodyWaitsWhileAPipelineConnects(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	connecting, connected := make(chan struct{}), make(chan struct{})
	p := &speculation.Pipeline{
		Config: db.pool.Config().ConnConfig, Presence: db.presence, Statements: db.speculativeStatements(),
		Met: func(context.Context, *pgx.Conn) error {
			close(connecting)
			<-connected
			return nil
		},
	}
	defer p.Close()
	nobody := func(b *pgx.Batch) error {
		b.Queue(guardAbsentAccounts, []string{"nobody"})
		return nil
	}
	first := make(chan error, 1)
	go func() { first <- p.Commit(t.Context(), speculation.Work{}, nobody) }()
	<-connecting
	if err := p.Commit(t.Context(), speculation.Work{}, nobody); speculation.Reason(err) != "connection" {
		t.Errorf("beside one that connects: %v", err)
	}
	close(connected)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := p.Commit(t.Context(), speculation.Work{}, nobody); err != nil {
		t.Error(err)
	}
}

// TestPipelineSaysUnknown has the database go away for good with a transaction under way.
func TestPipelineSaysUnknown(t *testing.T) {
	t.Parallel()
	l, _, around := pair(t)
	tx := lockAnn(t, around)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		failed <- l.Commit(ctx, ledger.Want{Accounts: []string{"ann", "ben"}}, func(u *ledger.Unit) {
			_, err := ledger.Decide(u.Book, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1})
			u.Refused = err != nil
		})
	}()
	oneWaits(t, l.db)
	cancel() // The rerun won't be waited for.
	l.db.spec.Pipeline(0).Close()
	if err := <-failed; !errors.Is(err, command.ErrUnknownOutcome) || errors.Is(err, command.ErrUnavailable) {
		t.Errorf("outcome: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestPipelineAsksForTheTime: what is known of the database's clock is renewed before it is too old, so that nothing that is
// speculative has to stop for it.
func TestPipelineAsksForTheTime(t *testing.T) {
	t.Parallel()
	l, _, _ := pair(t)
	// Nobody waits long for the answer, so on a slow machine it may take several.
	from, to := "ann", "ben"
	testwait.Eventually(t, patience, "somebody asks for the time", func() bool {
		const ago = 750 * time.Millisecond // of the second for which an answer counts
		now := ask[time.Time](t, l.db, `SELECT clock_timestamp()`)
		then := time.Now().Add(-ago)
		l.db.spec.Clock.Learned(now.Add(-ago), then, then)
		if err := new(decided).transfer(t, l, from, to, 1); err != nil {
			t.Fatal(err)
		}
		from, to = to, from // Lest one of them runs out of money.
		return !l.db.spec.Clock.Due()
	})
}
