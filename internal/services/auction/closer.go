package auction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// tick is the time between two countdowns.
	tick = time.Second
	// readEvery is how often the open rounds are looked up: within a second of its start a round is known.
	readEvery = tick / 2
	// readTimeout bounds one look for rounds that are over, and closeTimeout one attempt to close a round.
	readTimeout  = 2 * time.Second
	closeTimeout = 10 * time.Second
	// soon is how long before its end a round is waited for. It is longer than it takes to look the open rounds up again.
	soon = readEvery + readTimeout
	// maxClosing is how many rounds are being closed at a time. Each takes a database connection.
	maxClosing = 8
	// closePause is the wait before a round is tried again that could not be closed, or was found not to be over.
	closePause = tick / 2
	// tellEvery is how often it is logged that a round can't be closed, whatever the reason: reasons may name another connection each time.
	tellEvery = 30 * time.Second
)

// Closer is the work of the one process that leads all auctions: it closes every round at its end, which opens the next
// one, and counts the open ones down. It decides nothing: whether a round is over, and whether this leader's term is still
// the newest, is decided by [CloseRound] in its own transaction, so that a closer too many does no harm. Lead may be called
// once at a time.
type Closer struct {
	// Reader finds the open rounds; they are looked up every half second.
	Reader interface {
		Running(ctx context.Context) ([]Running, time.Time, error)
	}
	// Execute commits a command on an auction, as [Service.Execute] does. It is called concurrently.
	Execute func(ctx context.Context, auction uuid.UUID, c command.Command[Op]) (command.Answer, error)
	// Broadcast is given one [EventCountdown] a second for each round whose end is to come. It must not block.
	Broadcast func(auction uuid.UUID, e Event)
	// Overdue is told after each look, and at the end, for how long the round is over that has waited longest for its close; 0: none is. It must not block, and may be nil.
	Overdue func(time.Duration)
	Logger  *slog.Logger // may be nil
}

// Lead closes rounds until ctx ends or a leader with a newer term has closed one. When it returns, everything that it
// started has ended. It closes overdue rounds at once, and later ones within milliseconds of their end, as long as fewer
// than eight attempts hang. Failures are tried again half a second later; the first of
// a round is logged, and then one each half minute. Countdowns come at each whole second
// of the database's clock, the first of a round within a second and a half of its start.
func (c *Closer) Lead(ctx context.Context, term int64) {
	ctx, cancel := context.WithCancel(ctx)
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	t := &tenure{
		Closer: c, term: term, log: log.With("term", term), end: cancel, slots: make(chan struct{}, maxClosing),
		wake: make(chan struct{}, 1), origin: time.Now(), open: map[uuid.UUID]*round{},
	}
	if c.Overdue != nil {
		defer c.Overdue(0) // From here on it is the next leader's.
	}
	// Nothing that was started outlives the tenure.
	defer t.background.Wait()
	defer cancel()
	wait.Every(ctx, readEvery, t.wake, func() { t.read(ctx) })
}

// tenure is what a leader knows. One goroutine looks the open rounds up, one counts them down, and each round that ends soon
// has one that waits for its end.
type tenure struct {
	*Closer

	term       int64
	log        *slog.Logger
	end        context.CancelFunc
	slots      chan struct{} // has a value for each attempt to close a round
	wake       chan struct{} // asks for a look at the open rounds
	background sync.WaitGroup
	origin     time.Time // of local time; monotonic
	failures   wait.News // of looking the open rounds up

	mu   sync.Mutex
	zero time.Time // the database's time at the origin, as far as is known; zero before the first reading
	open map[uuid.UUID]*round
}

// round is the open round of an auction as far as this process knows, with the number 0 where there is none. It may have been
// extended since.
type round struct {
	Running

	awaited   bool          // a goroutine waits for its end, or closes it
	since     time.Duration // local time of the close that opened it
	notBefore time.Duration // local time of the next attempt to close it
	tellAfter time.Duration // local time from which a failure is logged again
}

// same reports whether nothing has changed: a round that was extended, or the next one, is another matter.
func (r *round) same(o Running) bool { return r.Round == o.Round && r.EndsAt.Equal(o.EndsAt) }

func (t *tenure) local() time.Duration { return time.Since(t.origin) }

// now is the estimate of the database's clock. The caller holds the mutex.
func (t *tenure) now() time.Time { return t.zero.Add(t.local()) }

