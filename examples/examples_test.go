//go:build unix

package examples_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDropsale runs it twice: the accounts of the first run must not be in the way of the second.
func TestDropsale(t *testing.T) {
	t.Parallel()
	for range 2 {
		out := run(t, "dropsale")
		want := regexp.MustCompile(`^40 buyers: 10 bought, 30 came too late
the original goes to buyer-\d\d, layer [1-4], number [1-4]: verified
$`)
		if !want.MatchString(out) {
			t.Errorf("it printed:\n%s", out)
		}
	}
}

// TestWallet kills the program after each of its steps in turn, and wants the same balances as of an order whose program
// was never killed.
func TestWallet(t *testing.T) {
	t.Parallel()
	const balances = `buyer: 30.00 available, 0.00 held
shop: 15.50 available, 0.00 held
carrier: 4.50 available, 0.00 held
`
	const steps = 7
	file := filepath.Join(t.TempDir(), "order")
	for step := 1; step <= steps; step++ {
		out, err := program(testwait.Context(t, patience), "wallet", "-order", file, "-crash-at", string(rune('0'+step))).CombinedOutput()
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok || ended.ExitCode() != 3 {
			t.Fatalf("step %d: it did not crash: %v\n%s", step, err, out)
		}
		if n := strings.Count(string(out), "(was done before)"); n != step-1 {
			t.Errorf("step %d: %d steps were replayed:\n%s", step, n, out)
		}
	}
	again := run(t, "wallet", "-order", file)
	if !strings.HasSuffix(again, balances) || strings.Count(again, "(was done before)") != steps {
		t.Errorf("after all crashes it printed:\n%s", again)
	}
	whole := run(t, "wallet", "-order", filepath.Join(t.TempDir(), "order"))
	if !strings.HasSuffix(whole, balances) || strings.Contains(whole, "(was done before)") {
		t.Errorf("without a crash it printed:\n%s", whole)
	}
}

func TestScheduledPosts(t *testing.T) {
	t.Parallel()
	out := run(t, "scheduledposts")
	// A receiver on a machine that stalls does not answer in time, and has the post once more.
	want := regexp.MustCompile(`^Good evening: delivered \d+ times, taken once
Good morning: delivered \d+ times, taken once
The receiver has no time: delivered ([2-9]|\d\d+) times, taken once
The receiver's answer is lost: delivered ([2-9]|\d\d+) times, taken once
forgeries refused: 1
$`)
	if !want.MatchString(out) {
		t.Errorf("it printed:\n%s", out)
	}
}

// TestEmbedded runs the program on a private PostgreSQL of its own, and again on the same data.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	data := filepath.Join(shared.bin, "..", "embedded")
	for range 2 {
		cmd := program(testwait.Context(t, patience), "embedded", "-data", data)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "12 visitors, 10 seats sold, 1 winner; the books balance: true\n" {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// TestOutside builds a module of its own against this one, and runs it.
func TestOutside(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shared.bin, "..", "outside")
	if err := os.Mkdir(dir, 0o711); err != nil { // PostgreSQL has to get through it, as to the others' directories.
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} { // Copies, which follow this module's requirements.
		text, err := os.ReadFile(filepath.Join("outside", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-modfile", filepath.Join(dir, "go.mod"), "-o", dir+"/", ".")
	build.Dir = "outside"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx := testwait.Context(t, patience) // The build takes what it takes.
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "outside"), filepath.Join(dir, "data")).CombinedOutput()
	if err != nil || string(out) != "all public packages work from another module\n" {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPrintshop has no use for the server, only for its PostgreSQL, in which the shop has a schema of its own.
func TestPrintshop(t *testing.T) {
	t.Parallel()
	database, err := localpg.URLOf(shared.server.DataDir())
	testwait.Must(t, err)
	for range 2 {
		cmd := program(testwait.Context(t, patience), "printshop")
		cmd.Env = append(cmd.Env, "DATABASE_URL="+database)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		const want = `orders: sent 4 times, 2 made
printing: all orders done, 0 reported twice, one late report refused
prices: a poster costs 19.00, the late change was refused
`
		if string(out) != want {
			t.Errorf("it printed:\n%s", out)
		}
	}
}
