package wait

import (
	"sync"
	"time"
)

// repeatEvery is how often [News] lets the same failure through.
const repeatEvery = 10 * time.Minute

// News says which failures of work that is tried again and again are worth a line in the log. The zero value is ready. It is safe for concurrent
// use.
type News struct {
	mu   sync.Mutex
	text string // of the last failure; empty after a success
	told time.Time
}

// Is reports whether err is news: the first failure is, one with another text than the last one, and one in 10 minutes of those with the
// same text. nil is none, and the failure after it is the first again.
func (n *News) Is(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.text = ""
		return false
	}
	if text := err.Error(); text != n.text || time.Since(n.told) >= repeatEvery {
		n.text, n.told = text, time.Now()
		return true
	}
	return false
}
