//go:build linux

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// pauseEnv is how much longer than its fault a pause may be. A machine that does something else besides needs more than the
// second that is promised, so that only make torture and make failover ask for that.
const pauseEnv = "FAIRLEAD_PAUSE"

// pauseLimit reads [pauseEnv]; unset, it is 30 s.
func pauseLimit(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(pauseEnv)
	if text == "" {
		return 30 * time.Second
	}
	more, err := time.ParseDuration(text)
	testwait.Must(t, err)
	return more
}

// pinger has one server acknowledge deposits on an account of its own.
type pinger struct {
	client  *sim.Client
	account string
}

// newPingers makes one for each server. What they send is in the history.
func newPingers(t *testing.T, client *sim.Client, history *sim.History, servers ...*sim.Server) (pingers []pinger) {
	t.Helper()
	var accounts []string
	for i, server := range servers {
		p := pinger{sim.NewClient(history, sim.AdminKey, server), fmt.Sprintf("pinger-%d", i)}
		t.Cleanup(p.client.Close)
		pingers, accounts = append(pingers, p), append(accounts, p.account)
	}
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), client, accounts, 0))
	return pingers
}

// pingAll has the servers acknowledge deposits, one after the other, until over is closed and for one more. For each server it
// returns what sends the longest time between two of them.
func pingAll(t *testing.T, pingers []pinger, name string, over <-chan struct{}) (pauses []<-chan time.Duration) {
	t.Helper()
	for _, p := range pingers {
		longest := make(chan time.Duration, 1)
		pauses = append(pauses, longest)
		go func() { longest <- p.ping(t, strings.ReplaceAll(name, " ", "-"), over) }()
	}
	return pauses
}

func (p pinger) ping(t *testing.T, name string, over <-chan struct{}) time.Duration {
	t.Helper()
	longest, last := time.Duration(0), time.Now()
	for n, after := 0, false; !after; n++ {
		select {
		case <-over:
			after = true
		default:
		}
		op := sim.NewDeposit(fmt.Sprintf("%s-%s-%d", name, p.account, n), p.account, 1)
		if _, err := p.client.Expect(t.Context(), op, http.StatusCreated); err != nil {
			t.Errorf("%s: %v", name, err)
			break
		}
		longest, last = max(longest, time.Since(last)), time.Now()
		wait.For(t.Context(), 10*time.Millisecond) // The books are to stay short.
	}
	return longest
}

// outage is a fault that two servers under load meet.
type outage struct {
	name string
	// row is that of the table in which it counts, if there is one.
	row string
	// begin starts it and returns what ends it.
	begin func(t *testing.T, s *outageStage) (end func())
	// lasts is how long it lasts at least.
	lasts time.Duration
	// reason is what /readyz of all servers gives for a 503 meanwhile; empty: they need not all notice it.
	reason string
	// doctor is part of what fairlead doctor says of the database meanwhile, with exit status 1; empty: it is not asked.
	doctor string
	// moves begins the name of a metric that grows meanwhile; with a reason, that of fairlead_unready_total does, too.
	moves string
	// ready says that all servers must stay ready.
	ready bool
}

// outageStage is two servers under load on a private PostgreSQL of their own.
type outageStage struct {
	dir, url string
	faked    bool // PostgreSQL's clock is libfaketime's
	postgres *localpg.Instance
	servers  []*sim.Server
	client   *sim.Client
	history  *sim.History
	load     *load
	pingers  []pinger
	// atRest is the longest pause without a fault.
	atRest  time.Duration
	answers map[string]int
	report  []string
}

