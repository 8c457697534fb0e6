package checkpoint

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Op is what is done with a saved state.
type Op string

// The operations.
const (
	OpLoad   Op = "load"
	OpSave   Op = "save"
	OpDelete Op = "delete"
	// OpRollback ends an operation in one step, as a server's multi-draw. The rollback of a [Runner] is a load and saves.
	OpRollback Op = "rollback"
)

// Ops lists them.
func Ops() []Op { return []Op{OpLoad, OpSave, OpDelete, OpRollback} }

// Observer is told of each operation on saved states, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Stored is called after an operation: how large the state is, 0 where there is none; how long the operation took, with its retries
	// and without the steps; and how it failed.
	Stored(op Op, bytes int, took time.Duration, err error)
}

// Report is for those who keep states without a [Runner], which reports by itself: it logs an operation and passes it to an observer,
// each of which may be nil. Operations are logged at DEBUG, and failures at ERROR unless the caller has given up.
func Report(ctx context.Context, logger *slog.Logger, o Observer, op Op, key Key, bytes int, took time.Duration, err error) {
	if o != nil {
		o.Stored(op, bytes, took, err)
	}
	level := slog.LevelDebug
	if err != nil && !errors.Is(err, context.Canceled) {
		level = slog.LevelError
	}
	if logger == nil || !logger.Enabled(ctx, level) {
		return
	}
	if err != nil {
		logger.Log(ctx, level, "checkpoint: operation failed", "operation", string(op), "key", key.String(), "bytes", bytes, "took", took,
			"severity", string(SeverityOf(err)), "error", err)
		return
	}
	logger.Log(ctx, level, "checkpoint: operation", "operation", string(op), "key", key.String(), "bytes", bytes, "took", took)
}

func (r *Runner[P, R]) report(ctx context.Context, op Op, key Key, bytes int, began time.Time, err error) {
	Report(ctx, r.o.Logger, r.o.Observer, op, key, bytes, time.Since(began), err)
}
