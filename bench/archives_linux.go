package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
)

// archiveEach are the transfers of a month's history for each time that each of its accounts does all that it does.
const archiveEach = 28 * 12 * 3

// archiveMonth is the month that the archive of a turn has: turn 0 has the oldest.
func (o *options) archiveMonth(turn int) time.Time {
	now := o.archiveNow
	return time.Date(now.Year(), now.Month()+time.Month(turn-o.archivePairs-1), 1, 0, 0, 0, 0, time.UTC)
}

// beginHistory has the product's tables be in partitions since the first of the months that are archived.
func (h *house) beginHistory(ctx context.Context, o *options) error {
	for _, s := range h.sides {
		conn, err := pgx.Connect(ctx, s.databaseURL)
		if err != nil {
			return err
		}
		if err := errors.Join(partitionstest.Begin(ctx, conn, o.archiveMonth(0).AddDate(0, 0, 10), o.archiveNow), conn.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// archives measures transfers alone, and beside fairlead archive, which takes a month's history out of the database.
func (h *house) archives(ctx context.Context, o *options, results *Results) error {
	for _, s := range h.sides {
		for turn := range o.archivePairs {
			t, err := s.archiveTurn(ctx, o, turn)
			if err != nil {
				return fmt.Errorf("%s: archive: %w", s.name, err)
			}
			slog.Info("archive", "turn", turn+1, "transfers", t.Transfers, "seconds", math.Round(t.Seconds), "per_second", math.Round(t.Beside.PerSecond), "alone", math.Round(t.Alone.PerSecond))
			results.Archives = append(results.Archives, *t)
		}
	}
	return nil
}

func (s *side) archiveTurn(ctx context.Context, o *options, turn int) (*ArchiveTurn, error) {
	times := max(o.archiveTransfers/archiveEach, 1)
	month := o.archiveMonth(turn)
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, partitionstest.Month(month.Year(), month.Month(), times, 0))
	if err = errors.Join(err, conn.Close(ctx), s.analyze(ctx), s.h.checkpoint(ctx)); err != nil {
		return nil, err
	}
	t := &ArchiveTurn{Transfers: times * archiveEach}
	commands := transferBodies(0, o.accounts)
	timed := *o
	measure := func() (TransferTurn, error) {
		next := commands.requests(s.key)
		r, used, err := s.closedTurn(&timed, singleConnections, next, wantCompleted, nil)
		if err != nil {
			return TransferTurn{}, err
		}
		return TransferTurn{
			Side: s.name, Connections: singleConnections, Answers: r.Answers, PerSecond: r.PerSecond(),
			P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: used,
		}, nil
	}
	if t.Alone, err = measure(); err != nil {
		return nil, err
	}
	// The archive may last longer than what is measured, and must not be over before.
	var done atomic.Bool
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		ended <- s.archive(ctx, o, month.AddDate(0, 1, 0))
		t.Seconds = time.Since(began).Seconds()
		done.Store(true)
	}()
	t.Beside, err = measure()
	early := done.Load()
	if err = errors.Join(err, <-ended); err == nil && early {
		err = fmt.Errorf("the archive took %.0f s, less than what was to be measured beside it: give more --archive-transfers", t.Seconds)
	}
	return t, err
}

// archive runs fairlead archive.
func (s *side) archive(ctx context.Context, o *options, before time.Time) error {
	cmd := exec.CommandContext(ctx, o.productBinary, "archive", "--before", before.Format(time.DateOnly), "--rest", strconv.Itoa(o.archiveRest), //nolint:gosec // The binary that is measured.
		"--to", filepath.Join(s.h.dir, "archives"), "--database-url", s.databaseURL)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}
