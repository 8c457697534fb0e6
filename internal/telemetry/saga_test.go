package telemetry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/saga"
)

// TestSagasInDoubt samples what is in doubt in two ledgers, one of which goes away and comes back.
func TestSagasInDoubt(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := telemetry.NewSagas(r)
	ledgers := []string{"eu", "local"}
	at := time.Now()
	doubt := func(ledger string, age time.Duration) saga.Doubt {
		return saga.Doubt{Participant: ledger, Prepared: saga.Prepared{Age: age}}
	}
	away := map[string]error{"eu": errors.New("it is away")}
	for i, step := range []struct {
		after    time.Duration
		found    []saga.Doubt
		failures map[string]error
		want     map[string]float64 // others: 0
	}{
		{failures: away, want: map[string]float64{`ledger_unreachable{ledger="eu"}`: 1}},
		{
			found: []saga.Doubt{doubt("eu", time.Minute), doubt("eu", time.Second), doubt("local", 2*time.Second)},
			want: map[string]float64{
				`in_doubt{ledger="eu"}`: 2, `in_doubt_oldest_seconds{ledger="eu"}`: 60,
				`in_doubt{ledger="local"}`: 1, `in_doubt_oldest_seconds{ledger="local"}`: 2,
			},
		},
		// What can't be asked is as it was, and older.
		{after: 10 * time.Second, failures: away, want: map[string]float64{
			`in_doubt{ledger="eu"}`: 2, `in_doubt_oldest_seconds{ledger="eu"}`: 70, `ledger_unreachable{ledger="eu"}`: 1,
		}},
		{after: 20 * time.Second},
		{after: 30 * time.Second, failures: away, want: map[string]float64{`ledger_unreachable{ledger="eu"}`: 1}},
	} {
		m.Sample(ledgers, step.found, step.failures, at.Add(step.after))
		got := gather(t, r)
		for _, name := range []string{"in_doubt", "in_doubt_oldest_seconds", "ledger_unreachable"} {
			for _, ledger := range ledgers {
				label := name + `{ledger="` + ledger + `"}`
				if s := got["fairlead_saga_"+label]; s.value != step.want[label] {
					t.Errorf("step %d: %s is %v, want %v", i, label, s.value, step.want[label])
				}
			}
		}
	}
}
