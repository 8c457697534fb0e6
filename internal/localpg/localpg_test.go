//go:build linux || darwin || freebsd

package localpg

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestColdStartStopAndWarmRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data") // Start makes it.
	began := time.Now()
	i := startIn(t, Options{Dir: dir})
	cold := time.Since(began)
	mustExec(t, i.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")

	for setting, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		"listen_addresses": "", "server_encoding": "UTF8", "lc_collate": "C",
	} {
		mustHold(t, i.URL(), setting, want)
	}
	if mb, err := queryInt(t.Context(), i.URL(), "SELECT setting::int / 128 FROM pg_settings WHERE name = 'shared_buffers'"); err != nil || mb != int(sharedBuffers(memory)) {
		t.Errorf("shared_buffers are %d MB, %v", mb, err)
	}
	if st, err := os.Stat(i.socketDir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("socket directory: mode %v, %v; want 0700", st.Mode(), err)
	}
	if url, err := URLOf(dir); err != nil || url != i.URL() {
		t.Errorf("URLOf = %q, %v; want %q", url, err, i.URL())
	}

	stop(t, i)
	if i.Err() != nil {
		t.Errorf("Err after a clean stop: %v", i.Err())
	}
	if _, err := URLOf(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("URLOf after the stop: %v; want ErrNotRunning", err)
	}

	began = time.Now()
	j := startIn(t, Options{Dir: dir})
	warm := time.Since(began)
	if n, err := queryInt(t.Context(), j.URL(), "SELECT n FROM kept"); err != nil || n != 42 {
		t.Errorf("after the restart: %d, %v; want 42", n, err)
	}
	if j.adopted {
		t.Error("the restarted one claims to be adopted")
	}
	log, err := os.ReadFile(j.layout.log())
	if err != nil || strings.Contains(string(log), "not properly shut down") {
		t.Errorf("the stop wasn't clean: %v\n%s", err, log)
	}
	t.Logf("cold start %v, warm start %v", cold, warm)
}

// TestStartHasBegunAll takes the goroutines that are there when Start returns for all of the instance's: a test that shares an instance
// looks for its own leaks this way. It does not run beside others, and one goroutine at a time runs in it, so that what Start has begun has not
// gone on when it returns.
func TestStartHasBegunAll(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	i := startIn(t, Options{Dir: filepath.Join(tempDir(t), "data")})
	there := goleak.IgnoreCurrent()
	mustExec(t, i.URL(), "SELECT 1") // Whatever was still to begin runs meanwhile.
	goleak.VerifyNone(t, there)
}

func mustHold(t *testing.T, url, setting, want string) {
	t.Helper()
	sql := "DO $$ BEGIN IF current_setting('" + setting + "') <> '" + want +
		"' THEN RAISE EXCEPTION '%', current_setting('" + setting + "'); END IF; END $$"
	if setting == "lc_collate" {
		sql = "DO $$ BEGIN IF (SELECT datcollate FROM pg_database WHERE datname = current_database()) <> '" + want +
			"' THEN RAISE EXCEPTION 'collation'; END IF; END $$"
	}
	if err := exec1(t.Context(), url, sql); err != nil {
		t.Errorf("%s is not %q: %v", setting, want, err)
	}
}

func TestPostmasterKilledComesBackWithItsData(t *testing.T) {
	t.Parallel()
	i := startIn(t, Options{Dir: tempDir(t)})
	mustExec(t, i.URL(), "CREATE TABLE kept (n int)")
	for round := 1; round <= 5; round++ {
		mustExec(t, i.URL(), "INSERT INTO kept VALUES (1)")
		killAndAwait(t, i, round)
		if n, err := queryInt(t.Context(), i.URL(), "SELECT count(*) FROM kept"); err != nil || n != round {
			t.Fatalf("round %d: %d rows, %v", round, n, err)
		}
	}
}

func killAndAwait(t *testing.T, i *Instance, restarts int) {
	t.Helper()
	began := time.Now()
	kill(t, i.PID())
	testwait.Eventually(t, testwait.Patience, "PostgreSQL is back", func() bool { return i.Restarts() == restarts })
	t.Logf("back after %v", time.Since(began))
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	testwait.Must(t, err)
	if err := p.Kill(); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

func TestBackendKilledComesBack(t *testing.T) {
	t.Parallel()
	i := startIn(t, Options{Dir: tempDir(t)})
	mustExec(t, i.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	pid, err := queryInt(t.Context(), i.URL(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
	testwait.Must(t, err)
	postmaster := i.PID()
	kill(t, pid)
	testwait.Eventually(t, testwait.Patience, "a new checkpointer serves", func() bool {
		n, err := queryInt(t.Context(), i.URL(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
		return err == nil && n != pid
	})
	if i.PID() != postmaster || i.Restarts() != 0 {
		t.Errorf("the postmaster was replaced: %d, was %d", i.PID(), postmaster)
	}
}

func TestTwoServersOnOneDirectory(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	i := startIn(t, Options{Dir: dir})
	if _, err := Start(t.Context(), Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("second Start: %v; want ErrInUse", err)
	}
	mustExec(t, i.URL(), "SELECT 1") // The first is none the worse.
}
