//go:build linux

package sim_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/torture"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// outages are the faults of [TestOutages]. docs/operations/faults.md has a row for each.
func outages() []outage {
	return []outage{
		{name: "PostgreSQL restarted, fast", begin: endPostgres(syscall.SIGINT), moves: `fairlead_transaction_retries_total`},
		{name: "PostgreSQL restarted, immediate", begin: endPostgres(syscall.SIGQUIT), moves: `fairlead_transaction_retries_total`},
		{name: "PostgreSQL's main process killed", row: tally.DatabaseKilled, begin: endPostgres(syscall.SIGKILL), moves: `fairlead_transaction_retries_total`},
		{name: "PostgreSQL killed with all its processes", row: tally.DatabaseKilled, begin: killPostgres, moves: `fairlead_transaction_retries_total`},
		{name: "PostgreSQL stopped", begin: freezePostgres, lasts: 6 * time.Second, reason: "database_unreachable", doctor: "does not answer"},
		{name: "server killed", begin: killServer},
		{name: "server drained", begin: drainServer},
		{name: "server stopped", row: tally.ServerPaused, begin: freezeServer, lasts: 7 * time.Second},
		{name: "disk full", row: tally.DiskFull, begin: fillDisk, lasts: 8 * time.Second, reason: "disk_full", doctor: "disk is full", moves: `fairlead_transaction_retries_total{reason="53100"`},
		{name: "disk full, also for the write-ahead log", row: tally.DiskFull, begin: fillLog, lasts: 8 * time.Second, reason: "database_unreachable", doctor: "can't be reached"},
		{name: "connections exhausted", row: tally.ConnectionsExhausted, begin: takeConnections, lasts: 7 * time.Second, reason: "pool_exhausted", doctor: "no free connection", moves: `fairlead_transaction_retries_total{reason="53300"`},
		{name: "backends terminated", row: tally.BackendsTerminated, begin: terminateBackends, lasts: 6 * time.Second, moves: `fairlead_transaction_retries_total{reason="57P01"`},
		{name: "table accounts locked", row: tally.TableLocked, begin: lockTable("accounts"), lasts: 10 * time.Second, ready: true, doctor: "has locked ", moves: `fairlead_transaction_retries_total{reason="55P03"`},
		{name: "table idempotency_keys locked", row: tally.TableLocked, begin: lockTable("idempotency_keys"), lasts: 10 * time.Second, ready: true, doctor: "has locked ", moves: `fairlead_transaction_retries_total{reason="55P03"`},
		{name: "read-only", begin: set("default_transaction_read_only", "on"), lasts: 6 * time.Second, reason: "read_only", doctor: "is read-only", moves: `fairlead_transaction_retries_total{reason="25006"`},
		{name: "synchronous standby absent", begin: set("synchronous_standby_names", "ghost"), lasts: 6 * time.Second, reason: "commit_timeout", doctor: "no such standby is connected"},
		{name: "schema too old", begin: oldSchema, lasts: 3 * time.Second, reason: "schema", doctor: "migrate up"},
	}
}

// TestOutages has two servers under load meet one fault after the other. Nothing acknowledged may be lost or happen twice, no
// command may end in an error or be called not applied when it was, and /readyz and fairlead doctor must say what is wrong.
func TestOutages(t *testing.T) {
	if !testwait.Torture() {
		t.Skip("it takes minutes: FAIRLEAD_TORTURE=1, or make torture, runs it")
	}
	for some := range slices.Chunk(outages(), 6) { // A session's books stay short.
		t.Run("session", func(t *testing.T) {
			s := newOutageStage(t, filepath.Join(smallDisk(t), "data"), false)
			for _, o := range some {
				if !t.Run(o.name, func(t *testing.T) { s.meet(t, o) }) {
					break
				}
			}
			s.close(t)
		})
	}
}

// TestFaultsDocument holds the page on faults to what TestOutages sees.
func TestFaultsDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/faults.md")
	testwait.Must(t, err)
	for _, o := range outages() {
		row, _, _ := strings.Cut(string(page[max(0, strings.Index(string(page), "\n| "+o.name+" |")):]), " |\n")
		metric := o.moves
		if o.reason != "" {
			metric = o.reason
		}
		if code := strings.LastIndex(metric, `reason="`); code >= 0 {
			metric = strings.Trim(metric[code+len("reason="):], `"`)
		}
		for _, part := range []string{"| " + o.name + " |", o.reason, o.doctor, metric} {
			if !strings.Contains(row, part) {
				t.Errorf("%s: the row lacks %q: %s", o.name, part, row)
			}
		}
	}
}

