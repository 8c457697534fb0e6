//go:build unix

package server

import (
	"math"
	"syscall"
)

// maxConnections is how many connections leave room in the descriptors that this process may have.
func maxConnections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return connectionsFor(int(min(uint64(limit.Cur), math.MaxInt32))) //nolint:unconvert // Not all systems have it unsigned.
}
