package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// startLimit bounds a start of PostgreSQL on a loaded machine.
	startLimit = testwait.Patience
	// leakLimit is how long goroutines may take to end after the tests.
	leakLimit = testwait.Patience
	// adminLimit bounds the making or dropping of a database.
	adminLimit = testwait.Patience
	// inUse is PostgreSQL's code for a database that others are connected to, and tooMany for one that has as many sessions as it may.
	inUse   = "55006"
	tooMany = "53300"
	// pause is for how long PostgreSQL is let alone then.
	pause = 50 * time.Millisecond
)

// Migrate brings an empty database to the schema that a package's tests need.
type Migrate = func(ctx context.Context, url string) error

// harness is what the tests of one binary share.
type harness struct {
	mu        sync.Mutex
	inMain    bool
	durable   bool
	startErr  error
	instance  *localpg.Instance // nil until a test has asked for a database
	dir       string
	templates map[uintptr]*template
	copying   string // an option of CREATE DATABASE
	names     atomic.Int64
}

// template is a migrated database from which tests' databases are copied.
type template struct {
	once sync.Once
	name string
	err  error
}

// shared is the harness of this test binary.
//
//nolint:gochecknoglobals // TestMain and the tests have no other way to each other.
var shared harness

// Main runs the package's tests, stops what they shared, and looks for leaked goroutines. TestMain calls it:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
// The options are those of goleak, for goroutines that are known to stay.
func Main(m *testing.M, leaks ...goleak.Option) int {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := leaked(leaks); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = 1
		}
	}
	return code
}

// leaked finds goroutines that stay. Those that end by themselves after a while have that.
func leaked(known []goleak.Option) error {
	for deadline := time.Now().Add(leakLimit); ; {
		err := goleak.Find(known...) // It tries for a moment itself.
		if err == nil || time.Now().After(deadline) {
			return err //nolint:wrapcheck // Main tells it.
		}
	}
}

// Durable makes the server that tests share a private one with durable settings: fairlead serve takes no other. It is called
// before [Main], and returns the server's data directory once a test has asked for a database.
func Durable() (dataDir func() string) {
	shared.durable = true
	return func() string { return shared.dir }
}

// NewDatabase returns the URL of a database that is this test's alone and is dropped at its end, connections or not. It is a
// copy of one that migrate has filled once for the test binary. Templates are told apart by the function's code, so that
// migrate must be a named function or a literal that captures nothing. With nil the database is empty.
func NewDatabase(tb testing.TB, migrate Migrate) string {
	tb.Helper()
	h := &shared
	h.need(tb)
	source := "template0"
	if migrate != nil {
		tmpl := h.template(migrate)
		if tmpl.err != nil {
			tb.Fatalf("pgtest: %v", tmpl.err)
		}
		source = tmpl.name
	}
	name := h.name("t")
	if err := h.admin("CREATE DATABASE " + name + " TEMPLATE " + source + h.copying); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := h.admin("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return h.urlOf(name)
}

// Connect returns a connection to a database, which is closed at the test's end.
func Connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), adminLimit)
	defer cancel()
	conn, err := connect(ctx, url)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// connect connects, again where PostgreSQL takes longer than one try may on a machine that stalls, has more sessions than it may because some have not come to
// their end, or has not found the time to take those that wait: a full queue refuses the next connection at once.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	for {
		conn, err := pgx.Connect(ctx, url)
		refused, _ := errors.AsType[*pgconn.PgError](err)
		again := pgconn.Timeout(err) || errors.Is(err, syscall.EAGAIN) || refused != nil && refused.Code == tooMany
		if !again || !wait.For(ctx, pause) {
			return conn, err
		}
	}
}

// Server starts a durable PostgreSQL for one test, which may kill it; it is
// stopped and removed at the test's end. Its database is empty.
func Server(tb testing.TB) *localpg.Instance {
	tb.Helper()
	return ServerOn(tb, nil)
}

// LargeServer is Server with as many connections as the tests of a package have together, where PostgreSQL's own 100 are too few.
func LargeServer(tb testing.TB) *localpg.Instance {
	tb.Helper()
	return serverOn(tb, sharedConnections, nil)
}

// ServerOn is Server on what fill puts into its directory; nil: nothing.
func ServerOn(tb testing.TB, fill func(dir string) error) *localpg.Instance {
	tb.Helper()
	return serverOn(tb, 0, fill)
}

