package groupcommit

import (
	"context"
	"slices"
	"time"
)

// place says where a waiter is; it is guarded by the group's mutex.
type place uint8

const (
	queued  place = iota // on its lane
	dropped              // taken off its lane because its context had ended; no answer will be sent
	taken                // in a batch, or refused by Close; exactly one answer is or will be sent
)

// waiter is one command and the caller who waits for it. The caller owns it, and returns it to the pool,
// before it is queued and after it was answered or withdrawn; a caller who leaves a taken one behind
// leaves it to the garbage collector.
type waiter[K comparable, C, R any] struct {
	link     link[*waiter[K, C, R]]
	lane     *lane[K, C, R] // valid while queued
	place    place
	ctx      context.Context
	cmd      C
	queuedAt time.Time // zero if nobody observes

	result R // written before done is sent on
	err    error
	done   chan struct{} // has room for the one answer, so that answering never blocks
}

func newWaiter[K comparable, C, R any]() *waiter[K, C, R] {
	w := &waiter[K, C, R]{done: make(chan struct{}, 1)}
	w.link.item = w
	return w
}

// recycle clears what the waiter refers to, lest the pool keep it alive, and puts it back.
func (g *Group[K, C, R]) recycle(w *waiter[K, C, R]) {
	var noCommand C
	var noResult R
	w.lane, w.ctx, w.cmd, w.result, w.err = nil, nil, noCommand, noResult, nil
	g.pool.Put(w)
}

func (w *waiter[K, C, R]) answer(result R, err error) {
	w.result, w.err = result, err
	w.done <- struct{}{}
}

// lane is one key's queue. It is in the group's map while it has work, and in the ready list while it may
// flush. All of it is guarded by the group's mutex.
type lane[K comparable, C, R any] struct {
	link    link[*lane[K, C, R]]
	key     K
	queue   list[*waiter[K, C, R]]
	ready   bool
	batches []*batch[K, C, R] // what is being flushed, in the order of taking
}

// mayFlush reports whether a lane's waiting commands are worth a batch now: any number of them while
// nothing is being flushed, and as many as the newest batch has while another may overlap it.
func (g *Group[K, C, R]) mayFlush(ln *lane[K, C, R]) bool {
	n := len(ln.batches)
	switch {
	case ln.queue.count == 0:
		return false
	case n == 0:
		return true
	}
	return n <= g.opts.Overlap && ln.queue.count >= max(g.opts.MinOverlap, len(ln.batches[n-1].waiters))
}

// prepare puts a lane into the ready list when it may flush, and starts a worker for it if one may be
// started.
func (g *Group[K, C, R]) prepare(ln *lane[K, C, R]) {
	if ln.ready || !g.mayFlush(ln) {
		return
	}
	ln.ready = true
	g.ready.pushBack(&ln.link)
	if g.workers < g.opts.MaxLanesBusy {
		g.workers++
		go g.work()
	}
}

func newLane[K comparable, C, R any]() *lane[K, C, R] {
	ln := &lane[K, C, R]{}
	ln.link.item = ln
	return ln
}

// batch is what one worker is flushing, with buffers that it uses again for the next.
type batch[K comparable, C, R any] struct {
	lane    *lane[K, C, R]
	key     K
	waiters []*waiter[K, C, R]
	cmds    []C
	depth   int // commands left waiting on the lane when the batch was taken

	// answered counts the waiters, from the first, that were answered; bisection keeps the order, so
	// they are always a prefix. A waiter before it may belong to another command by now. Guarded by
	// the group's mutex.
	answered int
}

// enqueue appends the waiter to its lane, or returns ErrFull or ErrClosed. The deferred unlock matters: a
// key of an interface type may panic when hashed.
func (g *Group[K, C, R]) enqueue(key K, w *waiter[K, C, R]) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	ln := g.lanes[key]
	switch {
	case ln == nil:
		ln = g.spare.Get().(*lane[K, C, R]) //nolint:errcheck // The pool holds nothing else.
		ln.key = key
		g.lanes[key] = ln
	case ln.queue.count >= g.opts.MaxQueue:
		return ErrFull
	}
	w.lane, w.place = ln, queued
	ln.queue.pushBack(&w.link)
	g.waiting++
	g.prepare(ln)
	return nil
}

// withdraw takes the waiter off its lane and reports whether its command is certain never to run.
func (g *Group[K, C, R]) withdraw(w *waiter[K, C, R]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch w.place {
	case queued:
		ln := w.lane
		ln.queue.remove(&w.link)
		g.waiting--
		g.settleLane(ln)
		return true
	case dropped:
		return true
	case taken:
		return false
	}
	panic("unreachable")
}

