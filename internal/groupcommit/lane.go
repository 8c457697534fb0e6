package groupcommit

import (
	"context"
	"fmt"
	"runtime/debug"
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
	lane     *lane[K, C, R] // valid while queued
	place    place
	ctx      context.Context
	cmd      C
	queuedAt time.Time
	// weight is the command's own, room that of the command and those of the same list behind it. They are taken together.
	weight, room int

	result R // written before done is sent on
	err    error
	done   chan struct{} // has room for the one answer, so that answering never blocks
}

// recycle clears what the waiter refers to, lest the pool keep it alive, and puts it back.
func (g *Group[K, C, R]) recycle(w *waiter[K, C, R]) {
	*w = waiter[K, C, R]{done: w.done}
	g.waiters.Put(w)
}

func (w *waiter[K, C, R]) answer(result R, err error) {
	w.result, w.err = result, err
	w.done <- struct{}{}
}

// lane is one key's queue. It is in the group's map while it has work, and in the ready list while it may
// flush. All of it is guarded by the group's mutex.
type lane[K comparable, C, R any] struct {
	key     K
	queue   []*waiter[K, C, R]
	ready   bool
	waits   bool              // a worker waits for the turn of the next batch
	batches []*batch[K, C, R] // what is being flushed, in the order of taking
}

// batch is what one worker is flushing, with buffers that it uses again for the next.
type batch[K comparable, C, R any] struct {
	lane    *lane[K, C, R] // nil before the first
	key     K
	waiters []*waiter[K, C, R]
	cmds    []C
	weight  int // of the commands
	depth   int // commands left waiting on the lane when the batch was taken

	// answered counts the waiters, from the first, that were answered; bisection keeps the order, so
	// they are always a prefix. A waiter before it may belong to another command by now. Guarded by
	// the group's mutex.
	answered int
}

// wake puts a lane into the ready list if its waiting commands are worth a batch now: any number of them while
// nothing is being flushed, and as many as the newest batch has while another may overlap it. It starts a
// worker for the lane if one may be started, unless the caller is a worker that looks for a lane next.
func (g *Group[K, C, R]) wake(ln *lane[K, C, R], byWorker bool) {
	n := len(ln.batches)
	switch {
	case ln.ready || ln.waits || len(ln.queue) == 0 || n > g.opts.Overlap:
		return
	case n > 0 && len(ln.queue) < max(g.opts.MinOverlap, len(ln.batches[n-1].waiters)):
		return
	}
	ln.ready = true
	g.ready = append(g.ready, ln)
	if !byWorker && g.workers < g.opts.MaxLanesBusy {
		g.workers++
		go g.work()
	}
}

// withdraw takes the waiter off its lane and reports whether its command is certain never to run.
func (g *Group[K, C, R]) withdraw(w *waiter[K, C, R]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.place == queued {
		w.place = dropped
		at := slices.Index(w.lane.queue, w)
		w.lane.queue = slices.Delete(w.lane.queue, at, at+1)
		g.forget(w.lane)
	}
	return w.place == dropped
}

// forget takes a lane without waiting commands out of the ready list, and out of the group when nothing of
// it is being flushed.
func (g *Group[K, C, R]) forget(ln *lane[K, C, R]) {
	if len(ln.queue) > 0 {
		return
	}
	if ln.ready {
		ln.ready = false
		g.ready = slices.DeleteFunc(g.ready, func(other *lane[K, C, R]) bool { return other == ln })
	}
	if len(ln.batches) == 0 && !ln.waits {
		delete(g.lanes, ln.key)
		*ln = lane[K, C, R]{queue: ln.queue, batches: ln.batches}
		g.spare.Put(ln)
	}
}

// work flushes batches of ready lanes until there is none. It takes turns between lanes: one that has
// more work after its batch goes to the end of the ready list.
func (g *Group[K, C, R]) work() {
	b := g.batches.Get().(*batch[K, C, R]) //nolint:errcheck // The pool holds nothing else.
	for g.next(b) {
		g.opts.Observer.Taken(len(b.waiters), b.depth, time.Since(b.waiters[0].queuedAt))
		g.commit(b, 0, len(b.waiters))
	}
	g.batches.Put(b)
}

