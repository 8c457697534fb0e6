package client

import (
	"net/http"
	"sync"
)

// doubts remembers the commands whose outcome is unknown: an attempt got no answer, or the answer "unknown". Such an attempt may
// have been carried out, or may still be on its way. Only an answer that the server stores under the key settles it. Every other
// answer speaks of its own attempt alone.
//
// It is safe for concurrent use, and the zero value is ready.
type doubts struct {
	mu       sync.Mutex
	commands map[string]struct{}
}

// maxDoubts bounds what is remembered. Beyond it the client forgets some command, which is then as new.
const maxDoubts = 10_000

// unanswered notes that an attempt got no answer.
func (d *doubts) unanswered(command string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.commands == nil {
		d.commands = map[string]struct{}{}
	}
	for known := range d.commands {
		if len(d.commands) < maxDoubts {
			break
		}
		delete(d.commands, known)
	}
	d.commands[command] = struct{}{}
}

// settled notes that the outcome of the command is known.
func (d *doubts) settled(command string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.commands, command)
}

// refused notes an answer of 400 or above, and returns what is known of the command's outcome then.
func (d *doubts) refused(command string, p *Problem) (outcome string) {
	if p.Outcome == Unknown {
		d.unanswered(command)
		return Unknown
	}
	if decided(p) {
		d.settled(command)
		return p.Outcome
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, open := d.commands[command]; open && p.Outcome == NotApplied {
		return Unknown
	}
	return p.Outcome
}

// decided reports whether the server has stored the answer under the command's key, so that no other attempt can end differently.
func decided(p *Problem) bool {
	switch p.Status {
	case http.StatusPaymentRequired, http.StatusConflict, http.StatusUnprocessableEntity:
		return !p.Retryable
	}
	return false
}
