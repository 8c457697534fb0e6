//go:build unix

package testwait

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

// child marks the process that is stopped.
const child = "FAIRLEAD_TEST_STOPPED"

// rounds is how many processes are stopped: the machine decides how their threads go on.
const rounds = 5

// Stopped checks that a process which was stopped past the end of its lease notices at once. It runs the calling test again in
// child processes, which call hold and poll the context that it returns. Each child is stopped for two leases. Its context must
// not seem alive at any moment after over.
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
