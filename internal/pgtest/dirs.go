package pgtest

import (
	"os"
	"path/filepath"
	"time"
)

// dirPrefix begins the names of our directories.
const dirPrefix = "fairlead-pgtest-"

// staleAfter is the age from which a directory is removed: no test runs for that long.
const staleAfter = 24 * time.Hour

// newDir makes a directory for one PostgreSQL, and removes what test processes that died have left. It isn't t.TempDir's, whose
// paths are too long for a socket.
func newDir() (string, error) {
	for _, base := range []string{os.TempDir(), memory} {
		dirs, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*")) // The pattern is well formed.
		for _, dir := range dirs {
			if st, err := os.Lstat(dir); err == nil && st.IsDir() && time.Since(st.ModTime()) > staleAfter {
				_ = os.RemoveAll(dir) // Somebody else's, perhaps: then it stays.
			}
		}
	}
	return os.MkdirTemp(Base(), dirPrefix)
}

// Base is where directories for PostgreSQL are to be made: in memory, if there is room.
func Base() string {
	if roomInMemory() {
		return memory
	}
	return os.TempDir()
}
