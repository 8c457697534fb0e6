//go:build unix

package sim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
		return sim.Build(ctx, binDir, withRaces())
	})
	// buildPlain builds it once more, without the race detector.
	buildPlain = sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		dir := filepath.Join(binDir, "plain")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", err
		}
		return sim.Build(ctx, dir, false)
	})
	serversMade atomic.Int64
)

// withRaces says whether servers look for data races.
func withRaces() bool { return os.Getenv("FAIRLEAD_SIM_RACE") != "0" && !testpromise.On() }

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	testwait.Must(t, err)
	return path
}

// serverBinary is the binary of the next server. Where data races are looked for, every other server does, as of the two that most tests have:
// with the race detector one costs several times as much. In long runs, all do.
func serverBinary(t *testing.T) string {
	t.Helper()
	if testwait.Torture() || !withRaces() || os.Getenv("FAIRLEAD_SIM_BINARY") != "" || serversMade.Add(1)%2 == 1 {
		return binary(t)
	}
	path, err := buildPlain()
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
