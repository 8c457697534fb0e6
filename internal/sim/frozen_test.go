//go:build linux

package sim_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// exitLimit is how soon a server must end after SIGTERM while its database is frozen.
const exitLimit = 60 * time.Second

// answerLimit is how soon every request to a frozen database must be answered. Short tests, beside others, only find those that are not.
func answerLimit() time.Duration {
	if testwait.Torture() {
		return 45 * time.Second
	}
	return patience
}

// reply is the answer to one request, and how long it took.
type reply struct {
	what   string
	answer sim.Answer
	took   time.Duration
}

// questions are requests that are under way at the same time.
type questions struct {
	group   sync.WaitGroup
	mu      sync.Mutex
	replies []reply
}

// ask sends one request in the background.
func (q *questions) ask(what string, send func() sim.Answer) {
	q.group.Go(func() { q.timed(what, send) })
}

// timed sends one request and keeps the answer.
func (q *questions) timed(what string, send func() sim.Answer) {
	began := time.Now()
	answer := send()
	took := time.Since(began)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.replies = append(q.replies, reply{what, answer, took})
}

// answers waits for the rest of the replies.
func (q *questions) answers() []reply {
	q.group.Wait()
	return q.replies
}

// checkOvertaken wants every read that began before the freeze to have been answered, one way or the other.
func checkOvertaken(t *testing.T, replies []reply) {
	t.Helper()
	checkReplies(t, "begun before the freeze", replies, func(a sim.Answer) bool { return a.Status == http.StatusOK || a.Problem().Retryable })
}

// checkUnavailable wants every request to have been told that it can be repeated, and what is known of its effect.
func checkUnavailable(t *testing.T, replies []reply) {
	t.Helper()
	checkReplies(t, "to a frozen database", replies, func(a sim.Answer) bool {
		p := a.Problem()
		return a.Status == http.StatusServiceUnavailable && p.Retryable && slices.Contains([]string{"not_applied", "unknown"}, p.Outcome)
	})
}

func checkReplies(t *testing.T, when string, replies []reply, right func(sim.Answer) bool) {
	t.Helper()
	counts, slowest := map[string]int{}, reply{}
	for _, r := range replies {
		p := r.answer.Problem()
		counts[fmt.Sprintf("%d %s %s", r.answer.Status, p.Code, p.Outcome)]++
		if r.took > slowest.took {
			slowest = r
		}
		if r.answer.Err != nil || !right(r.answer) || r.took > answerLimit() {
			t.Errorf("%s: %s: after %v: %v", when, r.what, r.took.Round(time.Millisecond), r.answer)
		}
	}
	t.Logf("%d requests %s: %v; slowest %.80s after %v", len(replies), when, counts, slowest.what, slowest.took.Round(time.Millisecond))
}

// frozenCase is a server whose database is about to freeze: with load, a campaign on sale, and accounts that nothing but
// the frozen commands touches.
type frozenCase struct {
	server   *sim.Server
	client   *sim.Client
	history  *sim.History
	load     *load
	campaign string
	transfer string
	accounts []string
}

func newFrozenCase(t *testing.T, seed uint64, server *sim.Server) *frozenCase {
	t.Helper()
	c := &frozenCase{server: server, accounts: names("frozen", 8)}
	c.client, c.history = newClient(t, c.server)
	// Whoever has no answer within the limit fails; so does the load.
	c.client.LimitAttempts(answerLimit() + 30*time.Second)
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), c.client, append(c.accounts, "house"), 1_000))
	made, err := sim.Launch(testwait.Context(t, patience), c.client, "frozen", triangle("frozen", "house"))
	testwait.Must(t, err)
	c.campaign = made.ID
	answer, err := c.client.Settle(testwait.Context(t, patience), sim.NewTransfer("warm", c.accounts[0], c.accounts[1], 1))
	testwait.Must(t, err)
	var transfer struct {
		ID string `json:"id"`
	}
	testwait.Must(t, answer.JSON(&transfer))
	c.transfer = transfer.ID
	c.load = startLoad(t, c.client, sim.WorkloadOptions{
		Seed: seed, Prefix: "thaw", Accounts: 12, Workers: 8, Mix: sim.DefaultMix(),
	})
	return c
}

