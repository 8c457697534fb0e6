//go:build unix

package sim_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	_ "github.com/fairlead-dev/fairlead" // The binary under test is built from it: when it changes, cached results must not count.
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

var (
	binDir string
	// sharedData is the data directory of the PostgreSQL that tests share.
	sharedData = pgtest.Durable()
	// build builds the server once. It has the crash points in, which do nothing unless one is named.
	build = sync.OnceValues(func() (string, error) {
		if given := os.Getenv("FAIRLEAD_SIM_BINARY"); given != "" {
			return given, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		return sim.Build(ctx, binDir, os.Getenv("FAIRLEAD_SIM_RACE") != "0" && !testpromise.On())
	})
)

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	testwait.Must(t, err)
	return path
}

func TestMain(m *testing.M) {
	var err error
	if binDir, err = os.MkdirTemp("", "sim"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := pgtest.Main(m)
	if err := os.RemoveAll(binDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
