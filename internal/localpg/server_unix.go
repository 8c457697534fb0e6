//go:build linux || darwin || freebsd

package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// readyPoll is the pause between two looks at a starting server.
	readyPoll = 5 * time.Millisecond
	// adoptedPoll is the pause between two looks whether an adopted server,
	// which the system doesn't let us wait for, is still there.
	adoptedPoll = 100 * time.Millisecond
	// probeTimeout bounds one attempt to connect.
	probeTimeout = 2 * time.Second
	// unresponsiveLimit is how long an orphan may claim to be ready without accepting a connection before it is replaced.
	unresponsiveLimit = 5 * time.Second
	// leftoverGrace is how long leftover processes get to end by themselves.
	leftoverGrace = time.Second
	// sharedMemoryLimit is how long a start is retried while leftovers that we can't find hold the old shared memory.
	sharedMemoryLimit = 15 * time.Second
)

// How a wait for a server can end in vain.
var (
	errGone         = errors.New("PostgreSQL ended before it was ready")
	errUnresponsive = errors.New("PostgreSQL accepts no connections")
)

// server is one postmaster process: our child, or an adopted orphan.
type server struct {
	pid       int
	socketDir string
	adopted   bool
	logStart  int64         // size of the log when it was started
	child     *os.Process   // nil if adopted
	gone      chan struct{} // closed when the process has ended
}

// forcedSettings go on the command line, where no configuration file can change them: reachability, and durability.
func forcedSettings(socketDir string, nonDurable bool) []string {
	durable := "on"
	if nonDurable {
		durable = "off"
	}
	settings := []string{
		"listen_addresses=",
		"port=5432",
		"unix_socket_directories=" + socketDir,
		"unix_socket_permissions=0700",
		"fsync=" + durable,
		"full_page_writes=" + durable,
		"synchronous_commit=" + durable,
		"logging_collector=off",
		"log_destination=stderr",
	}
	var args []string
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// launch starts PostgreSQL as our child and returns without waiting until it
// is ready. The context doesn't bound the child's life.
func (i *Instance) launch() (*server, error) {
	if err := i.clearStale(); err != nil {
		return nil, err
	}
	attr, err := i.id.attr(i.opts.DieWithParent)
	if err != nil {
		return nil, err
	}
	logFile, err := openLog(i.layout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }() // The child has a descriptor of its own.
	st, err := logFile.Stat()
	if err != nil {
		return nil, err
	}

	args := append([]string{"-D", i.layout.data()}, forcedSettings(i.socketDir, i.opts.NonDurable)...)
	if i.opts.Connections > 0 {
		args = append(args, "-c", "max_connections="+strconv.Itoa(i.opts.Connections))
	}
	cmd := exec.CommandContext(context.Background(), i.bins.postgres(), args...)
	cmd.Dir = "/"
	cmd.Env = childEnv()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = attr

	s := &server{socketDir: i.socketDir, logStart: st.Size(), gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		if i.opts.DieWithParent {
			// The child is tied to the thread, which must live as long.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		s.pid, s.child = cmd.Process.Pid, cmd.Process
		started <- nil
		err := cmd.Wait()
		i.log.Debug("PostgreSQL ended", "pid", s.pid, "status", cmd.ProcessState.String(), "error", err)
		close(s.gone)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s as %s: %w", i.bins.postgres(), i.id, err)
	}
	return s, nil
}

// launchReady starts PostgreSQL and waits until it accepts connections. The
// server is returned with an error, too, if it is still running.
func (i *Instance) launchReady(ctx context.Context) (*server, error) {
	deadline := time.Now().Add(sharedMemoryLimit)
	for {
		s, err := i.launch() //nolint:contextcheck // The server outlives the context of its start.
		if err != nil {
			return nil, err
		}
		err = i.waitReady(ctx, s, math.MaxInt64)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errGone) {
			return s, err
		}
		said := logSince(i.layout, s.logStart)
		if !bytes.Contains(said, []byte("pre-existing shared memory block")) || time.Now().After(deadline) {
			return nil, fmt.Errorf("%w; its log %s ends: %s", err, i.layout.log(), lastLines(said, 4))
		}
		// Processes of the server before that we couldn't find hold it.
		if !wait.For(ctx, leftoverGrace/4) {
			return nil, context.Cause(ctx)
		}
	}
}

// waitReady waits until the server accepts connections, however long its recovery takes. It returns [errGone] when the process ends
// first, and [errUnresponsive] when the server claims to be ready, or to stop, for longer than patience.
func (i *Instance) waitReady(ctx context.Context, s *server, patience time.Duration) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		p, err := readPIDFile(i.layout)
		switch {
		case err == nil && p.pid == s.pid && p.status == statusReady:
			if s.socketDir = p.socketDir; accepts(ctx, s.socketDir) {
				return nil
			}
		case err == nil && p.status != statusStopping:
			// Recovery may take long, and ending it would start it anew.
			limit.Reset(patience)
		}
		select {
		case <-s.gone:
			return errGone
		case <-ctx.Done():
			return fmt.Errorf("wait for PostgreSQL process %d: %w", s.pid, context.Cause(ctx))
		case <-limit.C:
			return errUnresponsive
		case <-time.After(readyPoll):
		}
	}
}

