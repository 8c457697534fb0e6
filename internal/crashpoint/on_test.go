//go:build crashpoints && unix

package crashpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestChild is what the tests below run in a process of its own: it passes every place three times.
func TestChild(t *testing.T) {
	if os.Getenv("CRASHPOINT_CHILD") == "" {
		t.Skip("runs in a child process only")
	}
	for range 3 {
		for _, name := range crashpoint.Names() {
			testwait.Must(t, testwait.Err(os.Stdout.WriteString("at "+name+"\n")))
			crashpoint.Hit(name)
		}
	}
}

// run starts a child that is to die at a place, and returns how often it came to each place and whether it was killed.
func run(t *testing.T, at string) (places []string, killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v") //nolint:gosec // This test itself.
	cmd.Env = append(os.Environ(), "CRASHPOINT_CHILD=1", "FAIRLEAD_CRASH_AT="+at)
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "at "); ok {
			places = append(places, name)
		}
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return places, false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return places, ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func TestEveryPlaceKillsAtItsName(t *testing.T) {
	t.Parallel()
	for i, name := range crashpoint.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			places, killed := run(t, name)
			if !killed || len(places) != i+1 || places[i] != name {
				t.Errorf("killed: %v, after %v", killed, places)
			}
			places, killed = run(t, name+":3")
			if !killed || len(places) != 2*len(crashpoint.Names())+i+1 {
				t.Errorf("the third time: killed: %v, after %d places", killed, len(places))
			}
		})
	}
}

func TestOtherNamesKillNobody(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "elsewhere", crashpoint.LotteryDraw + ":4"} {
		if places, killed := run(t, at); killed || len(places) != 3*len(crashpoint.Names()) {
			t.Errorf("%q: killed: %v, after %d places", at, killed, len(places))
		}
	}
}
