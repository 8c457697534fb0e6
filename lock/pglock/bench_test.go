package pglock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/lock"
)

// BenchmarkLock acquires and releases: one key alone, and one key among contenders of two processes.
func BenchmarkLock(b *testing.B) {
	for _, contenders := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(contenders), func(b *testing.B) {
			url := pgtest.NewDatabase(b, install)
			lockers := make([]*lock.Locker, 2)
			for i := range lockers {
				backend, _ := open(b, url, Options{})
				lockers[i] = lock.New(backend, lock.LockerOptions{})
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range contenders {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						h, err := lockers[i%2].Acquire(context.Background(), []string{"k"}, lock.Options{Wait: lock.Forever})
						if err != nil {
							b.Error(err)
							return
						}
						if err := h.Release(context.Background()); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
		})
	}
}
