package testpromise

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// recorder is a test that has been told of failures.
type recorder struct {
	testing.TB

	errors []string
}

func (r *recorder) Helper()      {}
func (r *recorder) Failed() bool { return len(r.errors) > 0 }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// TestJudge: a median over the limit fails at once on a quiet machine, and after three more attempts on a delayed one. Single times
// over the limit don't.
func TestJudge(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	quiet, delayed := Machine{Late: time.Millisecond, Slow: 1.1}, Machine{Late: limit / 2, Slow: 1.1}
	for _, c := range []struct {
		name    string
		times   []time.Duration // one after the other, again from the first
		machine Machine
		tries   int
		failed  bool
	}{
		{"kept", []time.Duration{limit}, quiet, 5, false},
		{"two of five are late", []time.Duration{1, limit + 1, 1, 2 * limit, 1}, quiet, 5, false},
		{"missed on a quiet machine", []time.Duration{1, limit + 1, limit + 1}, quiet, 5, true},
		{"missed on a delayed machine", []time.Duration{limit + 1}, delayed, 20, true},
		{"missed on a slow machine", []time.Duration{limit + 1}, Machine{Slow: 3}, 20, true},
		{"kept at the second attempt", append(slices.Repeat([]time.Duration{limit + 1}, 5), slices.Repeat([]time.Duration{1}, 5)...), delayed, 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, tries := &recorder{TB: t}, 0
			judge(r, io.Discard, []Promise{{Name: "p", Limit: limit}}, func() func() Machine { return func() Machine { return c.machine } },
				func(seen func(string, time.Duration)) {
					seen("p", c.times[tries%len(c.times)])
					tries++
				})
			if tries != c.tries || r.Failed() != c.failed {
				t.Errorf("%d tries, failures %q; want %d tries, failed: %v", tries, r.errors, c.tries, c.failed)
			}
		})
	}
}

// TestControlNoticesAStop stops this process for a while.
func TestControlNoticesAStop(t *testing.T) { //nolint:paralleltest // It stops the others, too.
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	var m Machine
	for range 20 { // On a busy machine the loop may not have begun its first nap by then.
		stop := startControl()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf("kill -STOP %d; sleep 0.3; kill -CONT %[1]d", os.Getpid()))
		testwait.Must(t, cmd.Run())
		if m = stop(); m.Late >= 200*time.Millisecond && m.delayed(time.Second) {
			return
		}
	}
	t.Errorf("a machine that stood still for 300 ms seems to have been late by %v", m.Late)
}

// TestControlNoticesLoad has more to compute than there are processors.
func TestControlNoticesLoad(t *testing.T) { //nolint:paralleltest // It takes all processors.
	ending := make(chan struct{})
	var group sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for data := [sha256.Size]byte{}; ; data = sha256.Sum256(data[:]) {
				select {
				case <-ending:
					return
				default:
				}
			}
		})
	}
	stop := startControl()
	time.Sleep(500 * time.Millisecond) // What is tested is a measurement of that time.
	m := stop()
	close(ending)
	group.Wait()
	if !m.delayed(50 * time.Millisecond) {
		t.Errorf("a loaded machine seems to have been late by %v and slower by %.2f", m.Late, m.Slow)
	}
}

func TestResultsAreRead(t *testing.T) {
	t.Parallel()
	want := Result{
		Name: "lock-after-death", Test: "TestConformance/DeadHolderIsReplaced", Promised: 2 * time.Second, Seen: 14 * time.Millisecond,
		Worst: time.Second, Tries: 7, Retries: 1, Machine: Machine{Late: 3 * time.Microsecond, Slow: 1.25}, Delayed: true,
	}
	if got, ok := ParseResult("=== " + want.String()); !ok || got != want {
		t.Errorf("%v was read as %v, %v", want, got, ok)
	}
	for _, line := range []string{"", "--- PASS: TestX (0.00s)", strings.Replace(want.String(), "promised=2s", "promised=2", 1)} {
		if got, ok := ParseResult(line); ok {
			t.Errorf("%q was read as %v", line, got)
		}
	}
	late := Result{Promised: time.Second, Seen: time.Second + 1}
	if got, ok := ParseResult(Result{Name: "n", Test: "T", Promised: late.Promised, Seen: late.Seen}.String()); !ok || !got.Missed() {
		t.Errorf("rounded, a miss is none: %v", got)
	}
}
