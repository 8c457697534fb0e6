package torture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/tally"
)

var (
	// ErrNoProcess is returned when a row needs a server's process and none was named, or it is none.
	ErrNoProcess = errors.New("no process of a server")

	errNotFairlead = errors.New("is not fairlead")
)

// process finds one of the servers' processes, at random.
func (s *site) process() (*os.Process, error) {
	return processOf(s.o.Processes[s.rng.IntN(len(s.o.Processes))])
}

// checkProcesses wants every process that is named to be a server's, and one at least if the row needs them. Where a process is to be
// killed, the number of its successor must be found.
func checkProcesses(row Row, named []string) error {
	if !row.processes {
		return nil
	}
	if len(named) == 0 {
		return fmt.Errorf("%w: name one with --pid", ErrNoProcess)
	}
	for _, name := range named {
		if _, err := strconv.Atoi(name); err == nil && row.Name == tally.ServerKilled {
			return fmt.Errorf("%w: --pid %s: a server that was started again has another number: give a file that has it", ErrNoProcess, name)
		}
		if _, err := processOf(name); err != nil {
			return err
		}
	}
	return nil
}

// processOf finds the process that is named by its number, or by a file that has it.
func processOf(named string) (*os.Process, error) {
	text := named
	if _, err := strconv.Atoi(named); err != nil {
		content, err := os.ReadFile(named)
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
