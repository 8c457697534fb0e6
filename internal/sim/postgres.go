//go:build unix

package sim

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoPostgres is returned when a data directory has no running private PostgreSQL.
var ErrNoPostgres = errors.New("no private PostgreSQL runs")

// postmaster is what postmaster.pid says, in PostgreSQL's documented order of lines.
type postmaster struct {
	pid       int
	port      string
	socketDir string
}

func readPostmaster(dataDir string) (postmaster, error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, "postgres", "postmaster.pid"))
	if err != nil {
		return postmaster{}, fmt.Errorf("%w: %w", ErrNoPostgres, err)
	}
	lines := strings.Split(string(raw), "\n")
	if len(lines) < 5 {
		return postmaster{}, fmt.Errorf("%w: postmaster.pid has %d lines", ErrNoPostgres, len(lines))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return postmaster{}, fmt.Errorf("%w: postmaster.pid names process %q", ErrNoPostgres, lines[0])
	}
	return postmaster{pid: pid, port: strings.TrimSpace(lines[3]), socketDir: strings.TrimSpace(lines[4])}, nil
}

// PrivateURL is the URL of the private PostgreSQL that runs in a server's data directory.
func PrivateURL(dataDir string) (string, error) {
	pm, err := readPostmaster(dataDir)
	if err != nil {
		return "", err
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User("fairlead"),
		Path:     "/fairlead",
		RawQuery: url.Values{"host": {pm.socketDir}, "port": {pm.port}}.Encode(),
	}
	return u.String(), nil
}

// KillPostgres ends the private PostgreSQL of a data directory with SIGKILL: the postmaster, and with the rest also
// all processes that it started, as a power failure of PostgreSQL alone would.
func KillPostgres(dataDir string, rest bool) error {
	pm, err := readPostmaster(dataDir)
	if err != nil {
		return err
	}
	if !isPostgresOf(pm.pid, dataDir) {
		return fmt.Errorf("%w: process %d is not the one of %s", ErrNoPostgres, pm.pid, dataDir)
	}
	var children []int
	if rest {
		children = childrenOf(pm.pid)
	}
	if err := syscall.Kill(pm.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the postmaster %d: %w", pm.pid, err)
	}
	for _, pid := range children {
		// A child that ended by itself in the meantime is as dead.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill the backend %d: %w", pid, err)
		}
	}
	return nil
}

// isPostgresOf guards against a stale postmaster.pid whose process id has gone to somebody else.
func isPostgresOf(pid int, dataDir string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	want, err := filepath.EvalSymlinks(filepath.Join(dataDir, "postgres"))
	return err == nil && cwd == want
}

// childrenOf lists the processes whose parent is pid. PostgreSQL gives each backend a session of its own, so that a
// signal to the postmaster's process group reaches none of them.
func childrenOf(pid int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var children []int
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // It ended meanwhile.
		}
		// "PID (command) state PPID …"; the command may contain anything, a parenthesis too.
		end := bytes.LastIndexByte(raw, ')')
		fields := strings.Fields(string(raw[end+1:]))
		if end < 0 || len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			children = append(children, child)
		}
	}
	return children
}
