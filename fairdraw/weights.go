package fairdraw

import (
	"math/bits"
	"sort"
	"strconv"
)

// MaxWeights is the most entries of a weighted choice.
const MaxWeights = 1_000_000

// Weights is a weighted choice made ready: entry i is chosen with probability weight i ÷ sum of weights, exactly. It is
// immutable and may be shared.
type Weights struct {
	// upTo[i] is the sum of the weights up to and including entry i.
	upTo []uint64
}

// NewWeights prepares a choice among len(weights) entries. An entry of weight 0 is never chosen. It returns an
// [*InputError] when there are no entries or over MaxWeights, when all weights are 0, or when their sum passes 2^64−1.
func NewWeights(weights []uint64) (*Weights, error) {
	if len(weights) == 0 || len(weights) > MaxWeights {
		return nil, badInput("weights", "%d entries, not 1 to %d", len(weights), MaxWeights)
	}
	w := &Weights{upTo: make([]uint64, len(weights))}
	var sum, carry uint64
	for i, weight := range weights {
		if sum, carry = bits.Add64(sum, weight, 0); carry != 0 {
			return nil, badInput("weights["+strconv.Itoa(i)+"]", "the sum of weights passes 2^64-1")
		}
		w.upTo[i] = sum
	}
	if sum == 0 {
		return nil, badInput("weights", "all are 0")
	}
	return w, nil
}

// Total is the sum of the weights.
func (w *Weights) Total() uint64 { return w.upTo[len(w.upTo)-1] }

// Pick chooses an entry and gives its index: with r = Uint64n(Total()), the first one whose weight, summed up to and
// including it, exceeds r.
func (w *Weights) Pick(s *Stream) int {
	r := s.Uint64n(w.Total())
	return sort.Search(len(w.upTo), func(i int) bool { return w.upTo[i] > r })
}

// Weighted chooses once among weights; see [NewWeights] for the rules and errors. Whoever chooses repeatedly prepares a
// [Weights].
func Weighted(s *Stream, weights []uint64) (int, error) {
	w, err := NewWeights(weights)
	if err != nil {
		return 0, err
	}
	return w.Pick(s), nil
}
