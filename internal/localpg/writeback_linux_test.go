package localpg

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestWriteBack asks the kernel which pages of a file it still has to begin to write.
func TestWriteBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "5", "16384")
	testwait.Must(t, os.Mkdir(filepath.Dir(path), 0o700))
	began := time.Now().Add(-time.Second) // Times of files are a little behind the clock.
	testwait.Must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	if dirty(t, path) == 0 {
		t.Skip("SKIPPED: the kernel has written the file by itself already, or this file system has none on a disk")
	}
	left := dirty(t, path)
	for try := 0; try < 100 && left > 0; try++ { // It leaves out pages that another thread of the kernel has locked. The kernel itself waits for 30 s.
		testwait.Must(t, writeBackSince(dir, began))
		if left = dirty(t, path); left > 0 {
			time.Sleep(10 * time.Millisecond) // The kernel tells nobody when it unlocks a page.
		}
	}
	if left > 0 {
		t.Errorf("the kernel has not begun to write %d pages", left)
	}
	testwait.Must(t, writeBackSince(filepath.Join(dir, "dropped"), began))
	testwait.Must(t, os.Symlink(path, filepath.Join(dir, "link"))) // It is no table.
	testwait.Must(t, writeBackSince(dir, began))
}

// dirty returns how many pages of a file were changed and are not being written.
func dirty(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	testwait.Must(t, err)
	defer func() { _ = f.Close() }()
	var all unix.CachestatRange
	var stat unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &all, &stat, 0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("SKIPPED: before Linux 6.5 nobody tells which pages are written: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return stat.Dirty
}
