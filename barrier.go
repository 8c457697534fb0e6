package fairlead

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// barrier keeps a panic in a piece of the background work from ending the server, which serves commands meanwhile, and then the next one that
// is elected to do the work.
type barrier struct {
	logger   *slog.Logger
	panicked func() // for metrics
}

// do runs f. Where it panics, that is logged and counted, and returned as an error, so that the work goes on as after other errors.
func (b barrier) do(ctx context.Context, work string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			b.panicked()
			b.logger.ErrorContext(ctx, "background work panicked", "work", work, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("panicked: %v", v)
		}
	}()
	return f()
}

// lead is what an elected process does in a term. Where it panics, the process resigns.
func (b barrier) lead(work string, lead func(ctx context.Context, term int64)) func(ctx context.Context, term int64) {
	return func(ctx context.Context, term int64) {
		_ = b.do(ctx, work, func() error { // It is logged.
			lead(ctx, term)
			return nil
		})
	}
}
