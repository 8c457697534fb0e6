package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// stranger keeps a row locked, as a forgotten session would, until the returned function is called.
func stranger(t *testing.T, db *DB, sql string, args ...any) (goAway func()) {
	t.Helper()
	conn := sessionOf(t, db)
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), sql, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	gone := false
	goAway = func() {
		if !gone {
			gone = true
			_ = conn.Close(context.Background())
		}
	}
	t.Cleanup(goAway)
	return goAway
}

const strangeAccount = `SELECT FROM accounts WHERE id = $1 FOR UPDATE`

// later runs something that may have to wait.
func later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

// stays runs something whose row is locked until that is done. It has all of [command.BlockedFor] for it, and what the test does meanwhile
// may take a slow machine longer: then it is asked again.
func stays(do func() error) <-chan error {
	return later(func() error {
		for give := time.Now().Add(patience); ; {
			began := time.Now()
			err := do()
			if !isBlocked(err) || time.Since(began) < command.BlockedFor || time.Now().After(give) {
				return err
			}
		}
	})
}

// isWaiting makes sure that something has not ended, and that its row is known to be blocked.
func isWaiting(t *testing.T, db *DB, what string, done <-chan error) {
	t.Helper()
	testwait.Eventually(t, patience, what+" waits", func() bool { _, commands := db.blocked.count(); return commands > 0 })
	select {
	case err := <-done:
		t.Errorf("%s: ended with %v while its row was locked", what, err)
	default:
	}
}

// neighbour runs what has nothing to do with the locked row: it must succeed while that is locked.
func neighbour(t *testing.T, what string, do func() error) {
	t.Helper()
	testpromise.CheckEach(t, []string{"neighbours"}, func(seen func(string, time.Duration)) {
		for range 20 {
			start := time.Now()
			if err := do(); err != nil {
				t.Fatalf("%s, beside a locked row: %v", what, err)
			}
			seen("neighbours", time.Since(start))
		}
	})
}

func nothingBlocked(t *testing.T, db *DB) {
	t.Helper()
	testwait.Eventually(t, patience, "nothing is blocked any more", func() bool { rows, commands := db.blocked.count(); return rows == 0 && commands == 0 })
}

