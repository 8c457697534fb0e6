//go:build unix

package sim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoPostgres is returned when a data directory has no running private PostgreSQL.
var ErrNoPostgres = errors.New("no private PostgreSQL runs")

// postmasterOf returns the process id of the private PostgreSQL of a data directory.
func postmasterOf(dataDir string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, "postgres", "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoPostgres, err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%w: postmaster.pid names process %q", ErrNoPostgres, first)
	}
	if !isPostgresOf(pid, dataDir) {
		return 0, fmt.Errorf("%w: process %d is not the one of %s", ErrNoPostgres, pid, dataDir)
	}
	return pid, nil
}

// KillPostgres ends the private PostgreSQL of a data directory with SIGKILL: the postmaster alone, or with rest also all
// processes that it started, as a power failure of PostgreSQL alone would.
func KillPostgres(dataDir string, rest bool) error {
	pid, err := postmasterOf(dataDir)
	if err != nil {
		return err
	}
	var children []int
	if rest {
		children = childrenOf(pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the postmaster %d: %w", pid, err)
	}
	for _, pid := range children {
		// A child that ended by itself in the meantime is as dead.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill the backend %d: %w", pid, err)
		}
	}
	return nil
}

// isPostgresOf guards against a stale process id that has gone to another process.
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
func childrenOf(pid int) (children []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // The pattern is well formed.
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if _, parent := processState(child); err == nil && parent == strconv.Itoa(pid) {
			children = append(children, child)
		}
	}
	return children
}

// processState returns the letter of a process's state and its parent, empty when there is no such process.
func processState(pid int) (state, parent string) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", ""
	}
	// "PID (command) state PPID …"; the command may contain anything, a parenthesis too.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 2 {
		return "", ""
	}
	return fields[0], fields[1]
}
