//go:build linux || darwin || freebsd

package localpg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// maxLogSize is how many bytes of PostgreSQL's log are kept before the file is
// turned; twice as much is on disk at most, and what is written in between.
const maxLogSize = 16 << 20

// tempSocketPrefix begins the names of socket directories outside the data directory.
const tempSocketPrefix = "fairlead-socket-"

// lockDir takes the directory's lock, which the kernel frees when the process ends, however it ends. PostgreSQL doesn't inherit the
// descriptor: otherwise an orphan would keep the lock from the server that is to adopt it.
func lockDir(l layout) (*os.File, error) {
	f, err := os.OpenFile(l.lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, nil
	}
	_ = f.Close() // Nothing was written to it.
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, l.dir)
	}
	return nil, fmt.Errorf("lock %s: %w", l.lock(), err)
}

// unlockDir frees the directory's lock. Closing the file is not enough: where another goroutine starts a process at this
// moment, that has the file too until it becomes another program, and the lock with it (flock(2)).
func unlockDir(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close() // Nothing was written to it.
}

// maxSocketPath is the longest path that a socket's address can hold, without the zero byte that ends it.
func maxSocketPath() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103
}

// makeSocketDir returns a directory of mode 0700 for the socket: run/ beside
// the cluster, or a private temporary one when that path is too long.
func makeSocketDir(l layout, id identity) (string, error) {
	if p, err := readPIDFile(l); err == nil {
		removeTempSocketDir(p.socketDir)
	}
	dir := l.run()
	if len(socketPath(dir)) <= maxSocketPath() {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // A directory needs its x bits.
			return "", err
		}
		return dir, id.give(l, dir)
	}
	var err error
	for _, base := range []string{os.TempDir(), "/tmp"} {
		dir, err = os.MkdirTemp(base, tempSocketPrefix)
		if err != nil {
			continue
		}
		if len(socketPath(dir)) > maxSocketPath() {
			err = fmt.Errorf("%s is too long for a unix socket", dir)
			_ = os.Remove(dir) // It is empty, and the next one may do.
			continue
		}
		return dir, id.give(l, dir)
	}
	return "", fmt.Errorf("no place for the unix socket: %w", err)
}

// removeTempSocketDir removes a directory that makeSocketDir made outside the data directory. Others are left alone, so that a
// tampered state file can't make us delete anything else.
func removeTempSocketDir(dir string) {
	if !strings.HasPrefix(filepath.Base(dir), tempSocketPrefix) {
		return
	}
	removeSocketFiles(dir)
	_ = os.Remove(dir) // At worst an empty directory stays.
}

func removeSocketFiles(dir string) {
	for _, path := range []string{socketPath(dir), socketPath(dir) + ".lock"} {
		_ = os.Remove(path) // Mostly they aren't there.
	}
}

// openLog opens PostgreSQL's log for appending, which is what lets it be cut short while PostgreSQL holds it open.
func openLog(l layout) (*os.File, error) {
	return os.OpenFile(l.log(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// turnLog moves a log that has grown too large aside by copying it and cutting it short: PostgreSQL, perhaps an adopted one,
// keeps the file open. A line written between the two is lost, which is the price of having no process whose only task is to
// collect the log.
func turnLog(l layout, limit int64) error {
	st, err := os.Stat(l.log())
	if err != nil || st.Size() <= limit {
		return err
	}
	src, err := os.Open(l.log())
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // Only read from.
	dst, err := os.OpenFile(l.oldLog(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// Of a log that grew far beyond the limit between two looks, only the end is kept.
	_, err = io.Copy(dst, io.NewSectionReader(src, max(0, st.Size()-2*limit), st.Size()))
	if err = errors.Join(err, dst.Close()); err != nil {
		return err
	}
	return os.Truncate(l.log(), 0)
}

// logSince returns what was logged after the first from bytes, at most 16 KiB.
func logSince(l layout, from int64) []byte {
	raw, err := os.ReadFile(l.log())
	if err != nil {
		return nil
	}
	if size := int64(len(raw)); from <= size { // Else the log was cut short meanwhile.
		raw = raw[from:]
	}
	return raw[max(0, len(raw)-16<<10):]
}

// lastLines joins the last n lines of a program's output for an error message.
func lastLines(raw []byte, n int) string {
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return string(bytes.Join(lines, []byte(" | ")))
}
