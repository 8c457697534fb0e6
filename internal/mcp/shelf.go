package mcp

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxPrepared is how many commands are remembered.
	maxPrepared = 1000
	// maxListed is how many are listed at once.
	maxListed = 50
	// maxCommandBytes bounds the body of a command: an agent reads and writes all of it.
	maxCommandBytes = 64 << 10
	// settleFor is how long after its expiry a command that was sent may be committed again, to learn what became of it.
	settleFor = time.Hour
)

// States of a prepared command.
const (
	statePrepared   = "prepared"   // it was never sent by this process
	stateUnanswered = "unanswered" // it was sent, and its outcome is not known yet
	stateDone       = "done"
	stateRefused    = "refused" // for good
)

// remembered is a prepared command as this process knows it.
type remembered struct {
	id      string
	summary string // empty where another process has prepared it
	command command
	expires time.Time
	state   string
	done    *committed // the answer, once it is done
	refusal *failure   // the answer, once it is refused for good
}

// ended reports whether the server's final answer is known.
func (r *remembered) ended() bool { return r.state == stateDone || r.state == stateRefused }

// shelf remembers what was prepared. It is safe for concurrent use.
type shelf struct {
	mu   sync.Mutex
	byID map[string]*remembered
}

func newShelf() *shelf { return &shelf{byID: map[string]*remembered{}} }

// keep remembers a command. It reports false when there is no room, and forgets what has ended before that.
func (s *shelf) keep(r remembered, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[r.id] != nil {
		return true
	}
	s.sweep(now)
	if len(s.byID) >= maxPrepared {
		s.dropEnded()
	}
	if len(s.byID) >= maxPrepared {
		return false
	}
	s.byID[r.id] = &r
	return true
}

// sweep forgets what can't be committed any more.
func (s *shelf) sweep(now time.Time) {
	maps.DeleteFunc(s.byID, func(_ string, r *remembered) bool {
		if r.state == statePrepared {
			return now.After(r.expires)
		}
		return now.After(r.expires.Add(settleFor))
	})
}

// dropEnded forgets the command that has ended and expires first. The server still has its answer.
func (s *shelf) dropEnded() {
	var first *remembered
	for _, r := range s.byID {
		if r.ended() && (first == nil || r.expires.Before(first.expires)) {
			first = r
		}
	}
	if first != nil {
		delete(s.byID, first.id)
	}
}

// get returns a copy of what is remembered under an id.
func (s *shelf) get(id string) (remembered, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byID[id]; r != nil {
		return *r, true
	}
	return remembered{}, false
}

// change changes what is remembered under an id, if it still is.
func (s *shelf) change(id string, by func(r *remembered)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byID[id]; r != nil {
		by(r)
	}
}

// list returns what can still be committed, the one that expires first at the top.
func (s *shelf) list(now time.Time) []remembered {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	found := []remembered{}
	for _, r := range s.byID {
		if !r.ended() {
			found = append(found, *r)
		}
	}
	slices.SortFunc(found, func(a, b remembered) int {
		return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.id, b.id))
	})
	return found
}
