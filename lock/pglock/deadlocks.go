package pglock

import (
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// rememberedDeadlocks is how many a backend remembers.
const rememberedDeadlocks = 50

// BrokenDeadlock is a deadlock that a backend has broken.
type BrokenDeadlock struct {
	lock.Deadlock

	At time.Time // by this process's clock
}

// Deadlocks are those that this backend has broken, newest first, 50 at most. They are in its memory: other processes have their own, and
// none outlasts its process.
func (b *Backend) Deadlocks() []BrokenDeadlock {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Clone(b.broken)
	slices.Reverse(out)
	return out
}

// remember keeps deadlocks that were just broken.
func (b *Backend) remember(broken []lock.Deadlock, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range broken {
		b.broken = append(b.broken, BrokenDeadlock{Deadlock: d, At: at})
	}
	if more := len(b.broken) - rememberedDeadlocks; more > 0 {
		b.broken = slices.Delete(b.broken, 0, more)
	}
}
