package auction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
)

const (
	// tick is the time between two countdowns.
	tick = time.Second
	// readEvery is how often the open rounds are looked up: within a second of its start a round is known.
	readEvery = tick / 2
	// readTimeout bounds one look for rounds that are over, and closeTimeout one attempt to close a round.
	readTimeout  = 2 * time.Second
	closeTimeout = 10 * time.Second
	// maxClosing is how many rounds are being closed at a time. Each takes a database connection.
	maxClosing = 8
	// closePause is the wait before a round is tried again that could not be closed, or was found not to be over.
	closePause = tick / 2
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
	Logger    *slog.Logger // may be nil
}

// Lead closes rounds until ctx ends or a leader with a newer term has closed one. When it returns, everything that it
// started has ended. It closes overdue rounds at once, and later ones within milliseconds of their end, as long as fewer
// than eight attempts hang. Failures are logged and tried again half a second later. Countdowns come at each whole second
// of the database's clock, the first of a round within a second and a half of its start.
func (c *Closer) Lead(ctx context.Context, term int64) {
	ctx, cancel := context.WithCancel(ctx)
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	t := &closing{
		Closer: c, term: term, log: log.With("term", term),
		origin: time.Now(), open: map[uuid.UUID]round{}, busy: map[uuid.UUID]bool{},
		slots: make(chan struct{}, maxClosing), reads: make(chan reading, 1), closes: make(chan closed),
	}
	// Nothing that was started outlives the tenure.
	defer t.background.Wait()
	defer cancel()
	t.run(ctx)
}

// closing is the state of one tenure. One goroutine owns it; others bring it what they learnt.
type closing struct {
	*Closer

	term int64
	log  *slog.Logger

	origin time.Time // of local time; monotonic
	zero   time.Time // the database's time at the origin, as far as is known; zero before the first reading

	open     map[uuid.UUID]round
	busy     map[uuid.UUID]bool // auctions of which a round is being closed
	settled  map[uuid.UUID]bool // auctions of which a close ended since the reading under way began
	reading  bool
	readNext time.Duration // local
	tickNext time.Time     // the database's

	background sync.WaitGroup
	slots      chan struct{}
	reads      chan reading // has room for the one that may be under way
	closes     chan closed
}

// round is an open round as far as this process knows. It may have been extended since.
type round struct {
	Running

	notBefore time.Duration // local time of the next attempt to close it
}

// same reports whether nothing has changed: a round that was extended, or the next one, is another matter.
func (r round) same(o Running) bool { return r.Round == o.Round && r.EndsAt.Equal(o.EndsAt) }

type reading struct {
	rounds         []Running
	now            time.Time
	sent, received time.Duration // local
	err            error
}

type closed struct {
	Running

	auction *Auction // nil when there was nothing to close
	err     error
}

func (t *closing) local() time.Duration { return time.Since(t.origin) }

func (t *closing) now() time.Time { return t.zero.Add(t.local()) }

func (t *closing) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !t.reading && t.local() >= t.readNext {
			t.read(ctx)
		}
		if !t.zero.IsZero() {
			t.countDown()
			t.closeDue(ctx)
		}
		timer.Reset(t.untilNext())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case r := <-t.reads:
			t.learn(ctx, r)
		case r := <-t.closes:
			if errors.Is(r.err, ErrSuperseded) {
				t.log.WarnContext(ctx, "a newer leader closes rounds", "auction", r.Auction, "round", r.Round)
				return
			}
			t.note(ctx, r)
		}
	}
}

// untilNext is how long there is nothing to do.
func (t *closing) untilNext() time.Duration {
	local := t.local()
	wait := readEvery
	if !t.reading {
		wait = t.readNext - local
	}
	if t.zero.IsZero() {
		return wait
	}
	now := t.zero.Add(local)
	wait = min(wait, t.tickNext.Sub(now))
	for id, r := range t.open {
		if !t.busy[id] {
			wait = min(wait, max(r.EndsAt.Sub(now), r.notBefore-local))
		}
	}
	return max(wait, 0)
}

// read looks the open rounds up, in the background: a slow database must not delay the countdown.
func (t *closing) read(ctx context.Context) {
	t.reading, t.settled = true, map[uuid.UUID]bool{}
	sent := t.local()
	t.readNext = sent + readEvery
	t.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		rounds, now, err := t.Reader.Running(ctx)
		t.reads <- reading{rounds: rounds, now: now, sent: sent, received: t.local(), err: err}
	})
}

