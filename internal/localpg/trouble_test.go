//go:build linux || darwin || freebsd

package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), strings.Repeat("long/", 30))
	i := startIn(t, Options{Dir: dir})
	mustExec(t, i.URL(), "SELECT 1")
	url, err := URLOf(dir)
	if err != nil || url != i.URL() {
		t.Errorf("URLOf = %q, %v; want %q", url, err, i.URL())
	}
	st, err := os.Stat(i.socketDir)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("socket directory %s: %v, %v", i.socketDir, st, err)
	}
	stop(t, i)
	if _, err := os.Stat(i.socketDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary socket directory stays: %v", err)
	}
}

func TestMissingBinaries(t *testing.T) {
	t.Setenv(BinVariable, t.TempDir())
	_, err := Start(t.Context(), Options{Dir: tempDir(t)})
	if !errors.Is(err, ErrNoBinaries) {
		t.Fatalf("%v; want ErrNoBinaries", err)
	}
	for _, goos := range []string{"linux", "darwin"} {
		hint := installHint(goos)
		if !strings.Contains(hint, "install") || !strings.Contains(hint, "--database-url") {
			t.Errorf("%s: the hint doesn't help: %s", goos, hint)
		}
	}
}

// fakeBinaries makes a postgres program that only tells its version.
func fakeBinaries(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"postgres", "initdb"} {
		testwait.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir
}

func TestWrongVersion(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	testwait.Must(t, os.MkdirAll(filepath.Join(dir, "postgres"), 0o700))
	testwait.Must(t, os.WriteFile(filepath.Join(dir, "postgres", "PG_VERSION"), []byte("14\n"), 0o600))
	_, err := Start(t.Context(), Options{Dir: dir, binDir: fakeBinaries(t, "17.2 (Debian 17.2-1)")})
	const want = "made by PostgreSQL 14, but PostgreSQL 17 is installed: install PostgreSQL 14 beside it"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v; want %s", err, want)
	}
}

func TestTooOldVersion(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Dir: tempDir(t), binDir: fakeBinaries(t, "12.4")})
	if !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), "12") {
		t.Fatalf("%v; want ErrNoBinaries that names 12", err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	foreign := filepath.Join(dir, "postgres", "precious")
	testwait.Must(t, os.MkdirAll(filepath.Dir(foreign), 0o700))
	testwait.Must(t, os.WriteFile(foreign, []byte("x"), 0o600))
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil {
		t.Fatal("a directory with other files was taken for a cluster's")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("the foreign file: %v", err)
	}
}

func TestInterruptedInitdbIsDoneAnew(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	half := filepath.Join(dir, "postgres.new")
	testwait.Must(t, os.MkdirAll(half, 0o700))
	testwait.Must(t, os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600))
	i := startIn(t, Options{Dir: dir})
	mustExec(t, i.URL(), "SELECT 1")
}

func TestCancelledStart(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, Options{Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v; want the context's end", err)
	}
	i := startIn(t, Options{Dir: dir})
	mustExec(t, i.URL(), "SELECT 1")
}

// TestBrokenConfiguration shows PostgreSQL's own words, and at a restart gives
// up in the end.
func TestBrokenConfiguration(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	i := startIn(t, Options{Dir: dir, giveUpAfter: 500 * time.Millisecond})
	conf := filepath.Join(dir, "postgres", "postgresql.conf")
	testwait.Must(t, writeFile(conf, os.O_APPEND, "no_such_setting = 1\n", false))
	kill(t, i.PID())
	select {
	case <-i.Done():
	case <-time.After(testwait.Patience):
		t.Fatal("it didn't give up")
	}
	if err := i.Err(); !errors.Is(err, ErrGaveUp) || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("Err = %v; want ErrGaveUp with PostgreSQL's reason", err)
	}
	if err := i.Stop(t.Context()); !errors.Is(err, ErrGaveUp) {
		t.Errorf("Stop = %v; want ErrGaveUp", err)
	}
	_, err := Start(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("Start = %v; want PostgreSQL's reason", err)
	}
	// The cleanup's Stop reports the same error again, so take it from there.
	i.err = nil
}

func TestStopDuringRestart(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	i := startIn(t, Options{Dir: dir})
	pid := i.PID()
	kill(t, pid)
	stop(t, i)
	j := startIn(t, Options{Dir: dir})
	mustExec(t, j.URL(), "SELECT 1")
}

// TestStopOfAFrozenOne: one that does not answer is ended, when the caller has no patience left, and soon when the caller has.
func TestStopOfAFrozenOne(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{false, true} {
		t.Run(fmt.Sprintf("patient=%t", patient), func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			i := startIn(t, Options{Dir: dir})
			ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
			defer cancel()
			if !patient {
				cancel()
			}
			testwait.Must(t, syscall.Kill(i.PID(), syscall.SIGSTOP))
			if err := i.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Stop of a frozen PostgreSQL: %v", err)
			}
			if patient && ctx.Err() != nil {
				t.Error("it was ended by the caller's impatience")
			}
			i.err = nil // Reported above; the cleanup's Stop would report it again.
			j := startIn(t, Options{Dir: dir})
			mustExec(t, j.URL(), "SELECT 1")
		})
	}
}

