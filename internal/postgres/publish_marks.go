package postgres

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// lateCommit is how much earlier than a claim what it has not seen may be due: its transaction had chosen the time, and had not committed.
const lateCommit = 2 * time.Second

// dueMarks are up to when this process has claimed what is due. A publication that was claimed leaves a dead entry in the index of
// those that are scheduled. While somebody holds a snapshot, PostgreSQL removes none of these entries: a look from the beginning reads all of
// them, and a look from the marks on reads only those behind. A publication can come to be due before a mark, because it was put back, or
// because its transaction took longer than lateCommit. The next look from the beginning finds it. Without a snapshot each look is from the beginning.
type dueMarks struct {
	mu      sync.Mutex
	targets map[uuid.UUID]time.Time // by the database's clock, like rest
	rest    time.Time               // that of all other targets
	until   time.Time               // when to claim from the beginning again
	next    time.Time               // when to ask from the beginning again what is due next
}

// look is where a statement looks from.
type look struct {
	whole   bool // from the beginning
	targets map[uuid.UUID]time.Time
	rest    time.Time
	began   time.Time
}

// from says where to look from, given when to look from the beginning again. held is whether somebody holds a snapshot.
func (m *dueMarks) from(until *time.Time, held bool) look {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := look{began: time.Now()}
	if l.whole = !held || l.began.After(*until); !l.whole {
		l.targets, l.rest = maps.Clone(m.targets), m.rest
	}
	return l
}

// args are a statement's parameters: the marks of targets, and that of all others.
func (l *look) args() []any {
	ids, times := make([][16]byte, 0, len(l.targets)), make([]time.Time, 0, len(l.targets))
	for id, at := range l.targets {
		ids, times = append(ids, id), append(times, at)
	}
	return []any{ids, times, l.rest}
}

// claimed notes what a look has claimed.
func (m *dueMarks) claimed(l *look, slots publish.Slots, work []*publish.Work) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.whole {
		of := map[uuid.UUID]time.Time{}
		for id, n := range slots.Targets {
			// Where nothing was claimed, a target may not have been looked at: it has no slot, or waits for its turn. It keeps its mark.
			if mark, ok := m.targets[id]; ok || n <= 0 {
				of[id] = mark
			}
		}
		for _, w := range work {
			delete(of, w.Target.ID)
		}
		m.targets, m.rest, m.until = of, time.Time{}, time.Now().Add(wait.Sparing(time.Since(l.began)))
	}
	for _, w := range work {
		seen := w.ClaimedAt.Add(-lateCommit)
		if l.whole && len(work) < slots.Total { // All others were looked at, too, and had nothing.
			m.rest = seen
		}
		if due := w.ClaimedAt.Add(-w.Late); due.Before(seen) {
			seen = due
		}
		if seen.After(m.targets[w.Target.ID]) {
			m.targets[w.Target.ID] = seen
		}
	}
}

// asked notes that a look from the beginning has asked what is due next.
func (m *dueMarks) asked(l *look) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = time.Now().Add(wait.Sparing(time.Since(l.began)))
}
