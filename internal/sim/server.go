//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// AdminKey is the key that servers are started with and that clients present.
const AdminKey = "sim-admin-key-0123456789abcdefghijklmnop"

// Poll intervals. A server is asked often whether it is ready, because the time to readiness is itself measured.
const (
	readyPoll  = 10 * time.Millisecond
	probeLimit = 2 * time.Second
)

// ServerOptions say how a server process is run.
type ServerOptions struct {
	// Binary is the program. Required.
	Binary string
	// DataDir is the server's data directory. Required: it also takes the log and the address file.
	DataDir string
	// DatabaseURL makes the server use a shared database instead of a private PostgreSQL.
	DatabaseURL string
	// Args are added to the command line.
	Args []string
}

// Server is a server process that can be started again after its end; its address is then another. Start, and what
// ends a process, must not be called concurrently with one another; URL and Log may be called at any time.
type Server struct {
	opts    ServerOptions
	url     atomic.Pointer[string]
	process *exec.Cmd
	exited  chan struct{} // closed when the process has been waited for
	probe   *http.Client
}

var _ Target = (*Server)(nil)

// NewServer prepares a server without starting it.
func NewServer(opts ServerOptions) *Server {
	return &Server{opts: opts, probe: &http.Client{
		Timeout:   probeLimit,
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
}

// URL is the base URL of the last process that became ready, empty before the first. The process may be gone.
func (s *Server) URL() string {
	if u := s.url.Load(); u != nil {
		return *u
	}
	return ""
}

// DataDir is the server's data directory.
func (s *Server) DataDir() string { return s.opts.DataDir }

// Log returns what all processes of this server wrote to standard output and error so far.
func (s *Server) Log() string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return "no log: " + err.Error()
	}
	return string(log)
}

func (s *Server) logPath() string { return filepath.Join(s.opts.DataDir, "sim-server.log") }

// Start starts a process with further environment variables and waits until it is ready, or until ctx ends. It
// returns the time that took.
func (s *Server) Start(ctx context.Context, env ...string) (time.Duration, error) {
	if s.Running() {
		return 0, errors.New("server process: is running already")
	}
	addrFile := filepath.Join(s.opts.DataDir, "sim-address")
	if err := os.Remove(addrFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--addr-file", addrFile, "--data", s.opts.DataDir}
	if s.opts.DatabaseURL != "" {
		args = append(args, "--database-url", s.opts.DatabaseURL)
	}
	// Not CommandContext: the process must outlive the context that bounds the wait for its readiness.
	cmd := exec.Command(s.opts.Binary, append(args, s.opts.Args...)...) //nolint:noctx // The caller's binary.
	cmd.Env = append(append(os.Environ(), "FAIRLEAD_ADMIN_KEY="+AdminKey), env...)
	// A file, not a pipe: grandchildren that outlive a kill must not delay the wait for their parent.
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }() // The process has its own descriptor by then.
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own, so that a terminal's Ctrl-C reaches the tests alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("server process: %w", err)
	}
	exited := make(chan struct{})
	s.process, s.exited = cmd, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // The state is read from cmd.ProcessState by those who care.
	}()
	if err := s.awaitReady(ctx, addrFile); err != nil {
		return time.Since(began), err
	}
	return time.Since(began), nil
}

func (s *Server) awaitReady(ctx context.Context, addrFile string) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if addr, err := os.ReadFile(addrFile); err == nil {
			if base := "http://" + strings.TrimSpace(string(addr)); strings.Contains(base, ":") && s.ready(ctx, base) {
				s.url.Store(&base)
				return nil
			}
		}
		select {
		case <-s.exited:
			return fmt.Errorf("server process: ended before it was ready (%v)\n%s", s.process.ProcessState, s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("server process: not ready: %w\n%s", context.Cause(ctx), s.logTail())
		case <-tick.C:
		}
	}
}

func (s *Server) ready(ctx context.Context, base string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := s.probe.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Running says whether the last started process still lives (stopped ones do).
func (s *Server) Running() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// PID is the number of the last started process.
func (s *Server) PID() string { return strconv.Itoa(s.process.Process.Pid) }

// Replace makes the next process run another binary.
func (s *Server) Replace(binary string) { s.opts.Binary = binary }

// Signal sends a signal to the process.
func (s *Server) Signal(sig syscall.Signal) error {
	if !s.Running() {
		return fmt.Errorf("server process: no process to send %v", sig)
	}
	return s.process.Process.Signal(sig)
}

// Kill ends the process with SIGKILL and waits until it is gone. Killing one that is gone is no error.
func (s *Server) Kill(ctx context.Context) error {
	if !s.Running() {
		return nil
	}
	if err := s.process.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return s.AwaitExit(ctx)
}

// AwaitExit waits for the end of the process.
func (s *Server) AwaitExit(ctx context.Context) error {
	select {
	case <-s.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("server process: has not ended: %w\n%s", context.Cause(ctx), s.logTail())
	}
}

// Exited is closed when the last started process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Terminate sends SIGTERM, waits for the end of the process and returns its exit code.
func (s *Server) Terminate(ctx context.Context) (int, error) {
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return -1, err
	}
	if err := s.AwaitExit(ctx); err != nil {
		return -1, err
	}
	return s.ExitCode(), nil
}

// ExitCode is that of the process that ended last; -1 if a signal ended it.
func (s *Server) ExitCode() int { return s.process.ProcessState.ExitCode() }

// KilledBy returns the signal that ended the last process, 0 if none did.
func (s *Server) KilledBy() syscall.Signal {
	if status, ok := s.process.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

// logTail is the end of the log, long enough to see why a start failed.
func (s *Server) logTail() string {
	const kept = 8 << 10
	log := s.Log()
	return log[max(0, len(log)-kept):]
}
