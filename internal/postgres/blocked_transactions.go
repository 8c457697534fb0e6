package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
)

const (
	// stuckFor is for how long after a transaction has waited for a lock in vain, and not for a row that could be named, all of its name are
	// taken to need what it needs.
	stuckFor = 2 * time.Second
	// hopelessFor is for how long after one was given up no other of its name is tried more than twice: what has queued behind it has waited for
	// as long, and what comes then has little hope.
	hopelessFor = command.BlockedFor / 10
)

// stuckTransactions keeps transactions that need a table which another session has locked from taking the connections that all others need. While
// it knows a name, a part of the connections is for all such transactions together, and none waits for a lock longer than [blockedAfter]. It
// is safe for concurrent use; a nil one knows nothing.
type stuckTransactions struct {
	tries       chan struct{} // has one for each that has a connection
	hopelessFor time.Duration // hopelessFor, but in tests

	mu sync.Mutex
	by map[string]*stuckTransaction // by name, of which there are some dozens
}

type stuckTransaction struct{ met, gaveUp time.Time }

func newStuckTransactions(conns int) *stuckTransactions {
	return &stuckTransactions{tries: make(chan struct{}, max(conns/4, 1)), hopelessFor: hopelessFor, by: map[string]*stuckTransaction{}}
}

// meet notes that a transaction has waited in vain, and whether it was given up.
func (s *stuckTransactions) meet(name string, gaveUp bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.by[name]
	if t == nil {
		t = &stuckTransaction{}
		s.by[name] = t
	}
	if t.met = time.Now(); gaveUp {
		t.gaveUp = t.met
	}
}

// knows reports whether transactions of a name are known to wait in vain, and whether one was just given up.
func (s *stuckTransactions) knows(name string) (stuck, hopeless bool) {
	if s == nil {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.by[name]
	return t != nil && time.Since(t.met) < stuckFor, t != nil && time.Since(t.gaveUp) < s.hopelessFor
}

// gate waits for one of the connections that stuck transactions may take, until [command.BlockedFor] after the transaction was begun. It returns the
// function that gives it back, or errNoTry.
func (s *stuckTransactions) gate(ctx context.Context, name string, begun time.Time) (leave func(), err error) {
	if stuck, _ := s.knows(name); !stuck {
		return func() {}, nil
	}
	late := time.NewTimer(time.Until(begun.Add(command.BlockedFor)))
	defer late.Stop()
	select {
	case s.tries <- struct{}{}:
		return func() { <-s.tries }, nil
	case <-late.C:
		return nil, errNoTry
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
