// Package testserver runs a package's tests against one real server.
//
// An example has no [testing.TB] to start a server with, so TestMain starts it. Its tests name their accounts differently.
package testserver

import (
	"cmp"
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
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Server is what tests need of their server.
type Server struct {
	URL     string
	Key     string // an administrator's
	Handler http.Handler
}

// Main sets shared to a server with a PostgreSQL of its own and the options o, runs the tests, and returns the exit code of their process.
// The tests have failed, too, where something is left running. Without PostgreSQL they are skipped, but for CI.
func Main(m *testing.M, shared *Server, o fairlead.Options) (code int) {
	code, err := run(m, shared, o)
	if errors.Is(err, localpg.ErrNoBinaries) && os.Getenv("CI") != "true" {
		fmt.Fprintln(os.Stderr, "skipped:", err)
		return 0
	}
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M, shared *Server, o fairlead.Options) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "testserver-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	local, err := localpg.Start(ctx, localpg.Options{Dir: dir, DieWithParent: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, local.Stop(ctx)) }()
	shared.Key = strings.Repeat("k", 32)
	o.DatabaseURL, o.Data, o.AdminKey, o.BeaconChain = local.URL(), dir, shared.Key, "none"
	o.UnavailableAfter = cmp.Or(o.UnavailableAfter, testwait.Patience) // A machine that stalls makes no database absent.
	server, err := fairlead.Open(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Close(ctx)) }()
	shared.Handler = server.Handler()
	listener := httptest.NewServer(shared.Handler)
	defer listener.Close()
	defer http.DefaultClient.CloseIdleConnections()
	shared.URL = listener.URL
	return m.Run(), nil
}
