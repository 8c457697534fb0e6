// Package turns lets processes that work on the same targets of a database take turns of some milliseconds each.
//
// A process that remembers a target decides on what it remembers, sends transaction after transaction, and waits for none of them
// (docs/adr/0010). Two processes that commit to the target one after the other make each other's copies stale with each transaction. In a turn of
// its own a process reads once what the others have committed, and then goes on as if it were alone. There is one turn for all targets
// that are shared at a time, because transactions on different targets touch the same accounts, and share transactions (docs/adr/0054).
//
// A turn protects nothing: what is committed is checked by the statements of the transaction, as it is without turns. So a turn is never
// waited for longer than [Patience], it ends by itself where its process stops, and whoever gets none goes on without.
// It is an advisory lock of a session. PostgreSQL gives it in the order in which it was asked for.
package turns

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// Length is for how long transactions may begin in a turn. All that others want has to wait as long, and each turn has the
	// price of reading what others have committed, and of a change from one process to another.
	Length = 15 * time.Millisecond
	// Patience bounds the wait for a turn of another process.
	Patience = 250 * time.Millisecond

	// session is after what time PostgreSQL ends the session of a process that is stopped in its turn.
	session = 2 * time.Second
	// memory is for how long turns are taken at a target after another process was met there.
	memory = time.Second
	// quiet is for how long no turn is taken after one was waited for in vain; it doubles up to maxQuiet as long as that goes on.
	quiet    = time.Second
	maxQuiet = time.Minute
)

// pace is how long things take that tests want to take longer, or shorter.
type pace struct {
	length time.Duration // Length
	linger time.Duration // after what time without a transaction a turn ends early
	grace  time.Duration // how much longer that is where one is about to begin
	drain  time.Duration // bounds how long a turn's last transactions are waited for
	idle   time.Duration // after what time without work the session is closed
	most   time.Duration // bounds each wait, whatever it is for
}

// Options are what [New] needs.
type Options struct {
	// Connect opens a session with [Settings], and returns what closes it. nil: the database has no advisory locks, and no turns are taken.
	Connect func(ctx context.Context) (session *pgx.Conn, closes func(context.Context), err error)
	// Without is called for each time that a turn was wanted and not had, with the reason: "late" or "connection". It may be nil.
	Without func(reason string)
}

// New returns turns of a process that has met no other one.
func New(o Options) *Turns {
	usual := pace{length: Length, linger: 100 * time.Microsecond, grace: 2 * time.Millisecond, drain: 50 * time.Millisecond, idle: 500 * time.Millisecond, most: 2 * Patience}
	return &Turns{o: o, pace: usual, met: map[string]time.Time{}, changed: make(chan struct{}, 1), closing: make(chan struct{})}
}

// Turns are the turns of one process at the targets of one database. It is safe for concurrent use.
type Turns struct {
	o       Options
	pace    pace
	changed chan struct{} // has one where the keeper should look again
	closing chan struct{} // closed by Close
	keeper  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	kept    bool                 // a keeper runs
	met     map[string]time.Time // until when turns are taken at a target
	quiet   time.Time            // none are until then
	hush    time.Duration        // how long that was the last time
	round   *round               // the present turn; nil: this process has none
	waiting []waiter             // for a turn; the keeper answers all of them
}

// waiter is answered once.
type waiter struct {
	target string
	part   bool // it wants a part in the turn in any case, not only where it is the first
	turn   chan *Turn
}

// round is one turn, guarded likewise.
type round struct {
	closing bool // nothing begins any more
	users   int
	targets map[string]*opening
	// called is when somebody who waited for the turn was told that it has begun. It is about to take a part. The zero time: nobody is.
	called time.Time
}

// opening is how far a turn has come with one target.
type opening struct {
	done    bool     // the first transaction has ended
	waiting []waiter // for that
}

// Turn is a part in a turn, for one transaction. A nil Turn is that of a target which nobody else works on, or whose turn was not to be had.
type Turn struct {
	turns *Turns
	round *round   // nil once it was left
	first *opening // what this is the first transaction of, until that has ended
}

