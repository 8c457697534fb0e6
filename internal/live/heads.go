package live

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// headReader asks the log for the last numbers of topics. Questions that come while one is under way wait and are asked
// together, so that thousands of subscribers that come at once cost a few queries. An answer is never older than its
// question.
type headReader struct {
	mu      sync.Mutex
	waiting *headQuestion
	asking  bool
}

// headQuestion is what is asked together. heads and err are set when done is closed.
type headQuestion struct {
	topics map[string]struct{}
	done   chan struct{}
	heads  map[string]int64
	err    error
}

// head returns the last number of a topic, or [ErrNoTopic].
func (h *Hub) head(ctx context.Context, topic string) (int64, error) {
	r := &h.heads
	r.mu.Lock()
	q := r.waiting
	if q == nil {
		q = &headQuestion{topics: map[string]struct{}{}, done: make(chan struct{})}
		r.waiting = q
	}
	q.topics[topic] = struct{}{}
	start := !r.asking
	r.asking = true
	r.mu.Unlock()
	if start && !h.start(h.askHeads) {
		return 0, ErrClosed
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-h.ctx.Done():
		return 0, ErrClosed
	}
	if q.err != nil {
		return 0, q.err
	}
	last, ok := q.heads[topic]
	if !ok {
		return 0, ErrNoTopic
	}
	return last, nil
}

// askHeads asks until nobody waits.
func (h *Hub) askHeads() {
	r := &h.heads
	for {
		r.mu.Lock()
		q := r.waiting
		r.waiting = nil
		if q == nil {
			r.asking = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		topics := make([]string, 0, len(q.topics))
		for topic := range q.topics {
			topics = append(topics, topic)
		}
		q.heads, q.err = h.headsOf(h.ctx, topics)
		close(q.done)
	}
}

// headsOf asks the log for any number of topics, in questions of a bounded size.
func (h *Hub) headsOf(ctx context.Context, topics []string) (map[string]int64, error) {
	heads := make(map[string]int64, len(topics))
	for part := range slices.Chunk(topics, headsPerQuery) {
		some, err := h.o.Log.Heads(ctx, part)
		if err != nil {
			return nil, err
		}
		maps.Copy(heads, some)
	}
	return heads, nil
}
