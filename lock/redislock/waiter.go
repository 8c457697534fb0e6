package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// waiter is a request of this process.
type waiter struct {
	backend  *Backend
	request  lock.Request
	deadline time.Time
	signal   chan struct{} // has a value when its rows are worth a look
	found    atomic.Bool   // it was found so, and not told
	turn     chan turn     // what has become of it, where it waits behind others of its process
	contends bool          // it had to wait
	known    bool          // the server may know of it
	lined    bool          // it is in line already
	crowd    int           // for how many requests it is to stand in line
	others   crowds        // that were in line when it took the lock
}

// errGone is returned when a request in line is not there any more: its process was silent for so long that it was taken
// for dead, or the server has forgotten everything.
var errGone = errors.New("the request is not in line")

func (w *waiter) acquire(ctx context.Context) (lock.Grant, error) {
	g, err := w.await(ctx)
	if err != nil {
		return lock.Grant{}, fmt.Errorf("redislock: acquire: %w", err)
	}
	g.Waited = w.contends
	return g, nil
}

// await waits until the request is answered.
func (w *waiter) await(ctx context.Context) (lock.Grant, error) {
	b := w.backend
	behind, err := b.register(w)
	if err != nil {
		return lock.Grant{}, err
	}
	if behind {
		g, err := w.waitBehind(ctx)
		if err != nil {
			return lock.Grant{}, err
		}
		if g != nil {
			return *g, nil
		}
	}
	for {
		g, err := w.once(ctx)
		if errors.Is(err, errGone) {
			b.logger.DebugContext(ctx, "a waiting lock request was forgotten, and is made again", "id", w.request.ID)
			continue
		}
		b.answered(w, err == nil)
		return g, err
	}
}

// once asks, and waits if it must. It returns errGone when the request has to be made again.
func (w *waiter) once(ctx context.Context) (lock.Grant, error) {
	if w.lined {
		w.lined = false
		w.backend.start()
		return w.inLine(ctx)
	}
	a, err := w.ask(ctx, w.known, nil)
	lined := err == nil && a.status == statusInLine
	if err == nil && a.status != statusGranted {
		a, err = w.consider(ctx, a)
	}
	switch {
	case err != nil:
		w.abandon(ctx)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return lock.Grant{}, err
	case a.status == statusGranted && ctx.Err() != nil: // While it was asked.
		return w.leave(ctx, false, context.Cause(ctx))
	case a.status == statusGranted:
		return a.grant, nil
	case a.status == statusRefused && lined: // The wait limit was over meanwhile.
		return w.leave(ctx, true, lock.ErrHeld)
	case a.status == statusRefused:
		return lock.Grant{}, lock.ErrHeld
	}
	w.contends, w.known = true, true
	w.backend.start()
	return w.inLine(ctx)
}

// ask asks for the lock, before the requests that over names. The script recognises by its id a request whose answer was lost,
// and begins its lease anew. ask waits for the answer though ctx may end meanwhile: a client has several connections, and the
// server might execute what undoes the request before the request itself.
func (w *waiter) ask(ctx context.Context, known bool, over []string) (a answer, err error) {
	b, r := w.backend, w.request
	if ctx.Err() != nil {
		return a, context.Cause(ctx)
	}
	wait := r.Wait != 0 && (r.Wait < 0 || time.Now().Before(w.deadline))
	args := append([]string{r.ID, w.text(), "", "", flag(wait) + flag(known) + b.process}, over...)
	if len(r.Keys) == 1 && r.MaxHold == 0 && !known {
		args[2], args[3] = b.hash(r.Keys[0]), strconv.FormatInt(lifetime(r.TTL), 10)
	}
	err = persist(ctx, func(again bool) (err error) {
		if again {
			args[2], args[4] = "", flag(wait)+flag(true)+b.process
		}
		a, err = b.ask(context.WithoutCancel(ctx), b.scripts.acquire, name(r.ID, r.Keys[0]), args...)
		return err
	})
	if err == nil {
		w.complete(&a)
	}
	return a, err
}

// complete fills in what a brief answer leaves out.
func (w *waiter) complete(a *answer) {
	if r := &w.request; a.brief {
		a.grant.Owner, a.grant.TTL, a.grant.Tokens = r.Owner, r.TTL, tokens(r.Keys, a.token)
		a.grant.ExpiresAt = time.UnixMicro(a.token).Truncate(time.Millisecond).Add(r.TTL).UTC() // A token is the time of its grant.
	}
}