func (t *closing) learn(ctx context.Context, r reading) {
	t.reading = false
	if r.err != nil {
		if ctx.Err() == nil {
			t.log.WarnContext(ctx, "open rounds not read", "error", r.err)
		}
		return
	}
	t.setClock(r)
	open := make(map[uuid.UUID]round, len(r.rounds))
	for _, found := range r.rounds {
		next := round{Running: found}
		if known := t.open[found.Auction]; known.same(found) {
			next = known
		}
		open[found.Auction] = next
	}
	// What a close has returned meanwhile is newer than the reading.
	for id := range t.settled {
		delete(open, id)
		if known, ok := t.open[id]; ok {
			open[id] = known
		}
	}
	t.open = open
}

// setClock corrects the estimate of the database's clock. The database read its clock between the question and the answer,
// so its clock lies in an interval, and the estimate moves only as far as to be within it. The first estimate is the
// interval's early end: rather behind the database's clock than ahead of it. A slow answer therefore does not set it back.
func (t *closing) setClock(r reading) {
	if r.now.IsZero() {
		return // There was no row to read it with.
	}
	low, high := r.now.Add(-r.received), r.now.Add(-r.sent)
	first := t.zero.IsZero()
	if first || t.zero.Before(low) {
		t.zero = low
	} else if t.zero.After(high) {
		t.zero = high
	}
	if now := t.now(); first || t.tickNext.Sub(now) > 2*tick { // The database's clock was set back.
		t.tickNext = now.Truncate(tick).Add(tick)
	}
}

// countDown broadcasts once when a whole second of the database's clock is reached. Seconds that were missed are not made
// up for.
func (t *closing) countDown() {
	now := t.now()
	if now.Before(t.tickNext) {
		return
	}
	t.tickNext = now.Truncate(tick).Add(tick)
	for id, r := range t.open {
		remaining := r.EndsAt.Sub(now)
		if remaining <= 0 {
			continue // It takes no bids any more; other events report its end.
		}
		t.Broadcast(id, Event{Type: EventCountdown, At: now.UTC(), Data: CountdownData{
			Round: r.Round, RemainingMS: remaining.Milliseconds(), EndsAt: Instant(r.EndsAt),
		}})
	}
}

// closeDue starts to close every round whose time is over, each by itself: one that is stuck keeps none of the others.
func (t *closing) closeDue(ctx context.Context) {
	local := t.local()
	now := t.zero.Add(local)
	for id, r := range t.open {
		if t.busy[id] || now.Before(r.EndsAt) || local < r.notBefore {
			continue
		}
		t.busy[id] = true
		t.background.Go(func() {
			result := closed{Running: r.Running}
			if result.auction, result.err = t.close(ctx, r.Running); ctx.Err() != nil {
				return
			}
			select {
			case t.closes <- result:
			case <-ctx.Done():
			}
		})
	}
}

func (t *closing) close(ctx context.Context, r Running) (*Auction, error) {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	answer, err := t.Execute(ctx, r.Auction, command.Command[Op]{Op: CloseRound{Round: r.Round, Term: t.term}})
	if err == nil {
		err = answer.Err
	}
	if err != nil {
		return nil, err
	}
	if answer.Result == nil {
		return nil, nil
	}
	a, ok := answer.Result.(*Auction)
	if !ok {
		return nil, fmt.Errorf("auction: closing a round was answered with %T", answer.Result)
	}
	return a, nil
}

// note takes over what an attempt to close a round has shown.
func (t *closing) note(ctx context.Context, r closed) {
	delete(t.busy, r.Auction)
	known, ok := t.open[r.Auction]
	if r.err == nil && r.auction != nil {
		t.log.DebugContext(ctx, "round closed", "auction", r.Auction, "round", r.Round, "late", t.now().Sub(r.EndsAt))
		t.settle(r.Auction, r.auction.Open())
		return
	}
	if r.err != nil {
		t.log.WarnContext(ctx, "round not closed", "auction", r.Auction, "round", r.Round, "error", r.err)
	}
	// It failed, or another process closed it, or it was extended: look again before the next attempt.
	if ok && known.same(r.Running) {
		known.notBefore = t.local() + closePause
		t.open[r.Auction] = known
	}
	if r.err == nil {
		t.readNext = t.local()
	}
}

// settle takes over which round of an auction is open now.
func (t *closing) settle(id uuid.UUID, open *Round) {
	t.settled[id] = true
	delete(t.open, id)
	if open != nil && open.EndsAt != nil {
		t.open[id] = round{Running: Running{Auction: id, Round: open.Number, EndsAt: *open.EndsAt}}
	}
}
