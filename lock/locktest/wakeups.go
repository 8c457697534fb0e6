package locktest

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	// maxStall is the promise: from a release to the next grant.
	maxStall = 50 * time.Millisecond
	// hops is how many processes a hand-over goes through, each of which the machine may be late to wake: who releases and
	// its session, the session that notifies, and who waits.
	hops = 4
	// patientStall is what is asked of a machine that does other things, too.
	patientStall = patience
)

// tenure is one tenure, as the process that had it saw it. All processes are on one machine, and read one clock.
type tenure struct{ token, from, to int64 }

// WakeUps is no lost wake-up: 8 processes with 8 waiters each want one key, for some seconds or, in a long run, a minute.
// The key never lies idle for longer than 50 ms, a hold, and what the machine itself was late by; a short run only asks
// that everybody goes on. child names the test that calls [Contend], env what it needs.
func WakeUps(t *testing.T, child string, env ...string) {
	t.Helper()
	span := time.Duration(count(2, 60)) * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), span+4*patience)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var tenures []tenure
	var late time.Duration
	var ready sync.WaitGroup
	ready.Add(processes)
	start := make(chan struct{})
	for range processes {
		all.Go(func() {
			said := sync.OnceFunc(ready.Done)
			defer said()
			got, jitter, err := contender(ctx, child, append(env, fmt.Sprintf("%s=%s", contendEnv, span)), func() {
				said()
				<-start
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			tenures = append(tenures, got...)
			late = max(late, jitter)
		})
	}
	ready.Wait()
	close(start)
	all.Wait()
	if t.Failed() {
		return
	}
	slices.SortFunc(tenures, func(a, b tenure) int { return cmp.Compare(a.token, b.token) })
	var stalls []time.Duration
	var longest time.Duration
	long := 0
	for i, x := range tenures {
		longest = max(longest, time.Duration(x.to-x.from))
		if i == 0 {
			continue
		}
		before := tenures[i-1]
		if before.token == x.token || x.from < before.to {
			t.Errorf("tokens %d and %d overlap", before.token, x.token)
		}
		stall := time.Duration(x.from - before.to)
		stalls = append(stalls, stall)
		if stall > maxStall {
			long++
			t.Logf("%s after the first grant: idle for %s", time.Duration(before.to-tenures[0].from), stall)
		}
	}
	if len(stalls) < processes*waitersPerProcess {
		t.Fatalf("%d hand-overs", len(stalls))
	}
	slices.Sort(stalls)
	worst := stalls[len(stalls)-1]
	t.Logf("%d hand-overs in %s: from release to grant p50 %s, p99 %s, longest %s, %d over %s; longest hold %s; the machine was late by up to %s",
		len(stalls), span, stalls[len(stalls)/2], stalls[len(stalls)*99/100], worst, long, maxStall, longest, late)
	limit := patientStall
	if torture() {
		limit = maxStall + longest + hops*late
	}
	if worst > limit {
		t.Errorf("the key lay idle for %s, at most %s is allowed", worst, limit)
	}
}

// contender runs one process, and collects what it says at its end.
func contender(ctx context.Context, child string, env []string, begin func()) (got []tenure, late time.Duration, err error) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+child+"$") //nolint:gosec // Ourselves.
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	var complaints strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var x tenure
		switch line := lines.Text(); {
		case line == "ready":
			begin()
			if _, err := io.WriteString(in, "go\n"); err != nil {
				return nil, 0, err
			}
		case scanned(line, "tenure %d %d %d", &x.token, &x.from, &x.to):
			got = append(got, x)
		case scanned(line, "late %d", &late):
		default:
			complaints.WriteString(line + "\n")
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, 0, fmt.Errorf("a contender: %w\n%s", err, complaints.String())
	}
	return got, late, nil
}

func scanned(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

// Contend is the part of one process of [WakeUps]: the test that was named calls it. In all other runs it skips the test.
func Contend(t *testing.T, open func(t *testing.T) lock.Backend) {
	t.Helper()
	span, err := time.ParseDuration(os.Getenv(contendEnv))
	if err != nil {
		t.Skip("run by another test")
	}
	l := lock.New(open(t), lock.LockerOptions{})
	// Connections are made before anything is measured: those of all waiters, and that by which wake-ups are heard.
	var warm sync.WaitGroup
	mine := key("warm-up")
	for range waitersPerProcess {
		warm.Go(func() {
			for range 10 {
				h, err := l.Acquire(t.Context(), []string{mine}, lock.Options{Wait: lock.Forever})
				if err == nil {
					err = h.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	warm.Wait()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(span)
	var mu sync.Mutex
	var all sync.WaitGroup
	var late time.Duration
	stop := make(chan struct{})
	all.Go(func() { late = lateness(stop) })
	var waiters sync.WaitGroup
	var tenures []tenure
	for range waitersPerProcess {
		waiters.Go(func() {
			for time.Now().Before(end) {
				h, err := l.Acquire(t.Context(), []string{"contended"}, lock.Options{Wait: lock.Forever, TTL: patience})
				if err != nil {
					t.Error(err)
					return
				}
				x := tenure{token: h.Token("contended"), from: time.Now().UnixNano()}
				hold := time.NewTimer(holding)
				<-hold.C
				x.to = time.Now().UnixNano()
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				tenures = append(tenures, x)
				mu.Unlock()
			}
		})
	}
	waiters.Wait()
	close(stop)
	all.Wait()
	out := bufio.NewWriter(os.Stdout)
	for _, x := range tenures {
		_, _ = fmt.Fprintln(out, "tenure", x.token, x.from, x.to) // Its loss is noticed by the parent.
	}
	_, _ = fmt.Fprintln(out, "late", late.Nanoseconds())
	if err := out.Flush(); err != nil {
		t.Error(err)
	}
}

// lateness is by how much the machine was late, at worst, in waking somebody who asked for it.
func lateness(stop <-chan struct{}) (worst time.Duration) {
	const nap = 2 * time.Millisecond
	for {
		select {
		case <-stop:
			return worst
		default:
		}
		began := time.Now()
		timer := time.NewTimer(nap)
		<-timer.C
		worst = max(worst, time.Since(began)-nap)
	}
}
