package testpromise

import (
	"crypto/sha256"
	"errors"
	"os"
	"sync"
	"time"
)

const (
	// nap is how long the control loop sleeps at a time.
	nap = 10 * time.Millisecond
	// naps is after how many of them it syncs a file.
	naps = 10
	// work is how many bytes it hashes after each: some tenths of a millisecond.
	work = 128 << 10
)

// Machine is what the control loop saw of the machine: how late it woke a sleeper or ended a sync at worst, beyond the least that
// either took, and how much longer than at best a small computation took on average.
type Machine struct {
	Late time.Duration
	Slow float64
}

// delayed reports whether the machine could be the reason for a miss. That only lets a promise be measured again, so doubts count.
func (m Machine) delayed(limit time.Duration) bool {
	return m.Late > limit/10 || m.Slow > 1.5
}

// startControl begins to watch the machine, and returns when it does. The returned function ends that.
func startControl() (stop func() Machine) {
	begun, ending := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	var seen Machine
	group.Go(func() { seen = control(begun, ending) })
	<-begun
	return func() Machine {
		close(ending)
		group.Wait()
		return seen
	}
}

func control(begun chan<- struct{}, ending <-chan struct{}) (seen Machine) {
	data := make([]byte, work)
	hash := func() time.Duration {
		began := time.Now()
		_ = sha256.Sum256(data)
		return time.Since(began)
	}
	best := hash()
	for range 20 {
		best = min(best, hash())
	}
	var total, leastSync time.Duration
	syncing, remove := synced()
	defer remove()
	timer := time.NewTimer(nap)
	defer timer.Stop()
	close(begun)
	for n := 1; ; n++ {
		began := time.Now()
		timer.Reset(nap)
		last := false
		select {
		case <-ending:
			last = true
		case <-timer.C:
		}
		seen.Late = max(seen.Late, time.Since(began)-nap)
		took := hash()
		best, total = min(best, took), total+took
		if n%naps == 1 {
			if took := syncing(); took > 0 {
				if leastSync == 0 {
					leastSync = took
				}
				leastSync = min(leastSync, took)
				seen.Late = max(seen.Late, took-leastSync)
			}
		}
		if last {
			seen.Slow = float64(total) / float64(n) / float64(best)
			return seen
		}
	}
}

// synced makes a file whose writes reach the disk, on which some of the tests' servers have their data. A file that can't be made or
// written says nothing of the machine.
func synced() (syncing func() time.Duration, remove func()) {
	file, err := os.CreateTemp("", "fairlead-control")
	if err != nil {
		return func() time.Duration { return 0 }, func() {}
	}
	syncing = func() time.Duration {
		began := time.Now()
		if _, err := file.WriteAt([]byte{1}, 0); err != nil || file.Sync() != nil {
			return 0
		}
		return time.Since(began)
	}
	return syncing, func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }
}