// read looks the open rounds up, and begins to wait for the ends that are near.
func (t *tenure) read(ctx context.Context) {
	defer t.tellOverdue() // Also of what is known when nothing can be read.
	sent := t.local()
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, now, err := t.Reader.Running(reading)
	if news := t.failures.Is(err); err != nil {
		if news && ctx.Err() == nil {
			t.log.WarnContext(ctx, "open rounds not read", "error", err)
		}
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !now.IsZero() { // There was a row to read it with.
		t.setClock(ctx, now.Add(-t.local()), now.Add(-sent))
	}
	gone := maps.Clone(t.open)
	for _, one := range found {
		r := t.open[one.Auction]
		delete(gone, one.Auction)
		if r == nil {
			r = &round{}
			t.open[one.Auction] = r
		}
		// What a close has returned since the question is newer than the answer.
		if r.since <= sent && !r.same(one) {
			r.Running, r.notBefore = one, 0
		}
		if !r.awaited && r.Round > 0 && r.EndsAt.Sub(t.now()) < soon {
			r.awaited = true
			t.background.Go(func() { t.await(ctx, r) })
		}
	}
	for id, r := range gone {
		if r.since <= sent {
			r.Round = 0 // It is still awaited, perhaps.
			delete(t.open, id)
		}
	}
}

// tellOverdue tells for how long the round is over that has waited longest for its close.
func (t *tenure) tellOverdue() {
	if t.Overdue == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var longest time.Duration
	for _, r := range t.open {
		if r.Round > 0 {
			longest = max(longest, t.now().Sub(r.EndsAt))
		}
	}
	t.Overdue(longest)
}

// setClock corrects the estimate of the database's clock. The database read its clock between the question and the answer,
// so its time at the origin lies between low and high, and the estimate moves only as far as to be there too. The first estimate
// is low: rather behind the database's clock than ahead of it. A slow answer therefore does not set it back.
func (t *tenure) setClock(ctx context.Context, low, high time.Time) {
	switch {
	case t.zero.IsZero():
		t.background.Go(func() { t.countDown(ctx) })
		t.zero = low
	case t.zero.Before(low):
		t.zero = low
	case t.zero.After(high):
		t.zero = high
	}
}

// countDown broadcasts at each whole second of the database's clock. Seconds that were missed are not made up for.
func (t *tenure) countDown(ctx context.Context) {
	var next time.Time
	for pause := time.Duration(0); wait.For(ctx, pause); {
		t.mu.Lock()
		now := t.now()
		due := !next.IsZero() && !now.Before(next)
		if due {
			for id, r := range t.open {
				remaining := r.EndsAt.Sub(now)
				if r.Round == 0 || remaining <= 0 {
					continue // It takes no bids any more; other events report its end.
				}
				t.Broadcast(id, Event{Type: EventCountdown, At: now.UTC(), Data: CountdownData{
					Round: r.Round, RemainingMS: remaining.Milliseconds(), EndsAt: Instant(r.EndsAt),
				}})
			}
		}
		if due || next.IsZero() || next.Sub(now) > 2*tick { // The first time, or the database's clock was set back.
			next = now.Truncate(tick).Add(tick)
		}
		pause = next.Sub(now)
		t.mu.Unlock()
	}
}

// await waits for the end of a round and closes it, and then for that of the next one, if it is near. An attempt that
// failed is made again after a pause, whether or not the open rounds can be looked up meanwhile. After one that found nothing to close,
// the next look begins another.
func (t *tenure) await(ctx context.Context, r *round) {
	for {
		t.mu.Lock()
		left := max(r.EndsAt.Sub(t.now()), r.notBefore-t.local())
		if r.Round == 0 || left >= soon {
			r.awaited = false
			t.mu.Unlock()
			return
		}
		one := r.Running
		t.mu.Unlock()
		if left > 0 {
			// The estimate of the clock, or the end, may change meanwhile.
			if !wait.For(ctx, min(left, readEvery)) {
				return
			}
			continue
		}
		closed, err := t.close(ctx, one)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrSuperseded):
			t.log.WarnContext(ctx, "a newer leader closes rounds", "auction", one.Auction, "round", one.Round)
			t.end()
			return
		case err != nil:
			t.tell(ctx, r, one, err)
		case closed == nil: // Another process closed it, or it was extended.
			select {
			case t.wake <- struct{}{}:
			default:
			}
		}
		t.mu.Lock()
		if closed == nil {
			if r.same(one) {
				r.notBefore = t.local() + closePause
			}
			r.awaited = err != nil
			t.mu.Unlock()
			if err == nil {
				return
			}
			continue
		}
		t.log.DebugContext(ctx, "round closed", "auction", one.Auction, "round", one.Round, "late", t.now().Sub(one.EndsAt))
		*r = round{Running: Running{Auction: one.Auction}, awaited: true, since: t.local()}
		if open := closed.Open(); open != nil && open.EndsAt != nil {
			r.Round, r.EndsAt = open.Number, *open.EndsAt
		}
		t.mu.Unlock()
	}
}

// tell logs that a round was not closed, and why, unless it did so a short while ago.
func (t *tenure) tell(ctx context.Context, r *round, one Running, err error) {
	t.mu.Lock()
	now := t.local()
	due := now >= r.tellAfter
	if due {
		r.tellAfter = now + tellEvery
	}
	t.mu.Unlock()
	if due {
		t.log.WarnContext(ctx, "round not closed: it is tried again until it can be", "auction", one.Auction, "round", one.Round, "error", err)
	}
}

// close attempts to close a round. It returns nil where there was nothing to close.
func (t *tenure) close(ctx context.Context, r Running) (*Auction, error) {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	answer, err := t.Execute(ctx, r.Auction, command.Command[Op]{Op: CloseRound{Round: r.Round, Term: t.term}})
	if err = cmp.Or(err, answer.Err); err != nil {
		return nil, err
	}
	a, ok := answer.Result.(*Auction)
	if !ok {
		return nil, fmt.Errorf("auction: closing a round was answered with %T", answer.Result)
	}
	return a, nil
}