// TestAsAnotherUser runs the tests that matter as a user who isn't root, in a
// process of its own.
func TestAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user; the other tests have just run as one")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skipf("no user nobody: %v", err)
	}
	uid, gid := number(t, nobody.Uid), number(t, nobody.Gid)
	home := tempDir(t)
	testwait.Must(t, os.Chown(home, int(uid), int(gid)))
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skipf("can't copy the test binary: %v", err)
	}
	exe := filepath.Join(home, "localpg.test")
	testwait.Must(t, os.WriteFile(exe, raw, 0o755))
	cmd := exec.CommandContext(t.Context(), exe, "-test.v",
		"-test.run=^(TestColdStart.*|TestPostmasterKilled.*|TestOrphanIs.*|TestNotWritable)$")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS") != 4 {
		t.Fatalf("%v\n%s", err, out)
	}
}

func number(t *testing.T, s string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 32)
	testwait.Must(t, err)
	return uint32(n)
}

func TestNotWritable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere; TestAsAnotherUser runs this one as somebody else")
	}
	dir := tempDir(t)
	testwait.Must(t, os.Chmod(dir, 0o500))
	for _, d := range []string{dir, filepath.Join(dir, "below")} {
		if _, err := Start(t.Context(), Options{Dir: d}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v; want a permission error", d, err)
		}
	}
}

// TestWithoutNamespaces runs PostgreSQL as another user, as on a machine without user namespaces. A cluster that was made in a
// namespace is given to that user.
func TestWithoutNamespaces(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root needs another user")
	}
	stranger, err := unprivilegedUser()
	if err != nil {
		t.Skip(err)
	}
	for _, fresh := range []bool{true, false} {
		name := map[bool]string{true: "fresh", false: "existing"}[fresh]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			l := layout{dir: dir}
			if fresh {
				bins, err := findBinaries(t.Context(), "", l.data(), 0)
				testwait.Must(t, err)
				testwait.Must(t, initCluster(t.Context(), l, bins, stranger, true))
			} else {
				stop(t, startIn(t, Options{Dir: dir}))
				testwait.Must(t, stranger.giveTree(l))
			}
			i := startIn(t, Options{Dir: dir})
			if i.id.kind != asUser || i.id.uid != stranger.uid {
				t.Errorf("runs as %s; want %s", i.id, stranger)
			}
			mustExec(t, i.URL(), "CREATE TABLE kept (n int)")
			testwait.Check(t, testwait.Err(URLOf(dir)))
			killAndAwait(t, i, 1)
		})
	}
}

func TestNeverRoot(t *testing.T) {
	t.Parallel()
	i := startIn(t, Options{Dir: tempDir(t), Logger: slog.New(slog.DiscardHandler)})
	// A server that runs as root would let its superuser write anywhere that
	// only root may; PostgreSQL's user must not hold any capability.
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.PID()), "status"))
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	for line := range strings.Lines(string(raw)) {
		if caps, ok := strings.CutPrefix(line, "CapEff:"); ok && strings.Trim(strings.TrimSpace(caps), "0") != "" {
			t.Errorf("PostgreSQL holds capabilities: %s", line)
		}
	}
}

func TestLogIsTurned(t *testing.T) {
	t.Parallel()
	l := layout{dir: tempDir(t)}
	f, err := openLog(l)
	testwait.Must(t, err)
	defer func() { _ = f.Close() }()
	write := func(s string) {
		testwait.Must(t, testwait.Err(f.WriteString(s)))
	}
	write("early\n")
	testwait.Must(t, turnLog(l, 10))
	if got := string(logSince(l, 0)); got != "early\n" {
		t.Errorf("a small log was turned: %q", got)
	}
	write("and more than ten\n")
	testwait.Must(t, turnLog(l, 15))
	write("late\n") // Through the descriptor that was open all along.
	if got := string(logSince(l, 0)); got != "late\n" {
		t.Errorf("log = %q; want what came after the turn", got)
	}
	old, err := os.ReadFile(l.oldLog())
	if err != nil || string(old) != "early\nand more than ten\n" {
		t.Errorf("old log = %q, %v", old, err)
	}
}

func FuzzParsePIDFile(f *testing.F) {
	f.Add([]byte("123\n/data\n1700000000\n5432\n/run\n\n 123 456\nready   \n"))
	f.Add([]byte("-7\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parsePIDFile(raw)
		if err == nil && p.pid <= 0 {
			t.Errorf("%q gives process %d, which a signal would take for a group", raw, p.pid)
		}
	})
}
