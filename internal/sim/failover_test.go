//go:build linux

package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// failoversEnv says how often TestFailovers takes the primary away.
const failoversEnv = "FAIRLEAD_FAILOVERS"

// healLimit is how long a cluster may take to be whole again: a lost machine is missed after 20 s, and rewinds its data.
const healLimit = 3 * time.Minute

// TestFailovers runs two servers under load on three PostgreSQL as scripts/ha.sh runs them, and takes the primary away in four
// ways: PostgreSQL dies, Patroni is asked to switch, the machine is lost, the machine freezes and comes back. Nothing
// that was acknowledged may be lost or happen twice, and no server may pause for longer than the database was away and [pauseEnv].
func TestFailovers(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv(failoversEnv))
	if count == 0 {
		t.Skipf("it takes half a minute a failover: %s=100, or make failover, runs it", failoversEnv)
	}
	c := startCluster(t)
	servers := []*sim.Server{newServer(t, c.url), newServer(t, c.url)}
	client, history := newClient(t, servers...)
	pingers := newPingers(t, client, history, servers...)
	more := pauseLimit(t)
	_, seed := testwait.Rand(t)
	l := startLoad(t, client, sim.WorkloadOptions{Seed: seed, Prefix: "failover", Accounts: 20, Workers: 8, Mix: sim.DefaultMix()})
	kinds := []string{"postgres killed", "switchover", "machine lost", "machine frozen"}
	faults, pauses := map[string][]time.Duration{}, map[string][]time.Duration{}
	var tooLong []string // They are all to be known.
	for i := range count {
		kind := kinds[i%len(kinds)]
		await(t, "answers", history.After(50))
		fault, pause := c.fail(t, kind, func(over <-chan struct{}) []<-chan time.Duration {
			return pingAll(t, pingers, fmt.Sprintf("failover %d", i), over)
		})
		faults[kind], pauses[kind] = append(faults[kind], fault), append(pauses[kind], pause)
		t.Logf("%d, %s: the database was away for %v, the servers for %v", i, kind, fault.Round(time.Millisecond), pause.Round(time.Millisecond))
		if pause > fault+more {
			tooLong = append(tooLong, fmt.Sprintf("%d, %s: a server paused for %v, the database was away for %v", i, kind, pause, fault))
		}
		await(t, "answers after the fault", history.After(50))
		if t.Failed() {
			break
		}
	}
	l.finish(t)
	checkWord(t, history)
	closeBooks(t, c.url, client, history, 1)
	for _, kind := range kinds {
		t.Logf("%s, %d times: database away %s, servers %s", kind, len(faults[kind]), spread(faults[kind]), spread(pauses[kind]))
	}
	if len(tooLong) > 0 {
		t.Errorf("pauses of over %v more than the database's: %s", more, strings.Join(tooLong, "; "))
	}
}

// spread tells the median and the longest.
func spread(of []time.Duration) string {
	if len(of) == 0 {
		return "never"
	}
	slices.Sort(of)
	median := (of[(len(of)-1)/2] + of[len(of)/2]) / 2
	return fmt.Sprintf("%v, at most %v", median.Round(time.Millisecond), of[len(of)-1].Round(time.Millisecond))
}

// cluster is three PostgreSQL under Patroni.
type cluster struct {
	dir, url string
	nodes    []string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{dir: tempDir(t), nodes: []string{"a", "b", "c"}}
	log, err := os.Create(filepath.Join(c.dir, "ha.log"))
	testwait.Must(t, err)
	script := exec.Command("../../scripts/ha.sh", c.dir)
	script.Stdout, script.Stderr = log, log
	testwait.Must(t, script.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = script.Wait() // A signal ends it.
	}()
	t.Cleanup(func() {
		_ = script.Process.Signal(syscall.SIGTERM)
		<-ended
		_ = log.Close()
		for _, node := range c.nodes {
			if said, _ := os.ReadFile(filepath.Join(c.dir, node, "patroni.log")); t.Failed() {
				t.Logf("the end of what Patroni said on %s: %s", node, said[max(len(said)-50_000, 0):])
			}
		}
	})
	testwait.Eventually(t, healLimit, "a cluster", func() bool {
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("scripts/ha.sh ended: %s", said)
		default:
		}
		url, _ := os.ReadFile(filepath.Join(c.dir, "url"))
		c.url = strings.TrimSpace(string(url))
		return c.url != ""
	})
	c.heal(t)
	return c
}

// member is one of Patroni's answer to /cluster.
type member struct {
	Name, Role, State string
	Timeline          int
}

