package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River's times between fetches: those of its own benchmark command, which are far better than its defaults.
const (
	fetchCooldown     = 2 * time.Millisecond
	fetchPollInterval = 20 * time.Millisecond
)

// insertBatch is how many jobs are inserted at a time in preparation.
const insertBatch = 5000

// job is a job that does nothing.
type job struct {
	Content json.RawMessage `json:"content"`
}

// Kind implements [river.JobArgs].
func (job) Kind() string { return "noop" }

// worker executes jobs.
type worker struct {
	river.WorkerDefaults[job]

	m *meter
}

// Work implements [river.Worker].
func (w *worker) Work(context.Context, *river.Job[job]) error {
	w.m.item()
	return nil
}

// openRiver makes River's tables.
func openRiver(ctx context.Context, o *options) (*pgxpool.Pool, error) {
	pool, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return pool, nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// riverWork lets a River client complete jobs that are there.
type riverWork struct {
	o      *options
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	m      meter
}

func (r *riverWork) prepare(ctx context.Context) (err error) {
	if r.pool, err = openRiver(ctx, r.o); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{m: &r.m})
	r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown: fetchCooldown, FetchPollInterval: fetchPollInterval, Logger: quiet(), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.o.workers}},
	})
	if err != nil {
		return err
	}
	for left := r.o.items; left > 0; left -= insertBatch {
		batch := make([]river.InsertManyParams, min(left, insertBatch))
		for i := range batch {
			batch[i].Args = job{Content: json.RawMessage(payload)}
		}
		if _, err := r.client.InsertManyFast(ctx, batch); err != nil {
			return err
		}
	}
	return settle(ctx, r.pool)
}

func (r *riverWork) run(ctx context.Context) (Report, error) {
	if err := r.client.Start(ctx); err != nil {
		return Report{}, err
	}
	// The database is not asked before all have been executed, so that the question costs next to nothing.
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return Report{}, ctx.Err()
		case <-tick.C:
		}
		if r.m.done.Load() < int64(r.o.items) {
			continue
		}
		var left bool
		if err := r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM river_job WHERE state <> 'completed')`).Scan(&left); err != nil {
			return Report{}, err
		}
		if !left {
			return r.m.report(), nil
		}
	}
}

func (r *riverWork) close() {
	if r.client != nil {
		_ = r.client.Stop(context.Background()) // There is nothing to lose.
	}
	if r.pool != nil {
		r.pool.Close()
	}
}

// riverSchedule inserts single jobs that are due later.
type riverSchedule struct {
	o      *options
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func (r *riverSchedule) prepare(ctx context.Context) (err error) {
	if r.pool, err = openRiver(ctx, r.o); err != nil {
		return err
	}
	if r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: quiet()}); err != nil {
		return err
	}
	_, err = schedule(ctx, r.o, r.o.warmup, r.one)
	return err
}

// one schedules a job.
func (r *riverSchedule) one(ctx context.Context, at time.Time) error {
	_, err := r.client.Insert(ctx, job{Content: json.RawMessage(payload)}, &river.InsertOpts{ScheduledAt: at})
	return err
}

func (r *riverSchedule) run(ctx context.Context) (Report, error) {
	return schedule(ctx, r.o, r.o.measure, r.one)
}

func (r *riverSchedule) close() {
	if r.pool != nil {
		r.pool.Close()
	}
}
