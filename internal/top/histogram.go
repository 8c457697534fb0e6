package top

import (
	"cmp"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// Histogram counts observations in buckets.
type Histogram struct {
	Count, Sum float64
	Buckets    []Bucket // by bound, each with what those before it have too
}

// Bucket counts the observations up to a bound.
type Bucket struct{ Bound, Count float64 }

// add sums up histograms, which have the same buckets.
func (h *Histogram) add(m *dto.Histogram) {
	h.Count += float64(m.GetSampleCount())
	h.Sum += m.GetSampleSum()
	for _, b := range m.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue // It is the count.
		}
		i, found := slices.BinarySearchFunc(h.Buckets, b.GetUpperBound(), func(b Bucket, bound float64) int { return cmp.Compare(b.Bound, bound) })
		if !found {
			h.Buckets = slices.Insert(h.Buckets, i, Bucket{Bound: b.GetUpperBound()})
		}
		h.Buckets[i].Count += float64(b.GetCumulativeCount())
	}
}

// Since returns what was observed after an earlier state of the same histogram. Where that has more, it is of an earlier
// process, and all of h came after it.
func (h Histogram) Since(before Histogram) Histogram {
	if h.Count < before.Count || len(h.Buckets) != len(before.Buckets) {
		return h
	}
	d := Histogram{Count: h.Count - before.Count, Sum: h.Sum - before.Sum, Buckets: make([]Bucket, len(h.Buckets))}
	for i, b := range h.Buckets {
		if b.Bound != before.Buckets[i].Bound || b.Count < before.Buckets[i].Count {
			return h
		}
		d.Buckets[i] = Bucket{Bound: b.Bound, Count: b.Count - before.Buckets[i].Count}
	}
	return d
}

// Mean is the mean of the observations, 0 without any.
func (h Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return h.Sum / h.Count
}

// Quantile estimates the value that a part q, from 0 to 1, of the observations does not exceed: 0 without any, and the highest
// bound where the value lies above it.
func (h Histogram) Quantile(q float64) float64 {
	if h.Count == 0 || len(h.Buckets) == 0 {
		return 0
	}
	rank := q * h.Count
	lower, below := 0.0, 0.0
	for _, b := range h.Buckets {
		if b.Count >= rank && b.Count > below {
			return lower + (b.Bound-lower)*max(0, rank-below)/(b.Count-below)
		}
		lower, below = b.Bound, b.Count
	}
	return lower
}

// Quantiles are what is looked at of a distribution.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// Quantiles estimates them.
func (h Histogram) Quantiles() Quantiles {
	return Quantiles{P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99)}
}
