//go:build unix

package pgtest

import (
	"errors"
	"syscall"
)

// running says whether there is a process of this id.
func running(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
