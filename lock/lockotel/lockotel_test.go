package lockotel_test

import (
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/lockotel"
)

// collect reads all instruments by name and attributes; of a histogram it reads the sum.
func collect(t *testing.T, reader *sdk.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	testwait.Must(t, reader.Collect(t.Context(), &all))
	values := map[string]float64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		add := func(set attribute.Set, v float64) {
			name := m.Name
			for _, kv := range set.ToSlice() {
				name += " " + kv.Value.AsString()
			}
			values[name] = v
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Sum)
			}
		default:
			t.Errorf("%s is a %T", m.Name, data)
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	m, err := lockotel.New(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("locks"), "api")
	testwait.Must(t, err)
	if got, ok := collect(t, reader)["fairlead.lock.requests api deadlock"]; !ok || got != 0 {
		t.Errorf("before anything: %v, %v", got, ok)
	}
	m.Asked("api", lock.OutcomeGranted, time.Second, true)
	m.Asked("api", lock.OutcomeDeadlock, 2*time.Second, false)
	m.Ended("api", 40*time.Second, nil)
	m.Ended("jobs", 3*time.Second, errors.New("lost"))
	m.Expired(2)
	m.Victim()
	m.HandedOver()
	m.Fallback("blind")
	at := time.Now().Add(-24 * time.Hour) // By the database's clock.
	m.Sample(lock.Snapshot{
		At:      at,
		Holders: []lock.Grant{{GrantedAt: at.Add(-time.Minute)}, {GrantedAt: at}},
		Waiters: []lock.Waiter{{Since: at.Add(-time.Second)}},
	})
	got := collect(t, reader)
	for name, want := range map[string]float64{
		"fairlead.lock.requests api granted": 1, "fairlead.lock.requests api deadlock": 1, "fairlead.lock.requests api held": 0,
		"fairlead.lock.wait.duration api": 3, "fairlead.lock.hold.duration api": 40, "fairlead.lock.hold.duration jobs": 3,
		"fairlead.lock.contended api": 1, "fairlead.lock.lost api": 0, "fairlead.lock.lost jobs": 1,
		"fairlead.lock.expired": 2, "fairlead.lock.deadlock.victims": 1, "fairlead.lock.handovers": 1, "fairlead.lock.fallbacks blind": 1,
		"fairlead.lock.held": 2, "fairlead.lock.waiting": 1, "fairlead.lock.oldest_hold": 60, "fairlead.lock.longest_wait": 1,
	} {
		if is, ok := got[name]; !ok || is != want {
			t.Errorf("%s is %v (there: %v), want %v", name, is, ok, want)
		}
	}
}
