// Package testpromise holds Fairlead to its promises about time: a round closes within 1 s, a deadlock is broken within 1 s. The table of
// docs/operations/promises.md lists them: each has a name, a limit, the words that promise it, and the tests that measure it.
//
// A test hands its measurements to [Check] or [CheckEach]. What is done with them depends on the run:
//
//   - An ordinary run tries once and judges no time, because it shares the machine with other tests. The test still checks what
//     happens, and says that nothing was judged.
//   - make promises (FAIRLEAD_PROMISES=1) runs one test at a time, without the race detector. The median of at least [Tries] tries must
//     be within the limit. Meanwhile a control loop measures how late the machine itself is. A miss is retried, [Retries] times at most,
//     if the machine was delayed during the tries; otherwise it fails the test at once. A line on standard output has the result, and
//     scripts/promises makes a table of these lines.
//   - A long run (FAIRLEAD_TORTURE=1) tries once, since its tests have large counts of their own, and holds each time to the limit.
package testpromise

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

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
func Check(tb testing.TB, name string, try func() time.Duration) {
	tb.Helper()
	CheckEach(tb, []string{name}, func(seen func(string, time.Duration)) { seen(name, try()) })
}

// CheckEach judges several promises by the same tries. Each call of try measures each of them at least once, and hands every
// measurement to seen, which goroutines may call at the same time.
func CheckEach(tb testing.TB, names []string, try func(seen func(name string, took time.Duration))) {
	tb.Helper()
	switch {
	case On():
		judge(tb, listed(tb, names), startControl, try)
	case testwait.Torture():
		all := listed(tb, names)
		for i, times := range measure(tb, names, 1, try) {
			if worst := slices.Max(times); worst > all[i].Limit {
				tb.Errorf("%s: %v, promised are %v", names[i], worst, all[i].Limit)
			}
		}
	default:
		for i, times := range measure(tb, names, 1, try) {
			tb.Logf("%s: %v at most; only make promises judges that", names[i], slices.Max(times).Round(time.Microsecond))
		}
	}
}

// listed finds the promises of a test in the table.
func listed(tb testing.TB, names []string) []Promise {
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

// measure tries until there are enough measurements of each name, and returns those of each.
func measure(tb testing.TB, names []string, least int, try func(seen func(string, time.Duration))) [][]time.Duration {
	tb.Helper()
	var mu sync.Mutex
	times := make([][]time.Duration, len(names))
	few := func(have []time.Duration) bool { return len(have) < least }
	for slices.ContainsFunc(times, few) {
		before := len(times[0])
		try(func(name string, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			i := slices.Index(names, name)
			times[i] = append(times[i], took)
		})
		if len(times[0]) == before {
			tb.Fatalf("%s: a try measured nothing", names[0])
		}
	}
	return times
}

// judge holds the medians to the limits.
func judge(tb testing.TB, promises []Promise, control func() func() Machine, try func(seen func(string, time.Duration))) {
	tb.Helper()
	names := make([]string, len(promises))
	for i, p := range promises {
		names[i] = p.Name
	}
	for retries := 0; ; retries++ {
		stop := control()
		times := measure(tb, names, Tries, try)
		machine := stop()
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
			fmt.Println(r)
			if r.Missed() {
				tb.Errorf("the promise is not kept: %v", r)
			}
		}
		return
	}
}