// Met notes that another process works on a target.
func (t *Turns) Met(target string) {
	if t.o.Connect == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if _, known := t.met[target]; !known {
		for other, until := range t.met {
			if now.After(until) {
				delete(t.met, other)
			}
		}
	}
	t.met[target] = now.Add(memory)
}

// Take waits for a part in a turn, which the caller leaves. It returns nil at once where no other process was met at the target lately, and
// nil later where a turn is not to be had.
func (t *Turns) Take(ctx context.Context, target string) *Turn { return t.wait(ctx, target, true) }

// Await waits until a turn has begun, and, where it is the first to ask for the target in it, has refresh called, which reads what others have
// committed. It reports whether it was the first.
func (t *Turns) Await(ctx context.Context, target string, refresh func(ctx context.Context)) (first bool) {
	turn := t.wait(ctx, target, false)
	if turn != nil {
		defer turn.leave(true)
		refresh(ctx)
	}
	return turn != nil
}

func (t *Turns) wait(ctx context.Context, target string, part bool) *Turn {
	t.mu.Lock()
	if now := time.Now(); t.closed || now.After(t.met[target]) || now.Before(t.quiet) {
		t.mu.Unlock()
		return nil
	}
	mine := waiter{target, part, make(chan *Turn, 1)}
	if t.round != nil && !t.round.closing {
		t.admit(mine)
	} else {
		t.waiting = append(t.waiting, mine)
		if !t.kept {
			t.kept = true
			t.keeper.Go(t.keep)
		}
		t.look()
	}
	t.mu.Unlock()
	late := time.NewTimer(t.pace.most)
	defer late.Stop()
	select {
	case turn := <-mine.turn:
		return turn
	case <-late.C: // For example, the first transaction of the turn waits for a row that a stranger has locked.
		if t.o.Without != nil {
			t.o.Without("late")
		}
	case <-ctx.Done():
	}
	go func() { (<-mine.turn).Leave() }() // Everybody is answered sooner or later.
	return nil
}

// admit answers in the present turn: the first one of a target, and others once that has ended. The caller holds the mutex.
func (t *Turns) admit(w waiter) {
	o := t.round.targets[w.target]
	switch {
	case o != nil && !o.done:
		o.waiting = append(o.waiting, w)
	case o != nil && !w.part:
		t.round.called = time.Now()
		w.turn <- nil
	default:
		if w.part {
			t.round.called = time.Time{}
		}
		turn := &Turn{turns: t, round: t.round}
		if o == nil {
			turn.first = &opening{}
			t.round.targets[w.target] = turn.first
		}
		t.round.users++
		w.turn <- turn
	}
}

// IsFirst reports whether this is the first transaction of a turn on its target. It reads what others have committed; the others of the turn
// wait for it.
func (t *Turn) IsFirst() bool { return t != nil && t.first != nil }

// Opened says that the first transaction on a target has ended, so that the others may begin.
func (t *Turn) Opened() {
	if !t.IsFirst() {
		return
	}
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.open()
}

// open lets those in that wait for this one; even at the turn's end, as they have waited for long. The caller holds the mutex.
func (t *Turn) open() {
	for _, w := range t.first.waiting {
		if !w.part {
			t.round.called = time.Now()
			w.turn <- nil
			continue
		}
		t.round.users++
		w.turn <- &Turn{turns: t.turns, round: t.round}
	}
	t.first.done, t.first.waiting = true, nil
	t.first = nil
}

// Leave gives a part in a turn back. Further calls do nothing.
func (t *Turn) Leave() { t.leave(false) }

// leave gives a part back; called says that another one is about to be taken instead.
func (t *Turn) leave(called bool) {
	if t == nil || t.round == nil {
		return
	}
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if called {
		t.round.called = time.Now()
	}
	if t.first != nil {
		t.open()
	}
	t.round.users--
	if t.round.users == 0 {
		t.turns.look()
	}
	t.round = nil
}

// look has the keeper look again.
func (t *Turns) look() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Close ends all turns. Nobody gets one any more.
func (t *Turns) Close() {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.closing)
	}
	t.mu.Unlock()
	t.keeper.Wait()
}
