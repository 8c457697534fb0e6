// Package scenario runs the clients of all languages against a real server, as README.md says.
package scenario

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/testserver"
)

// runnerVariable makes the test's binary the Go client's runner.
const runnerVariable = "SCENARIO_RUNNER"

// shared is the server that all runners share. Their accounts have different names.
var shared struct {
	testserver.Server

	proofs string // the folder with the proofs
}

func TestMain(m *testing.M) {
	if os.Getenv(runnerVariable) != "" {
		os.Exit(runMain())
	}
	os.Exit(testserver.Main(m, &shared.Server, fairlead.Options{}))
}