// freeze stops the database in the middle of the work of the load and of many readers, and sees to it that it is awake
// when the test ends. Because of the readers the server has as many connections by then as it may have, and some of
// their snapshots are half read. It returns what was read, the reads that the freeze overtook among it.
func (c *frozenCase) freeze(t *testing.T) (*sim.Frozen, *questions) {
	t.Helper()
	const readers, each = 24, 20
	done, asked := make(chan struct{}), &questions{}
	var warm sync.WaitGroup
	for i := range readers {
		path := c.reads()[i%len(c.reads())]
		read := func() { asked.timed("GET "+path, func() sim.Answer { return c.client.Get(t.Context(), path) }) }
		begun := make(chan struct{})
		warm.Go(func() { <-begun })
		asked.group.Go(func() {
			for range each {
				read()
			}
			close(begun)
			for {
				select {
				case <-done:
					return
				default:
					read()
				}
			}
		})
	}
	warm.Wait()
	frozen, err := sim.FreezePostgres(testwait.Context(t, patience), c.server.DataDir())
	close(done)
	t.Cleanup(func() { testwait.Check(t, testwait.Err(frozen.Thaw())) })
	testwait.Must(t, err)
	if least := 5; frozen.Processes() < least {
		t.Fatalf("%d processes frozen, a PostgreSQL at work has %d and more", frozen.Processes(), least)
	}
	return frozen, asked
}

// reads are paths of every kind that reads the database.
func (c *frozenCase) reads() []string {
	return []string{
		"/v1/campaigns/" + c.campaign, "/v1/integrity", "/v1/campaigns/" + c.campaign + "/positions",
		"/v1/accounts/" + c.accounts[0], "/v1/accounts/" + c.accounts[0] + "/entries", "/v1/transfers/" + c.transfer,
		"/v1/campaigns",
	}
}

// commands are some of every kind that have not been sent.
func (c *frozenCase) commands(name string, n int) []*sim.Op {
	var ops []*sim.Op
	for i := range n {
		from, to := c.accounts[i%len(c.accounts)], c.accounts[(i+1)%len(c.accounts)]
		key := func(kind string) string { return fmt.Sprintf("%s-%s-%d", name, kind, i) }
		ops = append(ops, sim.NewTransfer(key("transfer"), from, to, 1))
		switch i % 4 {
		case 0:
			ops = append(ops, sim.NewPurchase(key("purchase"), c.campaign, from, 0))
		case 1:
			ops = append(ops, sim.NewHold(key("hold"), from, 2))
		case 2:
			ops = append(ops, sim.NewDeposit(key("deposit"), from, 3))
		default:
			ops = append(ops, sim.NewAccount(key("account"), key("new"), "SIM"))
		}
	}
	return ops
}

// send sends each command twice at once, under its one key, and reads of every kind.
func (c *frozenCase) send(t *testing.T, ops []*sim.Op) *questions {
	t.Helper()
	q := &questions{}
	for _, op := range ops {
		for range 2 {
			q.ask(op.String(), func() sim.Answer { return c.client.Once(t.Context(), op) })
		}
	}
	for _, path := range c.reads() {
		q.ask("GET "+path, func() sim.Answer { return c.client.Get(t.Context(), path) })
	}
	return q
}

// settle asks for the final answer of each command, which nothing but the freeze kept from success, and ends the load.
func (c *frozenCase) settle(t *testing.T, database string, ops []*sim.Op) {
	t.Helper()
	for _, op := range ops {
		if answer, err := c.client.Settle(testwait.Context(t, patience), op); err != nil || answer.Status != http.StatusCreated {
			t.Errorf("%s: settled as %v: %v", op, answer, err)
		}
	}
	await(t, "answers to the load", c.history.After(30))
	c.load.finish(t)
	checkWord(t, c.history)
	closeBooks(t, database, c.client, c.history, 1)
}

// checkWord holds the server to what it said of commands that it did not finish: where every answer but the last was
// "not_applied", the last attempt is the one that executes.
func checkWord(t *testing.T, history *sim.History) {
	t.Helper()
	refused, doubtful, late := 0, 0, 0
	for _, op := range history.Ops() {
		answers := op.Answers()
		last, earlier := answers[len(answers)-1], answers[:len(answers)-1]
		doubt := slices.ContainsFunc(earlier, func(a sim.Answer) bool { return a.Problem().Outcome != "not_applied" })
		switch {
		case doubt:
			doubtful++
			if last.Replayed {
				late++
			}
		case len(earlier) > 0:
			refused++
			if last.Replayed {
				t.Errorf("said to be not applied, and was: %s: %v", op, answers)
			}
		}
	}
	t.Logf("%d commands were refused at first, %d of unknown outcome, of which %d had been executed", refused, doubtful, late)
}

// awaitReadiness polls a server until it calls itself ready, or unready, and returns how long that took.
func awaitReadiness(t *testing.T, server *sim.Server, want int) time.Duration {
	t.Helper()
	began := time.Now()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	ctx := testwait.Context(t, patience)
	testwait.Eventually(t, patience, fmt.Sprintf("readyz answers %d", want), func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL()+"/readyz", http.NoBody)
		testwait.Must(t, err)
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == want
	})
	return time.Since(began)
}

