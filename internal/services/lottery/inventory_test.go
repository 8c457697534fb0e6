package lottery_test

import (
	"math/rand/v2"
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

// critical are the 0.999 quantiles of the chi-square distribution (NIST/SEMATECH e-Handbook §1.3.6.7.4) by degrees of
// freedom. The seeds are fixed, so each run gives the same figures.
func critical() map[int]float64 { return map[int]float64{4: 18.467, 5: 20.515, 9: 27.877, 12: 32.909} }

func TestPickIsUniformOverWhatIsFree(t *testing.T) {
	t.Parallel()
	const picks = 60_000
	for name, c := range map[string]struct {
		layers []int
		sold   [][2]int // layer, ordinal
		layer  int
		free   []int
	}{
		"of any, nothing sold":   {layers: []int{1, 4, 5}, free: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"of any, some sold":      {layers: []int{1, 4, 5}, sold: [][2]int{{1, 0}, {2, 2}, {3, 9}, {3, 5}}, free: []int{1, 3, 4, 6, 7, 8}},
		"of a layer":             {layers: []int{3, 5, 2}, layer: 2, free: []int{3, 4, 5, 6, 7}},
		"of a layer, some sold":  {layers: []int{3, 8, 2}, layer: 2, sold: [][2]int{{2, 3}, {2, 10}, {2, 6}, {1, 1}}, free: []int{4, 5, 7, 8, 9}},
		"of any, empty in front": {layers: []int{2, 1, 13}, sold: [][2]int{{1, 1}, {1, 0}, {2, 2}}, free: []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inv := stockOf(c.layers...)
			for _, s := range c.sold {
				inv.Sell(s[0], s[1], "buyer")
			}
			random := rand.New(rand.NewPCG(11, 12)).IntN
			counts := map[int]int{}
			for range picks {
				counts[inv.Pick(c.layer, random)]++
			}
			expected, sum := float64(picks)/float64(len(c.free)), 0.0
			for _, ordinal := range c.free {
				d := float64(counts[ordinal]) - expected
				sum += d * d / expected
				delete(counts, ordinal)
			}
			if len(counts) > 0 {
				t.Errorf("picked what is not free: %v", counts)
			}
			limit, ok := critical()[len(c.free)-1]
			if !ok {
				t.Fatalf("no quantile for %d cells", len(c.free))
			}
			if sum > limit {
				t.Errorf("chi-square %.2f over %.2f", sum, limit)
			}
		})
	}
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

// pickAny asks for every free position once, by every value that the source may give, and returns one of them.
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
