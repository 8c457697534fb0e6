//go:build unix

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// patience bounds every wait for something that should happen soon, so that a test that hangs says where.
const patience = testwait.Patience

const (
	// workerRest and bidderRest are how long, on average, a worker of a load and a bidder rest after each command. A load that takes what
	// the machine has would take it from the tests beside.
	workerRest = 40 * time.Millisecond
	bidderRest = 15 * time.Millisecond
)

// beside lets a test run beside others, since it waits more than it computes. It must leave the shared PostgreSQL and the environment
// alone. Long runs measure, as those for promises do, so there each test runs alone.
func beside(t *testing.T) {
	t.Helper()
	if !testwait.Torture() && !testpromise.On() {
		t.Parallel()
	}
}

// sessions runs a test on fresh databases: once, or many times when FAIRLEAD_TORTURE is set. A session is as long as its
// books stay quick to audit; the many faults are spread over many sessions.
func sessions(t *testing.T, many int, session func(*testing.T)) {
	t.Helper()
	for i := range testwait.Count(1, many) {
		if !t.Run(fmt.Sprintf("session-%d", i), session) {
			break
		}
	}
}

// tempDir makes a directory with a short path, which a unix socket needs. It is on a disk where that is measured, or meets other faults than
// the death of processes.
func tempDir(t *testing.T) string {
	t.Helper()
	base := os.TempDir()
	if !testwait.Torture() && !testpromise.On() {
		base = pgtest.Base()
	}
	dir, err := os.MkdirTemp(base, "sim") //nolint:usetesting // Its paths are too long.
	testwait.Must(t, err)
	// Where root may not make user namespaces, PostgreSQL runs as another user, who has to pass.
	testwait.Must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { testwait.Check(t, os.RemoveAll(dir)) })
	return dir
}

// newServer prepares a server with the shared binary and starts it; database is empty for a private PostgreSQL, args are
// added to its command line. At the end of the test it must stop cleanly, and its log must be free of races, panics and
// deadlocks.
func newServer(t *testing.T, database string, args ...string) *sim.Server {
	t.Helper()
	return newServerOf(t, serverBinary(t), database, args...)
}

func newServerOf(t *testing.T, binary, database string, args ...string) *sim.Server {
	t.Helper()
	if database != "" { // Servers of several tests share what connections PostgreSQL has.
		args = append([]string{"--database-connections", "6"}, args...)
	}
	testwait.Recorder(t) // So that it also counts what is found when the server ends.
	server := sim.NewServer(sim.ServerOptions{Binary: binary, DataDir: tempDir(t), DatabaseURL: database, Args: args})
	t.Cleanup(func() { stopServer(t, server, database == "") })
	_, err := server.Start(testwait.Context(t, patience))
	if err != nil && strings.Contains(server.Log(), localpg.ErrNoBinaries.Error()) {
		skipWithoutPostgres(t, server.Log())
	}
	testwait.Must(t, err)
	return server
}

