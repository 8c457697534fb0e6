package multidraw

import (
	"context"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/fairdraw"
)

// rangeOrder are the parameters of an operation of an [Engine] that draws integers.
type rangeOrder struct {
	Count int64 `json:"count"`
	Range Range `json:"range"`
}

// prizeOrder are those of one that draws prizes.
type prizeOrder struct {
	Count  int64   `json:"count"`
	Prizes []Prize `json:"prizes"`
}

// engineName is the name of the draws of all operations of engines: each has a seed of its own.
const engineName = "engine"

// steps are draws, one a step, made some at a time.
type steps[R any] struct {
	count int
	draw  func(first int64, count int) []R
	ahead []R
	first int // index of the first of those ahead
}

// drawsAhead is how many are made at a time.
const drawsAhead = 1000

var _ checkpoint.Steps[int64] = (*steps[int64])(nil)

// Count implements [checkpoint.Steps].
func (s *steps[R]) Count() int { return s.count }

// Do implements [checkpoint.Steps].
func (s *steps[R]) Do(_ context.Context, step int) (R, error) {
	if step < s.first || step >= s.first+len(s.ahead) {
		s.first, s.ahead = step, s.draw(int64(step), min(drawsAhead, s.count-step))
	}
	return s.ahead[step-s.first], nil
}

func openDraws(seed checkpoint.Seed, count int64, spec Spec) (*Draws, error) {
	if count < 1 || count > MaxCount {
		return nil, bad("count", "must be an integer from 1 to %d", MaxCount)
	}
	return New(fairdraw.Seed(seed), engineName, spec)
}

func openRange(o rangeOrder, seed checkpoint.Seed) (checkpoint.Steps[int64], error) {
	d, err := openDraws(seed, o.Count, Spec{Range: &o.Range})
	if err != nil {
		return nil, err
	}
	return &steps[int64]{count: int(o.Count), draw: d.Ints}, nil
}

func openPrizes(o prizeOrder, seed checkpoint.Seed) (checkpoint.Steps[string], error) {
	if o.Prizes == nil {
		o.Prizes = []Prize{}
	}
	d, err := openDraws(seed, o.Count, Spec{Prizes: o.Prizes})
	if err != nil {
		return nil, err
	}
	return &steps[string]{count: int(o.Count), draw: func(first int64, count int) []string {
		ids := make([]string, 0, count)
		for _, place := range d.Places(first, count) {
			ids = append(ids, o.Prizes[place].ID)
		}
		return ids
	}}, nil
}
