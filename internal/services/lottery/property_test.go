package lottery_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// people buy; the last of them has no account.
func people() []string { return []string{"ann", "ben", "poor", "house", "nobody"} }

func drawOp(t *rapid.T, layers int) lottery.Op {
	switch rapid.SampledFrom([]string{"buy", "buy", "buy", "buy", "buy", "buy", "publish", "cancel", "ask", "finish"}).Draw(t, "op") {
	case "publish":
		return lottery.Publish{}
	case "cancel":
		return lottery.Cancel{}
	case "ask":
		return lottery.AskDraw{}
	case "finish":
		return lottery.FinishDraw{StuckAfter: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "stuck after")}
	default:
		return lottery.Buy{Account: rapid.SampledFrom(people()).Draw(t, "account"), Layer: rapid.IntRange(0, layers+1).Draw(t, "layer")}
	}
}

// drawWorlds makes the same world twice; the second one loads all accounts into every book.
func drawWorlds(tb testing.TB, t *rapid.T) (planned, all *world) {
	tb.Helper()
	layers := layersOf(rapid.SliceOfN(rapid.IntRange(1, 4), 1, 3).Draw(t, "layers")...)
	o := order{
		layers: layers, price: rapid.Int64Range(1, 10).Draw(t, "price"), buyers: []string{"ann", "ben", "poor"}, funds: 60,
		houseIs: rapid.SampledFrom([]int64{0, 0, math.MaxInt64 - 20}).Draw(t, "house"),
		prizes:  []lottery.Prize{{Name: "p", Quantity: 1}},
	}
	if rapid.Bool().Draw(t, "limited") {
		o.limit = new(rapid.IntRange(1, 3).Draw(t, "limit"))
	}
	stuck := rapid.IntRange(0, 4).Draw(t, "stuck") == 0
	found := rapid.Bool().Draw(t, "with a result")
	seed := rapid.Uint64().Draw(t, "seed")
	worlds := [2]*world{}
	for i := range worlds {
		var w *world
		if stuck {
			o.limit = nil
			w = soldOut(tb, o)
			if found {
				w.draw = &lottery.Draw{Campaign: w.campaign.ID, Root: [32]byte{9}, CompletedAt: w.now}
			}
		} else {
			w = newWorld(tb, o)
		}
		w.account("poor", 5)
		w.random = rand.New(rand.NewPCG(seed, 0)).IntN
		worlds[i] = w
	}
	worlds[1].loadAll = true
	return worlds[0], worlds[1]
}

// TestThePlanCoversWhatDecideTouches runs random batches twice: with the planned accounts alone, and with all there
// are. The answers and the effects must be the same, and the invariants hold.
func TestThePlanCoversWhatDecideTouches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		planned, all := drawWorlds(t, rt)
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			var ops []lottery.Op
			for range rapid.IntRange(1, 6).Draw(rt, "size") {
				ops = append(ops, drawOp(rt, len(planned.campaign.Layers)))
			}
			got, want := planned.transact(ops...), all.transact(ops...)
			for i := range ops {
				if fmt.Sprint(got[i].err) != fmt.Sprint(want[i].err) || !reflect.DeepEqual(got[i].result, want[i].result) {
					rt.Fatalf("%#v: %+v, with all accounts %+v", ops[i], got[i], want[i])
				}
			}
			if !reflect.DeepEqual(planned.campaign, all.campaign) || !reflect.DeepEqual(planned.accounts, all.accounts) ||
				!reflect.DeepEqual(planned.sales, all.sales) || !reflect.DeepEqual(planned.draw, all.draw) {
				rt.Fatalf("the effects differ after %#v", ops)
			}
			if planned.campaign.Status == lottery.StatusDrawing {
				continue // With a result found there, the draw is older than its campaign's end.
			}
			planned.check(rt)
		}
	})
}

func TestPlanNamesNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	w := onSale(t, order{base: 2, buyers: []string{"ann", "ben"}})
	c, inv := &w.campaign, w.inventory()
	buy := lottery.Buy{Account: "ann"}
	for name, check := range map[string]struct {
		ops    []lottery.Op
		result bool
	}{
		"nothing":              {nil, false},
		"fewer than are left":  {[]lottery.Op{buy, buy}, false},
		"as many as are left":  {[]lottery.Op{buy, buy, buy}, true},
		"more than are left":   {[]lottery.Op{buy, buy, buy, buy}, true},
		"publish and cancel":   {[]lottery.Op{lottery.Publish{}, lottery.Cancel{}}, false},
		"a question":           {[]lottery.Op{lottery.AskDraw{}}, true},
		"a sweeper's question": {[]lottery.Op{lottery.FinishDraw{}}, true},
	} {
		need := lottery.Plan(c, inv, check.ops)
		if need.Result != check.result || slices.Contains(need.Accounts, "house") != check.result {
			t.Errorf("%s: %+v", name, need)
		}
	}
}
