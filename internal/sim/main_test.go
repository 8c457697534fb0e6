//go:build unix

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/sim"
)

// testbed is what the tests share: the binary and one PostgreSQL, each made when the first test asks.
type testbed struct {
	dir string

	binaryOnce sync.Once
	binary     string
	binaryErr  error

	postgresOnce sync.Once
	postgres     *localpg.Instance
	postgresErr  error

	mu        sync.Mutex
	databases int
}

var shared testbed

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sim")
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
	code := m.Run()
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
	var err error
	if b.postgres != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = b.postgres.Stop(ctx)
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// buildBinary builds the server once. It has the crash points in, which do nothing unless one is named.
func (b *testbed) buildBinary(ctx context.Context) (string, error) {
	b.binaryOnce.Do(func() {
		if b.binary = os.Getenv("FAIRLEAD_SIM_BINARY"); b.binary != "" {
			return
		}
		b.binary, b.binaryErr = sim.Build(ctx, b.dir, os.Getenv("FAIRLEAD_SIM_RACE") != "0")
	})
	return b.binary, b.binaryErr
}

// startPostgres starts the shared PostgreSQL once, with durable settings: the server refuses others.
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
	return fmt.Sprintf("sim_%d", b.databases)
}
