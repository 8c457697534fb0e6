package torture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

var (
	// ErrNoProcess is returned when a row needs a server's process and none was named, or it is none.
	ErrNoProcess = errors.New("no process of a server")

	errNotFairlead = errors.New("is not fairlead")
)

// process finds one of the servers' processes, at random.
func (s *site) process() (*os.Process, error) {
	if len(s.o.Processes) == 0 {
		return nil, fmt.Errorf("%w: name one with --pid", ErrNoProcess)
	}
	named := s.o.Processes[s.rng.IntN(len(s.o.Processes))]
	text := named
	if _, err := strconv.Atoi(named); err != nil {
		content, err := os.ReadFile(named) //nolint:gosec // The user named it.
		if err != nil {
			return nil, fmt.Errorf("%w: --pid: %w", ErrNoProcess, err)
		}
		text = strings.TrimSpace(string(content))
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 1 {
		return nil, fmt.Errorf("%w: --pid %s: %q is no number of a process", ErrNoProcess, named, text)
	}
	if err := isFairlead(pid); err != nil {
		return nil, fmt.Errorf("%w: --pid %s: process %d %w", ErrNoProcess, named, pid, err)
	}
	return os.FindProcess(pid)
}

// isFairlead refuses other programs, where the system tells.
func isFairlead(pid int) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	program, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Errorf("does not run: %w", err)
	}
	if is := strings.TrimSpace(string(program)); is != "fairlead" {
		return fmt.Errorf("%w, but %s", errNotFairlead, is)
	}
	return nil
}