// text is what is written down of a grant after its token, before its time has begun.
func (w *waiter) text() string {
	r := &w.request
	text := strconv.AppendInt([]byte("\n"), r.TTL.Microseconds(), 10)
	text = append(text, '\n')
	text = strconv.AppendInt(text, r.MaxHold.Microseconds(), 10)
	text = append(text, "\n0\n0\n0\n"...)
	text = append(text, r.Owner...)
	for _, k := range r.Keys {
		text = append(append(text, '\n'), k...)
	}
	return string(text)
}

// lifetime is how long a hash lives that is there for a lease, in milliseconds: the server expires by whole ones, which must
// not be too early.
func lifetime(lease time.Duration) int64 {
	return int64((lease+time.Millisecond-1)/time.Millisecond) + 1
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// consider does what the script could not decide by itself.
func (w *waiter) consider(ctx context.Context, a answer) (answer, error) {
	b := w.backend
	switch a.look {
	case lookCircle:
		// Whoever looks after the waiting requests does so again.
		b.note(ctx, "breaking a deadlock of locks", b.resolve(ctx))
	case lookOvertake:
		over, err := b.overtakes(ctx, w.request)
		if err != nil || len(over) == 0 {
			b.note(ctx, "looking who waits for whom", err)
			return a, nil
		}
		return w.ask(ctx, true, over)
	}
	return a, nil
}

// inLine waits until the request is granted or has to end.
func (w *waiter) inLine(ctx context.Context) (lock.Grant, error) {
	b := w.backend
	var timeout <-chan time.Time
	if w.request.Wait > 0 {
		timeout = time.After(time.Until(w.deadline))
	}
	for {
		select {
		case <-w.signal:
			a, err := w.check(ctx)
			switch {
			case err != nil && ctx.Err() == nil:
				w.abandon(ctx)
				return lock.Grant{}, err
			case err != nil || a.status == statusInLine || a.status == statusRefused:
				continue // Where the context has ended, that is seen next.
			case a.status == statusGranted && ctx.Err() != nil:
				return w.leave(ctx, false, context.Cause(ctx))
			case a.status == statusGranted:
				if w.found.Load() {
					b.fallback(FallbackFound)
				}
				if b.observer != nil {
					b.observer.HandedOver()
				}
				return a.grant, nil
			case a.status == statusVictim:
				return lock.Grant{}, &lock.DeadlockError{Cycle: a.cycle}
			}
			return lock.Grant{}, errGone
		case <-timeout:
			return w.leave(ctx, true, lock.ErrHeld)
		case <-ctx.Done():
			return w.leave(ctx, false, context.Cause(ctx))
		case <-b.base.Done():
			return w.leave(ctx, false, lock.ErrClosed)
		}
	}
}

// check takes the lock if the request was granted.
func (w *waiter) check(ctx context.Context) (a answer, err error) {
	b := w.backend
	err = persist(ctx, func(bool) (err error) {
		a, err = b.ask(ctx, b.scripts.check, name(w.request.ID, w.request.Keys[0]), w.request.ID, w.request.Keys[0], b.process)
		return err
	})
	if err == nil && a.status == statusInLine {
		return w.consider(ctx, a)
	}
	w.others = a.others
	return a, err
}

// leave gives up waiting for a reason. If the request was granted at this very moment, take says whether it keeps the lock.
func (w *waiter) leave(ctx context.Context, take bool, reason error) (lock.Grant, error) {
	b := w.backend
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	keys := w.request.Keys
	var a answer
	err := persist(ctx, func(bool) (err error) {
		a, err = b.ask(ctx, b.scripts.leave, name(w.request.ID, keys[0]), w.request.ID, strings.Join(keys, "\n"), b.process, flag(take))
		return err
	})
	switch {
	case err != nil:
		// It is passed over as soon as it is not said to be alive.
		b.logger.DebugContext(ctx, "leaving the line failed", "id", w.request.ID, "error", err)
	case a.status == statusGranted:
		return a.grant, nil
	case a.status == statusVictim && take:
		return lock.Grant{}, &lock.DeadlockError{Cycle: a.cycle}
	}
	return lock.Grant{}, reason
}

// abandon undoes what a run of unknown outcome may have done.
func (w *waiter) abandon(ctx context.Context) {
	_, _ = w.leave(ctx, false, nil) // There is nobody to tell: what can't be undone expires.
}
