package auth

import (
	"crypto/sha256"
	"sync"
)

// cache is a bounded map from the hash of a credential to what is known of it. When it is full, any one entry makes room:
// every entry can be learned anew, and no order of eviction would be harder for a flood to exploit than a random one. Expiry
// is in the values and their users' business.
type cache[V any] struct {
	mu         sync.RWMutex
	maxEntries int
	entries    map[[sha256.Size]byte]V
}

func newCache[V any](maxEntries int) *cache[V] {
	return &cache[V]{maxEntries: maxEntries, entries: make(map[[sha256.Size]byte]V)}
}

func (c *cache[V]) get(hash *[sha256.Size]byte) (V, bool) {
	c.mu.RLock()
	v, ok := c.entries[*hash]
	c.mu.RUnlock()
	return v, ok
}

func (c *cache[V]) put(hash *[sha256.Size]byte, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.entries[*hash]; !known && len(c.entries) >= c.maxEntries {
		for victim := range c.entries {
			delete(c.entries, victim)
			break
		}
	}
	c.entries[*hash] = v
}

func (c *cache[V]) remove(hash *[sha256.Size]byte) {
	c.mu.Lock()
	delete(c.entries, *hash)
	c.mu.Unlock()
}

func (c *cache[V]) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}
