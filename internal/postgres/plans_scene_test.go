package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// planBatch is how many commands come at once, and how many a batch has at most.
const planBatch = 16

// scene is a database on which everything that is hot is done.
type scene struct {
	t      *testing.T
	url    string
	around *pgx.Conn // not watched
	old    *actors

	unique, open uuid.UUID // auctions, with unique amounts and without
	campaign     uuid.UUID
	grown        int
	amount       int64
	steps        int
	closed       [planBatch]uuid.UUID // the first hold of each that was captured
}

// actors are one process.
type actors struct {
	db       *DB
	ledger   *ledger.Service
	auctions *auction.Service
	lottery  *lottery.Service
	press    *publish.Service
	queue    *Publications
	locks    *Locks
	events   *Events
	vault    *publish.Vault
}

func (s *scene) process() *actors {
	s.t.Helper()
	lanes := groupcommit.Options{MaxBatch: planBatch}
	db := open(s.t, Options{URL: s.url, MaxConns: 4})
	vault, err := publish.NewVault(bytes.Repeat([]byte{1}, publish.VaultKeySize))
	if err != nil {
		s.t.Fatal(err)
	}
	a := &actors{
		db: db, ledger: ledger.NewService(NewLedger(db), lanes), auctions: auction.NewService(NewAuctions(db), auction.Options{Lanes: lanes}),
		lottery: lottery.NewService(NewLottery(db), lottery.Options{Lanes: lanes}), queue: NewPublications(db), locks: NewLocks(db, nil),
		events: NewEvents(db, EventViews{}), vault: vault,
	}
	a.press = publish.NewService(a.queue, publish.Options{Vault: vault})
	for _, c := range []func(context.Context) error{a.ledger.Close, a.auctions.Close, a.lottery.Close, a.press.Close, a.locks.Close} {
		s.t.Cleanup(func() { closing(s.t, c) })
	}
	return a
}

// items are rows that package claim works on, as a user has them.
func items() (claim.Table, *claim.Claims[int64]) {
	table := claim.Table{Name: "items", Ready: "status = 'ready'", Due: "due", OnClaim: "status = 'running'", OnFinish: "status = 'done'", OnFail: "status = 'failed'", OnRelease: "status = 'ready'"}
	return table, claim.Must[int64](table)
}

func newScene(t *testing.T, url string, around *pgx.Conn) *scene {
	t.Helper()
	s := &scene{t: t, url: url, around: around, amount: 10_000_000}
	table, _ := items()
	for _, sql := range append([]string{
		`CREATE TABLE items (id bigint PRIMARY KEY, status text NOT NULL, due timestamptz NOT NULL) WITH (autovacuum_enabled = off)`, table.DDL(),
	}, table.Indexes()...) {
		s.run(sql)
	}
	s.old = s.process()
	for i := range planBatch {
		s.must(s.old.ledger.Execute(t.Context(), own[ledger.Op](ledger.CreateAccount{ID: person(i), Currency: "EUR"})))
	}
	s.must(s.old.ledger.Execute(t.Context(), own[ledger.Op](ledger.CreateAccount{ID: "seller", Currency: "EUR"})))
	s.unique, s.open = s.newAuction(true), s.newAuction(false)
	made, _ := s.must(s.old.lottery.Create(t.Context(), own[lottery.Op](lottery.Create{
		Name: "spring", BaseLength: new(200), Price: new(int64(1)), Currency: "EUR", Beneficiary: "seller", Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}},
	}))).(*lottery.Campaign)
	s.campaign = made.ID
	s.must(s.old.lottery.Execute(t.Context(), s.campaign, own[lottery.Op](lottery.Publish{})))
	s.must(s.old.press.Create(t.Context(), own[publish.Op](publish.CreateTarget{
		Name: "hook", Kind: publish.KindWebhook, URL: "https://example.com/hook", Timeout: time.Second,
	})))
	return s
}

func (s *scene) newAuction(unique bool) uuid.UUID {
	s.t.Helper()
	made, _ := s.must(s.old.auctions.Create(s.t.Context(), own[auction.Op](auction.Create{
		Title: "a", Currency: "EUR", Seller: "seller", MinBid: 1, MinIncrement: 1, UniqueAmounts: unique,
		Rounds: []auction.NewRound{{Winners: 1, Duration: 24 * time.Hour}},
	}))).(*auction.Auction)
	s.must(s.old.auctions.Execute(s.t.Context(), made.ID, own[auction.Op](auction.Start{})))
	return made.ID
}

