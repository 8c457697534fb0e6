package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestOneTransactionTriesForALockedRow: of forty transactions that need a locked row, one at a time tries for it, so that nobody
// misses a connection.
func TestOneTransactionTriesForALockedRow(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t), MaxConns: 2})
	fund(t, newLedgerService(t, db), 10, "ann")
	goAway := stranger(t, db, strangeAccount, "ann")
	lockAnn := func() error {
		return executeErr(t, db, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, strangeAccount, "ann")
			return err
		})
	}
	var waiting []<-chan error
	for range 40 {
		waiting = append(waiting, stays(lockAnn))
	}
	isWaiting(t, db, "a transaction", waiting[0])
	neighbour(t, "a read on the same connections", func() error { return db.pool.Ping(t.Context()) })
	goAway()
	for _, done := range waiting {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	nothingBlocked(t, db)
}

// TestTurnsAreInOrder: transactions that need one row have their turns in the order in which they came, also where one of them has given up.
func TestTurnsAreInOrder(t *testing.T) {
	t.Parallel()
	b, row := newBlockedRows(nil), blockedRow{lockKeyRow, "k"}
	b.patience = time.Hour
	last := func() chan struct{} {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.turns[row]
	}
	first, reason := b.turn(t.Context(), row)
	if reason != nil {
		t.Fatal(reason)
	}
	leaving, leave := context.WithCancel(t.Context())
	const many, impatient = 20, 7
	var order []int // Each has its turn alone.
	var waiting sync.WaitGroup
	for n := range many {
		ctx, before := t.Context(), last()
		if n == impatient {
			ctx = leaving
		}
		waiting.Go(func() {
			done, reason := b.turn(ctx, row)
			if reason != nil {
				t.Error(reason)
			}
			if n != impatient {
				order = append(order, n)
			}
			done()
		})
		testwait.Eventually(t, testwait.Patience, "it waits", func() bool { return last() != before })
	}
	leave()
	first()
	waiting.Wait()
	if !slices.IsSorted(order) || len(order) != many-1 {
		t.Errorf("turns in the order %v", order)
	}
	testwait.Eventually(t, testwait.Patience, "nobody has a turn", func() bool { return last() == nil })
}

// TestALockedSessionStopsNobodyElse: those who sign out of a session that somebody has locked wait without connections.
func TestALockedSessionStopsNobodyElse(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t), MaxConns: 2})
	d := NewOperator(db)
	exec(t, db, `INSERT INTO api_keys (id, role, name, hash, created_at) VALUES ('k', 'admin', 'n', sha256('k'), now())`)
	hash := operator.Hash{1}
	if _, err := d.Begin(t.Context(), hash, "k", time.Hour); err != nil {
		t.Fatal(err)
	}
	goAway := stranger(t, db, `SELECT FROM console_sessions WHERE hash = $1 FOR UPDATE`, hash[:])
	var waiting []<-chan error
	for range 20 {
		waiting = append(waiting, stays(func() error { return d.End(t.Context(), hash) }))
	}
	isWaiting(t, db, "a sign-out", waiting[0])
	if _, err := d.Begin(t.Context(), operator.Hash{2}, "k", time.Hour); err != nil {
		t.Errorf("a sign-in: %v", err)
	}
	goAway()
	for _, done := range waiting {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// executeErr runs a transaction on ann's account as commands with a transaction of their own do.
func executeErr(t *testing.T, db *DB, fn func(context.Context, pgx.Tx) error) error {
	t.Helper()
	a, err := executeOn(t.Context(), db, command.Command[int]{}, func() (command.Answer, error) {
		return command.Answer{}, db.runOn(t.Context(), "test", []blockedRow{{accountRow, "ann"}}, fn)
	})
	return errors.Join(err, a.Err)
}

// TestRowsThatAreGoneAreFree: what is noted as blocked and is no row any more, or never was one, does not stay so.
func TestRowsThatAreGoneAreFree(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	for kind := range probes {
		if kind == auctionRowKind || kind == campaignRow {
			continue // They are noted where they were found.
		}
		_ = db.blocked.note([]blockedRow{{kind, uuid.NewString()}})
	}
	nothingBlocked(t, db)
}

// TestLockedMultidrawsStopNoOtherRun has a session lock more operations than may save at once. Another one is completed
// meanwhile, and they are when they are free.
func TestLockedMultidrawsStopNoOtherRun(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	gate := &gated{Multidraws: NewMultidraws(db), open: make(chan struct{}), reached: make(chan struct{}, 1)}
	s := newMultidraws(t, gate, multidraw.Options{LeaseTTL: time.Hour})
	ids := make([]uuid.UUID, 8)
	for i := range ids {
		ids[i] = made(t, s, inRange(string(rune('a'+i)), 30_000, true)).ID
	}
	goAway := stranger(t, db, `SELECT FROM multidraws WHERE id = ANY($1) FOR UPDATE`, ids)
	close(gate.open)
	testwait.Eventually(t, patience, "all runs wait", func() bool { _, runs := db.blocked.count(); return runs == len(ids) })
	free := made(t, s, inRange("free", 30_000, true))
	awaitStatus(t, s, free.ID, multidraw.StatusCompleted)
	goAway()
	for _, id := range ids {
		awaitStatus(t, s, id, multidraw.StatusCompleted)
	}
}

// TestSweepsPassOverLockedRows: an operation whose lease has expired, and a lock that expired long ago, are found although
// another session has locked their likes.
func TestSweepsPassOverLockedRows(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store := NewMultidraws(db)
	s := newMultidraws(t, &silent{mortal{Multidraws: store}}, multidraw.Options{})
	locked, lost := made(t, s, inRange("a", 30_000, true)).ID, made(t, s, inRange("b", 30_000, true)).ID
	exec(t, db, `UPDATE multidraws SET lease_expires_at = clock_timestamp() - interval '1 minute'`)
	locks := NewLocks(db, nil)
	t.Cleanup(func() { closing(t, locks.Close) })
	grants := make([]uuid.UUID, 2)
	for i, key := range []string{"a", "b"} {
		grants[i] = newID()
		r := lock.Request{ID: grants[i].String(), Keys: []string{key}, Owner: "o", TTL: time.Minute}
		if _, err := locks.Backend().Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, db, `UPDATE lock_grants SET expires_at = clock_timestamp() - interval '1 hour'`)
	stranger(t, db, `SELECT FROM multidraws WHERE id = $1 FOR UPDATE`, locked)
	stranger(t, db, `SELECT FROM lock_grants WHERE id = $1 FOR UPDATE`, grants[0])
	if found, err := store.Expire(t.Context(), multidraw.LeaseTTL); err != nil || !slices.Equal(found, []uuid.UUID{lost}) {
		t.Errorf("expired %v, %v, want %s alone", found, err, lost)
	}
	if n, err := locks.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("swept %d, %v", n, err)
	}
	if n := ask[int](t, db, `SELECT count(*) FROM lock_grants`); n != 1 {
		t.Errorf("%d grants are left", n)
	}
}