// members asks Patroni, whichever node answers.
func (c *cluster) members(ctx context.Context) []member {
	for _, node := range c.nodes {
		var answer struct{ Members []member }
		if body, err := c.call(ctx, http.MethodGet, node, "/cluster", ""); err == nil && json.Unmarshal(body, &answer) == nil {
			return answer.Members
		}
	}
	return nil
}

func (c *cluster) call(ctx context.Context, method, node, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	rest, err := os.ReadFile(filepath.Join(c.dir, node, "rest"))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+strings.TrimSpace(string(rest))+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var said json.RawMessage
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	if method == http.MethodGet {
		err = json.NewDecoder(answer.Body).Decode(&said)
	}
	return said, err
}

// heal waits until the cluster is whole: a leader, a synchronous standby, and all of them on one timeline.
func (c *cluster) heal(t *testing.T) (leader string) {
	t.Helper()
	var members []member
	defer func() {
		if t.Failed() {
			t.Logf("the cluster: %+v", members)
		}
	}()
	testwait.Eventually(t, healLimit, "a whole cluster", func() bool {
		leader = ""
		synchronous := false
		members = c.members(t.Context())
		for _, m := range members {
			if (m.State != "running" && m.State != "streaming") || m.Timeline != members[0].Timeline {
				return false
			}
			if m.Role == "leader" {
				leader = m.Name
			}
			synchronous = synchronous || m.Role == "sync_standby" || m.Role == "quorum_standby"
		}
		return len(members) == len(c.nodes) && leader != "" && synchronous
	})
	return leader
}

// fail takes the primary away and gives the machine back. It returns how long it took until a primary committed again, and the
// longest pause that ping sends: each server is pinged from before the fault until after it.
func (c *cluster) fail(t *testing.T, kind string, ping func(over <-chan struct{}) []<-chan time.Duration) (fault, pause time.Duration) {
	t.Helper()
	leader := c.heal(t)
	at := filepath.Join(c.dir, leader)
	over := make(chan struct{})
	pauses := ping(over)
	began := time.Now()
	giveBack := func() {}
	switch kind {
	case "postgres killed":
		testwait.Must(t, sim.KillPostgres(at, true))
	case "switchover":
		go func() { _, _ = c.call(t.Context(), http.MethodPost, leader, "/switchover", `{"leader":"`+leader+`"}`) }()
		testwait.Eventually(t, healLimit, "another leader", func() bool {
			return slices.ContainsFunc(c.members(t.Context()), func(m member) bool { return m.Role == "leader" && m.Name != leader })
		})
	case "machine lost":
		testwait.Must(t, os.WriteFile(filepath.Join(at, "down"), nil, 0o600))
		c.patroni(t, leader, syscall.SIGKILL)
		testwait.Must(t, sim.KillPostgres(at, true))
		giveBack = func() { testwait.Must(t, os.Remove(filepath.Join(at, "down"))) }
	case "machine frozen":
		c.patroni(t, leader, syscall.SIGSTOP)
		frozen, err := sim.FreezePostgres(testwait.Context(t, patience), at)
		testwait.Must(t, err)
		giveBack = func() {
			c.patroni(t, leader, syscall.SIGCONT)
			testwait.Must(t, testwait.Err(frozen.Thaw()))
		}
	}
	testwait.Eventually(t, healLimit, "a new primary", func() bool {
		return slices.ContainsFunc(c.nodes, func(node string) bool { return (node != leader || kind == "postgres killed") && c.commits(t, node) })
	})
	fault = time.Since(began)
	close(over)
	for _, longest := range pauses {
		pause = max(pause, <-longest)
	}
	giveBack()
	c.heal(t)
	return fault, pause
}

// patroni sends a signal to a node's Patroni.
func (c *cluster) patroni(t *testing.T, node string, signal syscall.Signal) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, node, "patroni.pid"))
	testwait.Must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	testwait.Must(t, err)
	testwait.Must(t, syscall.Kill(pid, signal))
}

// commits reports whether a node commits, which its standby has confirmed then.
func (c *cluster) commits(t *testing.T, node string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	config, err := pgx.ParseConfig(c.url)
	testwait.Must(t, err)
	hosts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port}}, config.Fallbacks...)
	// With and without TLS, each host is there twice.
	hosts = slices.CompactFunc(hosts, func(a, b *pgconn.FallbackConfig) bool { return a.Port == b.Port })
	to := hosts[slices.Index(c.nodes, node)]
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = to.Host, to.Port, nil, nil
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'fairlead', 'probe')")
	return err == nil
}
