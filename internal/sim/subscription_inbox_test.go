//go:build unix

package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// mailbox is a receiver of events at a path for each subscription. It refuses some, stalls, cuts connections before and after it has
// taken an event, and can be started anew. It checks each signature when it comes, and the order of first deliveries.
type mailbox struct {
	addr string

	mu      sync.Mutex
	server  *http.Server
	rng     *rand.Rand
	calm    bool              // it does none of that any more
	secrets map[string]string // by path
	last    map[string]int64  // the highest number by path and topic
	taken   map[string][]byte // bodies by webhook-id
	ids     map[string]string // of path, topic and number
	repeats int
	events  int
	bad     []string
	wanted  map[string]int64 // what last must be
	full    chan struct{}    // closed when it is
	marks   map[int]chan struct{}
}

func newMailbox(t *testing.T, rng *rand.Rand) *mailbox {
	t.Helper()
	m := &mailbox{rng: rng, secrets: map[string]string{}, last: map[string]int64{}, taken: map[string][]byte{}, ids: map[string]string{}, marks: map[int]chan struct{}{}}
	m.open(t)
	t.Cleanup(func() { _ = m.current().Close() })
	return m
}

// open listens, at the address that it had before.
func (m *mailbox) open(t *testing.T) {
	t.Helper()
	addr := m.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var l net.Listener
	testwait.Eventually(t, patience, "the receiver's port", func() bool {
		var err error
		l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		return err == nil
	})
	server := &http.Server{Handler: m}
	m.mu.Lock()
	m.addr, m.server = l.Addr().String(), server
	m.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

func (m *mailbox) current() *http.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.server
}

// restart drops all connections.
func (m *mailbox) restart(t *testing.T) {
	t.Helper()
	_ = m.current().Close()
	m.open(t)
}

// after is closed when so many deliveries were taken, repeats too.
func (m *mailbox) after(n int) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark := make(chan struct{})
	if m.events+m.repeats >= n {
		close(mark)
	} else {
		m.marks[n] = mark
	}
	return mark
}

// all is closed when the last events of topics are these, by path and topic.
func (m *mailbox) all(wanted map[string]int64) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted, m.full = wanted, make(chan struct{})
	full := m.full
	m.tell()
	return full
}

// tell wants the lock.
func (m *mailbox) tell() {
	for n, mark := range m.marks {
		if m.events+m.repeats >= n {
			close(mark)
			delete(m.marks, n)
		}
	}
	if m.full == nil {
		return
	}
	for topic, seq := range m.wanted {
		if m.last[topic] != seq {
			return
		}
	}
	close(m.full)
	m.full = nil
}

// fault is what the receiver does with a delivery.
type fault int

const (
	none fault = iota
	refuse
	stall
	cutBefore
	cutAfter
)

func (m *mailbox) fault() fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calm {
		return none
	}
	switch n := m.rng.IntN(200); {
	case n < 10:
		return refuse
	case n < 11:
		return stall
	case n < 16:
		return cutBefore
	case n < 21:
		return cutAfter
	}
	return none
}

// ServeHTTP implements [http.Handler].
func (m *mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // Its sender was killed, or the receiver is.
	}
	fault := m.fault()
	switch fault {
	case refuse:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case stall:
		<-r.Context().Done() // The sender gives up.
		return
	case cutBefore:
		panic(http.ErrAbortHandler)
	case none, cutAfter:
	}
	m.take(r, body)
	if fault == cutAfter {
		panic(http.ErrAbortHandler)
	}
}

func (m *mailbox) take(r *http.Request, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.tell()
	complain := func(format string, args ...any) {
		m.bad = append(m.bad, fmt.Sprintf(format, args...)+" "+string(body))
	}
	verifier, err := standardwebhooks.NewWebhook(m.secrets[r.URL.Path])
	if err != nil || verifier.Verify(body, r.Header) != nil {
		complain("a bad signature: %v %v", err, r.Header)
	}
	var e struct {
		Topic    string          `json:"topic"`
		Seq      int64           `json:"seq"`
		Type     string          `json:"type"`
		Data     json.RawMessage `json:"data"`
		Subject  string          `json:"subject"`
		Sequence string          `json:"sequence"`
		ID       string          `json:"id"`
		Version  string          `json:"specversion"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		complain("no JSON: %v", err)
		return
	}
	id := r.Header.Get("webhook-id")
	if r.Header.Get("content-type") != "application/json" {
		e.Topic = e.Subject
		if e.Seq, err = strconv.ParseInt(e.Sequence, 10, 64); err != nil || e.Version != "1.0" || e.ID != id {
			complain("no CloudEvent of this id: %v %s", err, id)
		}
	}
	topic := r.URL.Path + " " + e.Topic
	key := fmt.Sprintf("%s %d", topic, e.Seq)
	switch last := m.last[topic]; {
	case e.Seq == last+1:
		m.last[topic] = e.Seq
		m.events++
		if m.taken[id] != nil {
			complain("an id of another event: %s", id)
		}
		m.ids[key], m.taken[id] = id, bytes.Clone(body)
	case e.Seq > last:
		complain("%s comes after %d", key, last)
	default:
		m.repeats++
		if m.ids[key] != id || !bytes.Equal(m.taken[id], body) {
			complain("%s was %s and comes as %s: %s", key, m.ids[key], id, m.taken[id])
		}
	}
}

// check wants nothing to complain of.
func (m *mailbox) check(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, bad := range m.bad[:min(len(m.bad), 10)] {
		t.Errorf("%d complaints, one of them: %s", len(m.bad), bad)
	}
}

// signalled waits for a signal, or the end of ctx.
func signalled(ctx context.Context, signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	case <-ctx.Done():
		return false
	}
}
