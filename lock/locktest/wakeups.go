package locktest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

// contendEnv makes a test binary one of the processes of [WakeUps]: it names the key, and says for how long.
const contendEnv = "FAIRLEAD_TEST_CONTEND"

// What contends for one key.
const (
	processes         = 8
	waitersPerProcess = 8
	// holding is how long a lock is held, at least.
	holding = time.Millisecond
	// stalled is a pause between a release and the next grant that a failing test tells.
	stalled = 50 * time.Millisecond
	// hops is how many processes a hand-over goes through, each of which the machine may be late to wake: the holder's and
	// its session, the session that notifies, and the waiter's.
	hops = 4
)

// tenure is the time for which a process held the lock. All processes are on one machine, and read one clock.
type tenure struct{ Token, From, To int64 }

// report is what one process saw, and by how much the machine was late, at worst, in waking it.
type report struct {
	Tenures []tenure
	Late    time.Duration
}

// WakeUps checks that no wake-up is lost: 8 processes with 8 waiters each want one key, for some seconds or, in a long run, a
// minute. What is judged is the longest time for which the key lay idle, beyond a hold and what the machine itself was late by.
// child names the test that calls [Contend], env what it needs.
func WakeUps(t conformance.TB, child string, env ...string) {
	t.Helper()
	testpromise.Check(t, "hand-over", func() time.Duration { return longestStall(t, child, env) })
}

func longestStall(t conformance.TB, child string, env []string) time.Duration {
	t.Helper()
	span := time.Duration(testwait.Count(2, 60)) * time.Second
	ctx := testwait.Context(t, span+4*patience)
	var all, ready sync.WaitGroup
	var mu sync.Mutex
	var seen report
	ready.Add(processes)
	for range processes {
		all.Go(func() {
			said := sync.OnceFunc(ready.Done)
			defer said()
			got, err := contender(ctx, child, append(slices.Clone(env), fmt.Sprintf("%s=%s", contendEnv, span)), func() {
				said()
				ready.Wait()
			})
			mu.Lock()
			defer mu.Unlock()
			testwait.Check(t, err)
			seen.Tenures = append(seen.Tenures, got.Tenures...)
			seen.Late = max(seen.Late, got.Late)
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	slices.SortFunc(seen.Tenures, func(a, b tenure) int { return cmp.Compare(a.Token, b.Token) })
	var stalls []time.Duration
	var longest time.Duration
	for i, x := range seen.Tenures {
		longest = max(longest, time.Duration(x.To-x.From))
		if i == 0 {
			continue
		}
		before := seen.Tenures[i-1]
		if before.Token == x.Token || x.From < before.To {
			t.Errorf("tokens %d and %d overlap", before.Token, x.Token)
		}
		stall := time.Duration(x.From - before.To)
		stalls = append(stalls, stall)
		if stall > stalled {
			t.Logf("%s after the first grant: idle for %s", time.Duration(before.To-seen.Tenures[0].From), stall)
		}
	}
	if len(stalls) < processes*waitersPerProcess {
		t.Fatalf("%d hand-overs", len(stalls))
	}
	slices.Sort(stalls)
	worst := stalls[len(stalls)-1]
	t.Logf("%d hand-overs in %s: from release to grant p50 %s, p99 %s, longest %s; longest hold %s; the machine was late by up to %s",
		len(stalls), span, stalls[len(stalls)/2], stalls[len(stalls)*99/100], worst, longest, seen.Late)
	return max(worst-longest-hops*seen.Late, 0)
}

// contender runs one process, and returns its report. It calls begin when the process is ready, before that begins.
func contender(ctx context.Context, child string, env []string, begin func()) (got report, err error) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+child+"$") //nolint:gosec // Ourselves.
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return got, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return got, err
	}
	if err := cmd.Start(); err != nil {
		return got, err
	}
	lines := bufio.NewReader(out)
	said, _ := lines.ReadString('\n') // Its end is an error, too, which is seen below.
	if said == "ready\n" {
		begin()
		_, _ = io.WriteString(in, "go\n") // As is a process that cannot hear.
	}
	report, _ := lines.ReadBytes('\n')
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		return got, fmt.Errorf("a contender: %w\n%s%s%s", err, said, report, rest)
	}
	return got, json.Unmarshal(report, &got)
}

// Contend is the part of one process of [WakeUps]: the test that was named calls it. In all other runs it skips the test.
func Contend(t conformance.TB, open func() lock.Backend) {
	t.Helper()
	span, err := time.ParseDuration(os.Getenv(contendEnv))
	if err != nil {
		t.Skip("run by another test")
	}
	l := lock.New(open(), lock.LockerOptions{})
	// Connections are made before anything is measured: those of all waiters, and that by which wake-ups are heard.
	hold(t, l, key("warm-up"), func(round int) bool { return round < 10 })
	fmt.Println("ready")
	testwait.Must(t, testwait.Err(bufio.NewReader(os.Stdin).ReadString('\n')))
	end := time.Now().Add(span)
	ctx, cancel := context.WithCancel(t.Context())
	var napping sync.WaitGroup
	var r report
	napping.Go(func() { _, r.Late = nap(ctx, math.MaxInt64) })
	r.Tenures = hold(t, l, "contended", func(round int) bool { return round < 2 || time.Now().Before(end) }) // On a slow machine, too, each has its turn.
	cancel()
	napping.Wait()
	testwait.Check(t, json.NewEncoder(os.Stdout).Encode(r))
}

// hold lets the waiters of a process hold a lock again and again, as long as more allows it.
func hold(t conformance.TB, l *lock.Locker, k string, more func(round int) bool) (tenures []tenure) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range waitersPerProcess {
		all.Go(func() {
			for round := 0; more(round); round++ {
				h, err := l.Acquire(t.Context(), []string{k}, lock.Options{Wait: lock.Forever, TTL: patience})
				if err != nil {
					t.Error(err)
					return
				}
				x := tenure{Token: h.Token(k), From: time.Now().UnixNano()}
				wait.For(t.Context(), holding)
				x.To = time.Now().UnixNano()
				// A release that a stalled machine has not let through in time is given up: then the lock expires, or was released all the same.
				if err := h.Release(t.Context()); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
					return
				}
				mu.Lock()
				tenures = append(tenures, x)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return tenures
}
