package multidraw

import (
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestDigits counts the digits of small ranges one by one.
func TestDigits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Int64Range(-1200, 1200).Draw(t, "low")
		high := rapid.Int64Range(low, low+1200).Draw(t, "high")
		var sum, squares, most float64
		for v := low; v <= high; v++ {
			n := float64(len(strconv.FormatInt(v, 10)) + 1)
			sum, squares, most = sum+n, squares+n*n, max(most, n)
		}
		all := float64(high - low + 1)
		mean := sum / all
		l := digits(Range{Min: low, Max: high})
		if math.Abs(l.mean-mean) > 1e-9 || math.Abs(l.variance-max(0, squares/all-mean*mean)) > 1e-6 || l.most != most {
			t.Errorf("%+v; want mean %v, variance %v, most %v", l, mean, squares/all-mean*mean, most)
		}
		count := rapid.Int64Range(1, MaxCount).Draw(t, "count")
		if size := l.bytes(count); float64(size) < float64(count)*l.mean || float64(size) > math.Ceil(float64(count)*l.most) {
			t.Errorf("%d draws are to have %d bytes", count, size)
		}
	})
	if l := digits(Range{Min: math.MinInt64, Max: math.MaxInt64}); l.most != 21 || l.mean < 20 || l.mean > 20.5 {
		t.Errorf("of any integer: %+v", l)
	}
}
