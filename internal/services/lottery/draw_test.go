package lottery_test

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func prizes() []lottery.Prize {
	return []lottery.Prize{{Name: "grand", Quantity: 1}, {Name: "second row", Layer: 2, Quantity: 2}}
}

// checkDraw recomputes the draw from what was sold, and makes sure that it is the campaign's.
func checkDraw(t *testing.T, w *world) {
	t.Helper()
	c := &w.campaign
	if c.Status != lottery.StatusCompleted || w.draw == nil {
		t.Fatalf("%s, draw %v", c.Status, w.draw)
	}
	want, err := fairdraw.Draw(lottery.NewDrawInput(c, testSeed(), w.inventory().Owners()))
	testwait.Must(t, err)
	if w.draw.Campaign != c.ID || w.draw.Root != want.Root || !reflect.DeepEqual(w.draw.Winners, want.Winners) {
		t.Errorf("draw %+v, want %+v", w.draw, want)
	}
	for _, winner := range w.draw.Winners {
		owned := false
		for _, p := range w.sales {
			owned = owned || (p.Position.ID.String() == winner.Position.ID && p.Account == winner.Position.Account)
		}
		if !owned {
			t.Errorf("winner %+v bought nothing", winner)
		}
	}
	if len(w.draw.Winners) != 3 {
		t.Errorf("%d winners", len(w.draw.Winners))
	}
	w.check(t)
}

func TestTheLastSaleDrawsAndPays(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 2, price: 10, prizes: prizes(), buyers: []string{"ann", "ben"}, houseIs: 5})
	w.do(t, lottery.Buy{Account: "ann"})
	w.do(t, lottery.Buy{Account: "ben"})
	w.has(t, "house", 5)
	if w.draw != nil {
		t.Fatal("drawn with a position left")
	}
	version := w.campaign.Version
	w.do(t, lottery.Buy{Account: "ann"})
	w.has(t, "house", 35)
	w.has(t, w.campaign.Escrow, 0)
	if w.campaign.Version != version+1 || w.campaign.DrawStartedAt == nil || w.campaign.CompletedAt == nil {
		t.Errorf("campaign %+v", w.campaign)
	}
	if last := w.kinds[len(w.kinds)-1]; last != ledger.KindPayout {
		t.Errorf("the last transfer is a %s", last)
	}
	checkDraw(t, w)
}

func TestTheLastSalesInOneBatch(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 2, price: 10, prizes: prizes(), buyers: []string{"ann", "ben", "cleo"}})
	w.do(t, lottery.Buy{Account: "ann"})
	version := w.campaign.Version
	out := w.transact(lottery.AskDraw{}, lottery.Buy{Account: "ben"}, lottery.Buy{Account: "cleo"}, lottery.Buy{Account: "ann"},
		lottery.AskDraw{}, lottery.Cancel{}, lottery.FinishDraw{})
	for i, want := range []error{lottery.ErrNotSoldOut, nil, nil, lottery.ErrSoldOut, nil, lottery.ErrBadTransition, nil} {
		if !errors.Is(out[i].err, want) || (want == nil) != (out[i].err == nil) {
			t.Errorf("operation %d: %v, want %v", i, out[i].err, want)
		}
	}
	if out[4].result != w.draw {
		t.Errorf("asked in the same transaction: %v", out[4].result)
	}
	if out[6].result != false {
		t.Error("a completed draw was finished")
	}
	if w.campaign.Version != version+1 {
		t.Errorf("one transaction made versions %d to %d", version, w.campaign.Version)
	}
	w.has(t, "house", 30)
	checkDraw(t, w)
	if again := w.do(t, lottery.AskDraw{}); again != w.draw {
		t.Errorf("asked later: %v", again)
	}
}

func TestACampaignWithoutPrizesIsDrawnToo(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 1, buyers: []string{"ann"}})
	w.do(t, lottery.Buy{Account: "ann"})
	if w.draw == nil || len(w.draw.Winners) != 0 || w.draw.Root == [32]byte{} {
		t.Errorf("draw %+v", w.draw)
	}
	w.check(t)
}

// TestAPayoutThatDoesNotFitRefusesTheLastSale checks both sides of the edge.
func TestAPayoutThatDoesNotFitRefusesTheLastSale(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 2, price: 10, prizes: prizes(), buyers: []string{"ann", "ben"}, houseIs: math.MaxInt64 - 29})
	out := w.transact(lottery.Buy{Account: "ann"}, lottery.Buy{Account: "ben"}, lottery.Buy{Account: "ann"})
	if out[0].err != nil || out[1].err != nil || !errors.Is(out[2].err, ledger.ErrBalanceOverflow) {
		t.Fatalf("%v", out)
	}
	before := w.campaign
	s := w.begin(lottery.Buy{Account: "ann"})
	if _, err := lottery.Decide(s, lottery.Buy{Account: "ann"}); !errors.Is(err, ledger.ErrBalanceOverflow) {
		t.Fatalf("the last sale: %v", err)
	}
	changes := s.Book.Changes()
	if s.Changed || len(s.Purchases) != 0 || s.Drawn != nil || len(changes.Transfers)+len(changes.UpdatedAccounts) != 0 ||
		s.Inventory.Free(0) != 1 || !reflect.DeepEqual(*s.Campaign, before) {
		t.Errorf("a refusal changed %+v, %+v", s, changes)
	}
	w.account("house", math.MaxInt64-30)
	w.do(t, lottery.Buy{Account: "ann"})
	w.has(t, "house", math.MaxInt64)
	checkDraw(t, w)
}

