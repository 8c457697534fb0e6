//go:build linux || darwin || freebsd

package localpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// firstPause and maxPause bound the pause before PostgreSQL is started
	// again; it doubles between them. The very first restart has none.
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// readyPause bounds it for a server that starts well but dies again at
	// once: something kills it, and waiting longer doesn't help.
	readyPause = 200 * time.Millisecond
	// settledAfter is how long PostgreSQL has to run before its next death counts as a first one again.
	settledAfter = time.Second
	// logCheckEvery is how often the log's size is looked at.
	logCheckEvery = time.Minute
	// heedLimit is how long PostgreSQL may take to begin with a shutdown. How long it then takes is the caller's affair.
	heedLimit = 5 * time.Second
	// hardStopGrace is how long an immediate shutdown may take before SIGKILL.
	hardStopGrace = 2 * time.Second
)

// errStopping ends the wait for a start when Stop is called meanwhile.
var errStopping = errors.New("stopping")

// Instance is a running private PostgreSQL. Its methods may be called from any goroutine.
type Instance struct {
	opts      Options
	log       *slog.Logger
	layout    layout
	lock      *os.File
	bins      binaries
	id        identity
	socketDir string

	// The context of the time until Stop: its end interrupts restarts.
	running context.Context //nolint:containedctx // It is the instance's own lifetime, not a caller's.
	stop    context.CancelCauseFunc

	hard     chan struct{} // closed when Stop's caller runs out of patience
	hardOnce sync.Once
	done     chan struct{}
	err      error // written before done is closed

	pid      atomic.Int64
	restarts atomic.Int64
	adopted  bool
	beside   sync.WaitGroup // what runs until Stop beside the supervisor

	// The supervisor's: when PostgreSQL was last ready, and the pause before the next start of one that died.
	readyAt time.Time
	pause   time.Duration
}

// Start brings up the private PostgreSQL of a directory and returns once it
// accepts connections. The context bounds the start alone.
//
// It returns [ErrNoBinaries], [ErrInUse], [ErrUnsupported], or an error that carries the end of PostgreSQL's log.
func Start(ctx context.Context, o Options) (*Instance, error) {
	i, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("private PostgreSQL: %w", err)
	}
	return i, nil
}

