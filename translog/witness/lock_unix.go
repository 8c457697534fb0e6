//go:build linux || darwin || freebsd

package witness

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes a file for this process, until it is unlocked or the process ends, however it ends.
func lock(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, nil
	}
	_ = f.Close() // Nothing was written to it.
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s is locked", ErrInUse, path)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// unlock frees a file. To close it is not enough where another goroutine starts a process at this moment (flock(2)).
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close() // Nothing was written to it.
}
