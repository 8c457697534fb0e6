package lottery_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// onSale is a world whose campaign is published.
func onSale(tb testing.TB, o order) *world {
	tb.Helper()
	w := newWorld(tb, o)
	w.do(tb, lottery.Publish{})
	return w
}

// soldOut is a world whose campaign is drawing: everything is sold to the buyers in turn, and the draw did not happen,
// as after a manual intervention.
func soldOut(tb testing.TB, o order) *world {
	tb.Helper()
	w := onSale(tb, o)
	for w.campaign.SoldPositions < w.campaign.TotalPositions-1 {
		w.do(tb, lottery.Buy{Account: o.buyers[w.campaign.SoldPositions%len(o.buyers)]})
	}
	s := w.begin()
	c := s.Campaign
	p := c.Position(s.Inventory.Pick(0, w.random))
	s.Book = w.book([]string{o.buyers[0], c.Escrow})
	tr, err := s.Book.Move(ledger.KindPurchase, o.buyers[0], c.Escrow, c.Layers[p.Layer-1].Price, "")
	testwait.Must(tb, err)
	c.Layers[p.Layer-1].Sold++
	c.SoldPositions++
	c.Version++
	c.Status, c.DrawStartedAt = lottery.StatusDrawing, new(w.now)
	s.Changed = true
	s.Purchases = []lottery.Purchase{{
		ID: w.newID(), Campaign: c.ID, Seq: c.SoldPositions, Account: o.buyers[0], Position: p,
		Price: c.Layers[p.Layer-1].Price, Transfer: tr.ID, At: w.now,
	}}
	w.commit(s)
	return w
}

// states makes a world in each state that a campaign can be found in.
func states() map[string]func(testing.TB) *world {
	o := order{base: 2, buyers: []string{"ann", "ben"}, prizes: []lottery.Prize{{Name: "p", Quantity: 1}}}
	return map[string]func(testing.TB) *world{
		"pending": func(tb testing.TB) *world { tb.Helper(); return newWorld(tb, o) },
		"active": func(tb testing.TB) *world {
			tb.Helper()
			w := onSale(tb, o)
			w.do(tb, lottery.Buy{Account: "ann", Layer: 1})
			return w
		},
		"drawing": func(tb testing.TB) *world { tb.Helper(); return soldOut(tb, o) },
		"completed": func(tb testing.TB) *world {
			tb.Helper()
			w := onSale(tb, o)
			for range 3 {
				w.do(tb, lottery.Buy{Account: "ben"})
			}
			return w
		},
		"cancelled": func(tb testing.TB) *world {
			tb.Helper()
			w := onSale(tb, o)
			w.do(tb, lottery.Buy{Account: "ann"})
			w.do(tb, lottery.Cancel{})
			return w
		},
	}
}

