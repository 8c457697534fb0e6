package redislock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// BenchmarkLock acquires and releases: one key alone, a key for each worker, and one key among contenders of two
// processes. What the server spends on the scripts is told besides.
func BenchmarkLock(b *testing.B) {
	for _, shape := range []struct {
		workers int
		own     bool
	}{{1, false}, {64, true}, {64, false}} {
		b.Run(fmt.Sprintf("%d/own=%t", shape.workers, shape.own), func(b *testing.B) {
			port := pgtest.Port(b)
			start(b, port)
			admin := connect(b, single(), port)
			lockers := make([]*lock.Locker, 2)
			for i := range lockers {
				backend, _ := open(b, connect(b, single(), port), Options{})
				lockers[i] = lock.New(backend, lock.LockerOptions{})
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range shape.workers {
				key := "k"
				if shape.own {
					key = fmt.Sprint("k", i)
				}
				all.Go(func() {
					for left.Add(-1) >= 0 {
						h, err := lockers[i%2].Acquire(context.Background(), []string{key}, lock.Options{Wait: lock.Forever})
						if err != nil {
							b.Error(err)
							return
						}
						testwait.Check(b, h.Release(context.Background()))
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
			stats, err := admin.Do(context.Background(), admin.B().Info().Section("commandstats").Build()).ToString()
			testwait.Must(b, err)
			for line := range strings.Lines(stats) {
				if strings.HasPrefix(line, "cmdstat_evalsha:") {
					var calls, micros float64
					if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%f,usec=%f", &calls, &micros); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(calls/float64(b.N), "scripts/lock")
					b.ReportMetric(micros/float64(b.N), "server-µs/lock")
				}
			}
		})
	}
}
