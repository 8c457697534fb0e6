package groupcommit

import (
	"runtime/debug"
	"time"
)

// commit flushes b's commands from first up to limit as one unit and answers their callers; if that fails
// and is divisible it commits the first half, then the second.
func (g *Group[K, C, R]) commit(b *batch[K, C, R], first, limit int) {
	if g.ctx.Err() != nil {
		// Of what was tried before as part of a longer batch, nothing took effect.
		g.settle(b, limit, nil, ErrClosed)
		return
	}
	results, err := g.attempt(b, first, limit)
	size := limit - first
	if err == nil || size == 1 || !g.divisible(err) {
		g.settle(b, limit, results, err)
		return
	}
	g.opts.Observer.Bisected(size)
	middle := first + size/2
	g.commit(b, first, middle)
	g.commit(b, middle, limit)
}

func (g *Group[K, C, R]) divisible(err error) bool {
	if g.ctx.Err() != nil {
		return false // The flush failed, most likely, because it was told to.
	}
	switch err.(type) { //nolint:errorlint // Only what attempt itself made counts, not what a flush wrapped.
	case *PanicError:
		return true
	case *ResultCountError:
		return false
	}
	return g.opts.Divisible(err)
}

// attempt calls the flush once. The commands are copied afresh from the waiters, so that a flush that
// scribbles over its batch does not harm the next attempt.
func (g *Group[K, C, R]) attempt(b *batch[K, C, R], first, limit int) (results []R, err error) {
	clear(b.cmds)
	b.cmds = b.cmds[:0]
	for _, w := range b.waiters[first:limit] {
		b.cmds = append(b.cmds, w.cmd)
	}
	var start time.Time
	if g.observed {
		start = time.Now()
	}
	results, err = g.call(b)
	if err == nil && len(results) != limit-first {
		err = &ResultCountError{Got: len(results), Want: limit - first}
	}
	if g.observed {
		g.opts.Observer.Flushed(limit-first, time.Since(start), err)
		if p, ok := err.(*PanicError); ok { //nolint:errorlint // As in divisible.
			g.opts.Observer.Panicked(p)
		}
	}
	return results, err
}

// call runs the flush and turns a panic into an error. A Goexit passes through, to work's own defer.
func (g *Group[K, C, R]) call(b *batch[K, C, R]) (results []R, err error) {
	defer func() {
		if v := recover(); v != nil {
			results, err = nil, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return g.flush(g.ctx, b.key, b.cmds)
}

// settle answers b's callers up to limit, from the first not answered: with err if it isn't nil, else
// with results, one each. Callers whom abandonFlushes has answered already are left alone.
func (g *Group[K, C, R]) settle(b *batch[K, C, R], limit int, results []R, err error) {
	g.mu.Lock()
	first := b.answered
	b.answered = max(first, limit)
	g.mu.Unlock()
	var none R
	for i := first; i < limit; i++ {
		if err != nil {
			b.waiters[i].answer(none, err)
		} else {
			b.waiters[i].answer(results[i-first], nil)
		}
	}
}
