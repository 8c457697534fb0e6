package multidraw_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

func ranged(low, high int64) multidraw.Spec {
	return multidraw.Spec{Range: &multidraw.Range{Min: low, Max: high}}
}

func prizes(weights ...int64) multidraw.Spec {
	spec := multidraw.Spec{Prizes: []multidraw.Prize{}}
	for i, w := range weights {
		spec.Prizes = append(spec.Prizes, multidraw.Prize{ID: string(rune('a' + i)), Name: "prize", Weight: w})
	}
	return spec
}

func newDraws(tb testing.TB, spec multidraw.Spec) *multidraw.Draws {
	tb.Helper()
	d, err := multidraw.New(fairdraw.Seed{1, 2, 3}, "op", spec)
	testwait.Must(tb, err)
	return d
}

// critical is the value that chi-square with that many degrees of freedom exceeds once in a million draws of a fair source,
// by Wilson and Hilferty.
func critical(degrees float64) float64 {
	a := 2 / (9 * degrees)
	return degrees * math.Pow(1-a+4.7534*math.Sqrt(a), 3)
}

// TestRangeIsUniform counts a million draws of ranges that cover their whole width.
func TestRangeIsUniform(t *testing.T) {
	t.Parallel()
	const draws = 1_000_000
	for _, r := range [][2]int64{{1, 6}, {-500, 499}, {0, 65_536}, {math.MaxInt64 - 9, math.MaxInt64}, {math.MinInt64, math.MinInt64 + 99}} {
		width := int(r[1]-r[0]) + 1
		counts := make([]int, width)
		d := newDraws(t, ranged(r[0], r[1]))
		for _, v := range d.Ints(0, draws) {
			if v < r[0] || v > r[1] {
				t.Fatalf("%d is not in %v", v, r)
			}
			counts[v-r[0]]++
		}
		chi, want := 0.0, float64(draws)/float64(width)
		for _, n := range counts {
			chi += (float64(n) - want) * (float64(n) - want) / want
		}
		if limit := critical(float64(width - 1)); chi > limit {
			t.Errorf("%v: chi-square %.1f over %.1f", r, chi, limit)
		}
	}
}

// TestWeightsAreExact holds the counts of a million prize draws to five sigma of their weights.
func TestWeightsAreExact(t *testing.T) {
	t.Parallel()
	const draws = 1_000_000
	for _, weights := range [][]int64{{1, 2, 3, 4}, {1, 0, 999}, {math.MaxInt64 / 2, math.MaxInt64 / 2}, {math.MaxInt64}, {1, math.MaxInt64 - 1}} {
		spec := prizes(weights...)
		var total float64
		for _, w := range weights {
			total += float64(w)
		}
		counts := map[string]int{}
		for _, p := range newDraws(t, spec).Prizes(0, draws) {
			counts[p.ID]++
		}
		for _, p := range spec.Prizes {
			share := float64(p.Weight) / total
			sigma := math.Sqrt(draws * share * (1 - share))
			if got := float64(counts[p.ID]); math.Abs(got-draws*share) > 5*sigma+1e-3 {
				t.Errorf("%v: %s was won %.0f times, want %.0f ± %.0f", weights, p.ID, got, draws*share, 5*sigma)
			}
		}
	}
}

func TestBadParameters(t *testing.T) {
	t.Parallel()
	many := prizes(make([]int64, multidraw.MaxPrizes+1)...)
	twice := prizes(1, 1)
	twice.Prizes[1].ID = twice.Prizes[0].ID
	for name, spec := range map[string]multidraw.Spec{
		"nothing": {}, "both": {Range: &multidraw.Range{}, Prizes: prizes(1).Prizes}, "no prizes": prizes(), "too many": many,
		"empty range": ranged(2, 1), "whole range backwards": ranged(math.MaxInt64, math.MinInt64), "negative": prizes(1, -1), "all zero": prizes(0, 0),
		"past int64": prizes(math.MaxInt64, 1), "far past int64": prizes(math.MaxInt64, math.MaxInt64, math.MaxInt64), "twice": twice,
	} {
		_, err := multidraw.New(fairdraw.Seed{1}, "op", spec)
		if _, typed := errors.AsType[*multidraw.ParameterError](err); !typed || !errors.Is(err, multidraw.ErrBadParameters) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, count := range []int64{0, -1, multidraw.MaxCount + 1, math.MaxInt64} {
		if _, err := multidraw.NewState(newDraws(t, ranged(1, 2)), count, 0); !errors.Is(err, multidraw.ErrBadParameters) {
			t.Errorf("count %d: %v", count, err)
		}
	}
}

func drawSpec(t *rapid.T) multidraw.Spec {
	if rapid.Bool().Draw(t, "of a range") {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		if rapid.Bool().Draw(t, "narrow") {
			b = a | 0xfff
		}
		return ranged(min(a, b), max(a, b))
	}
	weights := rapid.SliceOfN(rapid.Int64Range(0, 1000), 1, 20).Draw(t, "weights")
	weights[0]++
	return prizes(weights...)
}

// TestCutAnywhere cuts runs at any checkpoint, and compares what was saved with what an unbroken run would have, and with
// draws by their index.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		total, every := rapid.Int64Range(1, 400).Draw(t, "total"), rapid.IntRange(1, 50).Draw(t, "every")
		d, err := multidraw.New(fairdraw.Seed{9}, "op", spec)
		testwait.Must(t, err)
		state, err := multidraw.NewState(d, total, every)
		testwait.Must(t, err)
		whole := d.Append(nil, 0, int(total))
		var saved []byte
		for tries := 0; !state.Done(); tries++ {
			left := rapid.IntRange(0, 5).Draw(t, "checkpoints before the cut")
			cut := errors.New("cut")
			ctx, cancel := context.WithCancel(context.Background())
			state, err = multidraw.Run(ctx, d, state, func(_ context.Context, c multidraw.Chunk) error {
				if left--; left < 0 && tries < 20 {
					return cut
				}
				if c.First != int64(spec.Len(saved)) {
					t.Fatalf("a chunk from %d after %d draws", c.First, spec.Len(saved))
				}
				saved = append(saved, c.Saved...)
				return nil
			})
			cancel()
			if err != nil && !errors.Is(err, cut) {
				t.Fatal(err)
			}
			// What is resumed comes from its JSON form.
			text, err := json.Marshal(state)
			testwait.Must(t, err)
			if state, err = multidraw.ParseState(text); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(saved, whole) {
			t.Fatal("a run that was cut saved other draws")
		}
		unbroken, err := multidraw.NewState(d, total, every)
		testwait.Must(t, err)
		unbroken, err = multidraw.Run(context.Background(), d, unbroken, func(context.Context, multidraw.Chunk) error { return nil })
		if err != nil || unbroken != state {
			t.Fatalf("the unbroken run ends in %+v, %v, and not in %+v", unbroken, err, state)
		}
		i := rapid.Int64Range(0, total-1).Draw(t, "index")
		if !bytes.Equal(d.Append(nil, i, 1), spec.Slice(whole, int(i), int(i)+1)) {
			t.Fatalf("draw %d alone is another one", i)
		}
		ints, ids, err := spec.Results(saved)
		if err != nil || int64(len(ints)+len(ids)) != total {
			t.Fatalf("%d integers and %d prizes, %v", len(ints), len(ids), err)
		}
		if spec.Range != nil && !slices.Equal(ints, d.Ints(0, int(total))) {
			t.Fatal("the integers are others")
		}
	})
}

