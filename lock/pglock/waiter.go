package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

// waiter is a request of this process.
type waiter struct {
	backend  *Backend
	request  request
	hooks    Hooks
	wait     time.Duration
	deadline time.Time
	signal   chan struct{}    // has a value when its rows are worth a look
	granted  chan *lock.Grant // has the grant, where another request of this process has handed the lock over
	looking  bool             // it looks whether it was granted; the backend's mutex guards that
	unsure   bool             // that it is in line, or granted, may yet come about
	again    bool             // it is made again
	contends bool             // it had to wait, in line or for another process's answer
}

// errWaiting is returned by a look that found nothing new.
var errWaiting = errors.New("still waiting")

func (w *waiter) acquire(ctx context.Context) (lock.Grant, error) {
	b := w.backend
	for {
		g, err := w.once(ctx)
		if !errors.Is(err, errWaiting) {
			if err != nil {
				return lock.Grant{}, fmt.Errorf("pglock: acquire: %w", err)
			}
			g.Waited = w.contends
			return g, nil
		}
		// Its row is gone: this process was silent for so long that it was taken for dead. It asks again.
		b.logger.DebugContext(ctx, "a waiting lock request was forgotten, and is made again", "id", w.request.id)
	}
}

// once asks, and waits if it must. It returns errWaiting when the request has to be made again.
func (w *waiter) once(ctx context.Context) (lock.Grant, error) {
	b := w.backend
	select {
	case <-w.granted: // Its row is gone, and so is the lock.
	default:
	}
	if err := b.register(w); err != nil {
		if w.again {
			w.abandon(ctx)
		}
		return lock.Grant{}, err
	}
	w.again = true
	defer b.unregister(w)
	for {
		a, err := w.ask(ctx)
		switch {
		case err != nil:
			late := errors.Is(context.Cause(ctx), errNotDecided)
			if late || !errors.Is(err, ErrAnswered) && !errors.Is(err, ErrLocked) {
				w.abandon(ctx)
			}
			if late {
				err = fmt.Errorf("%w: %w", errNotDecided, err)
			}
			return lock.Grant{}, err
		case a.grant != nil && ctx.Err() != nil && w.simple():
			return w.tooLate(ctx, context.Cause(ctx))
		case a.grant != nil:
			return *a.grant, nil
		case a.rival:
			w.contends = true
			if err := w.pause(ctx, followInterval); err != nil {
				return lock.Grant{}, err
			}
			continue
		case a.ticket == 0:
			return lock.Grant{}, lock.ErrHeld
		}
		w.contends = true
		return w.inLine(ctx)
	}
}

func (w *waiter) ask(ctx context.Context) (asked, error) {
	b := w.backend
	if len(w.request.keys) == 1 {
		a, end, err := b.askTogether(ctx, w)
		if end == decided {
			return a, err
		}
		w.unsure = w.unsure || end == unknown
	}
	j := &joining{w: w, again: w.unsure}
	err := w.alone(ctx, func(run Run) error { return b.decideIn(ctx, run, []*joining{j}) })
	if err == nil {
		err = j.err
	}
	return j.out, err
}

// alone runs transactions that need the rows of the request's keys. Of those on one key, one at a time does: a stranger may have locked its row, and
// then one of them waits on a connection, and not all.
func (w *waiter) alone(ctx context.Context, do func(Run) error) error {
	if w.hooks.Run != nil {
		return do(w.hooks.Run)
	}
	done, err := w.backend.turnAlone(ctx, w.request.keys[0])
	if err != nil {
		return err
	}
	defer done()
	return do(w.backend.run)
}

// pause waits a moment, unless the request has to end.
func (w *waiter) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.backend.closing:
		return lock.ErrClosed
	}
}

// inLine waits until the request is granted or has to end.
func (w *waiter) inLine(ctx context.Context) (lock.Grant, error) {
	b := w.backend
	if b.attend(w) {
		defer b.tasks.Done()
	}
	var timeout <-chan time.Time
	if w.wait > 0 {
		timeout = time.After(time.Until(w.deadline))
	}
	for {
		select {
		case g := <-w.granted:
			return *g, nil
		case <-w.signal:
			g, err := w.check(ctx)
			switch {
			case errors.Is(err, errGone):
				return g, errWaiting
			case errors.Is(err, errWaiting):
				continue
			case err != nil:
				w.abandon(ctx)
			}
			return g, err
		case <-timeout:
			return w.leave(ctx, true, lock.ErrHeld)
		case <-ctx.Done():
			return w.leave(ctx, false, context.Cause(ctx))
		case <-b.closing:
			return w.leave(ctx, false, lock.ErrClosed)
		}
	}
}

// errGone is returned by a look that found no row of the request.
var errGone = errors.New("the request is not in line")

