//go:build unix

package sim_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// versionBefore is what servers are upgraded from: the last commit whose newest step of the schema was 22.
const versionBefore = "5376c076be39a1797e49e345cf927819c053ef28"

// TestRollingUpgrade replaces two servers under load, one after the other, by those of a newer version, goes back to the old one
// in the same way, and then to the newer one again. Clients see nothing that a retry does not settle.
func TestRollingUpgrade(t *testing.T) {
	if os.Getenv("FAIRLEAD_TORTURE") == "" {
		t.Skip("it builds the version before: make torture runs it")
	}
	old, err := sim.BuildAt(testwait.Context(t, 10*patience), versionBefore, tempDir(t))
	testwait.Must(t, err)
	t.Run("ledger and campaigns", func(t *testing.T) { upgradeMoney(t, old) })
	t.Run("the rest", func(t *testing.T) { upgradeRest(t, old) })
}

// upgradeMoney has a load that is compared with a model in the end.
func upgradeMoney(t *testing.T, old string) {
	t.Helper()
	_, seed := testwait.Rand(t)
	database := emptyDatabase(t)
	r := &rollout{old: old, newer: binary(t)}
	r.servers = []*sim.Server{newServerOf(t, old, database), newServerOf(t, old, database)}
	client, history := newClient(t, r.servers...)
	mix := sim.DefaultMix()
	mix.Legs = 0 // The version before knows none.
	l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "upgrade", Accounts: 20, Workers: 16, Mix: mix})
	for _, version := range []string{r.newer, r.old, r.newer} {
		r.roll(t, version, history, 300, func() { auditNow(t, database) })
	}
	l.finish(t)
	closeBooks(t, database, client, history, 1)
	r.reportBatches(t)
}

// upgradeRest has a load of everything else. The ledger to which money goes has a server of its own, which is replaced, too.
func upgradeRest(t *testing.T, old string) {
	t.Helper()
	_, seed := testwait.Rand(t)
	h := &twoLedgers{own: emptyDatabase(t), other: emptyDatabase(t)}
	second := newServerOf(t, old, h.other)
	args := append(publishingArgs(), "--ledger", "eu="+h.other)
	for range 2 {
		h.coordinators = append(h.coordinators, newServerOf(t, old, h.own, args...))
	}
	h.fund(t, second, 4)
	r := &rollout{old: old, newer: binary(t), servers: append(slices.Clone(h.coordinators), second)}
	f := startFlows(t, r, h, seed)
	for i, version := range []string{r.newer, r.old, r.newer} {
		finish := f.bid(t, fmt.Sprintf("auction-%d", i), seed+uint64(i))
		r.roll(t, version, h.history, 100, func() { auditNow(t, h.own) })
		finish()
	}
	f.finish(t)
	h.close(t)
	t.Logf("%v", h.history.Count())
	r.reportBatches(t)
}

// rollout is servers of two versions.
type rollout struct {
	old, newer string // binaries
	servers    []*sim.Server
	newerOnes  sync.Map // those that run the newer version
	batches    int      // that servers took and have ended since
}

// runsNewer reports whether a server runs the newer version.
func (r *rollout) runsNewer(server *sim.Server) bool {
	_, is := r.newerOnes.Load(server)
	return is
}

// onlyNewer is a server as long as it runs the newer version.
type onlyNewer struct {
	*sim.Server

	of *rollout
}

// URL implements [sim.Target].
func (s onlyNewer) URL() string {
	if !s.of.runsNewer(s.Server) {
		return ""
	}
	return s.Server.URL()
}

var batchesTaken = regexp.MustCompile(`(?m)^fairlead_http_requests_total\{method="POST",route="/v1/commands",status="200"\} (\d+)$`)

// countBatches notes how many batches a server has taken. The version before has no such route.
func (r *rollout) countBatches(t *testing.T, server *sim.Server) {
	t.Helper()
	if m := batchesTaken.FindSubmatch(metricsOf(t, server)); m != nil {
		n, err := strconv.Atoi(string(m[1]))
		testwait.Must(t, err)
		r.batches += n
	}
}

// reportBatches wants clients to have sent batches to servers of the newer version.
func (r *rollout) reportBatches(t *testing.T) {
	t.Helper()
	for _, server := range r.servers {
		r.countBatches(t, server)
	}
	t.Logf("%d batches taken", r.batches)
	if r.batches == 0 {
		t.Error("no batch was taken")
	}
}

// roll replaces all servers by those of a version, one after the other, under load: there are so many answers before and after each.
func (r *rollout) roll(t *testing.T, version string, history *sim.History, answers int, check func()) {
	t.Helper()
	for _, server := range r.servers {
		await(t, "answers", history.After(answers))
		r.countBatches(t, server)
		r.newerOnes.Delete(server)
		code, err := server.Terminate(testwait.Context(t, patience))
		if err != nil || code != 0 {
			t.Fatalf("server ended with code %d: %v", code, err)
		}
		server.Replace(version)
		start(t, server)
		if version == r.newer {
			r.newerOnes.Store(server, nil)
		}
		await(t, "answers of both versions", history.After(answers))
		check()
	}
}
