package lottery_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// testChain is the beacon's chain in tests of the core, which verifies no signatures.
func testChain() fairdraw.Chain {
	return fairdraw.Chain{Scheme: "test", PublicKey: "00", PeriodSeconds: 3, GenesisTime: 1_700_000_000, GenesisSeed: "00", BeaconID: "test"}
}

// sealed makes a campaign in beacon mode and sells all three of its positions.
func sealed(t *testing.T) *world {
	t.Helper()
	w := onSale(t, order{base: 2, price: 10, prizes: prizes(), buyers: []string{"ann", "ben"}})
	w.campaign.DrawMode, w.campaign.Beacon = lottery.DrawBeacon, &lottery.Beacon{Chain: testChain()}
	for range 3 {
		w.do(t, lottery.Buy{Account: "ann"})
	}
	return w
}

func TestTheLastSaleSealsAndNamesARound(t *testing.T) {
	t.Parallel()
	w := sealed(t)
	c := &w.campaign
	if c.Status != lottery.StatusDrawing || w.draw != nil || c.CompletedAt != nil {
		t.Fatalf("%s, draw %v", c.Status, w.draw)
	}
	root, err := fairdraw.Root(c.ID.String(), lottery.SealedPositions(c, w.inventory().Owners()))
	testwait.Must(t, err)
	seal := c.Beacon.Seal
	if seal.Root != root || !seal.SealedAt.Equal(w.now) || !seal.DueAt.Equal(testChain().TimeOf(seal.Round)) {
		t.Errorf("seal %+v", seal)
	}
	if ahead := seal.DueAt.Sub(w.now); ahead < 3*time.Second || ahead > 6*time.Second {
		t.Errorf("the round is due %v after the seal", ahead)
	}
	w.has(t, "house", 0) // Until the draw, the money stays.
	w.has(t, c.Escrow, 30)
	for op, want := range map[lottery.Op]error{
		lottery.Buy{Account: "ben"}: lottery.ErrSoldOut,
		lottery.Cancel{}:            lottery.ErrBadTransition,
		lottery.Publish{}:           lottery.ErrBadTransition,
	} {
		if o := w.transact(op)[0]; !errors.Is(o.err, want) {
			t.Errorf("%T: %v", op, o.err)
		}
	}
	w.check(t)
}

func TestTheLeadIsKept(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 1, prizes: []lottery.Prize{{Name: "p", Quantity: 1}}, buyers: []string{"ann"}})
	w.campaign.DrawMode, w.campaign.Beacon = lottery.DrawBeacon, &lottery.Beacon{Chain: testChain()}
	s := w.begin(lottery.Buy{Account: "ann"})
	s.Lead = time.Minute
	testwait.Must(t, testwait.Err(lottery.Decide(s, lottery.Buy{Account: "ann"})))
	if ahead := s.Campaign.Beacon.Seal.DueAt.Sub(w.now); ahead < time.Minute || ahead > time.Minute+3*time.Second {
		t.Errorf("the round is due %v after the seal", ahead)
	}
}

// TestOnlyTheNamedRoundDraws tries everything that could draw without it, again and again.
func TestOnlyTheNamedRoundDraws(t *testing.T) {
	t.Parallel()
	w := sealed(t)
	seal := *w.campaign.Beacon.Seal
	w.now = w.now.Add(time.Hour)
	named := fairdraw.Round{Number: seal.Round, Signature: []byte("the signature")}
	var pending *lottery.BeaconPendingError
	if o := w.transact(lottery.AskDraw{})[0]; !errors.As(o.err, &pending) || pending.Round != seal.Round || !pending.DueAt.Equal(seal.DueAt) {
		t.Errorf("ask without a round: %v", o.err)
	}
	if o := w.transact(lottery.FinishDraw{})[0]; o.err != nil || o.result != false {
		t.Errorf("the sweeper of stuck draws: %+v", o)
	}
	for _, other := range []fairdraw.Round{
		{Number: seal.Round + 1, Signature: named.Signature}, {Number: seal.Round - 1, Signature: named.Signature}, {Number: seal.Round},
	} {
		for _, op := range []lottery.Op{lottery.FinishDraw{Round: &other}, lottery.AskDraw{Round: &other}} {
			if o := w.transact(op)[0]; !errors.Is(o.err, lottery.ErrWrongRound) {
				t.Errorf("%+v: %v", op, o.err)
			}
		}
	}
	if w.draw != nil || !reflect.DeepEqual(*w.campaign.Beacon.Seal, seal) {
		t.Fatal("drawn, or sealed anew")
	}
	if done := w.do(t, lottery.FinishDraw{Round: &named}); done != true {
		t.Error("nothing was completed")
	}
	in := lottery.NewDrawInput(&w.campaign, testSeed(), w.inventory().Owners())
	in.Beacon = named.Signature
	want, err := fairdraw.Draw(in)
	if err != nil || w.draw.Root != seal.Root || !reflect.DeepEqual(w.draw.Winners, want.Winners) || !reflect.DeepEqual(*w.draw.Round, named) {
		t.Errorf("draw %+v, want %+v, %v", w.draw, want, err)
	}
	w.has(t, "house", 30)
	w.check(t)
	first := w.draw
	// A late process, with the same round or with another one, changes nothing.
	for _, late := range []lottery.Op{
		lottery.FinishDraw{Round: &named}, lottery.FinishDraw{Round: &fairdraw.Round{Number: 1, Signature: []byte("x")}}, lottery.FinishDraw{},
	} {
		if done := w.do(t, late); done != false {
			t.Errorf("%+v: something was completed", late)
		}
	}
	if d := w.do(t, lottery.AskDraw{}); d != first {
		t.Errorf("%+v", d)
	}
}