// unready waits until a server whose database has just ceased to answer says so, which is promised in time.
func unready(t *testing.T, server *sim.Server) (took time.Duration) {
	t.Helper()
	testpromise.Check(t, "not-ready", func() time.Duration {
		took = awaitReadiness(t, server, http.StatusServiceUnavailable)
		return took
	})
	return took
}

// TestDatabaseFreezes stops every process of PostgreSQL under load, lets them stay so until everybody has been answered
// and for a while longer, and wakes them. A command that was sent to a stopped backend may be executed when that wakes,
// long after its caller was told that nobody knows, beside the one that was sent after it.
func TestDatabaseFreezes(t *testing.T) {
	beside(t)
	sessions(t, 3, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		c := newFrozenCase(t, seed, newServer(t, ""))
		await(t, "answers", c.history.After(50+rng.IntN(100)))
		frozen, overtaken := c.freeze(t)
		began := time.Now()
		ops := c.commands("frozen", testwait.Count(4, 32))
		asked := c.send(t, ops)
		noticed := unready(t, c.server)
		checkUnavailable(t, asked.answers())
		checkOvertaken(t, overtaken.answers())
		if longer := time.Duration(testwait.Count(0, 20)) * time.Second; longer > 0 {
			pause(t, rng, longer)
			// They were asked, and answered, before; this time there are no credentials that the server could still trust.
			again := &questions{}
			for _, op := range ops {
				again.ask("again "+op.String(), func() sim.Answer { return c.client.Once(t.Context(), op) })
			}
			checkUnavailable(t, again.answers())
		}
		if !c.server.Running() {
			t.Fatalf("the server ended with code %d", c.server.ExitCode())
		}
		asleep := time.Since(began)
		woken, err := frozen.Thaw()
		if err != nil || woken == 0 {
			t.Fatalf("%d processes woken: %v", woken, err)
		}
		ready := awaitReadiness(t, c.server, http.StatusOK)
		c.settle(t, databaseOf(t, c.server), ops)
		for _, op := range c.history.Ops() {
			for _, answer := range op.Answers() {
				if answer.Err != nil {
					t.Errorf("%s: %v", op, answer)
				}
			}
		}
		t.Logf("frozen for %v: noticed after %v, ready %v after the thaw (%d processes)", asleep.Round(time.Millisecond),
			noticed.Round(time.Millisecond), ready.Round(time.Millisecond), woken)
	})
}

// TestSignalledServerEndsWhileDatabaseIsFrozen sends SIGTERM to a server that cannot finish what it has accepted. It
// must tell everybody so, and end; the next one finds a PostgreSQL that was woken, or the remains of one that was not.
func TestSignalledServerEndsWhileDatabaseIsFrozen(t *testing.T) {
	if testwait.Count(0, 1) == 0 {
		t.Skip("takes two minutes: FAIRLEAD_TORTURE=1 runs it")
	}
	for _, woken := range []bool{true, false} {
		t.Run(fmt.Sprintf("woken=%t", woken), func(t *testing.T) { signalledWhileFrozen(t, woken) })
	}
}

func signalledWhileFrozen(t *testing.T, wake bool) {
	t.Helper()
	rng, seed := testwait.Rand(t)
	c := newFrozenCase(t, seed, newServer(t, "", "--drain-timeout", "5s"))
	await(t, "answers", c.history.After(50+rng.IntN(100)))
	frozen, overtaken := c.freeze(t)
	ops := c.commands("signalled", 32)
	asked := c.send(t, ops)
	// The server's own word that it waits for the database, by when it has read what was sent before.
	awaitReadiness(t, c.server, http.StatusServiceUnavailable)
	began := time.Now()
	testwait.Must(t, c.server.Signal(syscall.SIGTERM))
	checkUnavailable(t, asked.answers())
	checkOvertaken(t, overtaken.answers())
	answered := time.Since(began)
	testwait.Must(t, c.server.AwaitExit(testwait.Context(t, exitLimit)))
	ended := time.Since(began)
	if code, by := c.server.ExitCode(), c.server.KilledBy(); code != 0 || by != 0 {
		t.Errorf("ended by %v with code %d", by, code)
	}
	woken := 0
	if wake {
		var err error
		if woken, err = frozen.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	ready := start(t, c.server)
	c.settle(t, databaseOf(t, c.server), ops)
	t.Logf("SIGTERM: all answered after %v, ended after %v, %d processes left and woken, restarted in %v",
		answered.Round(time.Millisecond), ended.Round(time.Millisecond), woken, ready.Round(time.Millisecond))
}