// check takes the lock if the request was granted.
func (w *waiter) check(ctx context.Context) (lock.Grant, error) {
	b := w.backend
	var (
		g     *lock.Grant
		cycle []string
		start time.Time
		gone  bool
	)
	if !b.look(w) { // It is a cohort's first, and has its grant, or its turn is over.
		select {
		case g := <-w.granted:
			return *g, nil
		default:
			return lock.Grant{}, errWaiting
		}
	}
	defer b.looked(w)
	if w.hooks.Granted == nil {
		start = time.Now()
		// Nothing is to be committed along, so that one statement does; its failure is one of the transaction below.
		if g, err := scanGrant(b.pool.QueryRow(ctx, b.st.Take, w.request.id, w.request.owner)); err == nil {
			g.Start = start
			return g, nil
		}
	}
	err := Transact(ctx, b.run, "lock take", func(ctx context.Context, tx pgx.Tx) (err error) {
		cycle, gone = nil, false
		start = time.Now()
		if g, err = b.taken(ctx, tx, w.request, w.hooks); err != nil || g != nil {
			return err
		}
		err = tx.QueryRow(ctx, b.st.ReadCycle, w.request.id).Scan(&cycle)
		if errors.Is(err, pgx.ErrNoRows) {
			gone = true
			return nil
		}
		if err == nil && cycle != nil {
			_, err = tx.Exec(ctx, b.st.Withdraw, w.request.id)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrLocked):
		return lock.Grant{}, errWaiting // The next look may find it free.
	case err != nil:
		return lock.Grant{}, err
	case g != nil:
		g.Start = start
		return *g, nil
	case cycle != nil:
		return lock.Grant{}, &lock.DeadlockError{Cycle: cycle}
	case gone:
		return lock.Grant{}, errGone
	}
	return lock.Grant{}, errWaiting
}

// leave gives up waiting for a reason. If the request was granted at this very moment, take says whether it keeps the lock.
func (w *waiter) leave(ctx context.Context, take bool, reason error) (lock.Grant, error) {
	b := w.backend
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	if g := b.retire(w); g != nil {
		if take {
			return *g, nil
		}
		return w.tooLate(ctx, reason)
	}
	out, start, err := w.leaveOnce(ctx, take)
	if err != nil {
		// The row is passed over as soon as it is not said to be alive; but it may have been granted.
		b.logger.DebugContext(ctx, "leaving the line failed, and is tried again", "id", w.request.id, "error", err)
		b.leaveLater(w) //nolint:contextcheck // It goes on after the caller.
		return lock.Grant{}, reason
	}
	switch {
	case out.grant != nil:
		out.grant.Start = start
		return *out.grant, nil
	case out.cycle != nil && take:
		return lock.Grant{}, &lock.DeadlockError{Cycle: out.cycle}
	}
	return lock.Grant{}, reason
}

// leaveOnce takes the request out of the line, and tells since when it has the lock if it was granted after all.
func (w *waiter) leaveOnce(ctx context.Context, take bool) (out left, start time.Time, err error) {
	b := w.backend
	j := &joining{w: w, leaving: true, take: take}
	if len(w.request.keys) == 1 {
		switch b.inTurn(ctx, j) {
		case decided:
			return j.left, j.start, j.err
		case unknown:
			return left{}, time.Time{}, context.Cause(ctx) // It may be on its way still.
		case undecided:
		}
	}
	j = &joining{w: w, leaving: true, take: take}
	err = w.alone(ctx, func(run Run) error { return b.leaveIn(ctx, run, []*joining{j}) })
	return j.left, j.start, err
}

// leaveTombstone leaves a tombstone: a row that refuses the request, which may still arrive and be carried out.
func (w *waiter) leaveTombstone(ctx context.Context, tx pgx.Tx) error {
	if !w.unsure {
		return nil
	}
	_, err := tx.Exec(ctx, w.backend.st.Tombstone, w.request.id, w.request.owner, w.request.keys)
	return err
}

// abandon undoes what a transaction of unknown outcome may have done.
func (w *waiter) abandon(ctx context.Context) {
	_, _ = w.leave(ctx, false, nil) // There is nobody to tell: what can't be undone expires.
}

// tooLate ends a lock that was granted when the caller had gone.
func (w *waiter) tooLate(ctx context.Context, reason error) (lock.Grant, error) {
	b := w.backend
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := b.end(ctx, tenure{id: w.request.id, key: w.request.keys[0], since: time.Now()}); err != nil {
		b.logger.DebugContext(ctx, "releasing a lock that came too late failed, and is tried again", "id", w.request.id, "error", err)
		b.leaveLater(w) //nolint:contextcheck // It goes on after the caller.
	}
	return lock.Grant{}, reason
}

// Leaving that fails is tried again, so often and at such intervals.
const (
	leaveAttempts = 10
	leaveInterval = time.Second
)

// leaveLater takes a request out of the line in the background, since its caller has gone and a first try has failed.
func (b *Backend) leaveLater(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.tasks.Go(func() {
		for range leaveAttempts {
			if !wait.For(b.base, leaveInterval) {
				return
			}
			ctx, cancel := context.WithTimeout(b.base, cleanupTimeout)
			_, _, err := w.leaveOnce(ctx, false)
			cancel()
			if err == nil {
				return
			}
		}
	})
}
