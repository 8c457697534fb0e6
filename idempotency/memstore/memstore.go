// Package memstore keeps idempotency keys in the memory of one process: for development, for tests of handlers, and for
// programs that run once and alone. It passes the same conformance suite as the stores on servers. What it keeps is gone
// when the process ends, and with it every promise; a program with two processes needs another store.
package memstore

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// Store is a store in memory. It is safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	entries map[idempotency.ID]*entry
}

var _ idempotency.Store = (*Store)(nil)

type entry struct {
	grant       idempotency.Grant
	fingerprint idempotency.Fingerprint
	park        bool
	retention   time.Duration
	leaseUntil  time.Time
	expiresAt   time.Time // zero: never
	answer      *idempotency.Response
}

// New returns an empty store.
func New() *Store { return &Store{entries: map[idempotency.ID]*entry{}} }

func (e *entry) expired(now time.Time) bool { return !e.expiresAt.IsZero() && !now.Before(e.expiresAt) }

func (e *entry) describe(now time.Time) idempotency.Entry {
	out := idempotency.Entry{Phase: idempotency.InFlight, Grant: e.grant, Fingerprint: e.fingerprint}
	switch left := e.leaseUntil.Sub(now); {
	case e.answer != nil:
		out.Phase, out.Response = idempotency.Answered, clone(*e.answer)
	case e.park && left <= 0:
		out.Phase = idempotency.Unknown
	default:
		out.LeaseLeft = max(left, 0)
	}
	return out
}

// clone keeps what is stored apart from what callers write to.
func clone(r idempotency.Response) idempotency.Response {
	return idempotency.Response{Status: r.Status, Header: r.Header.Clone(), Body: bytes.Clone(r.Body)}
}

// Begin implements [idempotency.Store].
func (s *Store) Begin(_ context.Context, r idempotency.Request, t idempotency.Terms) (idempotency.Entry, error) {
	if err := t.Validate(); err != nil {
		return idempotency.Entry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	fence := now.UnixMicro()
	if e := s.entries[r.ID]; e != nil {
		fence = max(fence, e.grant.Fence+1)
		if !e.expired(now) {
			if e.fingerprint != r.Fingerprint {
				return idempotency.Entry{}, idempotency.ErrKeyReused
			}
			own := e.grant.Execution == r.Execution
			if e.answer != nil || !own && (e.park || now.Before(e.leaseUntil)) {
				return e.describe(now), nil
			}
			if own {
				fence = e.grant.Fence // The answer to an earlier call was lost.
			}
		}
	}
	e := &entry{
		grant: idempotency.Grant{ID: r.ID, Execution: r.Execution, Fence: fence}, fingerprint: r.Fingerprint,
		park: t.OnCrash == idempotency.ParkAsUnknown, retention: t.Retention,
	}
	e.extend(now, t.Lease)
	s.entries[r.ID] = e
	return idempotency.Entry{Phase: idempotency.Started, Grant: e.grant, Fingerprint: e.fingerprint}, nil
}

func (e *entry) extend(now time.Time, lease time.Duration) {
	e.leaseUntil = now.Add(lease)
	if !e.park {
		e.expiresAt = e.leaseUntil.Add(e.retention)
	}
}

// Look implements [idempotency.Store].
func (s *Store) Look(_ context.Context, id idempotency.ID) (idempotency.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.entries[id]
	if e == nil || e.expired(now) {
		return idempotency.Entry{}, nil
	}
	return e.describe(now), nil
}

// change calls fn on the entry of an execution that is still under its key.
func (s *Store) change(g idempotency.Grant, fn func(*entry, time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[g.ID]
	if e == nil || e.grant != g {
		return idempotency.ErrLost
	}
	return fn(e, time.Now())
}

// Extend implements [idempotency.Store].
func (s *Store) Extend(_ context.Context, g idempotency.Grant, lease time.Duration) error {
	return s.change(g, func(e *entry, now time.Time) error {
		if e.answer != nil || !now.Before(e.leaseUntil) {
			return idempotency.ErrLost
		}
		e.extend(now, lease)
		return nil
	})
}

// Complete implements [idempotency.Store].
func (s *Store) Complete(_ context.Context, g idempotency.Grant, answer idempotency.Response) (kept idempotency.Response, err error) {
	err = s.change(g, func(e *entry, now time.Time) error {
		if e.answer == nil {
			answer = clone(answer)
			e.answer, e.expiresAt = &answer, now.Add(e.retention)
		}
		kept = clone(*e.answer)
		return nil
	})
	return kept, err
}

// Release implements [idempotency.Store].
func (s *Store) Release(_ context.Context, g idempotency.Grant) error {
	return s.change(g, func(e *entry, _ time.Time) error {
		if e.answer != nil {
			return idempotency.ErrLost
		}
		delete(s.entries, g.ID)
		return nil
	})
}

// Sweep implements [idempotency.Store].
func (s *Store) Sweep(_ context.Context, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for id, e := range s.entries {
		if n < limit && e.expired(time.Now()) {
			delete(s.entries, id)
			n++
		}
	}
	return n, nil
}
