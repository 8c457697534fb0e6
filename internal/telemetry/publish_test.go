package telemetry_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// TestPublications holds the names to those that alerts and dashboards are written with.
func TestPublications(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	p := telemetry.NewPublications[publish.AttemptResult, publish.Outcome](r)
	attempts := func(result string) string { return `fairlead_publish_attempts_total{result="` + result + `"}` }
	want := map[string]sample{attempts("published"): {}, attempts("failed"): {}, attempts("refused"): {}}
	for _, n := range []string{"claims_total", "claim_duration_seconds", "late_seconds", "send_duration_seconds", "running", "stale_claims_total", "firing_late_seconds"} {
		want["fairlead_publish_"+n] = sample{}
	}
	for _, outcome := range []string{"scheduled", "no_draft", "quota_reached"} {
		want[`fairlead_publish_firings_total{outcome="`+outcome+`"}`] = sample{}
	}
	expect(t, r, want)
	p.Claimed(3, time.Second)
	p.Attempted(500*time.Millisecond, 2*time.Second, 503)
	p.Recorded(publish.ResultRefused)
	p.Running(2)
	p.Released(4)
	p.Fired(publish.OutcomeNoDraft, 250*time.Millisecond)
	want[`fairlead_publish_firings_total{outcome="no_draft"}`], want["fairlead_publish_firing_late_seconds"] = sample{value: 1}, sample{value: 1, sum: 0.25}
	want["fairlead_publish_claims_total"], want["fairlead_publish_claim_duration_seconds"] = sample{value: 3}, sample{value: 1, sum: 1}
	want["fairlead_publish_late_seconds"], want["fairlead_publish_send_duration_seconds"] = sample{value: 1, sum: 0.5}, sample{value: 1, sum: 2}
	want[`fairlead_publish_answers_total{status="503"}`] = sample{value: 1}
	want[attempts("refused")], want["fairlead_publish_running"], want["fairlead_publish_stale_claims_total"] = sample{value: 1}, sample{value: 2}, sample{value: 4}
	expect(t, r, want)
}