// smallDisk makes a file system of its own for PostgreSQL's data.
func smallDisk(t *testing.T) string {
	t.Helper()
	disk := tempDir(t)
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=1g,mode=711", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: a small disk can't be mounted here: %v, %s", err, out)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", "-l", disk).Run() })
	return disk
}

// endPostgres sends PostgreSQL's main process a signal that ends it.
func endPostgres(signal syscall.Signal) func(*testing.T, *outageStage) func() {
	return func(t *testing.T, s *outageStage) func() {
		t.Helper()
		back := s.comesBack(t)
		testwait.Must(t, syscall.Kill(s.postgres.PID(), signal))
		return back
	}
}

func killPostgres(t *testing.T, s *outageStage) func() {
	t.Helper()
	back := s.comesBack(t)
	testwait.Must(t, sim.KillPostgres(s.dir, true))
	return back
}

// comesBack returns what waits for another start of PostgreSQL.
func (s *outageStage) comesBack(t *testing.T) (wait func()) {
	t.Helper()
	before := s.postgres.Restarts()
	return func() {
		testwait.Eventually(t, patience, "PostgreSQL is back", func() bool { return s.postgres.Restarts() > before })
	}
}

func freezePostgres(t *testing.T, s *outageStage) func() {
	t.Helper()
	frozen, err := sim.FreezePostgres(testwait.Context(t, patience), s.dir)
	t.Cleanup(func() { testwait.Check(t, testwait.Err(frozen.Thaw())) })
	testwait.Must(t, err)
	return func() { testwait.Must(t, testwait.Err(frozen.Thaw())) }
}

func killServer(t *testing.T, s *outageStage) func() {
	t.Helper()
	testwait.Must(t, s.servers[0].Kill(testwait.Context(t, patience)))
	return func() { start(t, s.servers[0]) }
}

func drainServer(t *testing.T, s *outageStage) func() {
	t.Helper()
	if code, err := s.servers[0].Terminate(testwait.Context(t, patience)); err != nil || code != 0 {
		t.Errorf("it ended with %d: %v", code, err)
	}
	return func() { start(t, s.servers[0]) }
}

// freezeServer stops a server, and asks the doctor about it.
func freezeServer(t *testing.T, s *outageStage) func() {
	t.Helper()
	testwait.Must(t, s.servers[0].Signal(syscall.SIGSTOP))
	if out, code := doctor(t, "--url", s.servers[0].URL()); code != 1 || !strings.Contains(out, "no answer") {
		t.Errorf("fairlead doctor of a server that does not answer ended with %d: %s", code, out)
	}
	return func() { testwait.Must(t, s.servers[0].Signal(syscall.SIGCONT)) }
}