func serverOn(tb testing.TB, connections int, fill func(dir string) error) *localpg.Instance {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: a server of its own takes seconds to start")
	}
	i, dir, err := startNew(true, connections, fill)
	if err != nil {
		missing(tb, err)
	}
	tb.Cleanup(func() {
		if err := stopIn(i, dir); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return i
}

// sharedConnections is how many the tests of a package have together.
const sharedConnections = 300

// need starts the server if no test has, and fails or skips the test when there can be none.
func (h *harness) need(tb testing.TB) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.inMain {
		tb.Fatal("pgtest: the package's TestMain must call pgtest.Main")
	}
	if h.instance == nil && h.startErr == nil {
		h.templates = make(map[uintptr]*template)
		h.instance, h.dir, h.startErr = startNew(h.durable, sharedConnections, nil)
		if h.startErr == nil && !h.durable {
			h.copying, h.startErr = h.cheapCopy()
		}
	}
	if h.startErr != nil {
		missing(tb, h.startErr)
	}
}

func (h *harness) stop() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.instance == nil {
		return nil
	}
	return stopIn(h.instance, h.dir)
}

// cheapCopy is the option of CREATE DATABASE that copies files. From PostgreSQL 15 on, a copy goes through the write-ahead log
// otherwise, which takes half as much time again, and twice that to drop; a durable server would have to sync the files.
func (h *harness) cheapCopy() (option string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	conn, err := connect(ctx, h.instance.URL())
	if err != nil {
		return "", err
	}
	if major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), "."); major != "14" {
		option = " STRATEGY file_copy"
	}
	return option, conn.Close(ctx)
}

// template returns the migrated template of a function, made by the first caller while the others wait.
func (h *harness) template(migrate Migrate) *template {
	key := reflect.ValueOf(migrate).Pointer()
	h.mu.Lock()
	tmpl, ok := h.templates[key]
	if !ok {
		tmpl = &template{}
		h.templates[key] = tmpl
	}
	h.mu.Unlock()
	tmpl.once.Do(func() {
		tmpl.name = h.name("template")
		if tmpl.err = h.admin("CREATE DATABASE " + tmpl.name + " TEMPLATE template0"); tmpl.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
		defer cancel()
		if err := migrate(ctx, h.urlOf(tmpl.name)); err != nil {
			tmpl.err = fmt.Errorf("migrate the template database: %w", err)
			return
		}
		// A copy is refused while anybody is connected: a migration's pool may take a moment to be gone.
		tmpl.err = h.admin("SELECT pg_terminate_backend(pid, 50000) FROM pg_stat_activity WHERE datname = '" + tmpl.name + "'")
	})
	return tmpl
}

// name makes a database name that no other test process on the server has.
func (h *harness) name(kind string) string {
	return fmt.Sprintf("fairlead_%s_%d_%d_%d", kind, os.Getpid(), time.Now().UnixNano()%1e9, h.names.Add(1))
}

// urlOf is the server's URL with another database in it.
func (h *harness) urlOf(name string) string {
	u, err := url.Parse(h.instance.URL())
	if err != nil {
		panic(err) // It was made as one.
	}
	u.Path = "/" + name
	return u.String()
}

func (h *harness) admin(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	conn, err := connect(ctx, h.instance.URL())
	if err != nil {
		return err
	}
	for {
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		// PostgreSQL waits for 5 s only until others' sessions are gone from a database that is to be copied or dropped. Where it refuses at once, it
		// is not asked without a pause, which would take the processor from those that are to end.
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == inUse && wait.For(ctx, pause) {
			continue
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", sql, err)
		}
		return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
}

// missing ends a test that can't have its PostgreSQL: a failure in CI, where
// nobody reads what was skipped, and anywhere if PostgreSQL is installed.
func missing(tb testing.TB, err error) {
	tb.Helper()
	absent := errors.Is(err, localpg.ErrNoBinaries) || errors.Is(err, localpg.ErrUnsupported)
	if !absent || os.Getenv("CI") == "true" {
		tb.Fatalf("pgtest: %v", err)
	}
	fmt.Fprintf(os.Stderr, "\n*** NOT TESTED: %s needs PostgreSQL: %v\n\n", tb.Name(), err)
	tb.Skipf("pgtest: %v", err)
}

// startNew starts a PostgreSQL in a new directory, once fill has put there what it begins with.
func startNew(durable bool, connections int, fill func(dir string) error) (i *localpg.Instance, dir string, err error) {
	if dir, err = newDir(); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if fill != nil {
		err = fill(dir)
	}
	if err == nil {
		i, err = localpg.Start(ctx, localpg.Options{Dir: dir, NonDurable: !durable, Connections: connections, DieWithParent: true})
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return i, dir, err
}

func stopIn(i *localpg.Instance, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return errors.Join(i.Stop(ctx), os.RemoveAll(dir))
}
