//go:build linux || darwin || freebsd

package pgtest

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// askPort tells a copy of this program which port to ask for.
const askPort = "FAIRLEAD_TEST_ASK_PORT"

// TestPortsAreTheirTests has another process ask for a port that a test has, and for it again when that has ended.
func TestPortsAreTheirTests(t *testing.T) { //nolint:tparallel // It asks again when its subtest has ended.
	t.Parallel()
	if asked := os.Getenv(askPort); asked != "" {
		port, err := strconv.Atoi(asked)
		if err != nil {
			t.Fatal(err)
		}
		if reservePort(port) {
			t.Log("reserved")
		}
		return
	}
	ask := func(port int) bool {
		t.Helper()
		other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPortsAreTheirTests$", "-test.v")
		other.Env = append(os.Environ(), askPort+"="+strconv.Itoa(port))
		out, err := other.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return bytes.Contains(out, []byte("reserved"))
	}
	var port int
	t.Run("during", func(t *testing.T) {
		port = Port(t)
		if ask(port) {
			t.Error("another process got the port")
		}
	})
	if !ask(port) {
		t.Error("the port outlasts its test")
	}
}
