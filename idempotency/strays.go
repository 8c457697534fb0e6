package idempotency

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Limits of strays.
const (
	maxStrays = 10_000
	strayLife = 24 * time.Hour // for so long the store may be away
)

// strays are executions of this process that the store may have under their keys although nobody executes them: the answer to
// their Begin was lost, or what released them did not come through. Nobody knows their fences, but their ids are theirs alone.
// They are released in the background, and at once when a request of this process meets one.
type strays struct {
	mu      sync.Mutex
	all     map[uuid.UUID]stray
	running bool
}

type stray struct {
	id    ID
	since time.Time
}

// has reports whether nobody executes that any more, though its key is in flight or parked.
func (s *strays) has(e Entry) bool {
	if e.Phase != InFlight && e.Phase != Unknown {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.all[e.Grant.Execution]
	return ok
}

func (s *strays) forget(execution uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, execution)
}

// abandon notes an execution that nobody executes, and sees to it that its key is released.
func (m *Middleware) abandon(id ID, execution uuid.UUID) {
	m.strays.mu.Lock()
	if len(m.strays.all) < maxStrays { // Else its key goes as after a crash.
		m.strays.all[execution] = stray{id: id, since: time.Now()}
	}
	m.strays.mu.Unlock()
	m.startRecall()
}

// startRecall sees to it that strays are recalled, if there are any. The store is believed to answer.
func (m *Middleware) startRecall() {
	m.strays.mu.Lock()
	defer m.strays.mu.Unlock()
	if len(m.strays.all) > 0 && !m.strays.running {
		m.strays.running = true
		go m.recall()
	}
}

// recall releases strays until there are none, or the store has been away for [Options.StoreTimeout]. When it answers a request,
// the rest is recalled.
func (m *Middleware) recall() {
	ctx, s := context.Background(), &m.strays
	answered := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause, m.o.StoreTimeout) {
		s.mu.Lock()
		maps.DeleteFunc(s.all, func(_ uuid.UUID, one stray) bool { return time.Since(one.since) > strayLife })
		all := maps.Clone(s.all)
		s.running = len(all) > 0 && time.Since(answered) <= m.o.StoreTimeout
		goOn := s.running
		s.mu.Unlock()
		if !goOn {
			return
		}
		for execution, one := range all {
			// A call that was given up may still be on its way to the store, for as long as another one would take.
			late := time.Since(one.since) > m.o.StoreTimeout
			released, err := m.recallOne(ctx, one.id, execution)
			if err != nil {
				break // The store is away for the others, too.
			}
			if late || released {
				s.forget(execution)
			}
			answered, pause = time.Now(), firstPause
		}
		wait.For(ctx, pause)
	}
}

// recallOne releases an execution whose fence is not known, and reports whether it was under its key.
func (m *Middleware) recallOne(ctx context.Context, id ID, execution uuid.UUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.StoreTimeout)
	defer cancel()
	entry, err := m.o.Store.Look(ctx, id)
	if err != nil || entry.Grant.Execution != execution || entry.Phase != InFlight && entry.Phase != Unknown {
		return false, err
	}
	if err := m.o.Store.Release(ctx, entry.Grant); err != nil && !errors.Is(err, ErrLost) {
		return false, err
	}
	return true, nil
}
