package recent_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead-dev/fairlead/internal/recent"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// measured are some metrics of a server.
type measured struct {
	t        *testing.T
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	problems *prometheus.CounterVec
	attempts *prometheus.CounterVec
	latency  prometheus.Histogram
}

func newMeasured(t *testing.T) *measured {
	t.Helper()
	m := &measured{
		t: t, registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_http_requests_total"}, []string{"status"}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_problems_total"}, []string{"code"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_publish_target_attempts_total"}, []string{"target", "result"}),
		latency:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fairlead_http_request_duration_seconds", Buckets: []float64{0.01, 0.1, 1}}),
	}
	m.registry.MustRegister(m.requests, m.problems, m.attempts, m.latency)
	return m
}

func (m *measured) gather() []*dto.MetricFamily {
	m.t.Helper()
	families, err := m.registry.Gather()
	testwait.Must(m.t, err)
	return families
}

// value is that of a series at a place; it fails the test where there is none.
func value(t *testing.T, w recent.Window, name string, place int) float64 {
	t.Helper()
	for _, s := range w.Series {
		if s.Name == name && s.Values[place] != nil {
			return *s.Values[place]
		}
	}
	t.Fatalf("nothing at %d of %s", place, name)
	return 0
}

// TestHour takes samples for more than an hour and looks at what is kept.
func TestHour(t *testing.T) {
	t.Parallel()
	m, began := newMeasured(t), time.Unix(1_000_000, 0)
	h := recent.New(began)
	h.Sample(m.gather(), began)
	if w := h.After(0); len(w.At) != 0 || w.Last != 0 {
		t.Fatalf("one look is no difference: %+v", w)
	}
	const taken = recent.Samples + 7
	for i := 1; i <= taken; i++ {
		m.requests.WithLabelValues("200").Add(30)
		m.requests.WithLabelValues("503").Add(10)
		if i == taken {
			m.problems.WithLabelValues("held").Add(5)
			m.attempts.WithLabelValues("t1", "failed").Add(20)
			m.latency.Observe(0.05)
		}
		h.Sample(m.gather(), began.Add(time.Duration(i)*recent.Every))
	}
	w := h.After(0)
	if len(w.At) != recent.Samples || w.Last != taken || !w.At[0].Equal(began.Add(8*recent.Every)) || !w.Began.Equal(began) {
		t.Fatalf("%d samples, last %d, from %v", len(w.At), w.Last, w.At[0])
	}
	last := recent.Samples - 1
	for name, want := range map[string]float64{"requests": 4, "failures": 1, "refused held": 0.5, "attempts failed t1": 2, "latency p50": 0.055} {
		if got := value(t, w, name, last); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for _, s := range w.Series {
		if s.Name == "latency p50" && s.Values[0] != nil {
			t.Error("there is a latency of a time without requests")
		}
	}
	if w := h.After(taken - 2); len(w.At) != 2 || len(w.Series[0].Values) != 2 {
		t.Errorf("after the last but two: %d", len(w.At))
	}
	if w := h.After(taken + 100); len(w.At) != 0 {
		t.Errorf("after what there will be: %d", len(w.At))
	}
	// A counter that shrank is another's: nothing negative comes of it.
	h.Sample(newMeasured(t).gather(), began.Add((taken+1)*recent.Every))
	if got := value(t, h.After(taken), "requests", 0); got != 0 {
		t.Errorf("after a restart of a counter: %v", got)
	}
}

// TestSeriesAreBounded counts refusals for more reasons than there may be series: none is lost, and the memory has an end.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	m, now := newMeasured(t), time.Unix(1_000_000, 0)
	h := recent.New(now)
	h.Sample(m.gather(), now)
	const reasons = 500
	for i := range reasons {
		m.problems.WithLabelValues(fmt.Sprintf("code-%d", i)).Add(10)
		m.attempts.WithLabelValues(fmt.Sprintf("target-%d", i), "published").Add(10)
		m.attempts.WithLabelValues(fmt.Sprintf("target-%d", i), "failed").Add(10)
	}
	h.Sample(m.gather(), now.Add(recent.Every))
	w := h.After(0)
	if len(w.Series) > recent.MaxSeries {
		t.Errorf("%d series", len(w.Series))
	}
	total := 0.0
	for _, s := range w.Series {
		if s.Name != "locks waiting" && s.Values[0] != nil {
			total += *s.Values[0]
		}
	}
	if want := 3.0 * reasons; math.Abs(total-want) > 1e-6 {
		t.Errorf("%v a second in all, want %v", total, want)
	}
}
