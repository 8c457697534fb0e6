package top_test

import (
	"errors"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/top"
)

// page is what a server says that has done everything n times.
func page(n int, started string) string {
	text := `# TYPE fairlead_http_requests_total counter
fairlead_http_requests_total{method="GET",route="/a",status="200"} 10N
fairlead_http_requests_total{method="POST",route="/b",status="503"} 1N
# TYPE fairlead_http_request_duration_seconds histogram
fairlead_http_request_duration_seconds_bucket{route="/a",le="0.001"} 5N
fairlead_http_request_duration_seconds_bucket{route="/a",le="0.01"} 10N
fairlead_http_request_duration_seconds_bucket{route="/a",le="+Inf"} 10N
fairlead_http_request_duration_seconds_sum{route="/a"} 1N
fairlead_http_request_duration_seconds_count{route="/a"} 10N
fairlead_http_request_duration_seconds_bucket{route="/b",le="0.001"} 0
fairlead_http_request_duration_seconds_bucket{route="/b",le="0.01"} 0
fairlead_http_request_duration_seconds_bucket{route="/b",le="+Inf"} 1N
fairlead_http_request_duration_seconds_sum{route="/b"} 1N
fairlead_http_request_duration_seconds_count{route="/b"} 1N
# TYPE fairlead_lane_batch_size histogram
fairlead_lane_batch_size_bucket{service="ledger",le="1"} 0
fairlead_lane_batch_size_bucket{service="ledger",le="8"} 2N
fairlead_lane_batch_size_bucket{service="ledger",le="+Inf"} 2N
fairlead_lane_batch_size_sum{service="ledger"} 10N
fairlead_lane_batch_size_count{service="ledger"} 2N
# TYPE fairlead_lane_refused_total counter
fairlead_lane_refused_total{service="ledger"} 4N
# TYPE fairlead_lane_queue_depth gauge
fairlead_lane_queue_depth{service="ledger"} 7
# TYPE fairlead_transactions_total counter
fairlead_transactions_total{outcome="committed",transaction="ledger"} 9N
fairlead_transactions_total{outcome="failed",transaction="ledger"} 3N
# TYPE fairlead_lock_requests_total counter
fairlead_lock_requests_total{class="api",outcome="granted"} 6N
fairlead_lock_requests_total{class="api",outcome="held"} 5N
# TYPE fairlead_auction_is_leader gauge
fairlead_auction_is_leader 1
# TYPE fairlead_auction_leader_term gauge
fairlead_auction_leader_term 3
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1N
# TYPE process_start_time_seconds gauge
process_start_time_seconds ` + started + "\n"
	return regexp.MustCompile(`\d+N\b`).ReplaceAllStringFunc(text, func(found string) string {
		times, err := strconv.Atoi(strings.TrimSuffix(found, "N"))
		if err != nil {
			panic(err)
		}
		return strconv.Itoa(times * n)
	})
}

