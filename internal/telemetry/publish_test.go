package telemetry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// TestCheckpoints holds the names to those that are documented.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	c := telemetry.NewCheckpoints(r)
	want := map[string]sample{}
	for _, op := range checkpoint.Ops() {
		label := `operation="` + string(op) + `"`
		for _, name := range []string{"operations_total{" + label + `,result="ok"}`, "operations_total{" + label + `,result="failed"}`, "duration_seconds{" + label + "}", "state_bytes{" + label + "}"} {
			want["fairlead_checkpoint_"+name] = sample{}
		}
	}
	expect(t, r, want)
	c.Stored(checkpoint.OpSave, 300, time.Second, nil)
	c.Stored(checkpoint.OpSave, 400, 2*time.Second, errors.New("no")) // It is not known to be there.
	c.Stored(checkpoint.OpLoad, 0, time.Second, nil)
	for name, s := range map[string]sample{
		`operations_total{operation="save",result="ok"}`: {value: 1}, `operations_total{operation="save",result="failed"}`: {value: 1},
		`operations_total{operation="load",result="ok"}`: {value: 1}, `duration_seconds{operation="save"}`: {2, 3},
		`duration_seconds{operation="load"}`: {1, 1}, `state_bytes{operation="save"}`: {1, 300},
	} {
		want["fairlead_checkpoint_"+name] = s
	}
	expect(t, r, want)
}

// TestPublications holds the names to those that alerts and dashboards are written with.
func TestPublications(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	p := telemetry.NewPublications[publish.AttemptResult, publish.Outcome](r)
	attempts := func(result string) string { return `fairlead_publish_attempts_total{result="` + result + `"}` }
	want := map[string]sample{attempts("published"): {}, attempts("failed"): {}, attempts("refused"): {}}
	for _, n := range []string{"claims_total", "claim_duration_seconds", "late_seconds", "send_duration_seconds", "running", "overdue_seconds", "stale_claims_total", "firing_late_seconds"} {
		want["fairlead_publish_"+n] = sample{}
	}
	for _, outcome := range []string{"scheduled", "no_draft", "quota_reached"} {
		want[`fairlead_publish_firings_total{outcome="`+outcome+`"}`] = sample{}
	}
	expect(t, r, want)
	p.Claimed(3, time.Second)
	p.Attempted(500*time.Millisecond, 2*time.Second, 503)
	target := uuid.New()
	p.Recorded(target, publish.ResultRefused)
	p.Running(2)
	p.Released(4)
	p.Overdue(time.Minute)
	want["fairlead_publish_overdue_seconds"] = sample{value: 60}
	p.Fired(publish.OutcomeNoDraft, 250*time.Millisecond)
	want[`fairlead_publish_firings_total{outcome="no_draft"}`], want["fairlead_publish_firing_late_seconds"] = sample{value: 1}, sample{value: 1, sum: 0.25}
	want["fairlead_publish_claims_total"], want["fairlead_publish_claim_duration_seconds"] = sample{value: 3}, sample{value: 1, sum: 1}
	want["fairlead_publish_late_seconds"], want["fairlead_publish_send_duration_seconds"] = sample{value: 1, sum: 0.5}, sample{value: 1, sum: 2}
	for _, result := range []string{"published", "failed", "refused"} {
		want[`fairlead_publish_target_attempts_total{result="`+result+`",target="`+target.String()+`"}`] = sample{}
	}
	want[`fairlead_publish_target_attempts_total{result="refused",target="`+target.String()+`"}`] = sample{value: 1}
	want[`fairlead_publish_answers_total{status="503"}`] = sample{value: 1}
	want[attempts("refused")], want["fairlead_publish_running"], want["fairlead_publish_stale_claims_total"] = sample{value: 1}, sample{value: 2}, sample{value: 4}
	expect(t, r, want)
}
