package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
	"github.com/fairlead-dev/fairlead/internal/services/publish/targettest"
)

// hook is a receiver that the suite controls.
type hook struct {
	sender *Sender
	url    string

	mu     sync.Mutex
	answer targettest.Answer
	took   map[string]int
}

func newHook(t *testing.T) targettest.Target {
	t.Helper()
	h := &hook{sender: sender(t, outbound.Options{AllowPrivate: true}), took: map[string]int{}}
	h.url = serve(t, h.serve)
	return h
}

func (h *hook) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	h.mu.Lock()
	a := h.answer
	if a.Status == 0 && !a.Stall {
		h.took[r.Header.Get("webhook-id")]++
	}
	h.mu.Unlock()
	if a.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.RetryAfter/time.Second)))
	}
	switch {
	case a.Stall:
		<-r.Context().Done()
	case a.Cut:
		panic(http.ErrAbortHandler)
	case a.Status != 0:
		w.WriteHeader(a.Status)
	}
}

func (h *hook) Sender() publish.Sender { return h.sender }

func (h *hook) Delivery(t *testing.T) *publish.Delivery {
	t.Helper()
	d := delivery(h.url)
	d.Publication, d.Target.Timeout = uuid.New(), targettest.MaxTimeout
	return d
}

func (h *hook) Answers(a targettest.Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = a
}

func (h *hook) Published(d *publish.Delivery) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.took[d.Publication.String()]
}

func (h *hook) Secrets() []string { return []string{string(delivery("").Secret), "127.0.0.1"} }

func TestConformance(t *testing.T) {
	t.Parallel()
	targettest.Run(t, newHook)
}

// TestRotation has both secrets sign while they overlap, and the new one alone after that.
func TestRotation(t *testing.T) {
	t.Parallel()
	headers := make(chan http.Header, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header.Clone() }))
	t.Cleanup(receiver.Close)
	old, fresh := []byte("an old secret of thirty-two bytes"), []byte("a new secret of thirty-two bytes.")
	s := sender(t, outbound.Options{AllowPrivate: true})
	for _, previous := range [][]byte{old, nil} {
		d := delivery(receiver.URL)
		d.Secret, d.Previous = fresh, previous
		if got := s.Send(t.Context(), d); got.Class != publish.Delivered {
			t.Fatalf("%+v", got)
		}
		header := <-headers
		for _, secret := range [][]byte{old, fresh} {
			want := string(secret) == string(fresh) || previous != nil
			if got := verifies(t, secret, d.Payload, header); got != want {
				t.Errorf("overlap %v: verified with %q: %v", previous != nil, secret, got)
			}
		}
	}
}
