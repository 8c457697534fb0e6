package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Did is what PostgreSQL has done: to its log (and pages written to it as a whole, after a checkpoint), in checkpoints, and in tables that
// were vacuumed or analyzed by itself. Checkpoints are counted when they begin, their seconds when they end.
type Did struct {
	WALBytes          float64 `json:"wal_bytes"`
	WALPages          float64 `json:"wal_full_pages"`
	Checkpoints       float64 `json:"checkpoints"`
	CheckpointPages   float64 `json:"checkpoint_pages"`
	CheckpointSeconds float64 `json:"checkpoint_write_s"`
	CheckpointSyncs   float64 `json:"checkpoint_sync_s"`
	Vacuums           float64 `json:"autovacuums"`
	Analyzes          float64 `json:"autoanalyzes"`
}

func (d Did) since(before Did) Did {
	return Did{
		d.WALBytes - before.WALBytes, d.WALPages - before.WALPages, d.Checkpoints - before.Checkpoints,
		d.CheckpointPages - before.CheckpointPages, d.CheckpointSeconds - before.CheckpointSeconds, d.CheckpointSyncs - before.CheckpointSyncs,
		d.Vacuums - before.Vacuums, d.Analyzes - before.Analyzes,
	}
}

// sighting is what was seen at the beginning of a second.
type sighting struct {
	did    Did
	used   usage
	vacuum string // what autovacuum was at
	// Of all processors, in seconds: in use by anybody, and idle while somebody waits for the disk.
	busy, waiting float64
}

// watch looks each second at what PostgreSQL and a side's server do, on a connection of its own.
type watch struct {
	s    *side
	conn *pgx.Conn
	sql  string
	seen []sighting
}

func (s *side) watch(ctx context.Context) (*watch, error) {
	const ownView = 170000 // Since this version checkpoints have a view of their own.
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to its database: %w", s.name, err)
	}
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::integer").Scan(&version); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	checkpoints := "checkpoints_timed + checkpoints_req, buffers_checkpoint, checkpoint_write_time / 1000, checkpoint_sync_time / 1000 FROM pg_stat_bgwriter"
	if version >= ownView {
		checkpoints = "num_timed + num_requested, buffers_written, write_time / 1000, sync_time / 1000 FROM pg_stat_checkpointer"
	}
	return &watch{s: s, conn: conn, sql: `
		SELECT (pg_current_wal_insert_lsn() - '0/0')::float8, (SELECT wal_fpi FROM pg_stat_wal)::float8, c.*, t.*,
			coalesce((SELECT string_agg(query, '; ') FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND query <> ''), '')
		FROM (SELECT ` + checkpoints + `) AS c,
			(SELECT sum(autovacuum_count)::float8, sum(autoanalyze_count)::float8 FROM pg_stat_all_tables) AS t`}, nil
}

func (w *watch) look(ctx context.Context) (err error) {
	var at sighting
	d := &at.did
	if err := w.conn.QueryRow(ctx, w.sql).Scan(&d.WALBytes, &d.WALPages, &d.Checkpoints, &d.CheckpointPages, &d.CheckpointSeconds,
		&d.CheckpointSyncs, &d.Vacuums, &d.Analyzes, &at.vacuum); err != nil {
		return fmt.Errorf("look at what PostgreSQL does: %w", err)
	}
	if at.used, err = w.s.usage(); err != nil {
		return err
	}
	if at.busy, at.waiting, err = processors(); err != nil {
		return err
	}
	w.seen = append(w.seen, at)
	return nil
}

// run looks each second from a time on, and a last time when all is over.
func (w *watch) run(ctx context.Context, from time.Time, over <-chan struct{}) error {
	timer := time.NewTimer(time.Until(from))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return w.look(ctx)
		case <-timer.C:
		}
		if err := w.look(ctx); err != nil {
			return err
		}
		timer.Reset(time.Until(from.Add(time.Duration(len(w.seen)) * time.Second)))
	}
}

// processors adds up what all processors of the machine have done so far.
func processors() (busy, waiting float64, err error) {
	const idle, disk = 3, 4 // Of user, nice, system, idle, iowait, irq, softirq and steal.
	line, _, _ := strings.Cut(readAll("/proc/stat"), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, 0, fmt.Errorf("the processors' times are %q", line)
	}
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseFloat(field, 64)
		switch {
		case err != nil:
			return 0, 0, fmt.Errorf("read the processors' times: %w", err)
		case i == disk:
			waiting = ticks / clockTicks
		case i != idle:
			busy += ticks / clockTicks
		}
	}
	return busy, waiting, nil
}

func (w *watch) close(ctx context.Context) error { return w.conn.Close(ctx) }