func newOutageStage(t *testing.T, dir string, faked bool) *outageStage {
	t.Helper()
	s := &outageStage{dir: dir, faked: faked, answers: map[string]int{}}
	var err error
	s.postgres, err = localpg.Start(testwait.Context(t, patience), localpg.Options{Dir: dir, DieWithParent: true})
	if errors.Is(err, localpg.ErrNoBinaries) {
		skipWithoutPostgres(t, err.Error())
	}
	testwait.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testwait.Check(t, s.postgres.Stop(ctx))
		if log, _ := os.ReadFile(filepath.Join(dir, "postgres.log")); t.Failed() {
			log = regexp.MustCompile(`(?m)^.*(FATAL:  the database system is|DETAIL:  Consistent recovery state).*\n`).ReplaceAll(log, nil)
			t.Logf("end of PostgreSQL's log:\n%s", log[max(0, len(log)-6000):])
		}
	})
	s.url = s.postgres.URL()
	s.execute(t, `ALTER SYSTEM SET max_wal_size = '512MB'`, `ALTER SYSTEM SET min_wal_size = '256MB'`, `SELECT pg_reload_conf()`)
	s.servers = []*sim.Server{newServer(t, s.url), newServer(t, s.url)}
	s.client, s.history = newClient(t, s.servers...)
	s.pingers = newPingers(t, s.client, s.history, s.servers...)
	_, seed := testwait.Rand(t)
	s.load = startLoad(t, s.client, sim.WorkloadOptions{Seed: seed, Prefix: "outage", Accounts: 20, Workers: 4, Mix: sim.DefaultMix()})
	s.meet(t, outage{name: "at rest", begin: func(*testing.T, *outageStage) func() { return func() {} }, lasts: 5 * time.Second, ready: true})
	return s
}

// crashed reports whether the tool that gives PostgreSQL another clock has crashed it: a handler of a signal that asks for the time reads the tool's
// file, which it may not do amid an allocation. PostgreSQL starts again by itself, and what is acknowledged has to outlast that, too.
func (s *outageStage) crashed(t *testing.T, o outage) bool {
	t.Helper()
	log, _ := os.ReadFile(filepath.Join(s.dir, "postgres.log"))
	by := regexp.MustCompile(`was terminated by signal (6|11).*`).Find(log)
	if !s.faked || by == nil {
		return false
	}
	t.Logf("%s: PostgreSQL %s under libfaketime: servers need not have stayed ready", o.name, by)
	return true
}

// execute runs statements by somebody who is not Fairlead.
func (s *outageStage) execute(t *testing.T, statements ...string) {
	t.Helper()
	conn := pgtest.Connect(t, s.url)
	for _, sql := range statements {
		_, err := conn.Exec(testwait.Context(t, patience), sql)
		testwait.Must(t, err)
	}
	testwait.Check(t, conn.Close(t.Context()))
}

// commits reports whether the database commits.
func (s *outageStage) commits(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'fairlead', 'probe')")
	return err == nil
}

// watch notes what /readyz of a server says until over is closed.
func watch(t *testing.T, server *sim.Server, over <-chan struct{}) <-chan map[string]int {
	t.Helper()
	said := make(chan map[string]int, 1)
	go func() {
		counts := map[string]int{}
		for going := true; going; {
			select {
			case <-over:
				going = false
			case <-time.After(50 * time.Millisecond):
				counts[readinessOf(t.Context(), server)]++
			}
		}
		said <- counts
	}()
	return said
}

// readinessOf is "ready", the reason why a server is not, or that it does not answer.
func readinessOf(ctx context.Context, server *sim.Server) string {
	c, err := client.New(server.URL(), sim.AdminKey, client.WithRetry(client.Retry{Attempts: 1}),
		client.WithHTTPClient(&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}))
	if err != nil {
		return err.Error()
	}
	err = c.Ready(ctx)
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return p.Reason
	}
	if err != nil {
		return "no answer"
	}
	return "ready"
}

