//go:build unix

package faults_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds every wait for something that should happen soon.
const patience = 90 * time.Second

// together is how many faults are staged at a time: they wait more than they work.
const together = "5"

// testbed is what the tests share: the binary and one PostgreSQL, each made when the first test asks, and the outcome.
type testbed struct {
	dir  string
	http *http.Client // its connections are kept, since a load would use up all ports

	binaryOnce sync.Once
	binaryErr  error

	postgresOnce sync.Once
	postgres     *localpg.Instance
	postgresErr  error

	mu        sync.Mutex
	databases int
	outcome   []string
}

var shared testbed

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", together); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Where root may not make user namespaces, PostgreSQL runs as another user, who has to pass.
	if err := os.Chmod(dir, 0o711); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.dir = dir
	shared.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16 << 10}}
	code := m.Run()
	slices.Sort(shared.outcome)
	for _, line := range shared.outcome {
		fmt.Println(line)
	}
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func (b *testbed) close() error {
	b.http.CloseIdleConnections()
	var err error
	if b.postgres != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = b.postgres.Stop(ctx)
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// buildBinary builds the server once, as it is shipped but for the crash points, which do nothing unless one is named.
func (b *testbed) buildBinary(ctx context.Context) (string, error) {
	b.binaryOnce.Do(func() {
		_, b.binaryErr = sim.Build(ctx, b.dir, false)
	})
	return filepath.Join(b.dir, "fairlead"), b.binaryErr
}

func (b *testbed) startPostgres(ctx context.Context) (*localpg.Instance, error) {
	b.postgresOnce.Do(func() {
		b.postgres, b.postgresErr = localpg.Start(ctx, localpg.Options{Dir: b.dir + "/pg", DieWithParent: true})
	})
	return b.postgres, b.postgresErr
}

func (b *testbed) nextDatabase() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.databases++
	return fmt.Sprintf("faults_%d", b.databases)
}

func (b *testbed) report(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcome = append(b.outcome, strings.TrimSpace(line))
}

// torture skips a test that takes long unless it was asked for.
func torture(t *testing.T) {
	t.Helper()
	if !testwait.Torture() {
		t.Skip("set FAIRLEAD_TORTURE=1 to stage the fault")
	}
}
