//go:build linux || darwin || freebsd

package localpg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// helperDirEnv makes the test binary act as a server process that keeps a
// private PostgreSQL until it is killed.
const helperDirEnv = "LOCALPG_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDirEnv); dir != "" {
		os.Exit(helper(dir))
	}
	goleak.VerifyTestMain(m)
}

// helper starts an instance, tells its process id, and waits to be killed.
func helper(dir string) int {
	i, err := Start(context.Background(), Options{Dir: dir, DieWithParent: os.Getenv("LOCALPG_TEST_TIED") != ""})
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println("ready", i.PID())
	<-i.Done()
	return 0
}

// startIn starts an instance that is stopped at the test's end.
func startIn(t *testing.T, o Options) *Instance {
	t.Helper()
	if o.Logger == nil {
		o.Logger = testLogger(t)
	}
	i, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { stop(t, i) })
	return i
}

func stop(t *testing.T, i *Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testwait.Patience)
	defer cancel()
	if err := i.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if alive(i.PID()) {
		t.Errorf("PostgreSQL %d is alive after Stop", i.PID())
	}
}

func testLogger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// tempDir is a directory whose path is short enough for a socket.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "localpg") //nolint:usetesting // t.TempDir is too long for a socket.
	testwait.Must(t, err)
	// Where root may not make user namespaces, PostgreSQL runs as another user, who has to pass.
	testwait.Must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// exec1 runs SQL on a new connection.
func exec1(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func mustExec(t *testing.T, url, sql string) {
	t.Helper()
	if err := exec1(t.Context(), url, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func queryInt(ctx context.Context, url, sql string) (n int, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, sql).Scan(&n)
	return n, err
}