// meet has the servers meet a fault, and compares what they and everybody else say of it with what they should.
func (s *outageStage) meet(t *testing.T, o outage) {
	t.Helper()
	await(t, "answers", s.history.After(50))
	logs, metrics := s.logSizes(), s.metrics(t)
	over := make(chan struct{})
	pauses := pingAll(t, s.pingers, o.name, over)
	var said []<-chan map[string]int
	for _, server := range s.servers {
		said = append(said, watch(t, server, over))
	}
	began := time.Now()
	if o.row != "" {
		s.history.Recorder.Fault(o.row, began)
	}
	end := o.begin(t, s)
	var notes []string
	if o.reason != "" {
		for i, server := range s.servers {
			testwait.Eventually(t, patience, fmt.Sprintf("%s: server %d is not ready: %s", o.name, i, o.reason), func() bool {
				return readinessOf(t.Context(), server) == o.reason
			})
		}
		notes = append(notes, fmt.Sprintf("all servers noticed it after %v", time.Since(began).Round(time.Millisecond)))
	}
	if o.doctor != "" {
		notes = append(notes, s.askDoctor(t, o)...)
	}
	wait.For(t.Context(), o.lasts-time.Since(began))
	end()
	testwait.Eventually(t, patience, o.name+": the database commits again", func() bool { return s.commits(t.Context()) })
	fault := time.Since(began)
	for _, server := range s.servers {
		awaitReadiness(t, server, http.StatusOK)
	}
	close(over)
	longest := time.Duration(0)
	for i := range s.servers {
		pause, counts := <-pauses[i], <-said[i]
		longest = max(longest, pause)
		notes = append(notes, fmt.Sprintf("server %d: pause %v, readyz %v", i, pause.Round(time.Millisecond), counts))
		if o.ready && (len(counts) > 1 || counts["ready"] == 0) && !s.crashed(t, o) {
			t.Errorf("%s: server %d must stay ready: %v", o.name, i, counts)
		}
	}
	await(t, "answers after the fault", s.history.After(50))
	auditNow(t, s.url)
	grown, logged := moved(metrics, s.metrics(t)), s.logged(logs)
	notes = append(notes, "answers: "+s.newAnswers(), "metrics: "+strings.Join(grown, "\n\t\t"), "logs: "+messages(logged))
	for line := range strings.Lines(logged) {
		if strings.Contains(line, "level=ERROR") {
			notes = append(notes, strings.TrimSpace(line))
		}
	}
	if !hasPrefix(grown, o.moves) {
		t.Errorf("%s: no %s has grown", o.name, o.moves)
	}
	if o.reason != "" {
		if !hasPrefix(grown, `fairlead_unready_total{reason="`+o.reason+`"`) {
			t.Errorf("%s: fairlead_unready_total has not grown", o.name)
		}
		if !regexp.MustCompile(`level=WARN msg="not ready" .*error="` + o.reason).MatchString(logged) {
			t.Errorf("%s: the log does not say %s", o.name, o.reason)
		}
	}
	line := fmt.Sprintf("%s: %v, pause %v", o.name, fault.Round(time.Millisecond), longest.Round(time.Millisecond))
	t.Logf("%s\n\t%s", line, strings.Join(notes, "\n\t"))
	s.report = append(s.report, line)
	if o.name == "at rest" {
		s.atRest = longest
		return
	}
	if limit := fault + pauseLimit(t) + s.atRest; longest > limit {
		t.Errorf("%s: a pause of %v, limit %v", o.name, longest, limit)
	}
}

// close ends the load and compares the books.
func (s *outageStage) close(t *testing.T) {
	t.Helper()
	s.load.finish(t)
	checkWord(t, s.history)
	closeBooks(t, s.url, s.client, s.history, 10)
	t.Log(strings.Join(s.report, "\n"))
}

// askDoctor wants fairlead doctor to name the fault, asked of the database and of a server.
func (s *outageStage) askDoctor(t *testing.T, o outage) (notes []string) {
	t.Helper()
	var out string
	var code int
	var took time.Duration
	testwait.Eventually(t, patience, o.name+": fairlead doctor says "+o.doctor, func() bool {
		began := time.Now()
		out, code = doctor(t, "--database-url", s.url)
		took = time.Since(began)
		return code == 1 && strings.Contains(out, o.doctor)
	})
	notes = append(notes, fmt.Sprintf("doctor, in %v: %s", took.Round(time.Millisecond), complaints(out)))
	if o.reason != "" {
		out, code = doctor(t, "--url", s.servers[0].URL())
		if code != 1 || !strings.Contains(out, o.reason) {
			t.Errorf("%s: fairlead doctor --url ended with %d and does not say %q: %s", o.name, code, o.reason, out)
		}
		notes = append(notes, "doctor --url: "+complaints(out))
	}
	return notes
}

