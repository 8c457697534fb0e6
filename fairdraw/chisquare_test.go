package fairdraw

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// chiSquare is Pearson's statistic of counts against expected counts.
func chiSquare(counts []int, expected []float64) float64 {
	sum := 0.0
	for i, n := range counts {
		d := float64(n) - expected[i]
		sum += d * d / expected[i]
	}
	return sum
}

func uniform(cells, total int) []float64 {
	out := make([]float64, cells)
	for i := range out {
		out[i] = float64(total) / float64(cells)
	}
	return out
}

// The 0.999 quantiles of the chi-square distribution by degrees of freedom (NIST/SEMATECH e-Handbook of Statistical Methods
// §1.3.6.7.4): a fair draw exceeds them once in a thousand choices of seeds. The seeds are fixed, so the tests give the
// same figure each time.
const (
	critical3  = 16.266
	critical5  = 20.515
	critical20 = 45.315
	critical29 = 58.301
)

const simulatedDraws = 100_000

// TestChiSquareDraw runs 10^5 whole draws on a triangle of 6 layers, each under its own seed, and counts who wins what.
func TestChiSquareDraw(t *testing.T) {
	t.Parallel()
	in := Input{
		Campaign:  "chi-square",
		Positions: triangle(6),
		Prizes:    []Prize{{Name: "any", Quantity: 1}, {Name: "layer 6", Layer: 6, Quantity: 2}},
	}
	index := map[string]int{}
	for i, p := range in.Positions {
		index[p.ID] = i
	}
	anyCounts := make([]int, 21)
	// Ordered pairs of the six positions of layer 6: 6·5.
	pairCounts := make([]int, 30)
	for i := range simulatedDraws {
		in.Seed = testSeed(fmt.Sprintf("chi-square %d", i))
		res, err := Draw(in)
		testwait.Must(t, err)
		anyCounts[index[res.Winners[0].Position.ID]]++
		first, second := res.Winners[1].Position.Number-1, res.Winners[2].Position.Number-1
		if second > first {
			second--
		}
		pairCounts[first*5+second]++
	}
	check := func(what string, counts []int, critical float64) {
		x := chiSquare(counts, uniform(len(counts), simulatedDraws))
		t.Logf("%s: chi-square %.3f, critical %.3f", what, x, critical)
		if x > critical {
			t.Errorf("%s: chi-square %.3f is over %.3f: %v", what, x, critical, counts)
		}
	}
	check("one of 21 positions", anyCounts, critical20)
	check("ordered pairs of 6 positions", pairCounts, critical29)
}

// TestChiSquareMultiDraw counts 10^5 index-derived choices.
func TestChiSquareMultiDraw(t *testing.T) {
	t.Parallel()
	op, err := NewOperation(testSeed("chi-square"), "multi")
	testwait.Must(t, err)
	weights := []uint64{1, 9, 90, 900}
	w, err := NewWeights(weights)
	testwait.Must(t, err)
	expected := make([]float64, len(weights))
	for i, weight := range weights {
		expected[i] = simulatedDraws * float64(weight) / float64(w.Total())
	}
	picks, dice := make([]int, len(weights)), make([]int, 6)
	s := op.At(0)
	for i := range simulatedDraws {
		s.Seek(uint64(i))
		picks[w.Pick(s)]++
		v, err := s.Between(1, 6)
		testwait.Must(t, err)
		dice[v-1]++
	}
	if x := chiSquare(picks, expected); x > critical3 {
		t.Errorf("weights: chi-square %.3f is over %.3f: %v", x, critical3, picks)
	}
	if x := chiSquare(dice, uniform(6, simulatedDraws)); x > critical5 {
		t.Errorf("dice: chi-square %.3f is over %.3f: %v", x, critical5, dice)
	}
}

// TestChiSquareSeesBias shows that the test above can fail: a bare remainder of 8 random bits, biased by one part in 12, is
// caught at the same size.
func TestChiSquareSeesBias(t *testing.T) {
	t.Parallel()
	s := NewStream(testSeed("bias"), 0)
	counts := make([]int, 21)
	for range simulatedDraws {
		counts[s.Uint64()>>56%21]++
	}
	if x := chiSquare(counts, uniform(21, simulatedDraws)); x <= critical20 {
		t.Errorf("chi-square of a biased choice is only %.3f", x)
	}
}
