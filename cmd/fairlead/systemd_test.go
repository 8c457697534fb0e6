package main

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestTellSupervisor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	testwait.Must(t, err)
	defer func() { _ = l.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	tellSupervisor(t.Context(), slog.New(slog.DiscardHandler), daemon.SdNotifyReady)
	testwait.Must(t, l.SetReadDeadline(time.Now().Add(testwait.Patience)))
	said := make([]byte, 100)
	n, err := l.Read(said)
	if err != nil || string(said[:n]) != "READY=1" {
		t.Errorf("said %q, %v", said[:n], err)
	}
	// Without a supervisor, and with one that has gone, nothing happens.
	t.Setenv("NOTIFY_SOCKET", "")
	tellSupervisor(t.Context(), slog.New(slog.DiscardHandler), daemon.SdNotifyReady)
	t.Setenv("NOTIFY_SOCKET", path+".gone")
	tellSupervisor(t.Context(), slog.New(slog.DiscardHandler), daemon.SdNotifyReady)
}
