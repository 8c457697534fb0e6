package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dirPrefix begins the names of our directories; the process id follows.
const dirPrefix = "fairlead-pgtest-"

// staleAfter is the age from which a directory of no living process is removed. It leaves alone what a process in another
// container, whose id we can't see, may just be using.
const staleAfter = 6 * time.Hour

// newDir makes a directory for one PostgreSQL. It isn't t.TempDir's, whose paths are too long for a socket.
func newDir() (string, error) {
	base := os.TempDir()
	removeStale(base, time.Now())
	return os.MkdirTemp(base, fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
}

// running says whether there is a process of this id.
func running(pid int) bool {
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(syscall.Signal(0))
	}
	return err == nil || errors.Is(err, os.ErrPermission)
}

// removeStale removes what test processes that died have left.
func removeStale(base string, now time.Time) {
	dirs, err := filepath.Glob(filepath.Join(base, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		st, err := os.Lstat(dir)
		if err != nil || !st.IsDir() || now.Sub(st.ModTime()) < staleAfter {
			continue
		}
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if n, err := strconv.Atoi(pid); err != nil || running(n) {
			continue
		}
		_ = os.RemoveAll(dir) // Somebody else's, perhaps: then it stays.
	}
}
