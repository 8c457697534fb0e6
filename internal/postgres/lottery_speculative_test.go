package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestSalesAreSentAhead sells in several campaigns at once, to the same accounts that transfer money, and nothing leaves the fast path.
func TestSalesAreSentAhead(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	v := lookAhead(t, url)
	money := newLedgerService(t, v.db)
	ids := []uuid.UUID{v.openSale(nil, 300, 5), v.openSale(nil, 300, 5), v.openSale(nil, 300, 5)}
	fell := v.fell(func() {
		var all []<-chan error
		for n, account := range buyers() {
			for _, id := range ids {
				for range 4 {
					all = append(all, later(func() error {
						for range 6 {
							if _, err := v.buy(id, account, 1); err != nil {
								return err
							}
						}
						return nil
					}))
				}
			}
			all = append(all, later(func() error {
				for range 20 {
					move := ledger.MakeTransfer{From: account, To: buyers()[(n+1)%4], Amount: 1}
					if err := answerErr(money.Execute(t.Context(), own[ledger.Op](move))); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, done := range all {
			testwait.Check(t, <-done)
		}
	})
	if len(fell) > 0 {
		t.Errorf("transactions left the fast path: %v", fell)
	}
	for _, id := range ids {
		v.checkSales(id, 97)
		if sold, ok := v.remembered(id); !ok || sold != 97 {
			t.Errorf("remembers %d, %v", sold, ok)
		}
	}
}

// TestSalesOnAStaleMemory: another server sells between a process's sales. The guards refuse, and the process catches up from what was
// committed before.
func TestSalesOnAStaleMemory(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	here, there := lookAhead(t, url), lookAhead(t, url)
	id := here.openSale(nil, 40, 40)
	sold := 1
	for round := range 3 {
		// The one that begins has a clock that is ahead: no later sale may be earlier than its sales.
		asked := time.Now().Add(time.Hour)
		here.db.spec.Clock.Learned(ask[time.Time](t, here.db, `SELECT clock_timestamp()`).Add(time.Hour+50*time.Millisecond), asked, asked)
		there.must(t, id, lottery.Buy{Account: "ben"})
		sold++
		fell := here.fell(func() { here.must(t, id, lottery.Buy{Account: "ann"}) })
		sold++
		// Once they have met, they take turns. On a slow machine those end, which is after a second without a meeting, or the one that was
		// waited for is over before it is used, and the sale is the first of another one.
		if round == 0 && (fell[speculation.Stale] != 1 || len(fell) != 1) || round > 0 && fell[speculation.Backoff]+fell[speculation.Turn] != len(fell) {
			t.Errorf("round %d: left the fast path: %v", round, fell)
		}
		for _, v := range []ahead{here, there} {
			if n, ok := v.remembered(id); !ok || n < sold-1 {
				t.Errorf("round %d: remembers %d of %d, %v", round, n, sold, ok)
			}
		}
	}
	for range speculation.BackoffTransactions {
		here.must(t, id, lottery.Buy{Account: "ann"})
		sold++
	}
	var fell map[string]int
	for range speculation.BackoffTransactions { // A sale that left the fast path because the machine stalled was not one of those.
		fell = here.fell(func() { here.must(t, id, lottery.Buy{Account: "ann"}) })
		if sold++; fell[speculation.Backoff] == 0 {
			break
		}
	}
	if fell[speculation.Turn] != len(fell) {
		t.Errorf("when the other one no longer sells, sales leave the fast path: %v", fell)
	}
	here.checkSales(id, sold)
}

// TestSalesThatRestOnAFailure: three batches are sent, the second and third on what the one before will leave, and the first one's guard
// refuses. What is remembered goes back to what was committed, so that the runs under locks need not read all sales again.
func TestSalesThatRestOnAFailure(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	here := lookAhead(t, url)
	id := here.openSale(nil, 40)
	for _, account := range buyers() {
		here.must(t, id, lottery.Buy{Account: account}) // They are remembered.
	}
	tx, err := pgtest.Connect(t, url).Begin(t.Context())
	testwait.Must(t, err)
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `UPDATE campaigns SET version = version + 1 WHERE id = $1`, id)))
	entry := here.store.memory.Enter(id)
	defer here.store.memory.Leave(id, entry)
	var sent []<-chan error
	for i, account := range []string{"ben", "cleo", "dan"} {
		sent = append(sent, here.sends(id, entry, account, nil))
		testwait.Eventually(t, patience, "it is sent", func() bool { n, _ := here.db.spec.Pipeline(0).UnderWay(); return n == i+1 })
	}
	testwait.Must(t, tx.Commit(t.Context()))
	for i := range sent { // The third one waits to be sent until there is room, and may not be behind one that fails by then.
		reason := speculation.Reason(<-sent[i])
		if reason != speculation.Stale && (i == 0 || reason != "behind") {
			t.Errorf("sale %d has ended by %q", i+1, reason)
		}
	}
	if sold, ok := here.remembered(id); !ok || sold != 5 {
		t.Errorf("remembers %d, %v; want the 5 that were committed", sold, ok)
	}
	for _, account := range buyers() {
		here.must(t, id, lottery.Buy{Account: account})
	}
	here.checkSales(id, 9)
}

// TestASaleBehindARefusalThatFails: a refusal fails because another server has changed the account, and a sale behind it commits. What is
// remembered has that sale.
func TestASaleBehindARefusalThatFails(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	here, there := lookAhead(t, url), lookAhead(t, url)
	id := here.openSale(new(1), 40)
	here.must(t, id, lottery.Buy{Account: "ann"})
	do(t, newLedgerService(t, there.db), ledger.MakeTransfer{From: "cleo", To: "dan", Amount: 1})
	tx := lockAnn(t, pgtest.Connect(t, url))
	entry := here.store.memory.Enter(id)
	defer here.store.memory.Leave(id, entry)
	underWay := func(n int) {
		t.Helper()
		testwait.Eventually(t, patience, "it is sent", func() bool { got, _ := here.db.spec.Pipeline(0).UnderWay(); return got == n })
	}
	first := later(func() error {
		return answerErr(newLedgerService(t, here.db).Execute(t.Context(), own[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1})))
	})
	underWay(1)
	refusal := here.sends(id, entry, "dan", lottery.ErrPurchaseLimit)
	underWay(2)
	sale := here.sends(id, entry, "ben", nil)
	underWay(3)
	testwait.Must(t, tx.Rollback(t.Context()))
	testwait.Check(t, <-first)
	if err := <-refusal; speculation.Reason(err) != speculation.Stale {
		t.Errorf("the refusal has ended by %v", err)
	}
	testwait.Check(t, <-sale)
	k := here.store.memory.Lock(t.Context(), entry, patience)
	if k == nil || k.Sold() != 3 || k.campaign.Version != ask[int64](t, here.db, `SELECT version FROM campaigns WHERE id = $1`, id) ||
		k.last != ask[uuid.UUID](t, here.db, `SELECT id FROM purchases WHERE campaign = $1 AND seq = 3`, id) {
		t.Errorf("remembers %+v", k)
	}
	here.store.memory.Unlock(entry, k)
	here.checkSales(id, 3)
}

// TestASaleWhoseConnectionIsCut: nobody knows whether it was committed. It was not, and its key finds that out; what was remembered is
// dropped.
func TestASaleWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	v := lookAhead(t, url)
	id := v.openSale(nil, 40)
	v.must(t, id, lottery.Buy{Account: "ann"})
	tx := lockAnn(t, pgtest.Connect(t, url))
	var body []byte
	done := later(func() error {
		a, err := v.Execute(t.Context(), id, keyed[lottery.Op](lottery.Buy{Account: "ann"}, "cut", ""))
		body = a.Body
		return errors.Join(err, a.Err)
	})
	oneWaits(t, v.db)
	exec(t, v.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	testwait.Eventually(t, patience, "it runs again", func() bool { return v.seen.fallbacks()["commit_unknown"] == 1 })
	testwait.Must(t, tx.Rollback(t.Context()))
	testwait.Must(t, <-done)
	a, err := v.Execute(t.Context(), id, keyed[lottery.Op](lottery.Buy{Account: "ann"}, "cut", ""))
	if err != nil || !a.Replayed || !slices.Equal(a.Body, body) {
		t.Errorf("the key is answered by %s, %v; before by %s", a.Body, err, body)
	}
	v.checkSales(id, 3)
}

// TestSalesWhoseCommitsAreLost: the answers to many commits are lost, after the commit or before it. Each key has one sale in the end, which
// all of its answers tell of.
func TestSalesWhoseCommitsAreLost(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	proxy, through := wire.Through(t, url, wire.Options{Seed: 1, LoseOneIn: 3})
	v := lookAhead(t, through)
	id := v.openSale(nil, 400)
	proxy.Arm(true)
	bodies := make([]string, 60)
	var all []<-chan error
	for n := range bodies {
		all = append(all, later(func() error {
			for give := time.Now().Add(patience); ; {
				a, err := v.Execute(t.Context(), id, keyed[lottery.Op](lottery.Buy{Account: buyers()[n%4]}, fmt.Sprint("lost-", n), ""))
				if bodies[n] = string(a.Body); err == nil || time.Now().After(give) {
					return errors.Join(err, a.Err)
				}
			}
		}))
	}
	for _, done := range all {
		testwait.Check(t, <-done)
	}
	// One after the other, so that many are lost.
	for n := range 40 {
		testwait.Eventually(t, patience, "it is answered", func() bool {
			return answerErr(v.Execute(t.Context(), id, keyed[lottery.Op](lottery.Buy{Account: "ann"}, fmt.Sprint("alone-", n), ""))) == nil
		})
	}
	proxy.Arm(false)
	if s := proxy.Stats(); s.AnswerLost == 0 || s.CommitLost == 0 {
		t.Errorf("not enough was lost: %+v", s)
	}
	if v.seen.fallbacks()["commit_unknown"] == 0 {
		t.Error("no speculative sale was lost")
	}
	for n, body := range bodies {
		a, err := v.Execute(t.Context(), id, keyed[lottery.Op](lottery.Buy{Account: buyers()[n%4]}, fmt.Sprint("lost-", n), ""))
		if err != nil || !a.Replayed || string(a.Body) != body {
			t.Errorf("%d is answered by %s, %v; before by %s", n, a.Body, err, body)
		}
	}
	v.checkSales(id, 1+len(bodies)+40)
}

// TestTheLastPositionIsSoldUnderLocks: all but the last one are sold on the fast path, and the last one with its draw under locks.
func TestTheLastPositionIsSoldUnderLocks(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	v := lookAhead(t, url)
	id := v.openSale(nil, 2, 2)
	fell := v.fell(func() {
		v.must(t, id, lottery.Buy{Account: "ann"})
		v.must(t, id, lottery.Buy{Account: "ben"})
	})
	if len(fell) > 0 {
		t.Errorf("sales left the fast path: %v", fell)
	}
	if fell := v.fell(func() { v.must(t, id, lottery.Buy{Account: "ann"}) }); fell[speculation.Closing] != 1 || len(fell) != 1 {
		t.Errorf("the last sale left the fast path: %v", fell)
	}
	c, err := v.Campaign(t.Context(), id)
	if err != nil || c.Status != lottery.StatusCompleted || c.DrawStartedAt == nil {
		t.Errorf("campaign %+v, %v", c, err)
	}
	v.checkSales(id, 4)
	if _, _, err := v.Result(t.Context(), id); err != nil {
		t.Error(err)
	}
	fell = v.fell(func() {
		if _, err := v.buy(id, "ann", 0); !errors.Is(err, lottery.ErrSoldOut) {
			t.Errorf("one too many: %v", err)
		}
	})
	if fell[speculation.Closing] != 1 || len(fell) != 1 {
		t.Errorf("a purchase when all is sold left the fast path: %v", fell)
	}
}

// TestSpeculativeRefusals: limits hold across batches that rest on each other, and a refusal that rests on what is not so any more is
// decided again.
func TestSpeculativeRefusals(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	here, there := lookAhead(t, url), lookAhead(t, url)
	limit := 3
	id := here.openSale(&limit, 1, 40)
	for _, account := range buyers() {
		if account != "dan" {
			here.must(t, id, lottery.Buy{Account: account, Layer: 2})
		}
	}
	fell := here.fell(func() {
		var all []<-chan error
		for range 20 {
			all = append(all, later(func() error { return second(here.buy(id, "ann", 2)) }))
		}
		refused := 0
		for _, done := range all {
			if err := <-done; errors.Is(err, lottery.ErrPurchaseLimit) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused != 18 {
			t.Errorf("%d of 20 are refused by a limit of 3, one of which was bought before", refused)
		}
		if _, err := here.buy(id, "ben", 3); !errors.As(err, new(*lottery.LayerNotFoundError)) {
			t.Errorf("a layer that is not there: %v", err)
		}
		if _, err := here.buy(id, "ben", 1); !errors.Is(err, lottery.ErrSoldOut) {
			t.Errorf("a layer without a free position: %v", err)
		}
		if _, err := here.buy(id, "nobody", 0); !errors.As(err, new(*ledger.AccountNotFoundError)) {
			t.Errorf("an account that is not there: %v", err)
		}
	})
	if len(fell) > 0 {
		t.Errorf("refusals left the fast path: %v", fell)
	}
	here.checkSales(id, 6)
	there.must(t, id, lottery.Cancel{})
	fell = here.fell(func() {
		if _, err := here.buy(id, "ann", 2); !errors.Is(err, lottery.ErrNotActive) {
			t.Errorf("a sale above the limit in a cancelled campaign: %v", err)
		}
	})
	if fell[speculation.Stale] != 1 || len(fell) != 1 {
		t.Errorf("left the fast path: %v", fell)
	}
}

// TestSalesAreGathered: sales in several campaigns and a transfer become one transaction, and one that is wrong fails alone.
func TestSalesAreGathered(t *testing.T) {
	t.Parallel()
	_, url := newVenue(t, lottery.Options{})
	v, there := lookAhead(t, url), lookAhead(t, url)
	money := newLedgerService(t, v.db)
	const campaigns = 10
	people := []string{"before"}
	for n := range campaigns + 2 {
		people = append(people, fmt.Sprint("acc-", n))
	}
	fund(t, money, 100, people...)
	var ids []uuid.UUID
	for n := range campaigns {
		id := v.openSale(nil, 40)
		v.must(t, id, lottery.Buy{Account: people[n+1]}) // All is remembered.
		ids = append(ids, id)
	}
	move := func(from, to string) error {
		return answerErr(money.Execute(t.Context(), own[ledger.Op](ledger.MakeTransfer{From: from, To: to, Amount: 1})))
	}
	testwait.Must(t, move(people[campaigns+1], people[campaigns+2]))
	testwait.Must(t, move("ann", "before"))
	busy := v.openSale(nil, 40)
	there.must(t, ids[4], lottery.Buy{Account: "ben"}) // Of which v knows nothing.

	tx := lockAnn(t, sessionOf(t, v.db))
	underWay := func(n int) {
		t.Helper()
		testwait.Eventually(t, patience, "it is sent or gathered", func() bool { got, _ := v.db.spec.Pipeline(0).UnderWay(); return got == n })
	}
	all := []<-chan error{later(func() error { return second(v.buy(busy, "ann", 0)) })}
	underWay(1)
	fell := v.fell(func() {
		all = append(all, later(func() error { return move("before", "cleo") }))
		underWay(2)
		for n, id := range ids {
			all = append(all, later(func() error { return second(v.buy(id, people[n+1], 0)) }))
			underWay(3 + n)
		}
		testwait.Must(t, tx.Rollback(t.Context()))
		for _, done := range all {
			testwait.Check(t, <-done)
		}
	})
	// One was stale by itself, and all of its neighbours were sent again with it.
	if fell[speculation.Stale] != campaigns+1 || len(fell) != 1 {
		t.Errorf("left the fast path: %v", fell)
	}
	for n, id := range ids {
		v.checkSales(id, map[bool]int{false: 3, true: 4}[n == 4])
	}
	v.checkSales(busy, 2)
}
