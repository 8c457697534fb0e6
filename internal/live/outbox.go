package live

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// The limits of the hints that wait to be sent to other processes. Hints beyond them are dropped: those processes poll.
const (
	maxTopicsTold   = 10_000
	maxMessagesTold = 4096
	publishTimeout  = 5 * time.Second
)

// outbox collects hints for other processes.
type outbox struct {
	wake chan struct{}

	mu       sync.Mutex
	heads    map[string]int64
	messages []Hint
}

func (b *outbox) grown(topic string, last int64) {
	b.mu.Lock()
	if b.heads == nil {
		b.heads = map[string]int64{}
	}
	if known, ok := b.heads[topic]; ok || len(b.heads) < maxTopicsTold {
		b.heads[topic] = max(known, last)
	}
	b.mu.Unlock()
	wait.Signal(b.wake)
}

func (b *outbox) message(topic string, e Event) {
	b.mu.Lock()
	if len(b.messages) < maxMessagesTold {
		b.messages = append(b.messages, Hint{Topic: topic, Event: &e})
	}
	b.mu.Unlock()
	wait.Signal(b.wake)
}

// take empties the box.
func (b *outbox) take(from string) []Hint {
	b.mu.Lock()
	heads, hints := b.heads, b.messages
	b.heads, b.messages = nil, nil
	b.mu.Unlock()
	for topic, last := range heads {
		hints = append(hints, Hint{Topic: topic, Seq: last})
	}
	for i := range hints {
		hints[i].From = from
	}
	return hints
}

// publish sends what has collected: at once, but not more often than HintEvery.
func (h *Hub) publish(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.out.wake:
		}
		hints := h.out.take(h.id)
		if len(hints) > 0 {
			sending, cancel := context.WithTimeout(ctx, publishTimeout)
			err := h.o.Wire.Publish(sending, hints)
			cancel()
			if err != nil && ctx.Err() == nil {
				h.o.Logger.WarnContext(ctx, "live: hints were not sent; other processes will poll", "hints", len(hints), "error", err)
			}
		}
		pause.Reset(h.o.HintEvery)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// receive hears other processes' hints, over one connection after another.
func (h *Hub) receive(ctx context.Context) {
	wait.Reconnect(ctx, func() error { return h.o.Wire.Receive(ctx, h.hear) }, func(err error, in time.Duration) {
		h.o.Logger.WarnContext(ctx, "live: the connection that hears other processes is lost; polling until it is back", "retry_in", in, "error", err)
		wait.Signal(h.pollNow) // What was said meanwhile was not heard.
	})
}

// hear takes a hint from any process.
func (h *Hub) hear(hint Hint) {
	if hint.From == h.id {
		return
	}
	f := h.find(hint.Topic)
	if f == nil {
		return
	}
	if hint.Event != nil {
		e := *hint.Event
		e.Seq = 0
		f.message(encode(hint.Topic, e))
	}
	if hint.Seq > 0 {
		f.grown(hint.Seq)
	}
}