func parse(t *testing.T, text string) *top.Snapshot {
	t.Helper()
	s, err := top.Parse(strings.NewReader(text))
	testwait.Must(t, err)
	return s
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// TestBetween computes by hand what two looks at a server come to.
func TestBetween(t *testing.T) {
	t.Parallel()
	const began = "1000000"
	now := time.Unix(1000090, 0)
	before, after := parse(t, page(1, began)), parse(t, page(10, began))
	v := top.Between(before, after, 9*time.Second, now)
	for name, c := range map[string]struct{ got, want float64 }{
		"requests":      {v.Requests, 11}, // (110-11)/9
		"failures":      {v.Failures, 1},
		"latency p50":   {v.Latency.P50, 0.001 + 0.009*4.5/45}, // of 99: 45 below 1 ms, 45 more below 10 ms, 9 above
		"latency p99":   {v.Latency.P99, 0.01},
		"not committed": {v.Failed, 3},
		"granted":       {v.Granted, 6},
		"cpu":           {v.CPU, 1},
		"uptime":        {v.UptimeSeconds, 90},
		"term":          {v.Term, 3},
	} {
		if !near(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if len(v.Lanes) != 1 || !v.Leading || v.Restarted {
		t.Fatalf("%+v", v)
	}
	l := v.Lanes[0]
	if l.Service != "ledger" || !near(l.Commands, 10) || !near(l.Batches, 2) || !near(l.BatchMean, 5) || !near(l.Refused, 4) || l.Queue != 7 || !near(l.Batch.P50, 4.5) {
		t.Errorf("%+v", l)
	}
	// Another process at the same address counts from nothing, whatever its counters say.
	for _, n := range []int{1, 20} {
		again := top.Between(after, parse(t, page(n, "1000080")), 9*time.Second, now)
		times := float64(n)
		if !again.Restarted || !near(again.Requests, times*11/9) || !near(again.Lanes[0].Commands, times*10/9) || !near(again.UptimeSeconds, 10) {
			t.Errorf("after a restart: %+v", again)
		}
	}
	// An interval in which nothing happened has no quantiles.
	idle := top.Between(after, after, time.Second, now)
	if idle.Requests != 0 || idle.Latency != (top.Quantiles{}) || idle.Lanes[0].BatchMean != 0 {
		t.Errorf("idle: %+v", idle)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if _, err := top.Parse(strings.NewReader("# TYPE up gauge\nup 1\n")); !errors.Is(err, top.ErrNotFairlead) {
		t.Errorf("another program's metrics: %v", err)
	}
	if _, err := top.Parse(strings.NewReader("<!doctype html><p>hello")); err == nil || errors.Is(err, top.ErrNotFairlead) {
		t.Errorf("a page: %v", err)
	}
}

// TestNames holds the names that are read to the list of those that there are, which is held to the code.
func TestNames(t *testing.T) {
	t.Parallel()
	known, err := os.ReadFile("../../docs/operations/metrics.md")
	testwait.Must(t, err)
	source, err := os.ReadFile("view.go")
	testwait.Must(t, err)
	names := regexp.MustCompile(`"(fairlead_[a-z_]*[a-z])"`).FindAllSubmatch(source, -1)
	if len(names) < 20 {
		t.Fatalf("only %d names", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(known), "`"+string(name[1])+"`") {
			t.Errorf("there is no metric %s", name[1])
		}
	}
}

// TestQuantiles holds estimates to the observations that the buckets were filled with.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	bounds := []float64{1, 2, 5, 10, 100}
	fill := func(values []float64) top.Histogram {
		h := top.Histogram{Count: float64(len(values))}
		for _, b := range bounds {
			n := 0.0
			for _, v := range values {
				if v <= b {
					n++
				}
			}
			h.Buckets = append(h.Buckets, top.Bucket{Bound: b, Count: n})
		}
		return h
	}
	// bucket is between which bounds a value lies.
	bucket := func(v float64) (low, high float64) {
		for _, b := range bounds {
			if v <= b {
				return low, b
			}
			low = b
		}
		return low, low
	}
	rapid.Check(t, func(r *rapid.T) {
		value := rapid.Float64Range(0.001, 200)
		early, late := rapid.SliceOfN(value, 0, 50).Draw(r, "early"), rapid.SliceOfN(value, 1, 50).Draw(r, "late")
		h := fill(append(append([]float64{}, early...), late...)).Since(fill(early))
		last := 0.0
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
			got := h.Quantile(q)
			// The exact one, by rank.
			rank, exact := int(math.Ceil(q*float64(len(late)))), math.Inf(1)
			for _, v := range late {
				below := 0
				for _, other := range late {
					if other <= v {
						below++
					}
				}
				if below >= max(1, rank) {
					exact = min(exact, v)
				}
			}
			if low, high := bucket(exact); got < low || got > high || got < last {
				r.Fatalf("quantile %v of %v is estimated at %v, after %v, and is %v", q, late, got, last, exact)
			}
			last = got
		}
	})
	if q := (top.Histogram{}).Quantile(0.5); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
}
