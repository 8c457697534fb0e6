package checkpoint

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of one process, for examples and tests, and for operations that need not survive it. The
// zero value is empty.
type Memory struct {
	mu     sync.Mutex
	states map[Key]remembered
}

type remembered struct {
	body    []byte
	expires time.Time
}

var _ Store = (*Memory)(nil)

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, key Key) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.live(key)), nil
}

// live is a state that has not expired. It is called under mu.
func (m *Memory) live(key Key) []byte {
	r, ok := m.states[key]
	if ok && !time.Now().Before(r.expires) {
		delete(m.states, key)
		return nil
	}
	return r.body
}

// Save implements [Store].
func (m *Memory) Save(ctx context.Context, key Key, s *Save) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	there := m.live(key)
	var seen Head
	replaced := s.Replaces != nil && bytes.Equal(there, s.Replaces)
	if there != nil && !replaced {
		var ok bool
		if seen, ok = ParseHead(there); !ok {
			return &CorruptError{Key: key, Reason: "it has no head"}
		}
	}
	switch {
	case there == nil && (s.Revision != 1 || s.Replaces != nil):
		return ErrLost
	case replaced:
	case there != nil && seen.Revision == s.Revision && seen.Run == s.Run:
		return nil
	case there != nil && !s.Follows(seen):
		return &FencedError{Key: key, Want: s.Head, Seen: seen}
	}
	if m.states == nil {
		m.states = map[Key]remembered{}
	}
	m.states[key] = remembered{body: bytes.Clone(s.Body), expires: time.Now().Add(s.TTL)}
	return nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.states, key)
	return nil
}
