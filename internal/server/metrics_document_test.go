package server

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
)

const (
	metricsDocument = "../../docs/operations/metrics.md"
	namesDocument   = "../../docs/operations/requirement-names.md"
)

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
	// The alerts, the dashboard, and the page of the requirements' names have metrics that are there.
	for _, file := range []string{"../../docs/operations/alerts.yaml", "../../docs/operations/dashboard.json", namesDocument} {
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

// TestRequirementNames looks for the alerts and the log lines that the page of the requirements' names has.
func TestRequirementNames(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(namesDocument)
	must(t, err)
	alerts, err := os.ReadFile("../../docs/operations/alerts.yaml")
	must(t, err)
	names := regexp.MustCompile("`(Fairlead\\w+)`").FindAllStringSubmatch(string(page), -1)
	for _, m := range names {
		if !strings.Contains(string(alerts), "alert: "+m[1]+"\n") {
			t.Errorf("there is no alert %s", m[1])
		}
	}
	var source strings.Builder
	for _, dir := range []string{"../services", "../pgkit", "../../lock", "../../checkpoint"} {
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		}))
	}
	lines := regexp.MustCompile(`"[a-z][a-z :]+"`).FindAllString(strings.ReplaceAll(string(page), "`service=\"lottery\"`", ""), -1)
	for _, line := range lines {
		if line != `"refused"` && !strings.Contains(source.String(), line) {
			t.Errorf("nothing logs %s", line)
		}
	}
	if len(names) < 8 || len(lines) < 10 {
		t.Errorf("the page names %d alerts and %q", len(names), lines)
	}
}

// documentMetrics lists what a server registers.
func documentMetrics(t *testing.T) string {
	t.Helper()
	r := prometheus.NewRegistry()
	newHTTPMetrics(r)
	telemetry.NewLanes(r, "ledger")
	telemetry.NewTransactions(r)
	telemetry.NewLottery(r, nil)
	telemetry.NewAuctions(r, auction.Outcomes())
	lockprom.New(r)
	telemetry.NewMultidraws(r)
	telemetry.NewPublications[string, string](r)
	telemetry.NewSubscriptions(r, deliver.Outcomes()).Observe(func() telemetry.SubscriptionState { return telemetry.SubscriptionState{} })
	telemetry.NewLog(r).Observe(func() telemetry.LogState { return telemetry.LogState{} })
	telemetry.NewBooks(r).Observe(func(telemetry.BooksWork) telemetry.BooksState { return telemetry.BooksState{} })
	telemetry.NewSagas(r)
	telemetry.NewHistory(r)
	telemetry.NewCheckpoints(r)
	telemetry.NewPanics(r)
	telemetry.NewKeys(r)
	telemetry.NewSnapshots(r)
	telemetry.ObservePools(r, (&postgres.DB{}).Pools)
	telemetry.ObserveShared(r, (&postgres.DB{}).SharedTargets)
	telemetry.ObserveAccounts(r, func() (int, int64) { return 0, 0 })
	telemetry.ObserveReads(r, func() int { return 0 })
	telemetry.ObserveEngine(r, nil)
	telemetry.ObserveReplica(r, (&postgres.DB{}).Replica)
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
otherwise; durations are in seconds. Names that end in ` + "`_total`" + ` only grow. Those in ` + "`_seconds`" + `, ` + "`_size`" + ` and ` + "`_bytes`" + ` are histograms. But these are
gauges: names in ` + "`_overdue_seconds`" + ` and ` + "`_lag_seconds`" + `, ` + "`fairlead_books_late_seconds`" + `, and what is said to be of the last sample. The list is made from the
code, and a test keeps it so.
[requirement-names.md](requirement-names.md) maps the requirements' names to these.

| metric | labels | |
|---|---|---|
` + strings.Join(rows, "")
}
