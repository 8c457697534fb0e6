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
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here, and so in the processes that this test starts: nohup does that")
	}
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
	testwait.Must(t, server.Signal(syscall.SIGHUP))
	testwait.Must(t, server.AwaitExit(testwait.Context(t, patience)))
	if code := server.ExitCode(); code != 0 {
		t.Errorf("it ended with %d: %s", code, server.Log())
	}
	if _, err := os.Stat(held[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PostgreSQL runs on: %s: %v", held[0], err)
	}
}
