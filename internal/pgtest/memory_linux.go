package pgtest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// memory is a file system in memory. Each database of a test is some 300 files, and ext4 searches long for the inode of a new file
// where many were deleted within the last minutes: half of the processor time of tests went there.
const memory = "/dev/shm"

// enoughMemory is what must be free there: the databases of a package's tests take less than 1 GB.
const enoughMemory = 8 << 30

func roomInMemory() bool {
	const tmpfs = 0x01021994
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || fs.Type != tmpfs {
		return false
	}
	return fs.Bavail*uint64(fs.Bsize) >= enoughMemory && availableMemory() >= enoughMemory //nolint:gosec // A block's size is positive.
}

// availableMemory is what can be had without swapping, in bytes; 0: it is not known.
func availableMemory() (bytes uint64) {
	text, _ := os.ReadFile("/proc/meminfo")
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	_, _ = fmt.Sscan(rest, &bytes)
	return bytes * 1024
}
