//go:build linux || darwin || freebsd

package localpg

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// serverProcess runs this test binary as a server process on dir.
func serverProcess(t *testing.T, dir string, env ...string) (cmd *exec.Cmd, postmaster int) {
	t.Helper()
	exe, err := os.Executable()
	testwait.Must(t, err)
	cmd = exec.CommandContext(context.Background(), exe)
	cmd.Env = append(os.Environ(), append(env, helperDirEnv+"="+dir)...)
	out, err := cmd.StdoutPipe()
	testwait.Must(t, err)
	cmd.Stderr = os.Stderr
	testwait.Must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	word, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || word != "ready" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("server process: %q, %v", line, err)
	}
	postmaster, err = strconv.Atoi(pid)
	testwait.Must(t, err)
	return cmd, postmaster
}

func killProcess(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	testwait.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // "signal: killed", as asked for.
}

// orphan is the PostgreSQL of a server process that was killed.
func orphan(t *testing.T, dir string) (postmaster int) {
	t.Helper()
	cmd, postmaster := serverProcess(t, dir)
	killProcess(t, cmd)
	return postmaster
}

// wantKept fails the test unless the row that was kept is there.
func wantKept(t *testing.T, i *Instance) {
	t.Helper()
	if n, err := queryInt(t.Context(), i.URL(), "SELECT n FROM kept"); err != nil || n != 1 {
		t.Errorf("%d, %v; want 1", n, err)
	}
}

func TestOrphanIsAdoptedSupervisedAndStopped(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd, postmaster := serverProcess(t, dir)
	url, err := URLOf(dir)
	testwait.Must(t, err)
	mustExec(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	killProcess(t, cmd)
	if !alive(postmaster) {
		t.Fatal("PostgreSQL died with its parent: there is nothing to adopt")
	}

	began := time.Now()
	i := startIn(t, Options{Dir: dir})
	t.Logf("adopted after %v", time.Since(began))
	if !i.adopted || i.PID() != postmaster || i.URL() != url {
		t.Fatalf("adopted %v, process %d, %s; want process %d, %s", i.adopted, i.PID(), i.URL(), postmaster, url)
	}
	wantKept(t, i)

	killAndAwait(t, i, 1)
	wantKept(t, i)
}

func TestAdoptedOneIsStopped(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	postmaster := orphan(t, dir)
	i := startIn(t, Options{Dir: dir})
	stop(t, i)
	if alive(postmaster) {
		t.Error("the adopted PostgreSQL is alive after Stop")
	}
	j := startIn(t, Options{Dir: dir})
	log, err := os.ReadFile(j.layout.log())
	if err != nil || strings.Contains(string(log), "not properly shut down") {
		t.Errorf("the stop wasn't clean: %v\n%s", err, log)
	}
}

func TestServerAndPostmasterKilledTogetherIsRecovered(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd, postmaster := serverProcess(t, dir)
	url, err := URLOf(dir)
	testwait.Must(t, err)
	mustExec(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	killProcess(t, cmd)
	kill(t, postmaster)
	i := startIn(t, Options{Dir: dir})
	if i.adopted {
		t.Error("a dead one was adopted")
	}
	wantKept(t, i)
}

// TestFrozenOrphanIsReplaced stops the orphan's main process, which then takes
// connections (the kernel does) but never answers.
func TestFrozenOrphanIsReplaced(t *testing.T) {
	t.Parallel()
	testpromise.Check(t, "restart", func() time.Duration {
		dir := tempDir(t)
		postmaster := orphan(t, dir)
		testwait.Must(t, syscall.Kill(postmaster, syscall.SIGSTOP))
		began := time.Now()
		i := startIn(t, Options{Dir: dir})
		took := time.Since(began)
		if i.adopted || i.PID() == postmaster {
			t.Error("the frozen one was adopted")
		}
		return took
	})
}

func TestStoppingOrphanIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	postmaster := orphan(t, dir)
	testwait.Must(t, syscall.Kill(postmaster, syscall.SIGINT))
	i := startIn(t, Options{Dir: dir})
	mustExec(t, i.URL(), "SELECT 1")
}

// TestBusyBackendOutlivesThePostmaster has a backend that computes, and so
// doesn't notice its postmaster's death: it holds the shared memory.
func TestBusyBackendOutlivesThePostmaster(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("leftover processes are found on Linux only; elsewhere the start waits for them")
	}
	i := startIn(t, Options{Dir: tempDir(t)})
	mustExec(t, i.URL(), `CREATE FUNCTION spin() RETURNS void LANGUAGE plpgsql AS
		$$ DECLARE n bigint := 0; BEGIN WHILE true LOOP n := n + 1; END LOOP; END $$`)
	ended := make(chan error, 1)
	go func() { ended <- exec1(context.Background(), i.URL(), "SELECT spin()") }()
	var backend int
	testwait.Eventually(t, testwait.Patience, "the backend computes", func() bool {
		n, err := queryInt(t.Context(), i.URL(), "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT spin()'")
		backend = n
		return err == nil
	})
	killAndAwait(t, i, 1)
	if alive(backend) {
		t.Errorf("backend %d of the dead server is still alive", backend)
	}
	if err := <-ended; err == nil {
		t.Error("the endless query ended well")
	}
}

func TestDieWithParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	cmd, postmaster := serverProcess(t, tempDir(t), "LOCALPG_TEST_TIED=1")
	killProcess(t, cmd)
	testwait.Eventually(t, testwait.Patience, "PostgreSQL is gone", func() bool { return !alive(postmaster) })
}

// TestLockFileOfAnotherProcess has a postmaster.pid whose number now belongs to
// a process that isn't PostgreSQL: ours.
func TestLockFileOfAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	i := startIn(t, Options{Dir: dir})
	mustExec(t, i.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	l := i.layout
	raw, err := os.ReadFile(l.pidFile())
	testwait.Must(t, err)
	stop(t, i)
	_, rest, _ := strings.Cut(string(raw), "\n")
	forged := strconv.Itoa(os.Getppid()) + "\n" + rest
	testwait.Must(t, os.WriteFile(l.pidFile(), []byte(forged), 0o600))
	j := startIn(t, Options{Dir: dir})
	wantKept(t, j)
}