// TestEveryOperationInEveryState is the state table: the refusal, or the state afterwards.
func TestEveryOperationInEveryState(t *testing.T) {
	t.Parallel()
	type end struct {
		err    error
		status lottery.Status
	}
	refused := func(err error) end { return end{err: err} }
	becomes := func(s lottery.Status) end { return end{status: s} }
	names := []string{"pending", "active", "drawing", "completed", "cancelled"}
	table := []struct {
		op   lottery.Op
		ends [5]end // in the order of names
	}{
		{lottery.Buy{Account: "ben"}, [5]end{
			refused(lottery.ErrNotActive), becomes(lottery.StatusActive), refused(lottery.ErrSoldOut), refused(lottery.ErrSoldOut), refused(lottery.ErrNotActive),
		}},
		{lottery.Buy{Account: "ben", Layer: 1}, [5]end{ // Layer 1 is sold where anything is.
			refused(lottery.ErrNotActive), refused(lottery.ErrSoldOut), refused(lottery.ErrSoldOut), refused(lottery.ErrSoldOut), refused(lottery.ErrNotActive),
		}},
		{lottery.Publish{}, [5]end{
			becomes(lottery.StatusActive), refused(lottery.ErrBadTransition), refused(lottery.ErrBadTransition), refused(lottery.ErrBadTransition), refused(lottery.ErrBadTransition),
		}},
		{lottery.Cancel{}, [5]end{
			becomes(lottery.StatusCancelled), becomes(lottery.StatusCancelled), refused(lottery.ErrBadTransition), refused(lottery.ErrBadTransition), refused(lottery.ErrBadTransition),
		}},
		{lottery.AskDraw{}, [5]end{
			refused(lottery.ErrNotSoldOut), refused(lottery.ErrNotSoldOut), becomes(lottery.StatusCompleted), becomes(lottery.StatusCompleted), refused(lottery.ErrNotSoldOut),
		}},
		{lottery.FinishDraw{}, [5]end{
			becomes(lottery.StatusPending), becomes(lottery.StatusActive), becomes(lottery.StatusCompleted), becomes(lottery.StatusCompleted), becomes(lottery.StatusCancelled),
		}},
	}
	for _, row := range table {
		for i, name := range names {
			t.Run(fmt.Sprintf("%#v of %s", row.op, name), func(t *testing.T) {
				t.Parallel()
				w := states()[name](t)
				want := row.ends[i]
				before := w.campaign
				accounts := fmt.Sprint(w.accounts)
				got := w.transact(row.op)[0]
				if !errors.Is(got.err, want.err) || (got.err != nil) != (want.err != nil) {
					t.Fatalf("refused with %v, want %v", got.err, want.err)
				}
				if got.err != nil {
					if !reflect.DeepEqual(before, w.campaign) || fmt.Sprint(w.accounts) != accounts {
						t.Errorf("a refusal changed the campaign to %+v", w.campaign)
					}
					return
				}
				if w.campaign.Status != want.status {
					t.Errorf("became %s, want %s", w.campaign.Status, want.status)
				}
				if changed := string(want.status) != name || w.campaign.SoldPositions > before.SoldPositions; changed != (w.campaign.Version == before.Version+1) {
					t.Errorf("version %d after %d", w.campaign.Version, before.Version)
				}
				if name != "drawing" || w.campaign.Status != lottery.StatusDrawing {
					w.check(t)
				}
			})
		}
	}
}

// TestChecksOfAPurchaseComeInOrder removes one reason for refusal after the other.
func TestChecksOfAPurchaseComeInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, order{layers: layersOf(1, 3), price: 50, limit: new(1), buyers: []string{"ann", "ben"}})
	w.account("poor", 49)
	refuse := func(op lottery.Buy, want string) {
		t.Helper()
		if err := w.transact(op)[0].err; err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %q", op, err, want)
		}
	}
	// Pending: the account, the layer, then the state.
	refuse(lottery.Buy{Account: "nobody", Layer: 9}, (&ledger.AccountNotFoundError{ID: "nobody"}).Error())
	refuse(lottery.Buy{Account: "ann", Layer: 3}, (&lottery.LayerNotFoundError{Layer: 3}).Error())
	refuse(lottery.Buy{Account: "ann", Layer: 2}, lottery.ErrNotActive.Error())
	w.do(t, lottery.Publish{})
	// Active: sold out comes before the limit, the limit before the money.
	w.do(t, lottery.Buy{Account: "ann", Layer: 1})
	refuse(lottery.Buy{Account: "ann", Layer: 1}, lottery.ErrSoldOut.Error())
	w.account("ann", 0)
	refuse(lottery.Buy{Account: "ann", Layer: 2}, lottery.ErrPurchaseLimit.Error())
	refuse(lottery.Buy{Account: "poor", Layer: 2}, (&ledger.InsufficientFundsError{Account: "poor"}).Error())
	w.account("poor", 50)
	w.do(t, lottery.Buy{Account: "poor", Layer: 2})
	w.has(t, "poor", 0)
	w.has(t, w.campaign.Escrow, 100)
	// A refused purchase records no failed transfer either.
	for _, k := range w.kinds {
		if k != ledger.KindPurchase {
			t.Errorf("a %s", k)
		}
	}
}

func TestAPurchaseTellsWhatWasBought(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{layers: []lottery.NewLayer{{Positions: 2, Price: new(int64(3))}, {Positions: 2}}, price: 8, buyers: []string{"ann"}, funds: 100})
	p, ok := w.do(t, lottery.Buy{Account: "ann", Layer: 2}).(lottery.Purchase)
	if !ok || p.Position.Layer != 2 || p.Price != 8 || p.Seq != 1 || p.Account != "ann" || p.Campaign != w.campaign.ID || !p.At.Equal(epoch()) {
		t.Errorf("purchase %+v", p)
	}
	p, ok = w.do(t, lottery.Buy{Account: "ann", Layer: 1}).(lottery.Purchase)
	if !ok || p.Position.Layer != 1 || p.Price != 3 || p.Seq != 2 {
		t.Errorf("purchase %+v", p)
	}
	w.has(t, "ann", 89)
	w.has(t, w.campaign.Escrow, 11)
	w.check(t)
}

