// Package redisserver runs a private Redis for the benchmarks: on a free loopback port, with everything in memory and
// nothing on disk (save "" and appendonly no). What it holds is lost when it stops, which is the point: it is the
// requirement's fast path as it was described. It needs redis-server in the PATH, and Linux.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ErrNotInstalled is returned when there is no redis-server in the PATH.
var ErrNotInstalled = errors.New("redis-server is not in the PATH")

// Times that starting and stopping may take.
const (
	startTimeout = 10 * time.Second
	stopTimeout  = 10 * time.Second
	pollInterval = 5 * time.Millisecond
)

// Server is a running redis-server.
type Server struct {
	cmd    *exec.Cmd
	addr   string
	socket string
	log    string
	exited chan error
}

// Start starts a server whose files are in dir, and returns when it answers. The server ends with this process at the
// latest.
func Start(ctx context.Context, dir string) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	s := &Server{
		addr:   net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		socket: filepath.Join(dir, "redis.sock"),
		log:    filepath.Join(dir, "redis.log"),
		exited: make(chan error, 1),
	}
	logFile, err := os.Create(s.log)
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	defer logFile.Close()        //nolint:errcheck // The child has its own handle.
	s.cmd = exec.Command(binary, //nolint:noctx // Ended by Stop, with SIGTERM, not with the context.
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--unixsocket", s.socket, "--dir", dir,
		"--save", "", "--appendonly", "no")
	s.cmd.Stdout, s.cmd.Stderr = logFile, logFile
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	go func() { s.exited <- s.cmd.Wait() }()
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// freePort asks the kernel for a port that nobody listens on. Somebody else may take it before Redis does; then Redis
// ends at its start and says so.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	bound, err := netip.ParseAddrPort(listener.Addr().String())
	return int(bound.Port()), errors.Join(err, listener.Close())
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis-server doesn't answer (%w); its log is %s", err, s.log)
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("redis-server ended at its start (%w); its log is %s", err, s.log)
		case <-tick.C:
		}
	}
}

func (s *Server) ping(ctx context.Context) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", s.socket)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // One answer was all that was wanted.
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	var answer [5]byte
	if _, err := c.Read(answer[:]); err != nil {
		return err
	}
	if string(answer[:]) != "+PONG" {
		return fmt.Errorf("answer %q to PING", answer[:])
	}
	return nil
}

// Addr returns where the server listens, as address and port.
func (s *Server) Addr() string { return s.addr }

// Socket returns the path of the Unix socket that the server listens on too.
func (s *Server) Socket() string { return s.socket }

// PID returns the server's process, so that its processor time can be told.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop ends the server and waits for its end. It is called once.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop redis-server: %w", err)
	}
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("redis-server ended badly: %w; its log was %s", err, s.log)
		}
		return nil
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		return fmt.Errorf("redis-server did not stop within %s and was killed", stopTimeout)
	}
}
