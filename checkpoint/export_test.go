package checkpoint

import "time"

// Plant puts bytes where a state would be.
func (m *Memory) Plant(key Key, body []byte, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.states == nil {
		m.states = map[Key]remembered{}
	}
	m.states[key] = remembered{body: body, expires: time.Now().Add(ttl)}
}

// Forget loses everything.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states = nil
}