// skipWithoutPostgres ends a test that needs PostgreSQL's programs: with a failure where a skipped test is not seen.
func skipWithoutPostgres(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// start starts a server and returns how long it took to be ready.
func start(t *testing.T, server *sim.Server) time.Duration {
	t.Helper()
	took, err := server.Start(testwait.Context(t, patience))
	testwait.Must(t, err)
	return took
}

// willDie starts a server anew that is to kill itself at a crash point. It may do so before anybody saw it ready; what matters
// is where.
func willDie(t *testing.T, server *sim.Server, at string) {
	t.Helper()
	testwait.Must(t, server.Kill(testwait.Context(t, patience)))
	_, err := server.Start(testwait.Context(t, patience), "FAIRLEAD_CRASH_AT="+at)
	if err != nil && (server.Running() || server.KilledBy() != syscall.SIGKILL) {
		t.Fatal(err)
	}
}

// dies waits until it has.
func dies(t *testing.T, server *sim.Server, at string) {
	t.Helper()
	select {
	case <-server.Exited():
	case <-testwait.Context(t, time.Duration(testwait.Count(1, 5))*patience).Done(): // A thousand may wait in one line.
		t.Fatalf("not dead at %s", at)
	}
	if by := server.KilledBy(); by != syscall.SIGKILL {
		t.Fatalf("%s: ended by %v, code %d", at, by, server.ExitCode())
	}
	testwait.Recorder(t).Fault(tally.Crash(at), time.Now())
}

func stopServer(t *testing.T, server *sim.Server, private bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if server.Running() {
		if code, err := server.Terminate(ctx); err != nil || code != 0 {
			t.Errorf("server ended with code %d: %v", code, err)
		}
	}
	testwait.Check(t, server.Kill(ctx))
	if private {
		if err := sim.KillPostgres(server.DataDir(), true); err == nil {
			t.Error("the server left its PostgreSQL running")
		} else if !errors.Is(err, sim.ErrNoPostgres) {
			t.Error(err)
		}
	}
	log := server.Log()
	for _, bad := range []string{"DATA RACE", "panic:", "panicked", "40P01", "history lost"} {
		if at := strings.Index(log, bad); at >= 0 {
			t.Errorf("server log has %q: %s", bad, log[at:min(len(log), at+4000)])
		}
	}
	if t.Failed() {
		const kept = 6000
		t.Logf("end of the server's log:\n%s", log[max(0, len(log)-kept):])
	}
}

// newDatabase makes a database with its tables on the shared PostgreSQL, and returns its URL.
func newDatabase(t *testing.T) string {
	t.Helper()
	return pgtest.NewDatabase(t, func(ctx context.Context, url string) error { return testwait.Err(postgres.Migrate(ctx, url)) })
}

// databaseOf is the URL of a server's private PostgreSQL.
func databaseOf(t *testing.T, server *sim.Server) string {
	t.Helper()
	var database string
	testwait.Eventually(t, patience, "PostgreSQL", func() (up bool) { // It may have just died, with its last answers under way.
		var err error
		database, err = localpg.URLOf(server.DataDir())
		return err == nil
	})
	return database
}

// emptyDatabase makes one in which the first server makes the tables.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	return pgtest.NewDatabase(t, nil)
}

// newClient gives a client of the servers with a history of its own.
func newClient(t *testing.T, servers ...*sim.Server) (*sim.Client, *sim.History) {
	t.Helper()
	history := sim.NewHistory()
	history.Recorder = testwait.Recorder(t)
	targets := make([]sim.Target, len(servers))
	for i, server := range servers {
		targets[i] = server
	}
	client := sim.NewClient(history, sim.AdminKey, targets...)
	t.Cleanup(client.Close)
	return client, history
}

// clients are those of [clientOf].
var clients sync.Map

// clientOf returns the one client of a server alone.
func clientOf(t *testing.T, server *sim.Server) *sim.Client {
	t.Helper()
	if known, ok := clients.Load(server); ok {
		return known.(*sim.Client) //nolint:errcheck,forcetypeassert // Nothing else is stored.
	}
	c, _ := newClient(t, server)
	clients.Store(server, c)
	return c
}

// metricsOf reads a server's metrics.
func metricsOf(t *testing.T, server *sim.Server) []byte {
	t.Helper()
	return mustGet(t, clientOf(t, server), "/metrics")
}

// answerTo reads a path until there is an answer that is no server's word that it could not answer now, as on a machine that stalls.
func answerTo(t *testing.T, client *sim.Client, path string) (answer sim.Answer) {
	t.Helper()
	testwait.Eventually(t, patience, "an answer to GET "+path, func() bool {
		answer = client.Get(t.Context(), path)
		return answer.Final()
	})
	return answer
}

// mustGet reads a path that is there.
func mustGet(t *testing.T, client *sim.Client, path string) []byte {
	t.Helper()
	answer := answerTo(t, client, path)
	if answer.Status != http.StatusOK {
		t.Fatalf("%s: %v", path, answer)
	}
	return answer.Body
}

