package lottery_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// stockOf is an inventory of the given layers.
func stockOf(positions ...int) *lottery.Inventory {
	layers, first := make([]lottery.Layer, len(positions)), 0
	for i, n := range positions {
		layers[i] = lottery.Layer{Positions: n, First: first}
		first += n
	}
	return lottery.NewInventory(layers)
}

// naive is an inventory of one map.
type naive struct {
	layers []int
	owner  map[int]string
}

func (n *naive) bounds(layer int) (from, to int) {
	if layer == 0 {
		for _, size := range n.layers {
			to += size
		}
		return 0, to
	}
	for _, size := range n.layers[:layer-1] {
		from += size
	}
	return from, from + n.layers[layer-1]
}

func (n *naive) free(layer int) (ordinals []int) {
	from, to := n.bounds(layer)
	for o := from; o < to; o++ {
		if n.owner[o] == "" {
			ordinals = append(ordinals, o)
		}
	}
	return ordinals
}

func (n *naive) layerOf(ordinal int) int {
	for layer := range n.layers {
		if from, to := n.bounds(layer + 1); ordinal >= from && ordinal < to {
			return layer + 1
		}
	}
	return 0
}

func TestInventoryAgreesWithANaiveOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := &naive{layers: rapid.SliceOfN(rapid.IntRange(1, 8), 1, 6).Draw(t, "layers"), owner: map[int]string{}}
		inv := stockOf(n.layers...)
		_, total := n.bounds(0)
		for inv.Free(0) > 0 {
			layer := rapid.IntRange(0, len(n.layers)).Draw(t, "layer")
			free := n.free(layer)
			if inv.Free(layer) != len(free) {
				t.Fatalf("%d free of layer %d, want %d", inv.Free(layer), layer, len(free))
			}
			if len(free) == 0 {
				continue
			}
			ordinal := pickAny(t, inv, layer, free)
			account := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "account")
			bought := inv.Bought(account)
			inv.Sell(n.layerOf(ordinal), ordinal, account)
			if rapid.IntRange(0, 3).Draw(t, "taken back") == 0 {
				takeBack(t, n, inv, ordinal, bought, account)
				continue
			}
			n.owner[ordinal] = account
			if inv.Bought(account) != bought+1 || inv.Sold() != len(n.owner) {
				t.Fatalf("%s has %d, %d sold of %d", account, inv.Bought(account), inv.Sold(), len(n.owner))
			}
			for o, owner := range inv.Owners() {
				if owner != n.owner[o] {
					t.Fatalf("ordinal %d belongs to %q, want %q", o, owner, n.owner[o])
				}
			}
		}
		if inv.Sold() != total || len(inv.Owners()) != total {
			t.Fatalf("%d sold, %d owners of %d", inv.Sold(), len(inv.Owners()), total)
		}
	})
}

// takeBack has others sold behind the latest sale, and all of them taken back.
func takeBack(t *rapid.T, n *naive, inv *lottery.Inventory, ordinal, bought int, account string) {
	sales := []int{ordinal}
	for range min(inv.Free(0), rapid.IntRange(0, 4).Draw(t, "behind")) {
		behind := inv.Pick(0, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "position behind") })
		inv.Sell(n.layerOf(behind), behind, account)
		sales = append(sales, behind)
	}
	for _, ordinal := range slices.Backward(sales) {
		inv.Unsell(n.layerOf(ordinal), ordinal)
	}
	if inv.Bought(account) != bought || inv.Sold() != len(n.owner) || !slices.Contains(n.free(0), ordinal) {
		t.Fatalf("%s has %d, %d sold, after all was taken back of %d", account, inv.Bought(account), inv.Sold(), len(n.owner))
	}
}

// pickAny asks for every free position once, by every value that the source may give, and returns one of them. Each value gives
// another position, so that a uniform source picks uniformly.
func pickAny(t *rapid.T, inv *lottery.Inventory, layer int, free []int) int {
	var picked []int
	for k := range free {
		picked = append(picked, inv.Pick(layer, func(n int) int {
			if n != len(free) {
				t.Fatalf("the source is asked for one of %d, %d are free", n, len(free))
			}
			return k
		}))
	}
	chosen := rapid.SampledFrom(picked).Draw(t, "ordinal")
	slices.Sort(picked)
	if !slices.Equal(picked, free) {
		t.Fatalf("can pick %v, free are %v", picked, free)
	}
	return chosen
}

func TestNothingIsSoldTwiceOrToNobody(t *testing.T) {
	t.Parallel()
	for name, sell := range map[string]func(*lottery.Inventory){
		"to another":       func(inv *lottery.Inventory) { inv.Sell(1, 0, "b") },
		"to the same":      func(inv *lottery.Inventory) { inv.Sell(1, 0, "a") },
		"to nobody":        func(inv *lottery.Inventory) { inv.Sell(2, 1, "") },
		"of another layer": func(inv *lottery.Inventory) { inv.Sell(2, 0, "b") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inv := stockOf(1, 2)
			inv.Sell(1, 0, "a")
			defer func() {
				if recover() == nil {
					t.Error("sold")
				}
				if inv.Sold() != 1 || inv.Free(0) != 2 || inv.Free(1) != 0 || inv.Bought("b") != 0 {
					t.Errorf("%d sold, %d free", inv.Sold(), inv.Free(0))
				}
			}()
			sell(inv)
		})
	}
}
