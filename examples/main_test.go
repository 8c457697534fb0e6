//go:build unix

package examples_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds every wait, on a machine that has other things to do.
const patience = testwait.Patience

// shared is what all tests share.
var shared struct {
	bin    string      // directory of the programs
	server *sim.Server // that the examples run against
	other  *sim.Server // whose ledger the first one calls eu
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) (code int) {
	stop, err := open()
	if err != nil {
		if strings.Contains(err.Error(), localpg.ErrNoBinaries.Error()) && os.Getenv("CI") != "true" {
			fmt.Fprintln(os.Stderr, "*** NOT TESTED: the examples need PostgreSQL:", localpg.ErrNoBinaries)
			return 0
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if err := errors.Join(stop(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// open builds the binary and the examples, and starts a server with a private PostgreSQL.
func open() (stop func() error, err error) {
	dir, err := os.MkdirTemp("", "ex-") // A short path: a unix socket is in it.
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	// Where PostgreSQL has to run as another user, that one must be able to pass.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	shared.bin = filepath.Join(dir, "bin")
	if err := os.Mkdir(shared.bin, 0o700); err != nil {
		return nil, err
	}
	if err := build(ctx, dir); err != nil {
		return nil, err
	}
	starting, started := context.WithTimeout(ctx, 2*patience)
	defer started()
	shared.other, err = startServer(starting, filepath.Join(dir, "other"))
	if err != nil {
		return nil, err
	}
	eu := strings.Replace(shared.other.URL(), "http://", "http://:"+sim.AdminKey+"@", 1)
	shared.server, err = startServer(starting, filepath.Join(dir, "data"),
		"--allow-private-targets", "--retry-backoff", "100ms", "--ledger", "eu="+eu)
	if err != nil {
		return nil, errors.Join(err, shared.other.Kill(starting))
	}
	return func() error { return errors.Join(stopServers(), remove()) }, nil
}

// build compiles the binary, the examples and the programs of the quick starts, all at once, and with the race detector if
// these tests have it: so the packages that they share are compiled already.
func build(ctx context.Context, dir string) error {
	overlay, programs, err := pagePrograms(dir)
	if err != nil {
		return err
	}
	args := []string{"build", "-o", shared.bin + "/", "-overlay", overlay, "-ldflags=-w"}
	if raceDetector() {
		args = append(args, "-race")
	}
	args = append(append(args, "../cmd/fairlead", "./..."), programs...)
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	return nil
}

// startServer starts the binary with a private PostgreSQL in a directory of its own.
func startServer(ctx context.Context, data string, args ...string) (*sim.Server, error) {
	if err := os.Mkdir(data, 0o711); err != nil {
		return nil, err
	}
	s := sim.NewServer(sim.ServerOptions{Binary: filepath.Join(shared.bin, "fairlead"), DataDir: data, Args: args})
	if _, err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Kill(ctx))
	}
	return s, nil
}

// stopServers looks whether the money adds up, whatever the examples did, and stops the servers.
func stopServers() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var failures []error
	for _, s := range []*sim.Server{shared.server, shared.other} {
		failures = append(failures, auditBooks(ctx, s.URL()))
		code, err := s.Terminate(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("the server ended with %d:\n%s", code, s.Log())
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

func auditBooks(ctx context.Context, url string) error {
	connections := &http.Transport{DisableKeepAlives: true}
	c, err := client.New(url, sim.AdminKey, client.WithHTTPClient(&http.Client{Transport: connections}))
	if err != nil {
		return err
	}
	books, err := c.Integrity(ctx)
	if err == nil && !books.Valid {
		err = fmt.Errorf("the books do not balance: %+v", books)
	}
	return err
}

// raceDetector tells whether these tests run with it; then the examples do, too.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// program prepares one of the examples, or the binary, with the server's address and key in its environment.
func program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(shared.bin, name), args...)
	cmd.Env = append(os.Environ(), "FAIRLEAD_URL="+shared.server.URL(), "FAIRLEAD_KEY="+sim.AdminKey,
		"EU_URL="+shared.other.URL(), "EU_KEY="+sim.AdminKey)
	return cmd
}

// run runs an example to its end and returns what it printed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := program(testwait.Context(t, patience), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}