// TestABrokenSealDrawsNothing changes an owner behind the seal.
func TestABrokenSealDrawsNothing(t *testing.T) {
	t.Parallel()
	w := sealed(t)
	w.sales[1].Account = "ben"
	round := fairdraw.Round{Number: w.campaign.Beacon.Seal.Round, Signature: []byte("s")}
	if o := w.transact(lottery.FinishDraw{Round: &round})[0]; !errors.Is(o.err, lottery.ErrSealBroken) || w.draw != nil {
		t.Errorf("%v, draw %v", o.err, w.draw)
	}
}

// TestACampaignFoundDrawingIsSealedFirst covers a campaign that was set to drawing manually.
func TestACampaignFoundDrawingIsSealedFirst(t *testing.T) {
	t.Parallel()
	w := sealed(t)
	w.campaign.Beacon = &lottery.Beacon{Chain: testChain()}
	if o := w.transact(lottery.AskDraw{})[0]; !errors.Is(o.err, lottery.ErrNotDrawn) {
		t.Error(o.err)
	}
	if done := w.do(t, lottery.FinishDraw{}); done != true || w.campaign.Beacon.Seal == nil || w.draw != nil {
		t.Errorf("%v, beacon %+v", done, w.campaign.Beacon)
	}
}

func TestInstantCampaignsTakeNoRound(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 2, prizes: prizes(), buyers: []string{"ann"}})
	for range 3 {
		w.do(t, lottery.Buy{Account: "ann"})
	}
	if w.draw == nil || w.draw.Round != nil {
		t.Fatalf("draw %+v", w.draw)
	}
	if done := w.do(t, lottery.FinishDraw{Round: &fairdraw.Round{Number: 1, Signature: []byte("x")}}); done != false {
		t.Error("a second draw")
	}
}

func TestCreateInBeaconMode(t *testing.T) {
	t.Parallel()
	chain := testChain()
	for mode, c := range map[string]struct {
		chain *fairdraw.Chain
		err   error
		want  *lottery.Beacon
	}{
		lottery.DrawBeacon:  {&chain, nil, &lottery.Beacon{Chain: chain}},
		lottery.DrawInstant: {&chain, nil, nil},
		"beacon without":    {nil, lottery.ErrNoBeacon, nil},
	} {
		w := newWorld(t, order{})
		cr := &lottery.Creation{Book: w.book([]string{"house"})}
		if mode == "beacon without" {
			mode = lottery.DrawBeacon
		}
		made, err := lottery.DecideCreate(cr, lottery.Create{
			Name: "n", BaseLength: new(1), Price: new(int64(1)), Currency: "EUR", Beneficiary: "house", DrawMode: mode,
			Prizes: []lottery.Prize{{Name: "p", Quantity: 1}}, Seed: testSeed(), Chain: c.chain,
		})
		if !errors.Is(err, c.err) || (err == nil && (made.DrawMode != mode || !reflect.DeepEqual(made.Beacon, c.want))) {
			t.Errorf("%s: %+v, %v", mode, made, err)
		}
	}
}