// fillDisk keeps the disk full, whatever PostgreSQL gives back of it. PostgreSQL has room for its log in used files of it.
func fillDisk(t *testing.T, s *outageStage) func() {
	t.Helper()
	for range 8 {
		s.execute(t, `SELECT pg_logical_emit_message(false, 'fairlead', 'filling')`, `SELECT pg_switch_wal()`)
	}
	s.execute(t, `CHECKPOINT`)
	path := filepath.Join(filepath.Dir(s.dir), "filling")
	filling, err := os.Create(path)
	testwait.Must(t, err)
	stop := keepDoing(20*time.Millisecond, func() {
		for block := make([]byte, 1<<20); len(block) >= 4096; {
			if _, err := filling.Write(block); errors.Is(err, syscall.ENOSPC) {
				block = block[:len(block)/2]
			} else if err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		stop()
		testwait.Must(t, errors.Join(os.Remove(path), filling.Close()))
	}
}

// fillLog fills the disk, and then the room that PostgreSQL still has for its log. It ends itself then, and can't start.
func fillLog(t *testing.T, s *outageStage) func() {
	t.Helper()
	back := s.comesBack(t)
	makeRoom := fillDisk(t, s)
	conn := pgtest.Connect(t, s.url)
	testwait.Eventually(t, patience, "PostgreSQL ends itself", func() bool {
		_, err := conn.Exec(t.Context(), `SELECT pg_logical_emit_message(false, 'fairlead', repeat('x', 4000000))`)
		return err != nil
	})
	return func() {
		makeRoom()
		back()
	}
}

// takeConnections takes all connections that there can be, those of the servers first.
func takeConnections(t *testing.T, s *outageStage) func() {
	t.Helper()
	release, err := torture.TakeConnections(testwait.Context(t, patience), s.url)
	testwait.Must(t, err)
	return release
}

// terminateBackends ends all other sessions every 100 ms.
func terminateBackends(t *testing.T, s *outageStage) func() {
	t.Helper()
	conn, err := torture.Connect(testwait.Context(t, patience), s.url)
	testwait.Must(t, err)
	stop := keepDoing(100*time.Millisecond, func() { testwait.Check(t, testwait.Err(torture.EndSessions(t.Context(), conn))) })
	return func() {
		stop()
		testwait.Check(t, conn.Close(t.Context()))
	}
}

func lockTable(table string) func(*testing.T, *outageStage) func() {
	return func(t *testing.T, s *outageStage) func() {
		t.Helper()
		release, err := torture.Hold(testwait.Context(t, patience), s.url, `LOCK TABLE `+table+` IN ACCESS EXCLUSIVE MODE`)
		testwait.Must(t, err)
		return release
	}
}

// set changes a setting of PostgreSQL.
func set(name, value string) func(*testing.T, *outageStage) func() {
	return func(t *testing.T, s *outageStage) func() {
		t.Helper()
		s.execute(t, `ALTER SYSTEM SET `+name+` = '`+value+`'`, `SELECT pg_reload_conf()`)
		return func() { s.execute(t, `ALTER SYSTEM RESET `+name, `SELECT pg_reload_conf()`) }
	}
}

// oldSchema has the schema look older than the servers need.
func oldSchema(t *testing.T, s *outageStage) func() {
	t.Helper()
	s.execute(t, `UPDATE goose_db_version SET is_applied = false WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
	return func() { s.execute(t, `UPDATE goose_db_version SET is_applied = true`) }
}

// keepDoing does something again and again until stop is called.
func keepDoing(every time.Duration, what func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for going := true; going; going = wait.For(ctx, every) {
			what()
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// TestClockSteps has the database's clock jump under load.
func TestClockSteps(t *testing.T) {
	if !testwait.Torture() {
		t.Skip("it takes a minute: FAIRLEAD_TORTURE=1, or make torture, runs it")
	}
	jump := fakeClock(t)
	s := newOutageStage(t, filepath.Join(tempDir(t), "data"), true)
	for _, step := range []struct{ name, offset string }{
		{"clock forwards by 1 h", "+3600"},
		{"clock back by 1 h", "+0"},
		{"clock forwards by 5 s", "+5"},
		{"clock back by 5 s", "+0"},
		{"clock back by 1 h, below the start", "-3600"},
	} {
		o := outage{name: step.name, row: tally.ClockStepped, lasts: 8 * time.Second, ready: true, begin: func(t *testing.T, s *outageStage) func() {
			t.Helper()
			jump(step.offset)
			s.checkClock(t, step.offset)
			return func() {}
		}}
		if !t.Run(o.name, func(t *testing.T) { s.meet(t, o) }) {
			break
		}
	}
	s.close(t)
}

// checkClock wants the database's clock to be off by so many seconds.
func (s *outageStage) checkClock(t *testing.T, offset string) {
	t.Helper()
	seconds, err := strconv.Atoi(offset)
	testwait.Must(t, err)
	off := time.Duration(seconds) * time.Second
	conn := pgtest.Connect(t, s.url)
	var there time.Time
	earliest := time.Now().Add(off - time.Second)
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&there))
	if latest := time.Now().Add(off + time.Second); there.Before(earliest) || there.After(latest) {
		t.Errorf("the database's clock says %v, want %v to %v", there, earliest, latest)
	}
}

// fakeClock has every PostgreSQL that is started in this test take its time from a file. step changes it for all of them at once:
// "+5" is five seconds later than the machine's.
func fakeClock(t *testing.T) (step func(offset string)) {
	t.Helper()
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	postgres, err := exec.LookPath("postgres")
	if len(libraries) == 0 || err != nil {
		t.Skip("NOT TESTED: it needs libfaketime, and postgres on the PATH (scripts/setup.sh torture)")
	}
	actual, err := filepath.EvalSymlinks(postgres)
	testwait.Must(t, err)
	dir := tempDir(t)
	now := filepath.Join(dir, "now")
	step = func(offset string) {
		t.Helper()
		testwait.Must(t, os.WriteFile(now+".new", []byte(offset+"\n"), 0o644)) // PostgreSQL runs as another user.
		testwait.Must(t, os.Rename(now+".new", now))
	}
	step("+0")
	// The settings: look at the file each time; leave the clock that never jumps alone; no memory shared with others.
	for program, env := range map[string]string{
		"initdb":   "",
		"postgres": "LD_PRELOAD=" + libraries[0] + " FAKETIME_TIMESTAMP_FILE=" + now + " FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DISABLE_SHM=1",
	} {
		script := "#!/bin/sh\nexec env " + env + " " + filepath.Join(filepath.Dir(actual), program) + " \"$@\"\n"
		testwait.Must(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755))
	}
	t.Setenv("FAIRLEAD_PG_BIN", dir)
	return step
}
