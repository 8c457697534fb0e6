package redislock

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

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
	circle := false
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
	}
	if circle {
		b.note(ctx, "breaking a deadlock of locks", b.resolve(ctx))
	}
	return max(minPoll, next)
}

// pollSome looks after some requests, and tells when the next lease in their way ends (below 0: there is none), and
// whether one of them may wait for its own owner.
func (b *Backend) pollSome(ctx context.Context, ids []string) (expiry time.Duration, circle bool, err error) {
	parts, err := b.scripts.poll.Exec(ctx, b.client, b.state, append([]string{b.process}, ids...)).ToArray()
	if err != nil {
		return 0, false, err
	}
	if len(parts) != 5 {
		return 0, false, errAnswer
	}
	var n [3]int64
	for i, at := range []int{0, 1, 4} {
		if n[i], err = parts[at].AsInt64(); err != nil {
			return 0, false, err
		}
	}
	for _, at := range []int{2, 3} {
		woken, err := parts[at].AsStrSlice()
		if err != nil {
			return 0, false, err
		}
		b.wake(woken)
	}
	b.expired(n[1])
	return microseconds(n[0]), n[2] == 1, nil
}

// listen hears what other processes have granted to requests of this one, until the backend is closed.
func (b *Backend) listen() {
	wait.Reconnect(b.base, b.hear, func(err error, _ time.Duration) {
		b.hearing.Store(false)
		poke(b.inspect)
		b.logger.DebugContext(b.base, "listening for locks ended, and is tried again", "error", err)
	})
}

// hear listens on a connection of its own until it fails.
func (b *Backend) hear() error {
	conn, release := b.client.Dedicate()
	defer release()
	ctx := rueidis.WithOnSubscriptionHook(b.base, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			b.hearing.Store(true)
			poke(b.inspect) // What was told before is found by looking.
		}
	})
	channel := b.space + ":wake:" + b.process
	return conn.Receive(ctx, conn.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		b.wake([]string{m.Message})
	})
}

// numbers reads numbers in decimal.
func numbers(text []string) ([]int64, error) {
	out := make([]int64, len(text))
	for i, s := range text {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, errAnswer
		}
		out[i] = n
	}
	return out, nil
}
