package multidraw_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestEngineRejectsWhatItsStateCannotHold: what can't be saved to its end is refused before anything is drawn, and what is let
// through comes to its end. Of those that draw millions, an ordinary run takes any one.
func TestEngineRejectsWhatItsStateCannotHold(t *testing.T) {
	t.Parallel()
	client := testredis.Start(t).Client(t)
	e := newEngine(t, client, multidraw.EngineOptions{Every: multidraw.MaxCount})
	ctx := t.Context()
	long := strings.Repeat("<", multidraw.MaxIDBytes) // Six bytes each as JSON.
	rare := []multidraw.Prize{{ID: "a", Weight: 999_999}, {ID: long, Weight: 1}}
	many := make([]multidraw.Prize, multidraw.MaxPrizes)
	for i := range many {
		many[i] = multidraw.Prize{
			ID:   strings.Repeat("p", 59) + string(rune('a'+i/1000)) + string(rune('a'+i/100%10)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10)),
			Name: strings.Repeat("<", multidraw.MaxTextRunes), Weight: 1,
		}
	}
	const limit = checkpoint.MaxBytes
	drawn := 0
	for name, c := range map[string]struct {
		low, high int64
		prizes    []multidraw.Prize
		count     int64
		fits      bool
	}{
		"one digit":                  {low: 0, high: 9, count: limit/2 - 5000, fits: true},
		"one digit too many":         {low: 0, high: 9, count: limit / 2},
		"digits on average":          {low: 1, high: 100, count: 3_580_000, fits: true},
		"too many on average":        {low: 1, high: 100, count: 3_600_000},
		"any integer":                {low: math.MinInt64, high: math.MaxInt64, count: 495_000, fits: true},
		"too many of any":            {low: math.MinInt64, high: math.MaxInt64, count: 520_000},
		"the most":                   {low: 0, high: 0, count: multidraw.MaxCount},
		"a long prize that is rare":  {prizes: rare, count: 2_600_000, fits: true},
		"a long prize that is usual": {prizes: []multidraw.Prize{{ID: "a", Weight: 1}, {ID: long, Weight: 1}}, count: 60_000},
		"parameters alone":           {prizes: many, count: 1},
	} {
		if c.fits && c.count > 1_000_000 {
			if drawn++; drawn > testwait.Count(1, 3) {
				continue
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var (
				told int
				d    *multidraw.Drawn
				err  error
				o    = multidraw.Order{ID: "op", Progress: func(int64, int64) { told++ }}
			)
			if c.prizes != nil {
				d, err = e.DrawMultipleFromPrizes(ctx, name, c.prizes, c.count, o)
			} else {
				d, err = e.DrawMultipleInRange(ctx, name, c.low, c.high, c.count, o)
			}
			if c.fits {
				if err != nil || d.Completed != c.count {
					t.Fatalf("%v", err)
				}
				return
			}
			if !errors.Is(err, checkpoint.ErrTooLarge) || !errors.Is(err, checkpoint.ErrInvalid) || !errors.Is(err, multidraw.ErrBadParameters) || checkpoint.SeverityOf(err) != checkpoint.SeverityCaller {
				t.Errorf("%v", err)
			}
			if told != 0 || d != nil {
				t.Errorf("%d saves before it was refused, and %+v", told, d != nil)
			}
			if s, err := e.State(ctx, name, "op"); s != nil || err != nil {
				t.Errorf("it left a state: %v", err)
			}
		})
	}
}
