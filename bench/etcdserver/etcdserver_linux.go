// Package etcdserver runs a private etcd of one member for the benchmarks: on free loopback ports, with its data in a
// directory and with its defaults, so that what it answers is on disk. It needs etcd in the PATH, and Linux.
package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNotInstalled is returned when there is no etcd in the PATH.
var ErrNotInstalled = errors.New("etcd is not in the PATH")

// Times that starting and stopping may take.
const (
	startTimeout = 20 * time.Second
	stopTimeout  = 10 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Server is a running etcd.
type Server struct {
	cmd    *exec.Cmd
	addr   string
	log    string
	exited chan error
}

// Start starts a server whose files are in dir, and returns when it is healthy. The server ends with this process at the
// latest.
func Start(ctx context.Context, dir string) (*Server, error) {
	binary, err := exec.LookPath("etcd")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	var ports [2]string // of clients and of peers
	for i := range ports {
		if ports[i], err = freePort(ctx); err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
	}
	s := &Server{addr: ports[0], log: filepath.Join(dir, "etcd.log"), exited: make(chan error, 1)}
	logFile, err := os.Create(s.log)
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	defer logFile.Close() //nolint:errcheck // The child has its own handle.
	client, peer := "http://"+ports[0], "http://"+ports[1]
	s.cmd = exec.Command(binary, "--data-dir", filepath.Join(dir, "etcd"), //nolint:noctx // Ended by Stop, not with the context.
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error")
	s.cmd.Stdout, s.cmd.Stderr = logFile, logFile
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	go func() { s.exited <- s.cmd.Wait() }()
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// freePort asks the kernel for an address that nobody listens on. Somebody else may take it before etcd does; then etcd
// ends at its start and says so.
func freePort(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := s.healthy(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("etcd isn't healthy (%w); its log is %s", err, s.log)
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("etcd ended at its start (%w); its log is %s", err, s.log)
		case <-tick.C:
		}
	}
}

func (s *Server) healthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/health", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // The status was all that was wanted.
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it says %s", answer.Status)
	}
	return nil
}

// Addr returns where clients connect, as address and port.
func (s *Server) Addr() string { return s.addr }

// PID returns the server's process, so that its processor time can be told.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop ends the server and waits for its end. It is called once.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop etcd: %w", err)
	}
	select {
	case <-s.exited: // By the signal, which etcd hands on to itself.
		return nil
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill() // It may just have ended.
		return fmt.Errorf("etcd did not stop within %s and was killed", stopTimeout)
	}
}
