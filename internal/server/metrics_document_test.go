package server

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

const metricsDocument = "../../docs/operations/metrics.md"

// TestMetricsDocument keeps the list of metrics and the code together; with FAIRLEAD_WRITE_DOCUMENTS set it writes the list.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	want := documentMetrics(t)
	if os.Getenv("FAIRLEAD_WRITE_DOCUMENTS") != "" {
		must(t, os.WriteFile(metricsDocument, []byte(want), 0o600))
		return
	}
	got, err := os.ReadFile(metricsDocument)
	must(t, err)
	if string(got) != want {
		t.Errorf("%s is not what the code has: run scripts/generate.sh", metricsDocument)
	}
	// The alerts and the dashboard name metrics that are there.
	for _, file := range []string{"../../docs/operations/alerts.yaml", "../../docs/operations/dashboard.json"} {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, name := range regexp.MustCompile(`\bfairlead_[a-z_]+`).FindAllString(string(text), -1) {
			plain := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
			if !strings.Contains(want, "`"+name+"`") && !strings.Contains(want, "`"+plain+"`") {
				t.Errorf("%s: there is no %s", file, name)
			}
		}
	}
}

// documentMetrics lists what a server registers.
func documentMetrics(t *testing.T) string {
	t.Helper()
	r := prometheus.NewRegistry()
	newHTTPMetrics(r)
	telemetry.NewLanes(r, "ledger")
	telemetry.NewTransactions(r)
	telemetry.NewLottery(r)
	telemetry.NewAuctions(r, auction.Outcomes())
	telemetry.NewLocks(r)
	telemetry.NewMultidraws(r)
	telemetry.NewPublications[string, string](r)
	telemetry.NewSagas(r)
	telemetry.ObservePools(r, (&postgres.DB{}).Pools)
	telemetry.ObserveLive(r, live.New(live.Options{}))
	descriptions := make(chan *prometheus.Desc)
	go func() {
		r.Describe(descriptions)
		close(descriptions)
	}()
	form := regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)".*, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	var rows []string
	for d := range descriptions {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("what is %s?", d)
		}
		constant, _, _ := strings.Cut(m[3], "=")
		labels := constant + strings.ReplaceAll(m[4], ",", ", ")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", m[1], labels, strings.ReplaceAll(m[2], `\"`, `"`)))
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	return `# Metrics

What a server says at ` + "`/metrics`" + `, beside the Go runtime's and the process's own. All are of one process unless they say
otherwise; durations are in seconds; names that end in ` + "`_total`" + ` only grow, those in ` + "`_seconds`" + ` and ` + "`_size`" + ` are histograms
unless they say that they were sampled. The list is made from the code, and a test keeps it so.

| metric | labels | |
|---|---|---|
` + strings.Join(rows, "")
}