// decided sends an operation until it is decided, with the same key each time. What may be tried again has its answer, too: a machine that
// stalls is the reason only of what no server has answered, and of 503.
func decided(ctx context.Context, client *sim.Client, op *sim.Op) sim.Answer {
	for {
		answer := client.Once(ctx, op)
		if answer.Err == nil && answer.Status != http.StatusServiceUnavailable || !wait.For(ctx, 25*time.Millisecond) {
			return answer
		}
	}
}

// auditNow runs the auditor on a snapshot of a database that may be under load.
func auditNow(t *testing.T, database string) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	complain(t, audit.Audit(testwait.Context(t, 5*time.Minute), conn))
	testwait.Check(t, conn.Close(t.Context()))
}

// closeBooks is the end of every test: all commands are settled, so every key is asked once more, one in `every` of
// them, the auditor looks at the database, and the model compares it with what the clients were told.
func closeBooks(t *testing.T, database string, client *sim.Client, history *sim.History, every int) {
	t.Helper()
	replayed, err := history.Replay(testwait.Context(t, 5*time.Minute), client, 16, func(i int) bool { return i%every == 0 })
	complain(t, err)
	auditNow(t, database)
	complain(t, history.Check(testwait.Context(t, 5*time.Minute), pgtest.Connect(t, database)))
	auditLog(t, database, client)
	t.Logf("books closed: %d commands, %d replayed, %v", len(history.Ops()), replayed, history.Count())
}

// load is a workload that runs in the background.
type load struct {
	*sim.Workload
	stop    chan struct{}
	done    chan error
	stopped bool
}

// startLoad sets a workload up and runs it until finish, or until the test ends.
func startLoad(t *testing.T, client *sim.Client, opts sim.WorkloadOptions) *load {
	t.Helper()
	if !testwait.Torture() {
		opts.Rest = workerRest
	}
	l := &load{Workload: sim.NewWorkload(opts), stop: make(chan struct{}), done: make(chan error, 1)}
	testwait.Must(t, l.Setup(testwait.Context(t, patience), client))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { l.done <- l.Run(ctx, client, l.stop) }()
	t.Cleanup(func() {
		cancel()
		if !l.stopped {
			if err := <-l.done; err != nil {
				t.Logf("load that was given up: %v", err)
			}
		}
	})
	return l
}

// finish ends the drawing of commands, and waits until those under way are settled.
func (l *load) finish(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.stopped = true
	complain(t, <-l.done)
}

// complain fails the test with an error that may list thousands of things, of which the first are enough.
func complain(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	const kept = 10_000
	text := err.Error()
	if len(text) > kept {
		text = fmt.Sprintf("%s\n… and %d more lines", text[:kept], strings.Count(text[kept:], "\n"))
	}
	t.Error(text)
}

// await waits for a signal.
func await(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-testwait.Context(t, patience).Done():
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// pause lets a random moment pass: where in its work a fault meets the server is to be anywhere.
func pause(t *testing.T, rng *rand.Rand, most time.Duration) {
	t.Helper()
	wait.For(t.Context(), time.Duration(rng.Int64N(int64(most))))
}

// proofOf reads the proof of a campaign, or of a multi-draw.
func proofOf(t *testing.T, client *sim.Client, path string) []byte {
	t.Helper()
	return mustGet(t, client, path+"/proof")
}

// verifier runs the binary's verifier on a document.
func verifier(t *testing.T, document []byte, args ...string) (said string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proof.json")
	testwait.Must(t, os.WriteFile(path, document, 0o600))
	out, err := exec.CommandContext(testwait.Context(t, patience), binary(t), append([]string{"verify", path}, args...)...).CombinedOutput()
	return string(out), err
}

// verify verifies a campaign's proof against the commitment that was published when the campaign was created.
func verify(t *testing.T, client *sim.Client, campaign, commitment string) {
	t.Helper()
	if out, err := verifier(t, proofOf(t, client, "/v1/campaigns/"+campaign), "--commitment", commitment); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}

// savepoints lets a check run inside an open transaction, on what that transaction has changed and will undo.
type savepoints struct{ tx pgx.Tx }

func (s savepoints) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) {
	return s.tx.Begin(ctx)
}