func person(i int) string { return fmt.Sprintf("person-%02d", i) }

func (s *scene) must(a command.Answer, err error) any {
	if err = errors.Join(err, a.Err); err != nil {
		s.t.Error(err)
	}
	return a.Result
}

// run runs statements that are not watched.
func (s *scene) run(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.around.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// each does something planBatch times at once.
func each(do func(i int)) {
	var wg sync.WaitGroup
	for i := range planBatch {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// everything does what is hot, twice, so that what is remembered is used, too.
func (s *scene) everything(a *actors) {
	s.t.Helper()
	s.steps++
	for range 2 {
		s.money(a)
		s.bids(a)
		s.sales(a)
	}
	s.holds(a)
	s.claims(a)
	s.publishing(a)
	s.lock(a)
	s.reads(a)
}

// turnHolds turns the table of holds. Somebody who keeps the accounts may be in the way of its end.
func (s *scene) turnHolds(blocked bool) {
	s.t.Helper()
	s.run(`UPDATE hold_turns SET settled_at = settled_at - interval '40 days' WHERE number = 0`)
	if blocked {
		tx, err := s.around.Begin(s.t.Context())
		testwait.Must(s.t, err)
		_, err = tx.Exec(s.t.Context(), `LOCK TABLE accounts IN EXCLUSIVE MODE`)
		testwait.Must(s.t, err)
		defer func() { testwait.Must(s.t, tx.Rollback(s.t.Context())) }()
	}
	if !blocked { // Closed ones stay where they are, open ones have to move.
		s.run(`UPDATE hold_rows SET status = 'released', closed_at = now(), amount = coalesce(amount, 1) WHERE account LIKE 'extra-%'`)
	}
	conn := pgtest.Connect(s.t, s.around.Config().ConnString())
	if _, err := partitions.TurnHolds(s.t.Context(), conn, time.Now()); (err != nil) != blocked || err != nil && !isLockTimeout(err) {
		s.t.Fatalf("a turn of the holds: %v", err)
	}
}

func (s *scene) key() string { return uuid.NewString() }

func (s *scene) money(a *actors) {
	ctx := s.t.Context()
	each(func(i int) {
		s.must(a.ledger.Execute(ctx, keyed[ledger.Op](ledger.Deposit{Account: person(i), Amount: 1_000_000_000}, s.key(), "")))
		s.must(a.ledger.Execute(ctx, keyed[ledger.Op](ledger.CreateAccount{ID: "new-" + uuid.NewString(), Currency: "EUR"}, s.key(), "")))
	})
	repeated := s.key()
	each(func(i int) {
		key := s.key()
		if i < 2 {
			key = repeated
		}
		from, to := person(i), person((i+1)%planBatch)
		if i < 2 {
			from, to = person(0), person(1)
		}
		s.must(a.ledger.Execute(ctx, keyed[ledger.Op](ledger.MakeTransfer{From: from, To: to, Amount: 1}, key, "")))
		s.must(a.ledger.Execute(ctx, keyed[ledger.Op](ledger.Withdraw{Account: person(i), Amount: 1}, s.key(), "")))
	})
}

func (s *scene) bids(a *actors) {
	ctx := s.t.Context()
	for range 3 {
		base := s.amount
		s.amount += 4 * planBatch
		each(func(i int) {
			for _, id := range []uuid.UUID{s.unique, s.open} {
				c := keyed[auction.Op](auction.PlaceBid{Account: person(i), Amount: base + int64(i)}, s.key(), "")
				s.must(a.auctions.Execute(ctx, id, c))
			}
		})
	}
	// Refusals look at accounts and the auction without changing them.
	for _, id := range []uuid.UUID{s.unique, s.open} {
		c := keyed[auction.Op](auction.PlaceBid{Account: person(0), Amount: 1}, s.key(), "")
		if answer, err := a.auctions.Execute(ctx, id, c); err != nil || answer.Status == 201 {
			s.t.Errorf("a bid below the own one: %d, %v", answer.Status, err)
		}
	}
	// New bidders.
	base := s.amount
	s.amount += 4 * planBatch
	each(func(i int) {
		if i%4 > 0 {
			return
		}
		id := "bidder-" + uuid.NewString()
		s.must(a.ledger.Execute(ctx, own[ledger.Op](ledger.CreateAccount{ID: id, Currency: "EUR"})))
		s.must(a.ledger.Execute(ctx, own[ledger.Op](ledger.Deposit{Account: id, Amount: 1_000_000_000})))
		s.must(a.auctions.Execute(ctx, s.unique, keyed[auction.Op](auction.PlaceBid{Account: id, Amount: base + int64(i)}, s.key(), "")))
		s.must(a.auctions.Execute(ctx, s.open, keyed[auction.Op](auction.PlaceBid{Account: id, Amount: base + int64(i)}, s.key(), "")))
	})
}

func (s *scene) sales(a *actors) {
	each(func(i int) {
		s.must(a.lottery.Execute(s.t.Context(), s.campaign, keyed[lottery.Op](lottery.Buy{Account: person(i)}, s.key(), "")))
	})
}

func (s *scene) holds(a *actors) {
	ctx := s.t.Context()
	each(func(i int) {
		var holds [3]uuid.UUID
		for k := range holds {
			in := time.Hour
			if k == 2 {
				in = time.Microsecond
			}
			h, _ := s.must(a.ledger.Execute(ctx, own[ledger.Op](ledger.PlaceHold{Account: person(i), Amount: 10, ExpiresIn: &in}))).(ledger.Hold)
			holds[k] = h.ID
		}
		s.must(a.ledger.Execute(ctx, own[ledger.Op](ledger.CaptureHold{Hold: holds[0], To: person((i + 1) % planBatch)})))
		s.must(a.ledger.Execute(ctx, own[ledger.Op](ledger.ReleaseHold{Hold: holds[1]})))
		if s.closed[i] == uuid.Nil {
			s.closed[i] = holds[0]
		}
		if refused, err := a.ledger.Execute(ctx, own[ledger.Op](ledger.ReleaseHold{Hold: s.closed[i]})); err != nil || !errors.Is(refused.Err, ledger.ErrHoldClosed) {
			s.t.Errorf("a hold that is closed was released: %v, %v", refused.Err, err)
		}
	})
	testwait.Eventually(s.t, patience, "holds are past due", func() bool {
		n, err := a.ledger.Sweep(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		return n > 0
	})
}

func (s *scene) claims(a *actors) {
	ctx, pool := s.t.Context(), a.db.pool
	_, claims := items()
	first := int64(-s.steps * 100)
	s.run(`INSERT INTO items (id, status, due) SELECT $1 + n, 'ready', clock_timestamp() - interval '1 day' FROM generate_series(0, 40) AS n`, first)
	one, err := claims.Claim(ctx, pool, first)
	if err == nil {
		err = claims.Finish(ctx, pool, one, nil)
	}
	if err != nil {
		s.t.Error(err)
	}
	for range 2 {
		got, err := claims.ClaimDue(ctx, pool, planBatch)
		if err != nil || len(got) != planBatch {
			s.t.Fatalf("claimed %d: %v", len(got), err)
		}
		if lost, err := claims.Heartbeat(ctx, pool, got...); err != nil || len(lost) > 0 {
			s.t.Errorf("lost %v: %v", lost, err)
		}
		if lost, err := claims.FinishAll(ctx, pool, got[1:]...); err != nil || len(lost) > 0 {
			s.t.Errorf("lost %v: %v", lost, err)
		}
		s.run(`UPDATE items SET execution_locked_at = '2000-01-01' WHERE id = $1`, got[0].ID)
		if stale, err := claims.ReleaseStale(ctx, pool, time.Hour, planBatch); err != nil || len(stale) != 1 {
			s.t.Errorf("released %v: %v", stale, err)
		}
	}
	// More than are due.
	rest, err := claims.ClaimDue(ctx, pool, 3*planBatch)
	if err != nil || len(rest) == 0 || len(rest) > 2*planBatch {
		s.t.Errorf("claimed %d: %v", len(rest), err)
	}
}

func (s *scene) publishing(a *actors) {
	ctx := s.t.Context()
	at := time.Now().Add(-time.Minute)
	each(func(int) {
		s.must(a.press.Create(ctx, keyed[publish.Op](publish.Create{Target: "hook", PublishAt: &at, Payload: []byte(`1`)}, s.key(), "")))
	})
	slots := publish.Slots{Total: 3 * planBatch, Each: 3 * planBatch, Keys: a.vault.KeyIDs()}
	work, err := a.queue.ClaimDue(ctx, slots)
	if err != nil || len(work) == 0 {
		s.t.Fatalf("claimed %d: %v", len(work), err)
	}
	var alive []publish.Beat
	var ended []publish.Conclusion
	for i, w := range work {
		alive = append(alive, publish.Beat{Claim: w.Claim, Activity: publish.Activity{Stage: publish.StageUploading, Sent: 1, Total: 2}})
		r := publish.Result{Class: publish.Delivered}
		if i%2 > 0 {
			r.Class = publish.Transient
		}
		ended = append(ended, publish.Conclusion{Claim: w.Claim, Result: r, Target: w.Target.ID, Verdict: publish.Conclude(r, w.Try, publish.Policy{Backoff: time.Hour}, func(int64) int64 { return 0 })})
	}
	if lost, err := a.queue.Heartbeat(ctx, alive); err != nil || len(lost) > 0 {
		s.t.Errorf("lost %v: %v", lost, err)
	}
	if err := a.queue.SaveProgress(ctx, alive[0].Claim, []byte(`1`)); err != nil {
		s.t.Error(err)
	}
	if _, err := a.queue.Conclude(ctx, ended[1:], nil); err != nil {
		s.t.Error(err)
	}
	s.run(`UPDATE publications SET execution_locked_at = '2000-01-01' WHERE id = $1`, alive[0].ID)
	if n, err := a.queue.ReleaseStale(ctx, time.Hour); err != nil || n != 1 {
		s.t.Errorf("released %d: %v", n, err)
	}
	if _, err := a.queue.NextDue(ctx, slots); err != nil {
		s.t.Error(err)
	}
}

// retryLocked does what users do who are told that a row was locked: on a busy machine another of these has it for long enough.
func retryLocked[T any](do func() (T, error)) (v T, err error) {
	for {
		if v, err = do(); !errors.Is(err, pglock.ErrLocked) {
			return v, err
		}
	}
}

func (s *scene) lock(a *actors) {
	ctx := s.t.Context()
	backend := a.locks.Backend()
	// Keys of their own, and one that all wait for.
	each(func(i int) {
		for _, keys := range [][]string{{s.key()}, {"a" + s.key(), "b" + s.key()}, {fmt.Sprint("popular-", s.steps)}} {
			g, err := retryLocked(func() (lock.Grant, error) {
				return backend.Acquire(ctx, lock.Request{ID: uuid.NewString(), Keys: keys, Owner: person(i), TTL: time.Minute, Wait: lock.Forever})
			})
			if err != nil {
				s.t.Error(err)
				return
			}
			if _, err := retryLocked(func() (lock.Grant, error) { return backend.Renew(ctx, g.ID, time.Minute) }); err != nil {
				s.t.Error(err)
			}
			if _, err := retryLocked(func() (any, error) { return nil, backend.Release(ctx, lock.Grant{ID: g.ID}) }); err != nil {
				s.t.Error(err)
			}
		}
		asked := lock.Request{ID: uuid.NewString(), Keys: []string{s.key()}, Owner: person(i), TTL: time.Minute}
		c := keyed(asked, s.key(), "")
		c.Render = func(any, error) command.Rendered { return command.Rendered{Status: 201, Decided: true} }
		if _, err := retryLocked(func() (command.Answer, error) { return a.locks.Acquire(ctx, c) }); err != nil {
			s.t.Error(err)
		}
		renewal := keyed(lock.Renewal{ID: asked.ID, TTL: time.Minute}, s.key(), "")
		renewal.Render = c.Render
		if _, err := retryLocked(func() (command.Answer, error) { return a.locks.Renew(ctx, renewal) }); err != nil {
			s.t.Error(err)
		}
		ending := keyed(lock.Renewal{ID: asked.ID}, s.key(), "")
		ending.Render = c.Render
		if _, err := retryLocked(func() (command.Answer, error) { return a.locks.Release(ctx, ending) }); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *scene) reads(a *actors) {
	ctx := s.t.Context()
	topics := []string{"auction:" + s.unique.String(), "campaign:" + s.campaign.String()}
	heads, err := a.events.Heads(ctx, topics)
	if err != nil || len(heads) != 2 {
		s.t.Fatalf("%v: %v", heads, err)
	}
	if _, err := a.events.Events(ctx, topics[0], heads[topics[0]]-planBatch, planBatch); err != nil && !errors.Is(err, live.ErrNoTopic) {
		s.t.Error(err)
	}
	if bought, err := a.lottery.AccountPurchases(ctx, person(0), uuid.Max, planBatch); err != nil || len(bought) == 0 {
		s.t.Errorf("%d purchases: %v", len(bought), err)
	}
	if _, err := a.events.accountSources(ctx, []string{"account:extra-1", "account:extra-2"}); err != nil {
		s.t.Error(err)
	}
}
