//go:build linux

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// A server whose terminal is closed drains, and stops the PostgreSQL that it keeps.
func TestServeEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	// A process inherits that SIGHUP is ignored, as nohup does it, but not that it is handled.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	defer signal.Stop(handled)
	binary, err := exec.LookPath("fairlead") // testscript has put it there: this test's own binary.
	testwait.Must(t, err)
	data := t.TempDir()
	server := sim.NewServer(sim.ServerOptions{Binary: binary, DataDir: data})
	_, err = server.Start(testwait.Context(t, patience))
	testwait.Must(t, err)
	defer func() { _ = server.Kill(t.Context()) }()
	held, err := filepath.Glob(filepath.Join(data, "*", "postmaster.pid"))
	testwait.Must(t, err)
	if len(held) != 1 {
		t.Fatalf("%q are there, so that nothing is seen of PostgreSQL's end", held)
	}
	// The shell sends one, and so does the kernel.
	testwait.Eventually(t, patience, "its end", func() bool {
		select {
		case <-server.Exited():
			return true
		default:
			_ = server.Signal(syscall.SIGHUP) // It may have ended by now.
			return false
		}
	})
	if code := server.ExitCode(); code != 0 {
		t.Errorf("it ended with %d: %s", code, server.Log())
	}
	if _, err := os.Stat(held[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PostgreSQL runs on: %s: %v", held[0], err)
	}
}
