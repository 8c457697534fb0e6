package server

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAlerts holds the rules, their tests and the runbook together: promtool runs the tests, and knows nothing of a rule
// that has none.
func TestAlerts(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile("../../docs/operations/" + name)
		must(t, err)
		return string(text)
	}
	rules, tests, runbook := read("alerts.yaml"), read("alerts_test.yaml"), read("runbook.md")
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(rules, -1) {
		names = append(names, m[1])
	}
	for _, name := range names {
		if !strings.Contains(rules, "runbook: docs/operations/runbook.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s does not name its section of the runbook", name)
		}
		if !strings.Contains(runbook, "\n## "+name+"\n") {
			t.Errorf("the runbook has no section %s", name)
		}
		if !strings.Contains(tests, "\n  - name: "+name+"\n") || !strings.Contains(tests, `alertname="`+name+`", alertstate="firing"`) {
			t.Errorf("%s has no test in which it fires", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Fairlead\w+)$`).FindAllStringSubmatch(runbook, -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("the runbook has a section %s, of which there is no rule", m[1])
		}
	}
	// What the requirements ask to be woken for.
	for what, name := range map[string]string{
		"a stuck draw": "FairleadDrawStuck", "overselling": "FairleadOversold", "a duplicate draw": "FairleadDrawDuplicate",
		"retries of draws": "FairleadDrawRetries", "retries": "FairleadTransactionRetries", "a lock held too long": "FairleadLockHeldTooLong", "a lock held for ever": "FairleadLockOldestHold",
		"what is in doubt": "FairleadInDoubt", "stale claims": "FairleadClaimsStale", "no leader": "FairleadLeaderAbsent",
		"a full queue": "FairleadQueueFull", "an old snapshot": "FairleadSnapshotOld",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no rule about %s", what)
		}
	}
}
