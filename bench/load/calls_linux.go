package load

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Call does one request and blocks until it is answered. Each worker has calls of its own, one at a time.
type Call func(ctx context.Context, worker int) error

// CallClosed is [Engine.Closed] for clients that can only be called: every worker calls again as soon as its call has returned.
func CallClosed(ctx context.Context, workers int, p Phases, call Call) (*Result, error) {
	start := time.Now()
	begin, end := start.Add(p.Warmup), start.Add(p.Warmup+p.Measure)
	return callAll(ctx, workers, func(ctx context.Context, worker int, r *Result) error {
		for ctx.Err() == nil {
			since := time.Now()
			if !since.Before(end) {
				return nil
			}
			if err := call(ctx, worker); err != nil {
				return err
			}
			if now := time.Now(); !now.Before(begin) && now.Before(end) {
				if err := r.record(int64(now.Sub(since))); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}, func(r *Result) { r.Elapsed = p.Measure })
}

// CallOpen is [Engine.Open] for clients that can only be called: calls are due at a fixed rate, and one for which no worker is free
// waits for one.
func CallOpen(ctx context.Context, workers int, ratePerSecond float64, warmup, measure time.Duration, call Call) (*Result, error) {
	start := time.Now()
	begin := start.Add(warmup)
	interval := float64(time.Second) / ratePerSecond
	total := int64((warmup + measure).Seconds() * ratePerSecond)
	var taken atomic.Int64
	return callAll(ctx, workers, func(ctx context.Context, worker int, r *Result) error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			k := taken.Add(1) - 1
			if k >= total {
				return nil
			}
			due := start.Add(time.Duration(float64(k) * interval))
			timer.Reset(time.Until(due))
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timer.C:
			}
			if err := call(ctx, worker); err != nil {
				return err
			}
			if !due.Before(begin) {
				if err := r.record(int64(time.Since(due))); err != nil {
					return err
				}
			}
		}
	}, func(r *Result) { r.Elapsed = time.Since(begin) })
}

// callAll runs the workers, each with a result of its own, and puts these together.
func callAll(ctx context.Context, workers int, work func(context.Context, int, *Result) error, finish func(*Result)) (*Result, error) {
	results := make([]*Result, workers)
	group, ctx := errgroup.WithContext(ctx)
	for i := range results {
		results[i] = &Result{Latencies: newHistogram()}
		group.Go(func() error { return work(ctx, i, results[i]) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := &Result{Latencies: newHistogram()}
	for _, r := range results {
		all.Answers += r.Answers
		all.Latencies.Merge(r.Latencies)
	}
	finish(all)
	return all, nil
}
