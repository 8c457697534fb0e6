//go:build unix

package faults_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds every wait for something that should happen soon.
const patience = testwait.Patience

// together is how many faults are staged at a time: they wait more than they work.
const together = "5"

var (
	binDir string
	_      = pgtest.Durable()
	// build builds the server once, as it is shipped but for the crash points, which do nothing unless one is named.
	build = sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		return sim.Build(ctx, binDir, false)
	})
	// calls keeps its connections, since a load would use up all ports.
	calls = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16 << 10}}

	mu      sync.Mutex
	outcome []string
)

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	testwait.Must(t, err)
	return path
}

func TestMain(m *testing.M) {
	flag.Parse()
	err := flag.Set("test.parallel", together)
	if err == nil {
		binDir, err = os.MkdirTemp("", "faults")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := pgtest.Main(m)
	slices.Sort(outcome)
	for _, line := range outcome {
		fmt.Println(line)
	}
	if err := os.RemoveAll(binDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func report(line string) {
	mu.Lock()
	defer mu.Unlock()
	outcome = append(outcome, strings.TrimSpace(line))
}

// torture skips a test that takes long unless it was asked for, and runs it beside others.
func torture(t *testing.T) {
	t.Helper()
	if !testwait.Torture() {
		t.Skip("set FAIRLEAD_TORTURE=1 to stage the fault")
	}
	t.Parallel()
}