func TestPurchaseLimitEdges(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			w := onSale(t, order{base: 4, limit: &limit, buyers: []string{"ann", "ben"}})
			// In one transaction as in several: the limit counts what this transaction has sold, too.
			var ops []lottery.Op
			for range limit + 1 {
				ops = append(ops, lottery.Buy{Account: "ann"})
			}
			for i, o := range w.transact(ops...) {
				if want := i >= limit; errors.Is(o.err, lottery.ErrPurchaseLimit) != want {
					t.Errorf("purchase %d: %v", i+1, o.err)
				}
			}
			if err := w.transact(lottery.Buy{Account: "ann"})[0].err; !errors.Is(err, lottery.ErrPurchaseLimit) {
				t.Errorf("in a later transaction: %v", err)
			}
			w.do(t, lottery.Buy{Account: "ben"})
			w.check(t)
		})
	}
}

func TestCancelRefundsExactly(t *testing.T) {
	t.Parallel()
	layers := []lottery.NewLayer{{Positions: 3, Price: new(int64(7))}, {Positions: 3, Price: new(int64(11))}, {Positions: 4}}
	w := onSale(t, order{layers: layers, price: 13, buyers: []string{"ann", "ben", "cleo"}, funds: 500, houseIs: 1})
	for _, b := range []lottery.Buy{{Account: "ann", Layer: 1}, {Account: "ben", Layer: 2}, {Account: "ann", Layer: 3}, {Account: "ann", Layer: 2}} {
		w.do(t, b)
	}
	w.has(t, "ann", 500-7-13-11)
	w.has(t, "ben", 500-11)
	c, ok := w.do(t, lottery.Cancel{}).(*lottery.Campaign)
	if !ok || c.Status != lottery.StatusCancelled || !c.CancelledAt.Equal(epoch()) {
		t.Errorf("campaign %+v", c)
	}
	for account, want := range map[string]int64{"ann": 500, "ben": 500, "cleo": 500, "house": 1, w.campaign.Escrow: 0} {
		w.has(t, account, want)
	}
	refunds := 0
	for _, k := range w.kinds {
		if k == ledger.KindRefund {
			refunds++
		}
	}
	if refunds != 4 {
		t.Errorf("%d refunds", refunds)
	}
	w.check(t)
}

func TestCancelThatOneBuyerCannotTakeRefundsNobody(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 3, price: 10, buyers: []string{"ann", "ben"}})
	for _, b := range []string{"ann", "ben", "ben"} {
		w.do(t, lottery.Buy{Account: b})
	}
	ann := w.accounts["ann"].Available
	w.account("ben", math.MaxInt64-19) // Each refund would fit; the two of them do not.
	if err := w.transact(lottery.Cancel{})[0].err; !errors.Is(err, ledger.ErrBalanceOverflow) {
		t.Fatalf("cancelled: %v", err)
	}
	w.has(t, "ann", ann)
	w.has(t, "ben", math.MaxInt64-19)
	w.has(t, w.campaign.Escrow, 30)
	if w.campaign.Status != lottery.StatusActive || w.campaign.CancelledAt != nil {
		t.Errorf("campaign %+v", w.campaign)
	}
	w.account("ben", math.MaxInt64-20)
	w.do(t, lottery.Cancel{})
	w.has(t, "ben", math.MaxInt64)
	w.check(t)
}

func TestTimesAreWhatTheDatabaseKeeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, order{base: 1, buyers: []string{"ann"}})
	w.now = epoch().Add(1999 * time.Nanosecond).In(time.FixedZone("east", 3600))
	want := epoch().Add(time.Microsecond)
	w.do(t, lottery.Publish{})
	w.do(t, lottery.Buy{Account: "ann"})
	c := w.campaign
	for name, at := range map[string]time.Time{
		"published": *c.PublishedAt, "draw started": *c.DrawStartedAt, "completed": *c.CompletedAt, "drawn": w.draw.CompletedAt, "sold": w.sales[0].At,
	} {
		if at != want {
			t.Errorf("%s at %v, want %v", name, at, want)
		}
	}
}
