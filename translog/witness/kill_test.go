package witness_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

const (
	// childVariable makes the test's binary a witness that runs in a directory, until it is killed.
	childVariable = "FAIRLEAD_TEST_WITNESS"
	// answerVariable lets it kill itself where it would begin to send a cosignature.
	answerVariable = "FAIRLEAD_TEST_WITNESS_DIES_AT_ANSWER"
)

// child runs a witness and prints its address.
func child(dir string) int {
	fail := func(err error) int {
		fmt.Println("error:", err)
		return 1
	}
	key, err := translog.ReadCosigner(filepath.Join(dir, "key"))
	if err != nil {
		return fail(err)
	}
	logs, err := os.ReadFile(filepath.Join(dir, "logs"))
	if err != nil {
		return fail(err)
	}
	w, err := witness.New(witness.Options{Key: key, KeyFile: filepath.Join(dir, "key"), StateFile: filepath.Join(dir, "state"), Logs: strings.Fields(string(logs))})
	if err != nil {
		return fail(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	fmt.Println("ready", "http://"+l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // It ends with the test.
		os.Exit(0)
	}()
	var handler http.Handler = w
	if os.Getenv(answerVariable) != "" {
		handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.ServeHTTP(deadly{rw}, r) })
	}
	return fail((&http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}).Serve(l))
}

// deadly kills the process in the moment in which a cosignature would be sent.
type deadly struct{ http.ResponseWriter }

func (d deadly) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "— ") {
		p, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			panic(err)
		}
		select {} // The signal is on its way.
	}
	return d.ResponseWriter.Write(b)
}

// victim is a witness in a process of its own.
type victim struct {
	t   *testing.T
	dir string
	key *translog.Cosigner
	cmd *exec.Cmd
	url string
}

func newVictim(t *testing.T, logs []*history) *victim {
	t.Helper()
	v := &victim{t: t, dir: t.TempDir(), key: newCosigner(t, "w")}
	testwait.Must(t, v.key.WriteFile(filepath.Join(v.dir, "key")))
	var vkeys strings.Builder
	for _, h := range logs {
		vkeys.WriteString(h.key.Verifier() + "\n")
	}
	testwait.Must(t, os.WriteFile(filepath.Join(v.dir, "logs"), []byte(vkeys.String()), 0o600))
	t.Cleanup(v.kill)
	return v
}

