//go:build linux || darwin || freebsd

package localpg

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestTheLockIsGivenUpWhoeverHasTheFile has somebody else with the lock's file, as a process that is being started has it
// for a moment.
func TestTheLockIsGivenUpWhoeverHasTheFile(t *testing.T) {
	t.Parallel()
	l := layout{dir: t.TempDir()}
	first, err := lockDir(l)
	testwait.Must(t, err)
	other, err := syscall.Dup(int(first.Fd()))
	testwait.Must(t, err)
	file := os.NewFile(uintptr(other), "other")
	t.Cleanup(func() { _ = file.Close() })
	if _, err := lockDir(l); !errors.Is(err, ErrInUse) {
		t.Errorf("locked twice: %v", err)
	}
	unlockDir(first)
	second, err := lockDir(l)
	if err != nil {
		t.Fatalf("locked again: %v", err)
	}
	unlockDir(second)
}
