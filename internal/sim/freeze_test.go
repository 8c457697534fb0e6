//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// freezePoll is the pause between two looks whether a process has stopped, which follows its signal with a delay.
const freezePoll = time.Millisecond

// Frozen is a private PostgreSQL whose processes are all stopped. Its sockets still take what is sent to them, as far
// as the system's buffers reach, and nothing answers: it is what a machine that hangs looks like to its clients.
type Frozen struct {
	dataDir string
	pids    []int
}

// FreezePostgres stops the private PostgreSQL of a data directory with SIGSTOP, the postmaster and all processes that
// it started, and returns when every one of them has stopped. The caller thaws it, also after an error.
func FreezePostgres(ctx context.Context, dataDir string) (*Frozen, error) {
	f := &Frozen{dataDir: dataDir}
	postmaster, _ := localpg.Processes(dataDir)
	if postmaster == 0 {
		return f, ErrNoPostgres
	}
	// The postmaster first: once it has stopped, there are no more children than can be listed.
	if err := f.stop(ctx, postmaster); err != nil {
		return f, err
	}
	_, all := localpg.Processes(dataDir)
	for _, pid := range all {
		if pid == postmaster {
			continue
		}
		if err := f.stop(ctx, pid); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Processes is how many processes were stopped.
func (f *Frozen) Processes() int { return len(f.pids) }

// Thaw wakes those processes that are still there, children first, and returns how many it woke. Calling it again is harmless.
func (f *Frozen) Thaw() (woken int, err error) {
	var failures []error
	_, all := localpg.Processes(f.dataDir)
	for _, pid := range slices.Backward(f.pids) {
		// It may have been killed meanwhile, and its number may be another's.
		if !slices.Contains(all, pid) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err == nil {
			woken++
		} else if !errors.Is(err, syscall.ESRCH) {
			failures = append(failures, fmt.Errorf("wake process %d: %w", pid, err))
		}
	}
	f.pids = nil
	return woken, errors.Join(failures...)
}

func (f *Frozen) stop(ctx context.Context, pid int) error {
	err := stopProcess(ctx, pid)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	f.pids = append(f.pids, pid)
	return err
}

// Freeze stops the server's process with SIGSTOP, and returns when it has stopped. SIGCONT wakes it.
func (s *Server) Freeze(ctx context.Context) error { return stopProcess(ctx, s.process.Process.Pid) }

// stopProcess stops a process, and waits until it has stopped or is gone.
func stopProcess(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for {
		// "PID (command) state …"; the command is postgres, or fairlead.
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // There is none when it is gone.
		if fields := strings.Fields(string(raw)); len(fields) < 3 || slices.Contains([]string{"T", "t", "Z", "X"}, fields[2]) {
			return nil // Stopped, or gone.
		}
		if !wait.For(ctx, freezePoll) {
			return fmt.Errorf("process %d has not stopped: %w", pid, context.Cause(ctx))
		}
	}
}
