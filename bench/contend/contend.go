package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// acquire takes a lock on behalf of one worker, however long that takes, and returns what releases it.
type acquire func(ctx context.Context) (release func(ctx context.Context) error, err error)

// side is one library, connected.
type side struct {
	// worker makes what a worker acquires its key by.
	worker func(ctx context.Context, key string) (acquire, error)
	close  func()
}

// Report is what one process measured.
type Report struct {
	// Grants counts the acquisitions of each worker that were released within the measured part.
	Grants []int64 `json:"grants"`
	// Latencies are those of acquiring and releasing, in microseconds, as a compressed histogram. A worker that waits when
	// the measured part ends counts with the time for which it has waited.
	Latencies []byte `json:"latencies"`
	// ProcessorSeconds are what this process used in the measured part.
	ProcessorSeconds float64 `json:"processor_s"`
}

// What the histogram takes, in microseconds.
const (
	longest     = int64(10 * time.Minute / time.Microsecond)
	significant = 3
)

// clock tells where in a turn we are.
type clock struct{ begin, end time.Time }

func contend(ctx context.Context, o *options, s *side) (*Report, error) {
	workers := make([]acquire, o.workers)
	for i := range workers {
		var err error
		if workers[i], err = s.worker(ctx, o.key(o.first+i)); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	at := clock{begin: start.Add(o.warmup), end: start.Add(o.warmup + o.measure)}
	// Who waits is called off when the time is over.
	ctx, cancel := context.WithDeadline(ctx, at.end)
	defer cancel()

	r := &Report{Grants: make([]int64, o.workers)}
	all := hdrhistogram.New(1, longest, significant)
	var mu sync.Mutex // of all
	var failed error
	inside := map[string]*atomic.Int32{}
	for i := range workers {
		inside[o.key(o.first+i)] = new(atomic.Int32)
	}
	var done sync.WaitGroup
	for i, take := range workers {
		alone := inside[o.key(o.first+i)]
		done.Go(func() {
			grants, times, err := at.work(ctx, take, alone)
			mu.Lock()
			defer mu.Unlock()
			r.Grants[i] = grants
			all.Merge(times)
			failed = errors.Join(failed, err)
			if err != nil {
				cancel()
			}
		})
	}
	var before, after float64
	done.Go(func() {
		pause(ctx, time.Until(at.begin))
		before = processorSeconds()
		pause(ctx, time.Until(at.end))
		after = processorSeconds()
	})
	done.Wait()
	if failed != nil {
		return nil, failed
	}
	r.ProcessorSeconds = after - before
	var err error
	r.Latencies, err = all.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return r, err
}

// errShared is returned when two workers of one process were inside at once. That is a fault of a library, or a lease
// that ran out.
var errShared = errors.New("two hold the lock at once")

// work acquires and releases until the time is over.
func (at clock) work(ctx context.Context, take acquire, inside *atomic.Int32) (int64, *hdrhistogram.Histogram, error) {
	times := hdrhistogram.New(1, longest, significant)
	grants := int64(0)
	note := func(asked, now time.Time) {
		if now.After(at.begin) {
			_ = times.RecordValue(max(1, min(longest, now.Sub(asked).Microseconds()))) // It is within the limits.
		}
	}
	for {
		asked := time.Now()
		if !asked.Before(at.end) {
			return grants, times, nil
		}
		release, err := take(ctx)
		if err != nil {
			if !time.Now().Before(at.end) {
				note(asked, at.end)
				return grants, times, nil
			}
			return grants, times, fmt.Errorf("acquire: %w", err)
		}
		if inside.Add(1) != 1 {
			err = errShared
		}
		inside.Add(-1)
		// The release has to happen, although the time may be over.
		if err := errors.Join(err, release(context.WithoutCancel(ctx))); err != nil {
			return grants, times, fmt.Errorf("release: %w", err)
		}
		now := time.Now()
		note(asked, now)
		if now.After(at.begin) && !now.After(at.end) {
			grants++
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// processorSeconds is what this process has used so far.
func processorSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
