package groupcommit

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkDo measures the price of a lane itself: the flush costs nothing, 512 callers a core wait in
// closed loops. commands/batch tells how well they share.
func BenchmarkDo(b *testing.B) {
	for _, keys := range []int{1, 16} {
		for _, observed := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/observed=%v", keys, observed), func(b *testing.B) {
				results := make([]int, DefaultMaxBatch)
				var flushes atomic.Int64
				o := Options{}
				if observed {
					o.Observer = &counts{}
				}
				g := New(func(_ context.Context, _ int, batch []int) ([]int, error) {
					flushes.Add(1)
					return results[:len(batch)], nil
				}, o)
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				b.ReportAllocs()
				b.SetParallelism(512)
				var callers atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					key := int(callers.Add(1)) % keys
					for pb.Next() {
						if _, err := g.Do(ctx, key, 1); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/float64(flushes.Load()), "commands/batch")
				if err := g.Close(ctx); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// BenchmarkDoWithCommit measures what 1024 callers on one hot key get from commits of a millisecond.
func BenchmarkDoWithCommit(b *testing.B) {
	var flushes atomic.Int64
	g := New(func(_ context.Context, _ int, batch []int) ([]int, error) {
		flushes.Add(1)
		time.Sleep(time.Millisecond) // The commit.
		return batch, nil
	}, Options{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.SetParallelism(512)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Do(ctx, 1, 1); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/float64(flushes.Load()), "commands/batch")
	if err := g.Close(ctx); err != nil {
		b.Error(err)
	}
}

// BenchmarkDoAlone measures one caller on an idle group: what the lane adds to a command's latency.
func BenchmarkDoAlone(b *testing.B) {
	g := New(func(_ context.Context, _ int, batch []int) ([]int, error) { return batch, nil }, Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Do(b.Context(), 1, 1); err != nil {
			b.Fatal(err)
		}
	}
}
