package server

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// Reads that cost more than a page have bounds of their own, by how long they keep a processor and a connection, so that light
// reads find both.
const (
	// buildsAtOnce documents of campaigns are made at a time. The largest takes seconds, for half of which it has a
	// connection.
	buildsAtOnce = 2
	buildsQueued = 16
	// scansAtOnce reads go over many rows, or over few of many, at a time.
	scansAtOnce = 2
	scansQueued = 128
	// proofsAtOnce inclusion proofs are looked up at a time for those with a credential, and as many positions for the public
	// pages, so that neither waits for the other. Each may ask for one after another, so a place is empty for proofsRest times as
	// long as it was taken, up to longestRest: however many ask, they keep a fourth of one processor busy.
	proofsAtOnce = 1
	proofsQueued = 128
	proofsRest   = 3
	longestRest  = 100 * time.Millisecond
	// checksAtOnce is how many integrity checks run. One goes over the whole ledger.
	checksAtOnce = 1
	checksQueued = 4
	// boundPatience is how long a request waits for its turn.
	boundPatience = 10 * time.Second
)

// bound lets so many through at a time, and so many more wait. Others are refused at once. It is safe for concurrent use.
type bound struct {
	name    string
	metrics *httpMetrics
	rest    int           // how many times as long as it was taken a place is empty then
	places  chan struct{} // holds a value for each one that is through
	queue   chan struct{} // holds a value for each one that is through or waits, but not for a place that rests
}

func newBound(name string, atOnce, queued, rest int, m *httpMetrics) *bound {
	return &bound{name: name, metrics: m, rest: rest, places: make(chan struct{}, atOnce), queue: make(chan struct{}, atOnce+queued)}
}

// enter waits for its turn; leave, which may be called again, ends it. It is refused when too many wait, and when it has
// waited for too long.
func (b *bound) enter(ctx context.Context) (leave func(), err error) {
	select {
	case b.queue <- struct{}{}:
	default:
		return nil, b.refuse()
	}
	patience := time.NewTimer(boundPatience)
	defer patience.Stop()
	b.metrics.heavyWaiting.WithLabelValues(b.name).Inc()
	defer b.metrics.heavyWaiting.WithLabelValues(b.name).Dec()
	select {
	case b.places <- struct{}{}:
	case <-patience.C:
		<-b.queue
		return nil, b.refuse()
	case <-ctx.Done():
		<-b.queue
		return nil, ctx.Err()
	}
	b.metrics.heavyRunning.WithLabelValues(b.name).Inc()
	began := time.Now()
	return sync.OnceFunc(func() {
		b.metrics.heavyRunning.WithLabelValues(b.name).Dec()
		<-b.queue
		if b.rest == 0 {
			<-b.places
			return
		}
		time.AfterFunc(min(time.Since(began)*time.Duration(b.rest), longestRest), func() { <-b.places })
	}), nil
}

func (b *bound) refuse() error {
	b.metrics.heavyRefused.WithLabelValues(b.name).Inc()
	return &refusal{Kind: edge.Overloaded, Detail: "too many requests of this kind are under way"}
}

// bounded reads when it is its turn.
func bounded[R any](ctx context.Context, b *bound, read func(context.Context) (R, error)) (result R, err error) {
	leave, err := b.enter(ctx)
	if err != nil {
		return result, err
	}
	defer leave()
	return read(ctx)
}
