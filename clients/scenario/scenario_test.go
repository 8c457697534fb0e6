package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds a runner, on a machine that has other things to do.
const patience = 5 * time.Minute

// TestScenario runs every client's runner.
func TestScenario(t *testing.T) {
	root, err := filepath.Abs("../..")
	testwait.Must(t, err)
	self, err := os.Executable()
	testwait.Must(t, err)
	proofs := t.TempDir()
	makeProofs(t, proofs)
	data, err := os.ReadFile("scenario.json")
	testwait.Must(t, err)
	var s script
	testwait.Must(t, strictly(data, &s))
	wanted := fmt.Sprintf("scenario: %d steps passed", len(s.Steps))
	for _, client := range []struct {
		name    string
		command []string
		folder  string // of the client
		prepare func(t *testing.T)
	}{
		{"Go", []string{self}, "client", nil},
		{"Python", []string{"python3", "clients/python/tests/scenario.py"}, "clients/python", nil},
		{"TypeScript", []string{"node", "clients/typescript/scenario/run.mjs"}, "clients/typescript", buildTypeScript},
	} {
		t.Run(client.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(root, client.folder)); err != nil {
				t.Skip("there is no " + client.folder)
			}
			needProgram(t, client.command[0])
			if client.prepare != nil {
				client.prepare(t)
			}
			p, front, control := startProxy(t, shared.URL)
			cmd := exec.CommandContext(testwait.Context(t, patience), client.command[0], client.command[1:]...)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), runnerVariable+"=1", "FAIRLEAD_URL="+front, "FAIRLEAD_KEY="+shared.Key, "SCENARIO_CONTROL="+control,
				"SCENARIO_FILE="+filepath.Join(root, "clients/scenario/scenario.json"), "SCENARIO_PROOFS="+proofs)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := lines[len(lines)-1]; last != wanted {
				t.Errorf("the last line is %q, want %q\n%s", last, wanted, out)
			}
			if left := p.unused(); len(left) > 0 {
				t.Errorf("faults that nothing has met: %q", left)
			}
		})
	}
}

// TestPython runs the Python client's own tests.
func TestPython(t *testing.T) {
	needProgram(t, "python3")
	cmd := exec.CommandContext(testwait.Context(t, patience), "python3", "-W", "error", "-m", "unittest")
	cmd.Dir = "../python/tests"
	cmd.Env = append(os.Environ(), "FAIRLEAD_URL="+shared.URL, "FAIRLEAD_KEY="+shared.Key)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "skipped") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// needProgram fails the test where a language's program is missing in CI, and skips it elsewhere.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: scripts/setup.sh test installs it", name)
	}
	t.Skipf("*** NOT TESTED: the client needs %s", name)
}
