package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const day = 24 * time.Hour

// slots are servers of one database, whose keys are kept for a day.
type slots struct {
	*testing.T

	db, other *DB
	services  []*ledger.Service // of both
	seen      *recorder         // what db had to do again
}

func newSlots(t *testing.T) *slots {
	t.Helper()
	pgtest.Needs(t, pgkit.RowPlaces)
	url := database(t)
	seen := &recorder{}
	s := &slots{T: t, db: open(t, Options{URL: url, Observer: seen}), other: open(t, Options{URL: url}), seen: seen}
	s.services = []*ledger.Service{newLedgerService(t, s.db), newLedgerService(t, s.other)}
	fund(t, s.services[0], 0, "ann", "ben")
	exec(t, s.db, `UPDATE key_slots SET since = clock_timestamp() WHERE slot = 0`) // The database may be a copy of an older one.
	return s
}

// deposit deposits 1 under a key, by a server, and says whether that was a repeat.
func (s *slots) deposit(server int, account, key string) (replayed bool) {
	s.Helper()
	a, err := s.services[server].Execute(s.Context(), keyed[ledger.Op](ledger.Deposit{Account: account, Amount: 1}, key, ""))
	if err != nil || a.Status != 201 {
		s.Errorf("%s: %+v, %v", key, a, err)
	}
	return a.Replayed
}

// age lets the slots grow older.
func (s *slots) age(by time.Duration) {
	s.Helper()
	exec(s.T, s.db, `UPDATE key_slots SET since = since - $1::interval, left_at = left_at - $1::interval`, by)
}

func (s *slots) sweep(emptied int64) {
	s.Helper()
	if n, err := s.db.SweepKeys(s.Context(), day); err != nil || n != emptied {
		s.Errorf("emptied %d, %v; want %d", n, err, emptied)
	}
}

func (s *slots) written(want int) {
	s.Helper()
	if got := ask[int](s.T, s.db, writtenSlot); got != want {
		s.Fatalf("slot %d is written, want %d", got, want)
	}
}

// turn leaves the slot that is written for the other one, which is emptied before if it was ever left.
func (s *slots) turn() {
	s.Helper()
	was := ask[int](s.T, s.db, writtenSlot)
	left := ask[int64](s.T, s.db, `SELECT count(*) FROM key_slots WHERE left_at IS NOT NULL`)
	s.age(day + 2*slotMargin)
	s.sweep(left)
	s.written(1 - was)
}

func (s *slots) balance(account string, want int64) {
	s.Helper()
	a, err := NewLedger(s.db).Account(s.Context(), account)
	if err != nil || a.Available != want {
		s.Errorf("%s has %+v, %v; want %d", account, a, err, want)
	}
}

// size is what a slot takes on the disk.
func (s *slots) size(slot int) int64 {
	s.Helper()
	return ask[int64](s.T, s.db, `SELECT pg_total_relation_size($1::text::regclass)`, keySlots()[slot].table)
}

// session opens a transaction that stands still between its statements.
func (s *slots) session(mode pgx.TxIsoLevel) pgx.Tx {
	s.Helper()
	conn := pgtest.Connect(s.T, s.db.url)
	tx, err := conn.BeginTx(s.Context(), pgx.TxOptions{IsoLevel: mode})
	testwait.Must(s.T, err)
	return tx
}

// record writes a key's record as commands do.
func record(ctx context.Context, tx pgx.Tx, key string, how writes) error {
	c := keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, key, "")
	var b pgx.Batch
	saveKeys(&b, []idempotency.Record{{Request: *c.Key, Status: 402, Body: []byte(`{"code":"refused"}`)}}, time.Now(), how)
	return pgkit.Send(ctx, tx, &b)
}

// TestKeysAreKeptForTheirRetention follows keys through both slots, to the edge of their retention and beyond. The space of a slot is given back.
func TestKeysAreKeptForTheirRetention(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	exec(t, s.db, `INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
		SELECT sha256(n::text::bytea), sha256(''), gen_random_uuid(), 402, '{}', clock_timestamp() FROM generate_series(1, 20000) AS n`)
	s.deposit(0, "ann", "first")
	s.age(day - time.Hour)
	s.sweep(0)
	s.written(0)
	s.age(time.Hour)
	s.sweep(0)
	s.written(1)
	s.sweep(0)
	s.written(1)
	// Servers that were started since do not remember the key, and find it by the primary key of the slot that was left.
	s.services = []*ledger.Service{newLedgerService(t, open(t, Options{URL: s.db.url})), newLedgerService(t, open(t, Options{URL: s.db.url}))}
	for i := range s.services {
		if !s.deposit(i, "ann", "first") || s.deposit(i, "ann", fmt.Sprint("second of ", i)) {
			t.Error("a key was forgotten, or made up")
		}
	}
	// Up to the edge of its retention the first key is answered, and swept by nobody.
	full := s.size(0)
	left := ask[time.Time](t, s.db, `UPDATE key_slots SET left_at = clock_timestamp() - $1::interval WHERE slot = 0 RETURNING left_at`, day+slotMargin-300*time.Millisecond)
	testwait.Eventually(t, patience, "the slot is emptied", func() bool {
		if !s.deposit(1, "ann", "first") {
			t.Fatal("a key was forgotten at the edge")
		}
		n, err := s.db.SweepKeys(t.Context(), day)
		testwait.Must(t, err)
		return n == 1
	})
	if age := ask[time.Time](t, s.db, `SELECT clock_timestamp()`).Sub(left); age < day+slotMargin {
		t.Errorf("emptied after %v", age)
	}
	s.written(1) // It was entered less than a day ago.
	if left := s.size(0); full < 2<<20 || left > 64<<10 {
		t.Errorf("of %d bytes %d are left", full, left)
	}
	s.age(day)
	s.sweep(0)
	s.written(0)
	for key, replayed := range map[string]bool{"first": false, "second of 0": true, "second of 1": true} {
		if got := s.deposit(1, "ann", key); got != replayed {
			t.Errorf("%s: replayed %v", key, got)
		}
	}
	s.balance("ann", 4)
}

