package pglock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// event is what a client sees, as specs/handover.pml names it.
type event struct {
	what  string
	who   int // the request
	token int64
}

// The events.
const (
	begins     = "BEGINS"
	has        = "HAS"
	isRenewed  = "IS_RENEWED"
	isReleased = "IS_RELEASED"
	writes     = "WRITES"
	isRefused  = "IS_REFUSED"
)

// TestHistoryIsOneOfTheSpecification records what three requests of two processes see of a lock, and has Spin look whether specs/handover.pml
// allows that. It must not allow the same history with one thing altered.
func TestHistoryIsOneOfTheSpecification(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (scripts/setup.sh specs does that)", tool)
		}
	}
	recorded, free := record(t, len(requests{})), record(t, 2)
	histories := []struct {
		altered string
		events  []event
	}{
		{"", recorded},
		{"", free},
		{"a token is given again when the key was free", tokens(free, map[int64]int64{3: 2})},
		{"a token is given twice", tokens(recorded, map[int64]int64{2: 1})},
		{"tokens go back", tokens(recorded, map[int64]int64{2: 3, 3: 2})},
		{"two hold it", moved(recorded, event{has, 1, 2}, event{isReleased, 0, 1})},
		{"an old write is accepted", replaced(recorded, isRefused, writes)},
		{"a write is refused without a reason", replaced(recorded, writes, isRefused)},
		{"a lease is renewed after its end", append(slices.Clone(recorded), event{isRenewed, 0, 1})},
		{"it is held without having been asked for", slices.DeleteFunc(slices.Clone(recorded), func(e event) bool { return e == event{begins, 2, 0} })},
	}
	all := make([][]event, len(histories))
	for i, h := range histories {
		all[i] = h.events
	}
	for i, accepted := range allowed(t, all) {
		if h := histories[i]; accepted != (h.altered == "") {
			t.Errorf("%q is allowed: %v\n%v", h.altered, accepted, h.events)
		}
	}
}

// requests are of one lock. The first two are of one process.
type requests [3]lock.Grant

// record has the requests hold a key one after the other, with writes and renewals in between. So many are in line at once; the others
// begin when the key is free.
func record(t *testing.T, inLine int) (history []event) {
	t.Helper()
	const unit, ttl = 200 * time.Second, 3 * 200 * time.Second // of the specification's time
	url := database(t)
	began := time.Now()
	processes := [3]*Backend{}
	processes[0], processes[2] = open(t, url, Options{}), open(t, url, Options{})
	processes[1] = processes[0]
	resource := pool(t, url)
	var grants requests
	asking := testwait.Context(t, unit)
	see := func(what string, who int, token int64) { history = append(history, event{what, who, token}) }
	write := func(who int) {
		t.Helper()
		token := grants[who].Tokens["k"]
		err := pgx.BeginFunc(t.Context(), resource, func(tx pgx.Tx) error { return testSchema.Fence(t.Context(), tx, "k", token) })
		what := writes
		if err != nil {
			what = isRefused
		}
		see(what, who, token)
	}
	holding := make(chan int, len(grants))
	begin := func(who int) {
		see(begins, who, 0)
		go func() {
			g, err := processes[who].Acquire(asking, lock.Request{ID: uuid.NewString(), Keys: []string{"k"}, Owner: fmt.Sprint(who), NewOwner: true, TTL: ttl, Wait: lock.Forever})
			if err != nil {
				t.Error(err)
			}
			grants[who] = g
			holding <- who
		}()
	}
	hold := func(who int) {
		t.Helper()
		if next := <-holding; next != who {
			t.Fatalf("request %d is before %d", next, who)
		}
		see(has, who, grants[who].Tokens["k"])
	}
	begin(0)
	hold(0)
	for who := 1; who < inLine; who++ {
		begin(who)
		testwait.Eventually(t, testwait.Patience, "the request waits", func() bool {
			s, err := processes[who].Snapshot(t.Context())
			return err == nil && len(s.Waiters) == who
		})
	}
	rng, _ := testwait.Rand(t)
	for who := range grants {
		if who >= inLine {
			begin(who)
		}
		if who > 0 {
			hold(who)
		}
		write(who)
		for range rng.IntN(3) {
			_, err := processes[who].Renew(t.Context(), grants[who].ID, ttl)
			testwait.Must(t, err)
			see(isRenewed, who, grants[who].Tokens["k"])
			write(who)
		}
		if who > 0 {
			write(who - 1)
		}
		see(isReleased, who, grants[who].Tokens["k"]) // Before it is: the next one may have it at once.
		testwait.Must(t, processes[who].Release(t.Context(), grants[who]))
	}
	if time.Since(began) > unit {
		t.Skip("the run took longer than the unit of the specification's time")
	}
	return history
}

// tokens gives requests other tokens.
func tokens(history []event, instead map[int64]int64) []event {
	history = slices.Clone(history)
	for i, e := range history {
		if other, ok := instead[e.token]; ok {
			history[i].token = other
		}
	}
	return history
}

// moved puts an event in front of another, which is there.
func moved(history []event, e, before event) []event {
	history = slices.DeleteFunc(slices.Clone(history), func(x event) bool { return x == e })
	if i := slices.Index(history, before); i >= 0 {
		return slices.Insert(history, i, e)
	}
	return nil // Which is allowed.
}

// replaced makes the first event of one kind one of another.
func replaced(history []event, kind, other string) []event {
	history = slices.Clone(history)
	if i := slices.IndexFunc(history, func(e event) bool { return e.what == kind }); i >= 0 {
		history[i].what = other
		return history
	}
	return nil // As above.
}

var accepts = regexp.MustCompile(`(?m)^accepted: (\d+)$`)

// allowed reports which of some histories the specification allows.
func allowed(t *testing.T, histories [][]event) []bool {
	t.Helper()
	dir, longest := t.TempDir(), 0
	var choices strings.Builder
	for n, history := range histories {
		fmt.Fprintf(&choices, "\t:: which = %d; length = %d", n, len(history))
		for i, e := range history {
			fmt.Fprintf(&choices, "; seen[%[1]d].what = %[2]s; seen[%[1]d].who = %[3]d; seen[%[1]d].token = %[4]d", i, e.what, e.who, e.token)
		}
		choices.WriteString("\n")
		longest = max(longest, len(history))
	}
	text := fmt.Sprintf("#define LONGEST %d\nEvent seen[LONGEST];\ninline record() {\n\tif\n%s\tfi\n}\n", longest, choices.String())
	testwait.Must(t, os.WriteFile(filepath.Join(dir, "trace.h"), []byte(text), 0o600))
	for _, name := range []string{"handover.pml", "common.h"} {
		content, err := os.ReadFile(filepath.Join("../../specs", name))
		testwait.Must(t, err)
		testwait.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	run("spin", "-DTRACE", "-DEND=0", "-a", "handover.pml")
	run("cc", "-O0", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=1000", "-o", "pan", "pan.c")
	out := run("./pan", "-E", "-n", "-m100000", "-w18")
	if !strings.Contains(out, "errors: 0") || strings.Contains(out, "Search not completed") {
		t.Fatalf("the search: %s", out)
	}
	found := make([]bool, len(histories))
	for _, m := range accepts.FindAllStringSubmatch(out, -1) {
		n := 0
		_, err := fmt.Sscan(m[1], &n)
		testwait.Must(t, err)
		found[n] = true
	}
	return found
}