func start(ctx context.Context, o Options) (_ *Instance, err error) {
	if o.Dir == "" {
		return nil, errors.New("no data directory given")
	}
	o.giveUpAfter = cmp.Or(o.giveUpAfter, defaultGiveUpAfter)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	dir, err := resolveDir(o.Dir)
	if err != nil {
		return nil, err
	}
	i := &Instance{
		opts:   o,
		log:    o.Logger,
		layout: layout{dir: dir},
		hard:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	i.running, i.stop = context.WithCancelCause(context.Background())
	if i.lock, err = lockDir(i.layout); err != nil {
		i.stop(errStopping)
		return nil, err
	}
	defer func() {
		if err != nil {
			i.stop(errStopping)
			close(i.done)
			unlockDir(i.lock)
		}
	}()

	began := time.Now()
	how := "adopted"
	s, err := i.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if s == nil {
		how = "started"
		if s, err = i.launchReady(ctx); err != nil {
			if s != nil {
				i.end(s, hardStopGrace)
			}
			return nil, err
		}
	}
	i.adopted = s.adopted
	i.socketDir = s.socketDir
	if err := ensureDatabase(ctx, s.socketDir); err != nil {
		i.end(s, hardStopGrace)
		return nil, fmt.Errorf("create database %s: %w", databaseName, err)
	}
	i.pid.Store(int64(s.pid))
	i.readyAt = time.Now()
	i.log.Info("private PostgreSQL is ready", "how", how, "pid", s.pid, "version", i.bins.major,
		"user", i.id.String(), "socket", i.socketDir, "took", time.Since(began).Round(time.Millisecond))
	// Each goroutine of the instance is there when Start returns: whoever looks for leaks then has seen all of them.
	if !i.opts.NonDurable {
		i.beside.Go(func() { i.writeBack(i.running) })
	}
	go i.supervise(s)
	return i, nil
}

// resolveDir makes the directory, and its path absolute and free of symbolic
// links, so that PostgreSQL and we mean the same by it.
func resolveDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	// Directories on the way that are not there yet may be passed through: PostgreSQL may have to run as another user.
	if err := os.MkdirAll(filepath.Dir(abs), 0o711); err != nil { //nolint:gosec // As said; they show nothing.
		return "", err
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// prepare finds programs and user, adopts a running server if there is one,
// and else sees to it that there is a cluster and a place for the socket.
func (i *Instance) prepare(ctx context.Context) (*server, error) {
	major, err := clusterMajor(i.layout.data())
	if err != nil {
		return nil, err
	}
	if i.bins, err = findBinaries(ctx, i.opts.binDir, i.layout.data(), major); err != nil {
		return nil, err
	}
	if i.id, err = chooseIdentity(ctx, i.layout, i.bins, i.log); err != nil {
		return nil, err
	}
	if major != 0 {
		if s, err := i.adopt(ctx); s != nil || err != nil {
			return s, err
		}
		if err := i.id.giveTree(i.layout); err != nil {
			return nil, err
		}
	} else if err := initCluster(ctx, i.layout, i.bins, i.id, !i.opts.NonDurable); err != nil {
		return nil, err
	}
	i.socketDir, err = makeSocketDir(i.layout, i.id)
	return nil, err
}

// URL is the postgres URL of the instance's database, over the unix socket. It is the same for the instance's whole life.
func (i *Instance) URL() string { return databaseURL(i.socketDir, databaseName) }

// PID is the process id of the postmaster that was last seen ready.
func (i *Instance) PID() int { return int(i.pid.Load()) }

// Restarts counts how often PostgreSQL was started again after it died.
func (i *Instance) Restarts() int { return int(i.restarts.Load()) }

// Done is closed when PostgreSQL has ended for good: after [Instance.Stop], or
// because it couldn't be kept running, which [Instance.Err] tells.
func (i *Instance) Done() <-chan struct{} { return i.done }

// Err is nil until [Instance.Done] is closed, and after a clean stop. Otherwise
// it wraps [ErrGaveUp], or tells why the stop wasn't clean.
func (i *Instance) Err() error {
	select {
	case <-i.done:
		return i.err
	default:
		return nil
	}
}

// Stop shuts PostgreSQL down cleanly (open transactions are rolled back) and returns when it has ended. When the context ends
// first, or PostgreSQL does not begin within 5 s, it is shut down at once, which loses nothing acknowledged but makes the next start
// recover; the error then says so, and is a [context.DeadlineExceeded]. Calling it again is harmless.
func (i *Instance) Stop(ctx context.Context) error {
	i.stop(errStopping)
	select {
	case <-i.done:
		return i.err
	case <-ctx.Done():
	}
	i.hardOnce.Do(func() { close(i.hard) })
	<-i.done
	return i.err
}

// Processes finds the processes of a directory's private PostgreSQL: its main one, 0 where that does not run, and, on Linux, all
// that work on the cluster, that one first. It is for tests that kill or stop them.
func Processes(dir string) (postmaster int, all []int) {
	l := layout{dir: dir}
	all = leftovers(l.data())
	p, err := readPIDFile(l)
	if err != nil || !isPostmaster(p.pid, l.data()) {
		return 0, all
	}
	others := slices.DeleteFunc(all, func(pid int) bool { return pid == p.pid })
	return p.pid, append([]int{p.pid}, others...)
}

// supervise owns the server process from start to end: it alone starts, ends and replaces it.
func (i *Instance) supervise(s *server) {
	defer close(i.done)
	defer unlockDir(i.lock)
	defer i.beside.Wait()
	defer i.stop(errStopping)
	tick := time.NewTicker(logCheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-i.running.Done():
			i.err = i.shutdown(s)
			return
		case <-tick.C:
			if err := turnLog(i.layout, maxLogSize); err != nil {
				i.log.Warn("can't turn PostgreSQL's log", "error", err)
			}
		case <-s.gone:
			i.log.Warn("private PostgreSQL died, starting it again", "pid", s.pid)
			var err error
			if s, err = i.revive(); err == nil {
				continue
			}
			if i.err = i.shutdown(s); !errors.Is(err, errStopping) {
				i.err = err
				i.log.Error("private PostgreSQL can't be kept running", "error", err)
			}
			return
		}
	}
}

// revive starts PostgreSQL until it is ready. It returns errStopping when Stop is called meanwhile, with the server if one
// runs, and an error that wraps ErrGaveUp when it has failed for too long.
func (i *Instance) revive() (*server, error) {
	died := time.Now()
	if died.Sub(i.readyAt) >= settledAfter { // It had run well for a while.
		i.pause = 0
	}
	for {
		if !wait.For(i.running, i.pause) {
			return nil, errStopping
		}
		i.pause = min(max(2*i.pause, firstPause), maxPause)
		s, err := i.launchReady(i.running)
		if err == nil {
			i.pid.Store(int64(s.pid))
			i.restarts.Add(1)
			i.readyAt, i.pause = time.Now(), min(i.pause, readyPause)
			i.log.Info("private PostgreSQL is back", "pid", s.pid, "after", time.Since(died).Round(time.Millisecond))
			return s, nil
		}
		if i.running.Err() != nil {
			return s, errStopping
		}
		if time.Since(died) > i.opts.giveUpAfter {
			return nil, fmt.Errorf("%w for %v: %w", ErrGaveUp, time.Since(died).Round(time.Second), err)
		}
		i.log.Warn("private PostgreSQL doesn't start", "error", err)
	}
}

// shutdown ends the server, if any, cleanly or, when Stop's caller can't wait, at once.
func (i *Instance) shutdown(s *server) error {
	defer removeTempSocketDir(i.socketDir)
	if s == nil {
		return nil
	}
	i.signal(s, syscall.SIGINT)
	heeded := time.NewTimer(heedLimit)
	defer heeded.Stop()
	for {
		select {
		case <-s.gone:
			return nil
		case <-heeded.C:
			if p, err := readPIDFile(i.layout); errors.Is(err, fs.ErrNotExist) || err == nil && p.status == statusStopping {
				continue
			}
		case <-i.hard:
		}
		i.end(s, hardStopGrace)
		return fmt.Errorf("private PostgreSQL didn't shut down in time and was ended, the next start recovers it: %w", context.DeadlineExceeded)
	}
}
