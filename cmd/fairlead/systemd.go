package main

import (
	"context"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
)

// tellSupervisor tells systemd how the server is (sd_notify(3)), where it was started by a unit of Type=notify: anywhere
// else it does nothing. A unit that depends on this one is then started once this one answers, and not before.
func tellSupervisor(ctx context.Context, logger *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		logger.WarnContext(ctx, "systemd was not told", "state", state, "error", err)
	}
}