// settleLane takes a lane without waiting commands out of the ready list, and forgets it when nothing of
// it is being flushed.
func (g *Group[K, C, R]) settleLane(ln *lane[K, C, R]) {
	if ln.queue.count > 0 {
		return
	}
	if ln.ready {
		ln.ready = false
		g.ready.remove(&ln.link)
	}
	if len(ln.batches) > 0 {
		return
	}
	delete(g.lanes, ln.key)
	var noKey K
	ln.key = noKey
	g.spare.Put(ln)
}

// work flushes batches of ready lanes until there is none. It takes turns between lanes: one that has
// more work after its batch goes to the end of the ready list.
func (g *Group[K, C, R]) work() {
	b := g.borrow()
	ended := false
	defer func() {
		if ended {
			return
		}
		// The flush called runtime.Goexit: this goroutine is lost, the lane and the worker's place
		// are handed on.
		g.settle(b, len(b.waiters), nil, ErrFlushExited)
		g.release(b)
		go g.work()
	}()
	for g.next(b) {
		if g.observed {
			g.opts.Observer.Taken(len(b.waiters), b.depth, time.Since(b.waiters[0].queuedAt))
		}
		g.commit(b, 0, len(b.waiters))
		g.release(b)
	}
	ended = true
}

func (g *Group[K, C, R]) borrow() *batch[K, C, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.batches) - 1
	if last < 0 {
		return &batch[K, C, R]{}
	}
	b := g.batches[last]
	g.batches[last] = nil
	g.batches = g.batches[:last]
	return b
}

// next moves up to MaxBatch waiters into b, from the front of the lane that has been ready longest. If no lane is ready, it
// ends the worker's count in the same step, so that a command queued later starts another.
func (g *Group[K, C, R]) next(b *batch[K, C, R]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		ln, ok := g.ready.popFront()
		if !ok {
			g.batches = append(g.batches, b)
			g.workers--
			g.signalDrained()
			return false
		}
		ln.ready = false
		for len(b.waiters) < g.opts.MaxBatch && ln.queue.count > 0 {
			w, _ := ln.queue.popFront()
			g.waiting--
			if w.ctx.Err() != nil {
				w.place = dropped // Its caller is leaving, and finds it so.
				continue
			}
			w.place = taken
			b.waiters = append(b.waiters, w)
		}
		if len(b.waiters) > 0 {
			ln.batches = append(ln.batches, b)
			b.lane, b.key, b.depth = ln, ln.key, ln.queue.count
			g.prepare(ln)
			return true
		}
		g.settleLane(ln)
	}
}

// release empties b and gives its lane back: to the ready list if commands wait, else to nobody.
func (g *Group[K, C, R]) release(b *batch[K, C, R]) {
	clear(b.waiters)
	clear(b.cmds)
	var noKey K
	g.mu.Lock()
	defer g.mu.Unlock()
	ln := b.lane
	b.lane, b.key, b.waiters, b.cmds, b.answered = nil, noKey, b.waiters[:0], b.cmds[:0], 0
	ln.batches = slices.DeleteFunc(ln.batches, func(other *batch[K, C, R]) bool { return other == b })
	g.settleLane(ln)
	if ln.queue.count > 0 && !ln.ready && g.mayFlush(ln) {
		// The worker that calls this looks for a ready lane next.
		ln.ready = true
		g.ready.pushBack(&ln.link)
	}
}

// signalDrained tells Close that nothing is left. A lane with work has a worker, so counting workers is
// enough. The caller holds the mutex; only the call that finds the group closed and at rest closes the
// channel, as no worker starts after it.
func (g *Group[K, C, R]) signalDrained() {
	if g.closed && g.workers == 0 {
		close(g.drained)
	}
}

// refuseWaiting answers every command that no batch has taken with ErrClosed. Answers are sent under the
// mutex, so that a caller who leaves at the same moment finds its answer and no doubt.
func (g *Group[K, C, R]) refuseWaiting() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var none R
	for _, ln := range g.lanes {
		for {
			w, ok := ln.queue.popFront()
			if !ok {
				break
			}
			g.waiting--
			w.place = taken
			w.answer(none, ErrClosed)
		}
		g.settleLane(ln)
	}
}

// abandonFlushes answers the commands of flushes that still run; what those flushes say is not heard.
func (g *Group[K, C, R]) abandonFlushes() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var none R
	for _, ln := range g.lanes {
		for _, b := range ln.batches {
			for _, w := range b.waiters[b.answered:] {
				w.answer(none, &inFlightError{reason: ErrClosed})
			}
			b.answered = len(b.waiters)
		}
	}
}
