//go:build unix

package testwait

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/fairlead-dev/fairlead/conformance"
)

// Stopped checks that a process which was stopped past the end of its lease notices at once. hold takes a lease and returns its
// context, which must not seem alive at any moment after over. The test's own process is stopped for two leases, so that the test
// must not run in parallel with others.
func Stopped(t conformance.TB, lease time.Duration, hold func() (ctx context.Context, over time.Time)) {
	t.Helper()
	const rounds = 5 // The machine decides how the process's threads go on.
	for range rounds {
		ctx, over := hold()
		stop := exec.CommandContext(t.Context(), "sh", "-c", //nolint:gosec // Nothing of it comes from elsewhere.
			fmt.Sprintf("kill -STOP %d; sleep %f; kill -CONT %[1]d", os.Getpid(), 2*lease.Seconds()))
		Must(t, stop.Start())
		for now := time.Now(); ctx.Err() == nil; now = time.Now() {
			if now.After(over) {
				t.Errorf("the context of a holder that was stopped lasted %v after its lease", now.Sub(over))
				break
			}
		}
		Must(t, stop.Wait())
	}
}
