//go:build !linux && !darwin && !freebsd

package witness

import (
	"fmt"
	"os"
	"runtime"
)

// lock refuses: without a lock two processes could cosign two histories.
func lock(path string, _ int) (*os.File, error) {
	return nil, fmt.Errorf("%s can't be locked on %s: a witness runs on Linux, macOS or FreeBSD", path, runtime.GOOS)
}

func unlock(*os.File) {}
