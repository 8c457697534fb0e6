//go:build linux

package sim_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestStandbyFreezes stops the synchronous standby, which stays connected. The database answers reads, and every COMMIT waits: it is
// durable on the primary, and a failover could lose it. Nobody may be told that it happened, or that it did not, and the keys settle
// it when the standby confirms.
func TestStandbyFreezes(t *testing.T) {
	if !testwait.Torture() {
		t.Skip("it takes a minute: FAIRLEAD_TORTURE=1, or make torture, runs it")
	}
	const name = "follower"
	primary := pgtest.Server(t)
	standby := pgtest.StandbyOf(t, primary, name)
	admin := pgtest.Connect(t, primary.URL())
	for _, sql := range []string{
		`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`,
		`ALTER SYSTEM SET wal_sender_timeout = 0`, // The primary would end the connection after a minute.
		`SELECT pg_reload_conf()`,
	} {
		testwait.Must(t, testwait.Err(admin.Exec(t.Context(), sql)))
	}
	connected := func() (is bool) {
		testwait.Must(t, admin.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_replication WHERE application_name = $1 AND sync_state = 'sync'`, name).Scan(&is))
		return is
	}
	testwait.Eventually(t, patience, "a synchronous standby", connected)
	_, seed := testwait.Rand(t)
	c := newFrozenCase(t, seed, newServer(t, primary.URL()))
	await(t, "answers", c.history.After(50))

	var data string
	testwait.Must(t, pgtest.Connect(t, standby.URL()).QueryRow(t.Context(), `SELECT current_setting('data_directory')`).Scan(&data))
	frozen, err := sim.FreezePostgres(testwait.Context(t, patience), filepath.Dir(data))
	t.Cleanup(func() { testwait.Check(t, testwait.Err(frozen.Thaw())) })
	testwait.Must(t, err)
	began := time.Now()
	ops := c.commands("standby", testwait.Count(4, 32))
	asked := &questions{}
	for _, op := range ops {
		asked.ask(op.String(), func() sim.Answer { return c.client.Once(t.Context(), op) })
	}
	noticed := unready(t, c.server)
	if said := readinessOf(t.Context(), c.server); said != "commit_timeout" {
		t.Errorf("/readyz says %s", said)
	}
	out, code := doctor(t, "--database-url", primary.URL())
	for _, wrong := range []string{`WRONG: commits: a commit does not end within 2 s`, `WRONG: replication: the synchronous standby follower is connected \(streaming\)`} {
		if code != 1 || !regexp.MustCompile(wrong).MatchString(out) {
			t.Errorf("fairlead doctor ended with %d and does not say %q: %s", code, wrong, out)
		}
	}
	t.Logf("noticed after %v; doctor: %s", noticed.Round(time.Millisecond), complaints(out))
	if out, code := doctor(t, "--url", c.server.URL()); code != 1 || !strings.Contains(out, "commit_timeout") {
		t.Errorf("fairlead doctor --url ended with %d: %s", code, out)
	}
	reads := &questions{}
	for _, path := range c.reads() {
		reads.ask("GET "+path, func() sim.Answer { return c.client.Get(t.Context(), path) })
	}
	checkReplies(t, "reads", reads.answers(), func(a sim.Answer) bool { return a.Status == http.StatusOK })
	replies := asked.answers()
	checkUnavailable(t, replies)
	if !slices.ContainsFunc(replies, func(r reply) bool { return r.answer.Code() == "outcome_unknown" }) {
		t.Error("no command was told that its outcome is unknown")
	}
	if !connected() {
		t.Error("the standby is not connected any more")
	}
	if said := metricsOf(t, c.server); !strings.Contains(string(said), `fairlead_unready_total{reason="commit_timeout"}`) {
		t.Errorf("fairlead_unready_total does not say it: %s", said)
	}
	if !regexp.MustCompile(`level=WARN msg="not ready" .*error="commit_timeout`).MatchString(c.server.Log()) {
		t.Error("the log does not say commit_timeout")
	}
	asleep := time.Since(began)
	testwait.Must(t, testwait.Err(frozen.Thaw()))
	ready := awaitReadiness(t, c.server, http.StatusOK)
	c.settle(t, primary.URL(), ops)
	t.Log(fmt.Sprintf("frozen for %v, ready %v after the thaw", asleep.Round(time.Millisecond), ready.Round(time.Millisecond)), "\n", messages(c.server.Log()))
}