// next gives the lane of the batch back, and moves waiters of up to [Group.most] in weight into the batch, from the front of the lane
// that has been ready longest. A heavier command is a batch of its own, and a list is in one. If no lane is ready, it ends the worker's
// count in the same step, so that a command queued later starts another.
func (g *Group[K, C, R]) next(b *batch[K, C, R]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ln := b.lane; ln != nil {
		clear(b.waiters)
		clear(b.cmds)
		*b = batch[K, C, R]{waiters: b.waiters[:0], cmds: b.cmds[:0]}
		ln.batches = slices.DeleteFunc(ln.batches, func(other *batch[K, C, R]) bool { return other == b })
		g.forget(ln)
		g.wake(ln, true)
	}
	for len(g.ready) > 0 {
		ln := g.ready[0]
		g.ready = slices.Delete(g.ready, 0, 1)
		ln.ready = false
		begun := false
		if g.admit != nil {
			ln.waits = true
			g.mu.Unlock()
			begun = g.admit(g.ctx, ln.key)
			g.mu.Lock()
			ln.waits = false
		}
		n, most := 0, g.most(ln, begun)
		for ; n < len(ln.queue) && (len(b.waiters) == 0 || b.weight+ln.queue[n].room <= most); n++ {
			w := ln.queue[n]
			if w.ctx.Err() != nil {
				w.place = dropped // Its caller is leaving, and finds it so.
				continue
			}
			if w.place = taken; len(b.waiters) == 0 {
				most = max(most, w.room)
			}
			b.waiters, b.weight = append(b.waiters, w), b.weight+w.weight
		}
		ln.queue = slices.Delete(ln.queue, 0, n)
		if len(b.waiters) > 0 {
			ln.batches = append(ln.batches, b)
			b.lane, b.key, b.depth = ln, ln.key, len(ln.queue)
			g.wake(ln, false)
			return true
		}
		g.forget(ln)
	}
	g.workers--
	g.signalDrained()
	return false
}

// most is how heavy the next batch of a lane should be at most: at the beginning of a turn half of what waits, if the other half may overlap it.
func (g *Group[K, C, R]) most(ln *lane[K, C, R], begun bool) int {
	if !begun || g.opts.Overlap == 0 || len(ln.batches) > 0 || len(ln.queue) < 2*max(g.opts.MinOverlap, 1) {
		return g.opts.MaxBatch
	}
	weight := 0
	for _, w := range ln.queue {
		weight += w.weight
	}
	return min(g.opts.MaxBatch, max(weight/2, 1))
}

// signalDrained tells Close that nothing is left. A lane with work has a worker, so counting workers is
// enough. The caller holds the mutex; only the call that finds the group closed and at rest closes the
// channel, as no worker starts after it.
func (g *Group[K, C, R]) signalDrained() {
	if g.closed && g.workers == 0 {
		close(g.drained)
	}
}

// commit flushes b's commands from first up to limit as one unit and answers their callers; if that fails
// and is divisible it commits the first half, then the second. Callers whom abandon has answered already are
// left alone.
func (g *Group[K, C, R]) commit(b *batch[K, C, R], first, limit int) {
	results, divisible, err := g.attempt(b, first, limit)
	// A flush that fails once the group is cancelled fails, most likely, because of that.
	if size := limit - first; err != nil && divisible && size > 1 && g.ctx.Err() == nil {
		g.opts.Observer.Bisected(size)
		middle := first + size/2
		g.commit(b, first, middle)
		g.commit(b, middle, limit)
		return
	}
	g.mu.Lock()
	from := b.answered
	b.answered = max(from, limit)
	g.mu.Unlock()
	var result R
	for i := from; i < limit; i++ {
		if err == nil {
			result = results[i-first]
		}
		b.waiters[i].answer(result, err)
	}
}

// attempt calls the flush once, and turns a panic into an error. The commands are copied afresh from the
// waiters, so that a flush that scribbles over its batch does not harm the next attempt.
func (g *Group[K, C, R]) attempt(b *batch[K, C, R], first, limit int) (results []R, divisible bool, err error) {
	if g.ctx.Err() != nil {
		return nil, false, ErrClosed // Of what was tried before as part of a longer batch, nothing took effect.
	}
	clear(b.cmds)
	b.cmds = b.cmds[:0]
	for _, w := range b.waiters[first:limit] {
		b.cmds = append(b.cmds, w.cmd)
	}
	start := time.Now()
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{Value: v, Stack: debug.Stack()}
			divisible, err = true, p
			g.opts.Observer.Panicked(p)
		}
		g.opts.Observer.Flushed(limit-first, time.Since(start), err)
	}()
	results, err = g.flush(g.ctx, b.key, b.cmds)
	switch {
	case err != nil:
		divisible = g.opts.Divisible(err)
	case len(results) != limit-first:
		err = fmt.Errorf("%w: %d for %d commands", ErrResultCount, len(results), limit-first)
	}
	return results, divisible, err
}

// abandon answers what is left when Close has run out of time: every command that no batch has taken, and, with
// flushing, the commands of flushes that still run; what those flushes say is not heard. Answers are sent under
// the mutex, so that a caller who leaves at the same moment finds its answer and no doubt.
func (g *Group[K, C, R]) abandon(flushing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var none R
	for _, ln := range g.lanes {
		for _, w := range ln.queue {
			w.place = taken
			w.answer(none, ErrClosed)
		}
		clear(ln.queue)
		ln.queue = ln.queue[:0]
		for _, b := range ln.batches {
			if flushing {
				for _, w := range b.waiters[b.answered:] {
					w.answer(none, inFlight(ErrClosed))
				}
				b.answered = len(b.waiters)
			}
		}
		g.forget(ln)
	}
}