// accepts says whether the server behind the socket takes connections. A
// refusal for lack of a free slot is a sign of life as well.
func accepts(ctx context.Context, socketDir string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, databaseURL(socketDir, "postgres"))
	if err != nil {
		const cannotConnectNow = "57P03" // starting up, or shutting down
		var refused *pgconn.PgError
		return errors.As(err, &refused) && refused.Code != cannotConnectNow
	}
	return conn.Close(ctx) == nil
}

// adopt takes over a server that an earlier process left running. It returns
// nil when there is none, or when the one there was has ended.
func (i *Instance) adopt(ctx context.Context) (*server, error) {
	p, err := readPIDFile(i.layout)
	if err != nil || !isPostmaster(p.pid, i.layout.data()) {
		return nil, nil //nolint:nilerr // No file, a broken one or a stale one: clearStale deals with it.
	}
	s := &server{pid: p.pid, socketDir: p.socketDir, adopted: true, gone: make(chan struct{})}
	i.log.Info("found a private PostgreSQL of an earlier server process", "pid", p.pid, "status", p.status)
	go i.watch(s)

	if err = i.waitReady(ctx, s, unresponsiveLimit); errors.Is(err, errUnresponsive) {
		i.log.Warn("PostgreSQL of an earlier server process doesn't answer, replacing it", "pid", s.pid)
		i.end(s, leftoverGrace)
		err = errGone
	}
	if errors.Is(err, errGone) {
		s, err = nil, nil
	}
	return s, err
}

// watch closes gone once an adopted server's process has ended. It stops looking when the instance itself is over.
func (i *Instance) watch(s *server) {
	look := time.NewTicker(adoptedPoll)
	defer look.Stop()
	for isPostmaster(s.pid, i.layout.data()) {
		select {
		case <-i.done:
			return
		case <-look.C:
		}
	}
	close(s.gone)
}

// signal sends a signal to the server unless it has ended. An adopted one's
// number may meanwhile be another process's, so that is looked at again.
func (i *Instance) signal(s *server, sig syscall.Signal) {
	var err error
	switch {
	case !s.adopted:
		err = s.child.Signal(sig)
	case isPostmaster(s.pid, i.layout.data()):
		err = syscall.Kill(s.pid, sig)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		i.log.Error("can't signal PostgreSQL", "pid", s.pid, "signal", sig.String(), "error", err)
	}
}

// end shuts a server down at once (what it acknowledged is durable, the next
// start recovers), by SIGKILL after the grace period, and waits for its end.
func (i *Instance) end(s *server, grace time.Duration) {
	i.signal(s, syscall.SIGQUIT)
	select {
	case <-s.gone:
	case <-time.After(grace):
		i.signal(s, syscall.SIGKILL)
		<-s.gone
		// The others end when they find it gone, unless they are stopped, too.
		for _, pid := range leftovers(i.layout.data()) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				i.log.Error("can't end a process of PostgreSQL", "pid", pid, "error", err)
			}
		}
	}
}

// clearStale removes what a dead server left: its processes, and lock files that would keep PostgreSQL from starting if their
// number has been given to another process meanwhile. It is called only by the holder of the directory's lock and when no
// server runs. Should a process be missed, PostgreSQL's own check of the shared memory, which hangs on the directory and not on
// the file, still refuses to start beside it.
func (i *Instance) clearStale() error {
	p, err := readPIDFile(i.layout)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err == nil && isPostmaster(p.pid, i.layout.data()):
		return fmt.Errorf("PostgreSQL process %d still runs on %s", p.pid, i.layout.data())
	default:
		if err := os.Remove(i.layout.pidFile()); err != nil {
			return err
		}
	}
	removeSocketFiles(i.socketDir)

	end := time.Now().Add(leftoverGrace)
	sig := syscall.SIGQUIT
	for {
		pids := leftovers(i.layout.data())
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(end) {
			sig = syscall.SIGKILL
		}
		if time.Now().After(end.Add(sharedMemoryLimit)) {
			return fmt.Errorf("processes %v of a dead PostgreSQL on %s don't end", pids, i.layout.data())
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end process %d of a dead PostgreSQL: %w", pid, err)
			}
		}
		time.Sleep(readyPoll) // Another process's end can only be polled.
	}
}

// ensureDatabase creates the database if a crash came between initdb and here. A standby has what its primary has.
func ensureDatabase(ctx context.Context, socketDir string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, databaseURL(socketDir, "template1"))
	if err != nil {
		return err
	}
	const databaseExists, readOnly = "42P04", "25006"
	_, err = conn.Exec(ctx, "CREATE DATABASE "+databaseName).ReadAll()
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && (refused.Code == databaseExists || refused.Code == readOnly) {
		err = nil
	}
	return errors.Join(err, conn.Close(ctx))
}