func TestAskDrawOfACampaignFoundDrawing(t *testing.T) {
	t.Parallel()
	o := order{base: 2, price: 10, prizes: prizes(), buyers: []string{"ann", "ben"}}
	t.Run("without a result", func(t *testing.T) {
		t.Parallel()
		w := soldOut(t, o)
		w.now = w.now.Add(time.Hour)
		if got := w.do(t, lottery.AskDraw{}); got != w.draw {
			t.Errorf("answer %v", got)
		}
		if !w.draw.CompletedAt.Equal(w.now) || !w.campaign.CompletedAt.Equal(w.now) || !w.campaign.DrawStartedAt.Equal(epoch()) {
			t.Errorf("draw %+v of %+v", w.draw, w.campaign)
		}
		w.has(t, "house", 30)
		checkDraw(t, w)
	})
	t.Run("with a result that was never paid", func(t *testing.T) {
		t.Parallel()
		w := soldOut(t, o)
		there := &lottery.Draw{Campaign: w.campaign.ID, Root: [32]byte{7}, CompletedAt: w.now}
		w.draw = there
		w.now = w.now.Add(time.Hour)
		if got := w.do(t, lottery.AskDraw{}); got != there || w.draw != there {
			t.Errorf("answer %v, kept %v", got, w.draw)
		}
		w.has(t, "house", 30)
		w.check(t)
	})
	t.Run("whose beneficiary is full", func(t *testing.T) {
		t.Parallel()
		w := soldOut(t, o)
		w.account("house", math.MaxInt64-29)
		if err := w.transact(lottery.AskDraw{})[0].err; !errors.Is(err, ledger.ErrBalanceOverflow) {
			t.Fatalf("asked: %v", err)
		}
		if w.campaign.Status != lottery.StatusDrawing || w.draw != nil {
			t.Errorf("%s, draw %v", w.campaign.Status, w.draw)
		}
		w.account("house", 0)
		w.do(t, lottery.AskDraw{})
		checkDraw(t, w)
	})
}

func TestFinishDrawLeavesFreshOnesAlone(t *testing.T) {
	t.Parallel()
	o := order{base: 2, price: 10, prizes: prizes(), buyers: []string{"ann", "ben"}}
	const stuckAfter = 10 * time.Minute
	for name, c := range map[string]struct {
		age      time.Duration
		undated  bool
		result   bool
		finishes bool
	}{
		"a nanosecond too early":   {age: stuckAfter - 1},
		"at the limit":             {age: stuckAfter, finishes: true},
		"long after":               {age: 100 * stuckAfter, finishes: true},
		"with a result, too early": {age: stuckAfter - 1, result: true},
		"with a result":            {age: stuckAfter, result: true, finishes: true},
		"of unknown age":           {undated: true, finishes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := soldOut(t, o)
			if c.undated {
				w.campaign.DrawStartedAt = nil
			}
			there := &lottery.Draw{Campaign: w.campaign.ID, Root: [32]byte{7}, CompletedAt: w.now}
			if c.result {
				w.draw = there
			}
			w.now = w.now.Add(c.age)
			if got := w.do(t, lottery.FinishDraw{StuckAfter: stuckAfter}); got != c.finishes {
				t.Errorf("finished: %v", got)
			}
			if done := w.campaign.Status == lottery.StatusCompleted; done != c.finishes {
				t.Errorf("campaign is %s", w.campaign.Status)
			}
			switch {
			case !c.finishes:
				w.has(t, w.campaign.Escrow, 30)
				w.has(t, "house", 0)
			case c.result:
				w.has(t, "house", 30)
				if w.draw != there {
					t.Error("drawn again")
				}
			default:
				checkDraw(t, w)
			}
			// A second sweep finds nothing to do.
			w.now = w.now.Add(0)
			if c.finishes && w.do(t, lottery.FinishDraw{StuckAfter: stuckAfter}) != false {
				t.Error("finished twice")
			}
		})
	}
}

func TestBrokenStatesPanic(t *testing.T) {
	t.Parallel()
	o := order{base: 2, buyers: []string{"ann"}}
	for name, run := range map[string]func(){
		"a completed campaign without its draw": func() {
			w := soldOut(t, o)
			s := w.begin(lottery.AskDraw{})
			s.Campaign.Status = lottery.StatusCompleted
			_, _ = lottery.Decide(s, lottery.AskDraw{})
		},
		"a draw with positions left": func() {
			w := onSale(t, o)
			s := w.begin(lottery.AskDraw{})
			s.Campaign.Status = lottery.StatusDrawing
			_, _ = lottery.Decide(s, lottery.AskDraw{})
		},
		"counters that disagree with the inventory": func() {
			w := onSale(t, o)
			s := w.begin(lottery.Buy{Account: "ann"})
			s.Campaign.SoldPositions = 1
			_, _ = lottery.Decide(s, lottery.Buy{Account: "ann"})
		},
		"an operation that works on no campaign": func() {
			w := onSale(t, o)
			_, _ = lottery.Decide(w.begin(), lottery.Create{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("went on")
				}
			}()
			run()
		})
	}
}

func TestSealedPositionsSkipWhatIsFree(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 3, buyers: []string{"ann", "ben"}})
	w.do(t, lottery.Buy{Account: "ann", Layer: 3})
	w.do(t, lottery.Buy{Account: "ben", Layer: 1})
	got := lottery.SealedPositions(&w.campaign, w.inventory().Owners())
	if len(got) != 2 || got[0].Account != "ben" || got[0].Layer != 1 || got[0].Number != 1 || got[1].Account != "ann" || got[1].Layer != 3 {
		t.Errorf("sealed %+v", got)
	}
}
