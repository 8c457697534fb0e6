package auction

import (
	"sync"

	"github.com/google/uuid"
)

// order hands what was committed on, for each auction in the order in which it was decided, although the transactions
// that it was decided in may be seen to end in another. It is safe for concurrent use.
type order struct {
	mu    sync.Mutex
	lines map[uuid.UUID]*line
}

// line is the transactions of one auction that have not been handed on.
type line struct {
	waiting []*entry
	handing bool // somebody hands them on
}

// entry is one transaction.
type entry struct {
	ended bool
	hand  func() // nil where nothing was committed
}

// decided puts an entry at the end of its auction's line: also one that is there already, since it is decided anew.
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
	l.remove(e)
	l.waiting = append(l.waiting, e)
}

// ended says that an entry's transaction is over, and hands on all that nothing earlier is waited for: by itself, or,
// where somebody else is at it, by them. hand is nil where the transaction was not committed. It must be called once for
// each entry, whether or not it was ever decided.
func (o *order) ended(auction uuid.UUID, e *entry, hand func()) {
	if !o.mark(auction, e, hand) {
		return
	}
	for next, ok := o.next(auction); ok; next, ok = o.next(auction) {
		if next != nil {
			next()
		}
	}
}

// mark notes an entry's end, and reports whether it falls to the caller to hand on.
func (o *order) mark(auction uuid.UUID, e *entry, hand func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.ended, e.hand = true, hand
	l := o.lines[auction]
	if l == nil || l.handing {
		return false
	}
	l.handing = true
	return true
}

// next takes the first of a line, if it has ended. Else nobody hands on any more.
func (o *order) next(auction uuid.UUID) (hand func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lines[auction]
	if len(l.waiting) > 0 && l.waiting[0].ended {
		hand = l.waiting[0].hand
		l.waiting = l.waiting[1:]
		return hand, true
	}
	l.handing = false
	if len(l.waiting) == 0 {
		delete(o.lines, auction)
	}
	return nil, false
}

func (l *line) remove(e *entry) {
	for i := range l.waiting {
		if l.waiting[i] == e {
			l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
			return
		}
	}
}
