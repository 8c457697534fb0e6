package checkpoint

import "time"

// Plant puts bytes where a state would be.
func (m *Memory) Plant(key Key, body []byte, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, body, ttl)
}

// Forget loses everything.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states = nil
}
