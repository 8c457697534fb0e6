package multidraw

import (
	"context"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/fairdraw"
)

// request is the parameters of an operation of an [Engine], of which one of Range and Prizes is set.
type request struct {
	Count  int64   `json:"count"`
	Range  *Range  `json:"range,omitempty"`
	Prizes []Prize `json:"prizes,omitempty"`
}

func (o *request) spec() Spec { return Spec{Range: o.Range, Prizes: o.Prizes} }

// engineName is the name of the draws of all operations of engines: each has a seed of its own.
const engineName = "engine"

// steps are draws, one a step. They are made some at a time.
type steps[R any] struct {
	count int
	draw  func(first int64, count int) []R
	drawn []R
	first int // index of the first in drawn
}

// drawsAtOnce is how many draws are made at a time.
const drawsAtOnce = 1000

var _ checkpoint.Steps[int64] = (*steps[int64])(nil)

// Count implements [checkpoint.Steps].
func (s *steps[R]) Count() int { return s.count }

// Do implements [checkpoint.Steps].
func (s *steps[R]) Do(_ context.Context, step int) (R, error) {
	if step < s.first || step >= s.first+len(s.drawn) {
		s.first, s.drawn = step, s.draw(int64(step), min(drawsAtOnce, s.count-step))
	}
	return s.drawn[step-s.first], nil
}

func openDraws(o *request, seed checkpoint.Seed) (*Draws, error) {
	if o.Count < 1 || o.Count > MaxCount {
		return nil, bad("count", "must be an integer from 1 to %d", MaxCount)
	}
	return New(fairdraw.Seed(seed), engineName, o.spec())
}

func openRange(o request, seed checkpoint.Seed) (checkpoint.Steps[int64], error) {
	d, err := openDraws(&o, seed)
	if err != nil {
		return nil, err
	}
	return &steps[int64]{count: int(o.Count), draw: d.Ints}, nil
}

func openPrizes(o request, seed checkpoint.Seed) (checkpoint.Steps[string], error) {
	if o.Prizes == nil {
		o.Prizes = []Prize{} // An empty list of prizes is refused as such.
	}
	d, err := openDraws(&o, seed)
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