// TestUnusedSlotsAreNotTurned: a database without commands does not change.
func TestUnusedSlotsAreNotTurned(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	exec(t, s.db, `DELETE FROM idempotency_keys`)
	s.age(3 * day)
	s.sweep(0)
	s.written(0)
}

// closed lets no server of before the slots write any more, as the first turn does.
func (s *slots) closed() {
	s.Helper()
	testwait.Must(s.T, pgx.BeginFunc(s.Context(), sessionOf(s.T, s.db), func(tx pgx.Tx) error { return closeFirstSlot(s.Context(), tx) }))
}

// TestATurnWaitsForWhoWroteAKey: a transaction that has written a key and stands still, as one of a stopped process, is waited for, and holds
// nobody up. Then there is one execution under its key, whether it commits or not.
func TestATurnWaitsForWhoWroteAKey(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		for how, writes := range map[string]writes{"guarded": guardedWrites, "counted": countedWrites} {
			t.Run(fmt.Sprintf("%s, commits %v", how, commits), func(t *testing.T) {
				t.Parallel()
				s := newSlots(t)
				s.closed()
				s.deposit(0, "ann", "before")
				tx := s.session(pgx.ReadCommitted)
				testwait.Must(t, record(t.Context(), tx, "held", writes))
				s.age(day)
				s.sweep(0)
				s.written(0)
				if s.deposit(1, "ben", "meanwhile") || !s.deposit(1, "ann", "before") {
					t.Error("others were held up")
				}
				// Not even who has not looked for such a transaction gets past it.
				err := pgx.BeginFunc(t.Context(), sessionOf(t, s.db), func(tx pgx.Tx) error {
					testwait.Must(t, testwait.Err(tx.Exec(t.Context(), slotLockTimeout)))
					return turnSlots(t.Context(), tx, 0, 1, day)
				})
				if !isLockTimeout(err) {
					t.Fatalf("a turn beside it: %v", err)
				}
				done := make(chan command.Answer, 1)
				go func() {
					c := keyed[ledger.Op](ledger.Deposit{Account: "ben", Amount: 1}, "held", "")
					for {
						a, err := s.services[1].Execute(t.Context(), c)
						if err == nil || !errors.Is(err, command.ErrUnavailable) {
							testwait.Check(t, err)
							done <- a
							return
						}
					}
				}()
				testwait.Eventually(t, patience, "the other one waits", func() bool {
					return ask[int](t, s.db, `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
						WHERE NOT granted AND locktype = 'transactionid' AND datname = current_database()`) > 0
				})
				status := 201
				if commits {
					testwait.Must(t, tx.Commit(t.Context()))
					status = 402
				} else {
					testwait.Must(t, tx.Rollback(t.Context()))
				}
				if a := <-done; a.Status != status || a.Replayed != commits {
					t.Errorf("the other one: %+v", a)
				}
				s.sweep(0)
				s.written(1)
				for i := range s.services {
					a, err := s.services[i].Execute(t.Context(), keyed[ledger.Op](ledger.Deposit{Account: "ben", Amount: 1}, "held", ""))
					if err != nil || a.Status != status || !a.Replayed {
						t.Errorf("the repeat: %+v, %v", a, err)
					}
				}
				s.balance("ben", map[bool]int64{true: 1, false: 2}[commits])
			})
		}
	}
}