// TestALockedPublicationKeepsNoOtherFromItsEnd: the end of one attempt can't be recorded, those of others are.
func TestALockedPublicationKeepsNoOtherFromItsEnd(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("a")
	ids := []uuid.UUID{p.add("a", 0), p.add("a", 0), p.add("a", 0)}
	sent, answer := make(chan struct{}, len(ids)), make(chan struct{})
	p.work(&scripted{then: func(context.Context, *publish.Delivery, int) publish.Result {
		sent <- struct{}{}
		<-answer
		return publish.Result{Class: publish.Delivered, StatusCode: 200}
	}}, nil)
	for range ids {
		<-sent
	}
	goAway := stranger(t, p.db, `SELECT FROM publications WHERE id = $1 FOR UPDATE`, ids[0])
	close(answer)
	published := func(id uuid.UUID) {
		testwait.Eventually(t, patience, "it is published", func() bool { return p.status(id) == "published 1" })
	}
	published(ids[1])
	published(ids[2])
	goAway()
	published(ids[0])
}

// TestALockedClaimDoesNotEndOtherAttempts: while a session keeps one claim's row locked for longer than a claim lives without
// heartbeats, the attempts of others go on.
func TestALockedClaimDoesNotEndOtherAttempts(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("a")
	locked, free := p.add("a", 0), p.add("a", 0)
	const stale = 8 * time.Second // A stalled machine must not end the other one.
	sent, ended, answer := make(chan struct{}, 2), make(chan uuid.UUID, 2), make(chan struct{})
	p.work(&scripted{then: func(ctx context.Context, d *publish.Delivery, _ int) publish.Result {
		sent <- struct{}{}
		select {
		case <-answer:
		case <-ctx.Done():
			ended <- d.Publication
		}
		return publish.Result{Class: publish.Delivered, StatusCode: 200}
	}}, func(o *publish.WorkerOptions) { o.StaleAfter = stale })
	<-sent
	<-sent
	goAway := stranger(t, p.db, `SELECT FROM publications WHERE id = $1 FOR UPDATE`, locked)
	if id := <-ended; id != locked { // Nothing tells whether its claim is still its own.
		t.Errorf("the attempt of %s was ended", id)
	}
	goAway()
	close(answer)
	testwait.Eventually(t, patience, "the other one is published", func() bool { return p.status(free) == "published 1" })
}
