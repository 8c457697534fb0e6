// Package scenario runs the clients of all languages against a real server, as README.md says.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/localpg"
)

// runnerVariable makes the test's binary the Go client's runner.
const runnerVariable = "SCENARIO_RUNNER"

// shared is the server that all runners share. Their accounts have different names.
var shared struct {
	url, key string
	proofs   string // the folder with the proofs
}

func TestMain(m *testing.M) {
	if os.Getenv(runnerVariable) != "" {
		os.Exit(runMain())
	}
	code, err := testMain(m)
	if errors.Is(err, localpg.ErrNoBinaries) && os.Getenv("CI") != "true" {
		fmt.Fprintln(os.Stderr, "skipped:", err)
		os.Exit(0)
	}
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "scenario-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	local, err := localpg.Start(ctx, localpg.Options{Dir: dir, DieWithParent: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, local.Stop(ctx)) }()
	shared.key = strings.Repeat("k", 32)
	server, err := fairlead.Open(ctx, fairlead.Options{DatabaseURL: local.URL(), Data: dir, AdminKey: shared.key, BeaconChain: "none"})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Close(ctx)) }()
	listener := httptest.NewServer(server.Handler())
	defer listener.Close()
	defer http.DefaultClient.CloseIdleConnections()
	shared.url = listener.URL
	return m.Run(), nil
}