// doctor runs fairlead doctor.
func doctor(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(testwait.Context(t, patience), binary(t), append([]string{"doctor"}, args...)...)
	cmd.Env = append(os.Environ(), "FAIRLEAD_KEY="+sim.AdminKey)
	said, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		code = exit.ExitCode()
	}
	return string(said), code
}

// complaints are the lines of a doctor's output that say what is wrong.
func complaints(out string) string {
	setting := regexp.MustCompile(`^[a-z_]+ {2,}|^ok: |^    to mend it: |^$`)
	lines := slices.DeleteFunc(strings.Split(out, "\n"), setting.MatchString)
	return strings.Join(lines, " | ")
}

// newAnswers counts what clients were told since the last call, but for successes and refusals.
func (s *outageStage) newAnswers() string {
	counts := map[string]int{}
	for _, op := range s.history.Ops() {
		for _, a := range op.Answers() {
			p := a.Problem()
			switch {
			case a.Err != nil:
				counts["no answer"]++
			case p.Retryable || a.Status >= 500:
				counts[fmt.Sprintf("%d %s %s", a.Status, p.Code, p.Outcome)]++
			default:
				counts["final"]++
			}
		}
	}
	news := map[string]int{}
	for what, n := range counts {
		if d := n - s.answers[what]; d > 0 {
			news[what] = d
		}
	}
	s.answers = counts
	return fmt.Sprint(news)
}

// metrics reads the metrics of all servers, in sum.
func (s *outageStage) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	for _, server := range s.servers {
		for name, n := range seriesOf(t, server) {
			sum[name] += n
		}
	}
	return sum
}

// seriesOf reads the metrics with labels of a server.
func seriesOf(t *testing.T, server *sim.Server) map[string]float64 {
	t.Helper()
	resp, err := http.Get(server.URL() + "/metrics")
	testwait.Must(t, err)
	text, err := io.ReadAll(resp.Body)
	testwait.Must(t, errors.Join(err, resp.Body.Close()))
	series := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, "fairlead_") {
			series[name+"}"], _ = strconv.ParseFloat(value, 64)
		}
	}
	return series
}

// moved lists the metrics of faults that have grown.
func moved(before, after map[string]float64) (lines []string) {
	faults := regexp.MustCompile(`_retries_total|_transactions_total.*(failed|unknown)|requests_total.*status="5|lane_failures|refused_total|unready`)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if d := after[name] - before[name]; d > 0 && faults.MatchString(name) && !strings.Contains(name, `"stale"`) {
			lines = append(lines, fmt.Sprintf("%s +%g", name, d))
		}
	}
	return lines
}

func hasPrefix(lines []string, prefix string) bool {
	return prefix == "" || slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, prefix) })
}

func (s *outageStage) logSizes() (sizes []int) {
	for _, server := range s.servers {
		sizes = append(sizes, len(server.Log()))
	}
	return sizes
}

// logged is what the servers have logged since their logs had the given sizes.
func (s *outageStage) logged(since []int) (text string) {
	for i, server := range s.servers {
		text += server.Log()[since[i]:]
	}
	return text
}

// messages counts the warnings and errors in a log.
func messages(log string) string {
	counts := map[string]int{}
	for _, m := range regexp.MustCompile(`level=(WARN|ERROR) msg=("[^"]*"|\S+)`).FindAllStringSubmatch(log, -1) {
		counts[m[1]+" "+m[2]]++
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("\n\t\t%d× %s", counts[what], what))
	}
	return strings.Join(lines, "")
}
