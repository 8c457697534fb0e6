//go:build unix

package sim

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fairlead-dev/fairlead/internal/localpg"
)

// ErrNoPostgres is returned when a data directory has no running private PostgreSQL.
var ErrNoPostgres = errors.New("no private PostgreSQL runs")

// KillPostgres ends the private PostgreSQL of a data directory with SIGKILL: the postmaster alone, or with rest also all
// processes that it started, as a power failure of PostgreSQL alone would.
func KillPostgres(dataDir string, rest bool) error {
	postmaster, all := localpg.Processes(dataDir)
	if postmaster == 0 {
		return fmt.Errorf("%w in %s", ErrNoPostgres, dataDir)
	}
	if !rest {
		return syscall.Kill(postmaster, syscall.SIGKILL)
	}
	for _, pid := range all {
		// One that has ended by itself in the meantime is as dead.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}