// TestWhoWritesAKeyWaitsForATurn: a transaction that is about to write a key while a turn is under way writes to the slot that is entered, and
// sees the keys in the one that was left.
func TestWhoWritesAKeyWaitsForATurn(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	s.closed()
	s.deposit(0, "ann", "before")
	s.age(day)
	turn := s.session(pgx.ReadCommitted)
	testwait.Must(t, turnSlots(t.Context(), turn, 0, 1, day))
	write := func(key string) <-chan error {
		conn := pgtest.Connect(t, s.db.url) // Its lock_timeout is none.
		return later(func() error {
			return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return record(t.Context(), tx, key, guardedWrites) })
		})
	}
	before, during := write("before"), write("during")
	testwait.Eventually(t, patience, "both wait", func() bool {
		return ask[int](t, s.db, `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
			WHERE NOT granted AND relation = 'idempotency_keys'::regclass AND datname = current_database()`) == 2
	})
	testwait.Must(t, turn.Commit(t.Context()))
	testwait.Must(t, <-during)
	if err := <-before; pgkit.Code(err) != pgkit.UniqueViolation {
		t.Errorf("a key of the slot that was left: %v", err)
	}
	if n := ask[int](t, s.db, `SELECT count(*) FROM idempotency_keys_1`); n != 1 {
		t.Errorf("%d keys in the slot that was entered", n)
	}
}

// TestAnOldTransactionWritesToTheNewSlot: a transaction began before a turn, has read, and writes after it. It finds the slots as they are now,
// and what was written to any of them.
func TestAnOldTransactionWritesToTheNewSlot(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	s.deposit(0, "ann", "early")
	begin := func() pgx.Tx {
		tx := s.session(pgx.ReadCommitted)
		testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `SELECT count(*) FROM key_slots`)))
		return tx
	}
	fresh, early, late := begin(), begin(), begin()
	s.turn()
	s.deposit(1, "ann", "late")
	testwait.Must(t, record(t.Context(), fresh, "fresh", guardedWrites))
	testwait.Must(t, fresh.Commit(t.Context()))
	for key, tx := range map[string]pgx.Tx{"early": early, "late": late} {
		err := record(t.Context(), tx, key, guardedWrites)
		if pgkit.Code(err) != pgkit.UniqueViolation {
			t.Errorf("%s: %v", key, err)
		}
		testwait.Must(t, tx.Rollback(t.Context()))
	}
	if n := ask[int](t, s.db, `SELECT count(*) FROM idempotency_keys_1`); n != 2 {
		t.Errorf("%d keys in the new slot", n)
	}
	early = begin()
	if err := record(t.Context(), early, "early", countedWrites); !errors.Is(err, errStale) {
		t.Errorf("counted: %v", err)
	}
	testwait.Must(t, early.Rollback(t.Context()))
}

// TestReadersDoNotHoldTurnsUp: who only reads keys, as pg_dump does, lets the slots turn. It delays that a slot is emptied, and nobody else.
func TestReadersDoNotHoldTurnsUp(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	s.closed()
	s.deposit(0, "ann", "first")
	dump := s.session(pgx.RepeatableRead)
	testwait.Must(t, testwait.Err(dump.Exec(t.Context(), `LOCK TABLE idempotency_keys, idempotency_keys_1, key_slots IN ACCESS SHARE MODE`)))
	s.turn()
	s.deposit(0, "ann", "second")
	s.age(day + 2*slotMargin)
	s.sweep(0)
	s.written(1) // The other slot is not empty.
	if s.deposit(0, "ann", "third") || !s.deposit(1, "ann", "first") {
		t.Error("commands are held up, or a key is gone")
	}
	testwait.Must(t, dump.Commit(t.Context()))
	s.sweep(1)
	s.written(0)
	s.balance("ann", 3)
}

// TestOneKeyFromTwoProcessesWhileSlotsTurn sends each request twice at once, to two servers, while the slots turn; and again when they have.
func TestOneKeyFromTwoProcessesWhileSlotsTurn(t *testing.T) {
	t.Parallel()
	s := newSlots(t)
	const pairs = 24
	executed := int64(0)
	rounds := testwait.Count(8, 200)
	for round := range rounds {
		var group sync.WaitGroup
		results := make([][2]bool, pairs)
		keys := make([]string, pairs)
		for i := range pairs {
			keys[i] = fmt.Sprintf("%d/%d", round, i)
			for server := range 2 {
				group.Go(func() { results[i][server] = s.deposit(server, [...]string{"ann", "ben"}[i%2], keys[i]) })
			}
		}
		s.age(day + 2*slotMargin)
		was := ask[int](t, s.db, writtenSlot)
		testwait.Eventually(t, patience, "a turn", func() bool {
			testwait.Must(t, testwait.Err(s.db.SweepKeys(t.Context(), day)))
			return ask[int](t, s.db, writtenSlot) != was
		})
		group.Wait()
		for i, r := range results {
			if r[0] == r[1] {
				t.Errorf("round %d: key %s was executed by both servers or none: %v", round, keys[i], r)
			}
		}
		for i, key := range keys {
			if !s.deposit(i%2, "ann", key) {
				t.Errorf("round %d: key %s was executed again", round, key)
			}
		}
		executed += pairs
	}
	s.balance("ann", executed/2)
	s.balance("ben", executed/2)
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	t.Logf("%d turns, fallbacks %v", rounds, s.seen.fell)
}