func (v *victim) start(env ...string) {
	v.t.Helper()
	v.cmd = exec.CommandContext(v.t.Context(), os.Args[0])
	v.cmd.Env = append(append(os.Environ(), childVariable+"="+v.dir), env...)
	v.cmd.Stderr = os.Stderr
	_, err := v.cmd.StdinPipe() // Closed when this process ends.
	testwait.Must(v.t, err)
	out, err := v.cmd.StdoutPipe()
	testwait.Must(v.t, err)
	testwait.Must(v.t, v.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	testwait.Must(v.t, err)
	var ready bool
	if v.url, ready = strings.CutPrefix(strings.TrimSpace(line), "ready "); !ready {
		v.t.Fatal(line)
	}
}

func (v *victim) kill() {
	if v.cmd != nil {
		_ = v.cmd.Process.Kill() // It may be dead.
		_ = v.cmd.Wait()
		v.cmd = nil
	}
}

func (v *victim) remote() witness.Remote { return witness.Remote{Key: v.key.Verifier(), URL: v.url} }

// TestKilledBetweenStateAndAnswer: the cosignature that nobody got is kept, the other history is refused, and the same one goes on.
func TestKilledBetweenStateAndAnswer(t *testing.T) {
	t.Parallel()
	left := newHistory(t, "log")
	right := left.fork().grow(9, "right")
	left.grow(9, "left")
	v := newVictim(t, []*history{left})
	v.start(answerVariable + "=1")
	client := witness.NewClient(nil)
	defer client.Close()
	ctx := testwait.Context(t, patience)
	if _, err := client.Add(ctx, v.remote(), 0, nil, left.checkpoint(5)); !errors.Is(err, witness.ErrUnreachable) {
		t.Fatalf("it answered: %v", err)
	}
	v.kill()
	v.start()
	_, err := client.Add(ctx, v.remote(), 0, nil, right.checkpoint(9))
	if conflict, ok := errors.AsType[*witness.ConflictError](err); !ok || conflict.Size != 5 {
		t.Errorf("another history from the start: %v", err)
	}
	_, err = client.Add(ctx, v.remote(), 5, right.proof(9, 5), right.checkpoint(9))
	if refused, ok := errors.AsType[*witness.StatusError](err); !ok || refused.Status != http.StatusUnprocessableEntity {
		t.Errorf("another history: %v", err)
	}
	if _, err := client.Add(ctx, v.remote(), 5, nil, left.checkpoint(5)); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if _, err := client.Add(ctx, v.remote(), 5, left.proof(9, 5), left.checkpoint(9)); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// TestKilledWitness kills a witness again and again while two histories of a log compete for its cosignatures, in each round those of a
// new log and on those of the round before. All that was ever cosigned is on one history of each log, and the state never goes back.
func TestKilledWitness(t *testing.T) {
	t.Parallel()
	random, _ := testwait.Rand(t)
	rounds := testwait.Count(10, 300)
	lefts, rights := make([]*history, rounds), make([]*history, rounds)
	for i := range rounds {
		lefts[i] = newHistory(t, fmt.Sprintf("log%d", i))
		rights[i] = lefts[i].fork().grow(largest, "right")
		lefts[i].grow(largest, "left")
	}
	v := newVictim(t, lefts)
	c := &contest{t: t, v: v, client: witness.NewClient(nil), lefts: lefts, cosigned: make([][]seen, rounds), known: make([]int64, rounds)}
	defer c.client.Close()
	for round := range rounds {
		v.start()
		c.checkStates(max(0, round-3), round)
		c.run(round, lefts, rights, random)
	}
	v.start()
	c.checkStates(0, rounds)
	both, total := 0, 0
	for i := range rounds {
		oneHistory(t, c.cosigned[i])
		if c.refused[i] > 0 {
			both++
		}
		total += len(c.cosigned[i])
	}
	t.Logf("%d kills, %d cosignatures, forks refused in %d of %d logs", rounds, total, both, rounds)
	if total == 0 || both == 0 {
		t.Error("the histories did not compete")
	}
}

// largest is the size up to which the histories of the contest grow.
const largest = 24

// contest is what was seen of a witness that is killed.
type contest struct {
	t      *testing.T
	v      *victim
	client *witness.Client
	lefts  []*history

	mu       sync.Mutex
	cosigned [][]seen // by log
	known    []int64  // the largest size that the witness has told or cosigned, by log
	refused  map[int]int
}

// run lets four rivals ask for two logs, and kills the witness once some of their requests have been answered.
func (c *contest) run(round int, lefts, rights []*history, random *rand.Rand) {
	c.t.Helper()
	answers, kill := make(chan struct{}), 1+random.IntN(20)
	over := make(chan struct{})
	var rivals sync.WaitGroup
	for i := max(0, round-1); i <= round; i++ {
		for _, h := range []*history{lefts[i], rights[i]} {
			for range 2 {
				seed := random.Uint64()
				rivals.Go(func() { c.rival(i, h, rand.New(rand.NewPCG(seed, 1)), answers, over) })
			}
		}
	}
	for range kill {
		<-answers
	}
	testwait.Check(c.t, c.v.cmd.Process.Kill())
	close(over)
	rivals.Wait()
	c.v.kill()
}

// rival asks for cosignatures of one history until the witness is dead.
func (c *contest) rival(i int, h *history, random *rand.Rand, answers, over chan struct{}) {
	old := int64(0)
	for {
		n := min(largest, old+1+random.Int64N(3))
		proof := h.proof(n, old)
		_, err := c.client.Add(c.t.Context(), c.v.remote(), old, proof, h.checkpoint(n))
		conflict, isConflict := errors.AsType[*witness.ConflictError](err)
		_, isRefused := errors.AsType[*witness.StatusError](err)
		c.mu.Lock()
		switch {
		case err == nil:
			c.cosigned[i] = append(c.cosigned[i], seen{h, n})
			c.known[i] = max(c.known[i], n)
			old = n
		case isConflict:
			c.known[i] = max(c.known[i], conflict.Size)
			old = conflict.Size
		case isRefused:
			if c.refused == nil {
				c.refused = map[int]int{}
			}
			c.refused[i]++
		}
		c.mu.Unlock()
		if err != nil && !isConflict && !isRefused {
			if !errors.Is(err, witness.ErrUnreachable) {
				c.t.Errorf("%v", err)
			}
			<-over // It is dead, or the test waits for others before it kills it.
			return
		}
		select {
		case answers <- struct{}{}:
		case <-over:
			return
		}
	}
}

// checkStates asks the witness for its size of some logs, which must not be less than what it has told before.
func (c *contest) checkStates(from, to int) {
	c.t.Helper()
	for i := from; i < to; i++ {
		size := int64(largest) // Where the largest tree is cosigned, it is cosigned again, or that of the other history is refused.
		_, err := c.client.Add(testwait.Context(c.t, patience), c.v.remote(), largest, nil, c.lefts[i].checkpoint(largest))
		if conflict, ok := errors.AsType[*witness.ConflictError](err); ok {
			size = conflict.Size
		} else if _, refused := errors.AsType[*witness.StatusError](err); err != nil && !refused {
			c.t.Errorf("log %d: %v", i, err)
		}
		if size < c.known[i] {
			c.t.Fatalf("log %d: the state went back from %d to %d", i, c.known[i], size)
		}
	}
}
