package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgcopy"
)

// standbyName is what synchronous_standby_names calls the standby.
const standbyName = "bench_standby"

// startStandby starts a standby of the private PostgreSQL on this machine, and has commits wait until it has synced their log, too.
func (h *house) startStandby(ctx context.Context) (err error) {
	dir := filepath.Join(h.dir, "standby")
	if err := pgcopy.Standby(ctx, h.serverURL, dir, standbyName); err != nil {
		return fmt.Errorf("copy PostgreSQL for a standby: %w", err)
	}
	if h.standby, err = localpg.Start(ctx, localpg.Options{Dir: dir, DieWithParent: true}); err != nil {
		return fmt.Errorf("start the standby: %w", err)
	}
	if err := h.setSynchronous(ctx, "SET synchronous_standby_names = 'ANY 1 ("+standbyName+")'"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		var quorum bool
		const sql = `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming' AND sync_state = 'quorum')`
		if err := h.admin.QueryRow(ctx, sql, standbyName).Scan(&quorum); err != nil || quorum {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the standby doesn't follow: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// stopStandby has commits wait for the primary alone again, and stops the standby.
func (h *house) stopStandby(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := h.setSynchronous(ctx, "RESET synchronous_standby_names")
	if h.standby != nil {
		err = errors.Join(err, h.standby.Stop(ctx))
		h.standby = nil
	}
	return err
}

func (h *house) setSynchronous(ctx context.Context, setting string) error {
	for _, sql := range []string{"ALTER SYSTEM " + setting, "SELECT pg_reload_conf()"} {
		if _, err := h.admin.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
