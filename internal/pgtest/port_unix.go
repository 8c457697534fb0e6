//go:build linux || darwin || freebsd

package pgtest

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// portLocks is a file in which each port has a byte, which the process locks whose test has the port. Such a lock is freed when the process ends, however it
// ends, and no process that it has started keeps it. The file stays open: to close it would free all locks.
//
//nolint:gochecknoglobals // One for each process.
var portLocks = sync.OnceValue(func() *os.File {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "fairlead-test-ports"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil // Another user's.
	}
	return f
})

// reservePort reports whether no other process has a port. Without the file it is taken at its word.
func reservePort(port int) bool { return lockPort(port, syscall.F_WRLCK) == nil }

func releasePort(port int) { _ = lockPort(port, syscall.F_UNLCK) }

func lockPort(port int, how int16) error {
	f := portLocks()
	if f == nil {
		return nil
	}
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: how, Whence: io.SeekStart, Start: int64(port), Len: 1})
}
