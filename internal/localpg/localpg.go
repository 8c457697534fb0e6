package localpg

import (
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"
)

// The role and the database that every cluster has. The role is the cluster's superuser; who can reach the socket is that role.
const (
	roleName     = "fairlead"
	databaseName = "fairlead"
)

// defaultGiveUpAfter is how long PostgreSQL may fail to start before the supervisor gives up: long enough for somebody to free
// a full disk, short enough that a process manager hears of it.
const defaultGiveUpAfter = 2 * time.Minute

// Errors of this package. Test for them with errors.Is.
var (
	// ErrNoBinaries is returned when no PostgreSQL server programs are
	// installed; the message names the command that installs them.
	ErrNoBinaries = errors.New("no PostgreSQL server programs found")

	// ErrInUse is returned when another live process keeps its private PostgreSQL in the directory.
	ErrInUse = errors.New("data directory is in use by another server process")

	// ErrNotRunning is returned by [URLOf] when no server keeps a running PostgreSQL in the directory.
	ErrNotRunning = errors.New("no private PostgreSQL is running")

	// ErrUnsupported is returned by [Start] on systems where no private PostgreSQL can be had.
	ErrUnsupported = errors.New("a private PostgreSQL is not available on " + runtime.GOOS +
		": give the URL of a PostgreSQL server with --database-url")

	// ErrGaveUp is what [Instance.Err] wraps when PostgreSQL died and couldn't be started again.
	ErrGaveUp = errors.New("private PostgreSQL could not be kept running")
)

// Options say where and how [Start] runs PostgreSQL.
type Options struct {
	// Dir is the server's data directory; the cluster is in Dir/postgres. It is created with mode 0700 when missing. Required.
	Dir string

	// Logger hears of starts, restarts and failures; nil discards them. PostgreSQL's own log goes to Dir/postgres.log.
	Logger *slog.Logger

	// NonDurable turns off fsync, full_page_writes and synchronous_commit, and skips the sync of a new cluster. A power failure
	// then destroys the cluster; the death of a process doesn't. For tests only.
	NonDurable bool

	// Connections is how many PostgreSQL takes, whatever its configuration says; 0: what that says. For tests, many of which share one.
	Connections int

	// DieWithParent ends PostgreSQL when the process that started it dies, instead of leaving it to be adopted. Only Linux can
	// do that; elsewhere it is ignored. For tests.
	DieWithParent bool

	giveUpAfter time.Duration // of failed starts; 0: defaultGiveUpAfter
	binDir      string        // of the postgres and initdb programs; empty: FAIRLEAD_PG_BIN, then PATH, then the usual places
}

// layout names the files below one data directory.
type layout struct {
	dir string
}

func (l layout) data() string    { return filepath.Join(l.dir, "postgres") }
func (l layout) fresh() string   { return filepath.Join(l.dir, "postgres.new") }
func (l layout) log() string     { return filepath.Join(l.dir, "postgres.log") }
func (l layout) oldLog() string  { return filepath.Join(l.dir, "postgres.log.old") }
func (l layout) run() string     { return filepath.Join(l.dir, "run") }
func (l layout) lock() string    { return filepath.Join(l.dir, "localpg.lock") }
func (l layout) pidFile() string { return filepath.Join(l.data(), "postmaster.pid") }