func TestOtherParametersAreRefused(t *testing.T) {
	t.Parallel()
	d := newDraws(t, ranged(1, 6))
	state, err := multidraw.NewState(d, 100, 10)
	testwait.Must(t, err)
	never := func(context.Context, multidraw.Chunk) error { t.Error("something was saved"); return nil }
	renamed, err := multidraw.New(fairdraw.Seed{1, 2, 3}, "other", ranged(1, 6))
	testwait.Must(t, err)
	reseeded, err := multidraw.New(fairdraw.Seed{3, 2, 1}, "op", ranged(1, 6))
	testwait.Must(t, err)
	for name, other := range map[string]*multidraw.Draws{"range": newDraws(t, ranged(1, 7)), "prizes": newDraws(t, prizes(1)), "name": renamed, "seed": reseeded} {
		if _, err := multidraw.Run(t.Context(), other, state, never); !errors.Is(err, multidraw.ErrOtherParameters) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	more := state
	more.Total++
	if err := more.Check(d); !errors.Is(err, multidraw.ErrOtherParameters) {
		t.Errorf("another count: %v", err)
	}
	for _, change := range []func(*multidraw.State){
		func(s *multidraw.State) { s.Completed = 5 }, func(s *multidraw.State) { s.Completed = -10 }, func(s *multidraw.State) { s.Completed = 110 },
		func(s *multidraw.State) { s.Every = 0 }, func(s *multidraw.State) { s.Digest[3]++ },
	} {
		broken := state
		change(&broken)
		if _, err := multidraw.Run(t.Context(), d, broken, never); !errors.Is(err, multidraw.ErrCorrupt) {
			t.Errorf("%+v: %v", broken, err)
		}
	}
}

// FuzzParseState feeds corrupt and legacy states, none of which may panic or pass for one.
func FuzzParseState(f *testing.F) {
	d, err := multidraw.New(fairdraw.Seed{1}, "op", ranged(1, 6))
	if err != nil {
		f.Fatal(err)
	}
	state, err := multidraw.NewState(d, 100, 10)
	if err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(state)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"lock_key":"user_123_daily","total_count":10,"completed_count":7,"results":[42,17,89,3,56,23,91],"start_time":1703123456}`))
	f.Add([]byte(`null`))
	f.Add(append(slices.Clone(good), good...))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := multidraw.ParseState(data)
		if err != nil {
			if !errors.Is(err, multidraw.ErrCorrupt) {
				t.Errorf("%v is no corrupt state", err)
			}
			return
		}
		again, err := json.Marshal(s)
		testwait.Must(t, err)
		if other, err := multidraw.ParseState(again); err != nil || other != s {
			t.Errorf("%+v became %+v, %v", s, other, err)
		}
	})
}

func TestSingleDraws(t *testing.T) {
	t.Parallel()
	v, err := multidraw.InRange(rand.Reader, -3, 3)
	if err != nil || v < -3 || v > 3 {
		t.Errorf("%d, %v", v, err)
	}
	p, err := multidraw.FromPrizes(rand.Reader, prizes(0, 1).Prizes)
	if err != nil || p.ID != "b" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := multidraw.FromPrizes(rand.Reader, nil); !errors.Is(err, multidraw.ErrBadParameters) {
		t.Error(err)
	}
	if _, err := multidraw.InRange(strings.NewReader("short"), 1, 2); err == nil {
		t.Error("a seed of five bytes was taken")
	}
}
