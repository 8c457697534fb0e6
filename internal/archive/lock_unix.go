//go:build linux || darwin || freebsd

package archive

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a directory for this process, alone or together with others that do not want it alone, until it is freed or the process ends, however it
// ends. Alone, it does not wait: had is false where others have the directory. It is false, too, on a file system that has no locks.
func lock(directory string, alone bool) (free func(), had bool, err error) {
	f, err := os.Open(directory)
	if err != nil {
		return func() {}, false, err
	}
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	for {
		if err = syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return func() {}, false, f.Close()
	}
	return func() {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close() // Nothing was written to it.
	}, true, nil
}
