// Package testpromise holds Fairlead to its promises about time: a round closes within 1 s, a deadlock is broken within 1 s. The table of
// docs/operations/promises.md lists them: each has a name, a limit, the words that promise it, and the tests that measure it.
//
// A test hands its measurements to [Check] or [CheckEach]. What is done with them depends on the run:
//
//   - An ordinary run tries once and judges no time, because it shares the machine with other tests. The test still checks what
//     happens, and says that nothing was judged.
//   - make promises (FAIRLEAD_PROMISES=1) runs few tests at a time, without the race detector. The median of at least [Tries] tries must
//     be within the limit. Meanwhile a control loop measures how late the machine itself is. A miss is retried, [Retries] times at most,
//     if the machine was delayed during the tries; otherwise it fails the test at once. A line on standard output has the result, and
//     scripts/promises makes a table of these lines.
//   - A long run (FAIRLEAD_TORTURE=1) tries once, since its tests have large counts of their own, and holds each time to the limit.
package testpromise

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const (
	// Tries is the least number of measurements that a median is taken of.
	Tries = 5
	// Retries is how often a miss on a delayed machine is measured anew.
	Retries = 3
)

// On reports whether FAIRLEAD_PROMISES asks for a run that judges promises.
func On() bool {
	on, err := strconv.ParseBool(os.Getenv("FAIRLEAD_PROMISES"))
	return err == nil && on
}

// Check judges one promise. Each call of try measures it once.
func Check(tb conformance.TB, name string, try func() time.Duration) {
	tb.Helper()
	CheckEach(tb, []string{name}, func(seen func(string, time.Duration)) { seen(name, try()) })
}

// CheckEach judges several promises by the same tries. Each call of try hands every measurement to seen, which goroutines may call at
// the same time. Where medians are taken, a try has to measure each promise of which there are too few measurements.
func CheckEach(tb conformance.TB, names []string, try func(seen func(name string, took time.Duration))) {
	tb.Helper()
	if j, ok := tb.(conformance.Judge); ok { // It is no test, and has the machine's owner to tell.
		for enough := false; !enough && !tb.Failed(); {
			m := newMeasurements(names)
			stop := sync.OnceValue(startControl())
			func() {
				defer stop() // A try may end the check.
				try(m.seen)
			}()
			enough = true
			for i, name := range names {
				enough = j.Took(name, m.worst(i), stop().delayed) && enough
			}
		}
		return
	}
	if On() {
		judge(tb, os.Stdout, listed(tb, names), startControl, try)
		return
	}
	m := newMeasurements(names)
	try(m.seen)
	if testwait.Torture() {
		for i, p := range listed(tb, names) {
			if worst := m.worst(i); worst > p.Limit {
				tb.Errorf("%s: %v, promised are %v", p.Name, worst, p.Limit)
			}
		}
		return
	}
	for i, name := range names {
		tb.Logf("%s: %v at most; make promises judges that, this run does not", name, m.worst(i).Round(time.Microsecond))
	}
}

// listed finds the promises of a test in the table.
func listed(tb conformance.TB, names []string) []Promise {
	tb.Helper()
	all, err := Read()
	testwait.Must(tb, err)
	found := make([]Promise, len(names))
	for i, name := range names {
		at := slices.IndexFunc(all, func(p Promise) bool { return p.Name == name })
		if at < 0 {
			tb.Fatalf("%s lists no promise %q", Page, name)
		}
		found[i] = all[at]
	}
	return found
}

// measurements are those of each of some promises.
type measurements struct {
	names []string

	mu    sync.Mutex
	times [][]time.Duration
}

func newMeasurements(names []string) *measurements {
	return &measurements{names: names, times: make([][]time.Duration, len(names))}
}

func (m *measurements) seen(name string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.names, name)
	m.times[i] = append(m.times[i], took)
}

// worst is 0 where nothing was measured.
func (m *measurements) worst(i int) time.Duration {
	return slices.Max(append(m.times[i], 0))
}

// measure tries until there are enough measurements of each promise.
func measure(tb conformance.TB, names []string, try func(seen func(string, time.Duration))) *measurements {
	tb.Helper()
	m := newMeasurements(names)
	few := func(times []time.Duration) bool { return len(times) < Tries }
	for slices.ContainsFunc(m.times, few) {
		before := slices.Clone(m.times)
		try(m.seen)
		for i, times := range m.times {
			if few(times) && len(times) == len(before[i]) {
				tb.Fatalf("%s: a try measured nothing", names[i])
			}
		}
	}
	return m
}

// watched measures, and has the machine watched meanwhile.
func watched(tb conformance.TB, names []string, control func() func() Machine, try func(seen func(string, time.Duration))) ([][]time.Duration, Machine) {
	tb.Helper()
	stop := sync.OnceValue(control())
	defer stop() // A try may end the test.
	times := measure(tb, names, try).times
	return times, stop()
}

// judge holds the medians to the limits, and writes the results.
func judge(tb conformance.TB, out io.Writer, promises []Promise, control func() func() Machine, try func(seen func(string, time.Duration))) {
	tb.Helper()
	names := make([]string, len(promises))
	for i, p := range promises {
		names[i] = p.Name
	}
	for retries := 0; ; retries++ {
		times, machine := watched(tb, names, control, try)
		if tb.Failed() {
			return
		}
		again, results := false, make([]Result, len(promises))
		for i, p := range promises {
			slices.Sort(times[i])
			r := Result{
				Name: p.Name, Test: tb.Name(), Promised: p.Limit, Seen: times[i][len(times[i])/2], Worst: times[i][len(times[i])-1],
				Tries: len(times[i]), Retries: retries, Machine: machine, Delayed: machine.delayed(p.Limit),
			}
			results[i] = r
			again = again || r.Missed() && r.Delayed && retries < Retries
		}
		if again {
			tb.Logf("missed on a delayed machine, measured again: %v", results)
			continue
		}
		for _, r := range results {
			_, _ = fmt.Fprintln(out, r)
			if r.Missed() {
				tb.Errorf("the promise is not kept: %v", r)
			}
		}
		return
	}
}
