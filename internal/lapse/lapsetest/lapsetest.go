//go:build unix

// Package lapsetest stops processes that hold leases past the end of these, and looks what they are told when they go on.
package lapsetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child says that the process is the one that is stopped.
const child = "FAIRLEAD_TEST_STOPPED"

// rounds is how many processes are stopped: how their threads go on is the machine's to decide.
const rounds = 5

// Stopped runs the calling test again in processes of its own. There, it calls hold, and asks the context all the time
// whether it has ended. Each process is stopped for two leases, and must not be told that its context lasts at any moment
// after over.
func Stopped(t *testing.T, lease time.Duration, hold func(t *testing.T) (ctx context.Context, over time.Time)) {
	t.Helper()
	if os.Getenv(child) != "" {
		spin(hold(t))
		return
	}
	for range rounds {
		stop(t, lease)
	}
}

// spin is what the holder does.
func spin(ctx context.Context, over time.Time) {
	fmt.Println("\nheld") // The test's name may stand before it, without a line's end.
	for {
		now := time.Now()
		if ctx.Err() != nil {
			fmt.Println("\nended:", context.Cause(ctx))
			return
		}
		if now.After(over) {
			fmt.Println("\nlasted:", now.Sub(over), "after its lease")
			return
		}
	}
}

func stop(t *testing.T, lease time.Duration) {
	t.Helper()
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$") //nolint:gosec // This very program.
	holder.Env = append(os.Environ(), child+"=1")
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Process.Kill() // It may be stopped.
		_ = holder.Wait()         // Killed is no success.
	}()
	lines := bufio.NewScanner(out)
	hear := func(words ...string) string {
		for lines.Scan() {
			for _, word := range words {
				if strings.HasPrefix(lines.Text(), word) {
					return lines.Text()
				}
			}
		}
		t.Fatalf("the holder ended without saying any of %q: %v", words, lines.Err())
		return ""
	}
	hear("held")
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * lease)
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if said := hear("ended", "lasted"); strings.HasPrefix(said, "lasted") {
		t.Errorf("the context of a holder that was stopped %s", said)
	}
}
