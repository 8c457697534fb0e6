package auction

import (
	"slices"
	"sync"

	"github.com/google/uuid"
)

// order reports committed transactions, for each auction in the order in which they were decided. They may end in another
// order. It is safe for concurrent use.
type order struct {
	mu    sync.Mutex
	lines map[uuid.UUID]*line
}

// line holds the transactions of one auction that have not been reported.
type line struct {
	waiting   []*entry
	reporting bool // a goroutine reports them
}

// entry is one transaction.
type entry struct {
	ended  bool
	report func() // nil when nothing was committed
}

// decided moves an entry to the end of its auction's line. A transaction that is run again is decided again.
func (o *order) decided(auction uuid.UUID, e *entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lines == nil {
		o.lines = map[uuid.UUID]*line{}
	}
	l := o.lines[auction]
	if l == nil {
		l = &line{}
		o.lines[auction] = l
	}
	l.waiting = append(slices.DeleteFunc(l.waiting, func(w *entry) bool { return w == e }), e)
}

// ended marks the end of an entry's transaction and reports every transaction that waits for no earlier one, unless another
// goroutine is reporting them already. report is nil when the transaction was not committed. ended must be called once for
// each entry, whether it was decided or not.
func (o *order) ended(auction uuid.UUID, e *entry, report func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.ended, e.report = true, report
	l := o.lines[auction]
	if l == nil || l.reporting {
		return
	}
	l.reporting = true
	for len(l.waiting) > 0 && l.waiting[0].ended {
		next := l.waiting[0].report
		l.waiting = l.waiting[1:]
		if next != nil {
			o.unlocked(next)
		}
	}
	l.reporting = false
	if len(l.waiting) == 0 {
		delete(o.lines, auction)
	}
}

// unlocked calls f without the lock.
func (o *order) unlocked(f func()) {
	o.mu.Unlock()
	defer o.mu.Lock()
	f()
}
