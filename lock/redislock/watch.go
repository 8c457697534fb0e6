package redislock

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// pollTimeout bounds one look after the waiting requests.
	pollTimeout = 5 * time.Second
	minPoll     = 2 * time.Millisecond
	// pollAtOnce is how many requests one script looks after, so that the server has time for others.
	pollAtOnce = 256
)

// watch looks after the waiting requests, until the backend is closed.
func (b *Backend) watch() {
	timer := time.NewTimer(minPoll)
	defer timer.Stop()
	for {
		select {
		case <-b.base.Done():
			return
		case <-b.inspect:
		case <-timer.C:
		}
		timer.Reset(b.poll())
	}
}

// poll says that the waiting requests are alive, wakes those whose rows are gone, takes over what has expired, and looks
// for deadlocks. It returns when to do so next.
func (b *Backend) poll() time.Duration {
	next := PollInterval
	if !b.hearing.Load() {
		next = BlindPollInterval
	}
	ctx, cancel := context.WithTimeout(b.base, pollTimeout)
	defer cancel()
	circle, blind := false, next == BlindPollInterval
	for ids := range slices.Chunk(b.ids(), pollAtOnce) {
		expiry, closed, err := b.pollSome(ctx, ids)
		if err != nil {
			b.note(ctx, "looking after waiting lock requests", err)
			return next
		}
		if expiry >= 0 {
			next = min(next, expiry+minPoll)
		}
		circle = circle || closed
		if blind {
			b.fallback(FallbackBlind)
			blind = false
		}
	}
	if circle {
		b.note(ctx, "breaking a deadlock of locks", b.resolve(ctx))
	}
	return max(minPoll, next)
}

// pollSome looks after some requests, and tells when the next lease in their way ends (below 0: there is none), and
// whether one of them may wait for its own owner.
func (b *Backend) pollSome(ctx context.Context, ids []string) (expiry time.Duration, circle bool, err error) {
	p := b.parts(ctx, b.scripts.poll, 5, append([]string{b.process}, ids...)...)
	expiry, circle = microseconds(p.int(0)), p.int(4) == 1
	b.expired(p.int(1))
	b.wake(p.texts(2), false)
	b.wake(p.texts(3), true)
	return expiry, circle, p.err
}

// listen hears what other processes have granted to requests of this one, until the backend is closed.
func (b *Backend) listen() {
	wait.Reconnect(b.base, b.hear, func(err error, _ time.Duration) {
		b.hearing.Store(false)
		wait.Signal(b.inspect)
		b.logger.DebugContext(b.base, "listening for locks ended, and is tried again", "error", err)
	})
}

// hear listens on a connection of its own until it fails.
func (b *Backend) hear() error {
	return b.client.Subscribe(b.base, b.space+":wake:"+b.process, func() {
		b.hearing.Store(true)
		wait.Signal(b.inspect) // What was told before is found by looking.
	}, func(id string) { b.wake([]string{id}, false) })
}