// TestALockedAccountStopsItsOwnCommandsAlone has a session lock an account and stay away. The other transfers go on, on the
// speculative path and under locks; those of the account wait by themselves, and are carried out when it is free.
func TestALockedAccountStopsItsOwnCommandsAlone(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	fund(t, s, 1000, "ann", "ben", "cid", "dan")
	transfer := func(from, to string) error {
		return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.MakeTransfer{From: from, To: to, Amount: 1})))
	}
	pair := func() error { return transfer("cid", "dan") }
	if err := errors.Join(pair(), transfer("ann", "ben")); err != nil { // Both are remembered.
		t.Fatal(err)
	}
	goAway := stranger(t, db, strangeAccount, "ann")

	var waiting []<-chan error
	for range 30 {
		waiting = append(waiting, stays(func() error { return transfer("ann", "ben") }))
	}
	isWaiting(t, db, "a transfer", waiting[0])
	neighbour(t, "a transfer", pair)
	neighbour(t, "a hold", func() error { // It goes by locks.
		return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.PlaceHold{Account: "cid", Amount: 1})))
	})
	// One is the stranger's. What has just ended, or is swept, takes one for a moment.
	testwait.Eventually(t, patience, "two sessions at most are occupied while 30 commands wait", func() bool {
		return ask[int](t, db, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()`) <= 2
	})
	goAway()
	for _, done := range waiting {
		if err := <-done; err != nil {
			t.Errorf("a transfer whose account has become free: %v", err)
		}
	}
	nothingBlocked(t, db)
	if a, err := s.Account(t.Context(), "ann"); err != nil || a.Available != 1000-31 {
		t.Errorf("ann has %+v, %v", a, err)
	}
}

// TestALockedAccountThatStaysLocked: a command gives up alone, with nothing applied; its key is free, and one that was
// answered before is answered again.
func TestALockedAccountThatStaysLocked(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	fund(t, s, 1000, "ann", "ben")
	first := keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1}, "first", "a")
	second := keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 2}, "second", "b")
	before, err := s.Execute(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	goAway := stranger(t, db, strangeAccount, "ann")
	_, err = s.Execute(t.Context(), second)
	if _, blocked := errors.AsType[*command.BlockedError](err); !blocked || !errors.Is(err, command.ErrUnavailable) || errors.Is(err, command.ErrUnknownOutcome) {
		t.Errorf("a command whose account stays locked: %v", err)
	}
	if again, err := s.Execute(t.Context(), first); err != nil || string(again.Body) != string(before.Body) {
		t.Errorf("a repeat while the account is locked: %s, %v", again.Body, err)
	}
	if n := ask[int](t, db, `SELECT count(*) FROM transfers WHERE kind = 'transfer'`); n != 1 {
		t.Errorf("%d transfers", n)
	}
	goAway()
	if a, err := s.Execute(t.Context(), second); err != nil || a.Status != 201 {
		t.Errorf("the command again: %+v, %v", a, err)
	}
	nothingBlocked(t, db)
}

// TestARepeatOfWhatMayStillCommit: what has the row may be the first request under the key, whose COMMIT waits for a standby. A repeat that
// gives up must not say that nothing was applied, alone or in a list; other commands on the row say so.
func TestARepeatOfWhatMayStillCommit(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	fund(t, s, 1000, "ann", "ben")
	transfer := func(key string) command.Command[ledger.Op] {
		return keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1}, key, key)
	}
	repeat, listed := transfer("repeat"), transfer("listed")
	stranger(t, db, `WITH ann AS (SELECT id FROM accounts WHERE id = 'ann' FOR UPDATE)
		INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
		SELECT k, k, gen_random_uuid(), 201, '', clock_timestamp() FROM ann, unnest($1::bytea[]) AS k`, [][]byte{repeat.Key.ID[:], listed.Key.ID[:]})
	check := func(how string, err error, undone bool) {
		_, blocked := errors.AsType[*command.BlockedError](err)
		if !blocked || errors.Is(err, command.ErrNotApplied) != undone || errors.Is(err, command.ErrUnknownOutcome) {
			t.Errorf("%s: %v", how, err)
		}
	}
	alone := func(c command.Command[ledger.Op]) <-chan error {
		return later(func() error { return testwait.Err(s.Execute(t.Context(), c)) })
	}
	one, other := alone(repeat), alone(transfer("other"))
	outcomes := s.ExecuteAll(t.Context(), []command.Command[ledger.Op]{transfer("before"), listed, transfer("behind")})()
	check("the repeat", <-one, false)
	check("another command", <-other, true)
	for i, undone := range []bool{true, false, true} {
		check(fmt.Sprintf("number %d of the list", i+1), outcomes[i].Err, undone)
	}
}

// TestABurstThatGivesUpTakesOneConnection: commands that give up at one time share the look for their keys' records, so that they take no
// connections from others; each is told of its own key.
func TestABurstThatGivesUpTakesOneConnection(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t), MaxConns: 4})
	asked := make([]idempotency.ID, 400)
	for i := range asked {
		asked[i] = idempotency.ID{byte(i), byte(i >> 8)}
	}
	committed, open := asked[7], asked[300]
	const record = `INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
		VALUES ($1, $1, gen_random_uuid(), 201, '', clock_timestamp())`
	testwait.Check(t, testwait.Err(db.pool.Exec(t.Context(), record, committed[:])))
	stranger(t, db, record, open[:])
	// The first look has no connection until all have asked.
	var held []*pgxpool.Conn
	for range 4 {
		conn, err := db.pool.Acquire(t.Context())
		testwait.Check(t, err)
		held = append(held, conn)
	}
	var answers []func() []groupcommit.Outcome[[]idempotency.ID]
	for i := range asked {
		answers = append(answers, db.records.DoAll(t.Context(), struct{}{}, [][]idempotency.ID{asked[i : i+1]}))
	}
	before := db.pool.Stat().AcquireCount()
	for _, conn := range held {
		conn.Release()
	}
	for i, wait := range answers {
		got := wait()[0]
		want := asked[i] == committed || asked[i] == open
		if got.Err != nil || slices.Contains(got.Result, asked[i]) != want || len(got.Result) > 1 {
			t.Errorf("key %d: recorded %v, %v", i, len(got.Result), got.Err)
		}
	}
	// Two looks, of which each reads twice.
	if n := db.pool.Stat().AcquireCount() - before; n > 4 {
		t.Errorf("%d connections were taken", n)
	}
}

// TestALockedBidderStopsOnlyItself: other bids on the auction, bids on others, and the close of a round that the locked
// account has no part in, go on.
func TestALockedBidderStopsOnlyItself(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 100_000, "seller", "ann", "ben", "cat")
	id := h.open(func(c *auction.Create) { c.Rounds[0].Winners = 1 })
	amount := int64(10)
	bid := func(account string) error {
		amount++
		_, err := h.bid(id, account, amount)
		return err
	}
	for _, account := range []string{"ann", "ben", "cat"} {
		if err := bid(account); err != nil {
			t.Fatal(err)
		}
	}
	goAway := stranger(t, h.db, strangeAccount, "ann")
	blocked := stays(func() error { _, err := h.bid(id, "ann", 90_000); return err })
	isWaiting(t, h.db, "a bid", blocked)
	neighbour(t, "a bid", func() error { return bid("ben") })
	goAway()
	if err := <-blocked; err != nil {
		t.Errorf("the bid whose account has become free: %v", err)
	}

	// ann wins nothing in a round that ben wins; ben's account is what the first close needs.
	if err := func() error { _, err := h.bid(id, "ben", 95_000); return err }(); err != nil {
		t.Fatal(err)
	}
	h.end(id)
	goAway = stranger(t, h.db, strangeAccount, "ann")
	if err := untilFree(func() error { _, err := h.try(id, auction.CloseRound{Round: 1, Term: 1}); return err }); err != nil {
		t.Errorf("a close that does not need the locked account: %v", err)
	}
	// The last round gives ann the money back: its close can't be done now, and is refused as a whole, at once.
	h.end(id)
	if _, err := h.try(id, auction.CloseRound{Round: 2, Term: 1}); !isBlocked(err) {
		t.Errorf("a close that needs the locked account: %v", err)
	}
	goAway()
	h.do(id, auction.CloseRound{Round: 2, Term: 1})
	if a := h.account("cat"); a.Held != 0 || a.Available != 100_000 {
		t.Errorf("cat has %+v", a)
	}
}

// TestALockedAccountIsNotTakenForItsTarget: the locks of accounts travel with that of the auction, or of the campaign. One that
// is not had stops the commands of that account, and not the target's.
func TestALockedAccountIsNotTakenForItsTarget(t *testing.T) {
	t.Parallel()
	check := func(what string, err, whole, ofBen, ofAnn error) {
		t.Helper()
		if err != nil || whole != nil || ofBen != nil || !isBlocked(ofAnn) {
			t.Errorf("%s: committed: %v; all: %v; ben: %v; ann: %v", what, err, whole, ofBen, ofAnn)
		}
	}
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann", "ben")
	id := h.open(nil)
	h.store.memory.Forget() // So that the bids take the auction's lock.
	stranger(t, h.db, strangeAccount, "ann")
	var whole, ofBen, ofAnn error
	err := h.store.Commit(t.Context(), id, auction.Want{Bidders: []string{"ann", "ben"}}, func(u *auction.Unit) {
		if whole = u.Blocked; whole == nil {
			_, ofBen = auction.Decide(u.State, auction.PlaceBid{Account: "ben", Amount: 5})
			_, ofAnn = auction.Decide(u.State, auction.PlaceBid{Account: "ann", Amount: 6})
		}
	})
	check("bids", err, whole, ofBen, ofAnn)

	v, _ := newVenue(t, lottery.Options{})
	campaign := v.create(t, 14)
	v.must(t, campaign, lottery.Buy{Account: "ben"}) // So that the campaign is remembered, and what its sales need.
	stranger(t, v.db, strangeAccount, "ann")
	ann, ben := lottery.Buy{Account: "ann"}, lottery.Buy{Account: "ben"}
	err = v.store.Commit(t.Context(), campaign, lottery.Want{Plan: func(c *lottery.Campaign, inv *lottery.Inventory) lottery.Need {
		return lottery.Plan(c, inv, []lottery.Op{ann, ben})
	}}, func(u *lottery.Unit) {
		if whole = u.Blocked; whole == nil {
			_, ofBen = lottery.Decide(u.State, ben)
			_, ofAnn = lottery.Decide(u.State, ann)
		}
	})
	check("purchases", err, whole, ofBen, ofAnn)
}

// untilFree does something again while a row that it needs is locked: on a machine that stalls, transactions of one's own may
// look like a stranger's.
func untilFree(do func() error) error {
	for give := time.Now().Add(patience); ; {
		err := do()
		if !isBlocked(err) || time.Now().After(give) {
			return err
		}
	}
}

func isBlocked(err error) bool {
	_, ok := errors.AsType[*command.BlockedError](err)
	return ok
}

// TestALockedAuctionStopsOnlyItself: ten auctions that somebody has locked do not delay bids on another one, although all
// share connections, nor the ledger.
func TestALockedAuctionStopsOnlyItself(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	money := newLedgerService(t, h.db)
	fund(t, money, 100_000, "seller", "ann", "ben", "cid")
	fine := h.open(nil)
	ids := make([]uuid.UUID, 15)
	for i := range ids {
		ids[i] = h.open(nil)
		if _, err := h.bid(ids[i], "ann", 1); err != nil {
			t.Fatal(err)
		}
	}
	goAway := stranger(t, h.db, `SELECT FROM auctions WHERE id = ANY($1) FOR UPDATE`, ids)
	var waiting []<-chan error
	for _, id := range ids {
		waiting = append(waiting, stays(func() error { _, err := h.bid(id, "ann", 5); return err }))
	}
	isWaiting(t, h.db, "a bid", waiting[0])
	amount := int64(0)
	neighbour(t, "a bid on another auction", func() error {
		amount++
		_, err := h.bid(fine, "ben", amount)
		return err
	})
	neighbour(t, "a deposit", func() error {
		return answerErr(money.Execute(t.Context(), own[ledger.Op](ledger.Deposit{Account: "cid", Amount: 1})))
	})
	goAway()
	for _, done := range waiting {
		if err := <-done; err != nil {
			t.Errorf("a bid on an auction that has become free: %v", err)
		}
	}
	nothingBlocked(t, h.db)
}

// TestALockedBuyerOrCampaignStopsOnlyItself is the same for the lottery.
func TestALockedBuyerOrCampaignStopsOnlyItself(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	fine, other := v.create(t, 14), v.create(t, 14)
	gate, gateID := `SELECT pg_advisory_xact_lock(17985, hashtext($1))`, any(other.String())
	if pgtest.Off(pgkit.AdvisoryLocks) {
		for pgkit.GateOf(fine[14], fine[15]) == pgkit.GateOf(other[14], other[15]) {
			fine = v.create(t, 14)
		}
		gate, gateID = pgkit.In("", pgkit.GateRow), pgkit.GateOf(other[14], other[15])
	}
	buy := func(id uuid.UUID, account string) func() error {
		return func() error {
			return answerErr(v.Execute(t.Context(), id, own[lottery.Op](lottery.Buy{Account: account})))
		}
	}
	for name, lock := range map[string]struct {
		sql     string
		id      any
		blocked func() error
	}{
		"buyer":    {strangeAccount, "ann", buy(fine, "ann")},
		"campaign": {`SELECT FROM campaigns WHERE id = $1 FOR UPDATE`, other, buy(other, "cleo")},
		"gate":     {gate, gateID, buy(other, "cleo")},
	} {
		goAway := stranger(t, v.db, lock.sql, lock.id)
		done := stays(lock.blocked)
		isWaiting(t, v.db, "a purchase by a locked "+name, done)
		neighbour(t, "a purchase", buy(fine, "ben"))
		goAway()
		if err := <-done; err != nil {
			t.Errorf("%s: the purchase after it has become free: %v", name, err)
		}
		nothingBlocked(t, v.db)
	}
	// A refund needs everybody's account, and is made as a whole.
	goAway := stranger(t, v.db, strangeAccount, "ben")
	cancelled := stays(func() error { return answerErr(v.Execute(t.Context(), fine, own[lottery.Op](lottery.Cancel{}))) })
	isWaiting(t, v.db, "a cancellation", cancelled)
	neighbour(t, "a purchase elsewhere", buy(other, "cleo"))
	goAway()
	if err := <-cancelled; err != nil {
		t.Error(err)
	}
}
