package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// DefaultTTL is the time to live where none is asked for.
const DefaultTTL = 15 * time.Second

// Options say how a lock is to be acquired and held. The zero value fails fast and renews a lease of [DefaultTTL].
type Options struct {
	// TTL is how long the lock outlives a holder that died: [MinTTL] to [MaxTTL], 0 means [DefaultTTL].
	TTL time.Duration
	// Wait is how long to wait for the lock at most: 0 or less not at all, but [Forever] as long as the context lasts.
	Wait time.Duration
	// Owner names the line of work that asks, for the detection of deadlocks and for people. Where it is empty it is the
	// owner of the lock under whose context the request is made, or else a new one.
	Owner string
	// MaxHold bounds how long the lock is held, renewals included: [MinTTL] or more; 0: it is not bounded.
	MaxHold time.Duration
	// NoRenewal leaves the lease as it is, so that the lock is lost after TTL.
	NoRenewal bool
	// Class labels the metrics: a few names for many keys.
	Class string
}

// Outcome is how a request ended.
type Outcome string

// The outcomes.
const (
	OutcomeGranted  Outcome = "granted"
	OutcomeHeld     Outcome = "held"
	OutcomeDeadlock Outcome = "deadlock"
	OutcomeError    Outcome = "error" // the context ended, or the backend failed
)

// Outcomes lists them.
func Outcomes() []Outcome {
	return []Outcome{OutcomeGranted, OutcomeHeld, OutcomeDeadlock, OutcomeError}
}

// OutcomeOf tells how a request ended by its error.
func OutcomeOf(err error) Outcome {
	switch _, deadlock := errors.AsType[*DeadlockError](err); {
	case err == nil:
		return OutcomeGranted
	case deadlock:
		return OutcomeDeadlock
	case errors.Is(err, ErrHeld):
		return OutcomeHeld
	}
	return OutcomeError
}

// Observer is told what happens to locks. Its methods must not block and may be called concurrently.
type Observer interface {
	// Asked is called when a request ends; waited is the time until then, contended whether it had to wait in line.
	Asked(class string, outcome Outcome, waited time.Duration, contended bool)
	// Ended is called when a lock ends; lost is nil after a release, else the cause.
	Ended(class string, held time.Duration, lost error)
}

// LockerOptions configure a [Locker].
type LockerOptions struct {
	Logger   *slog.Logger // may be nil
	Observer Observer     // may be nil
}

// Locker acquires locks and keeps them renewed. It is safe for concurrent use.
type Locker struct {
	backend  Backend
	logger   *slog.Logger
	observer Observer
}

// New returns a locker on b.
func New(b Backend, o LockerOptions) *Locker {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Locker{backend: b, logger: o.Logger, observer: o.Observer}
}

// ownerKey is the key under which the context of a [Held] has its owner.
type ownerKey struct{}

// Acquire acquires all of the keys or none. The context that the lock is held under, [Held.Context], is made from ctx.
// The caller releases the lock.
//
// Errors: [ErrHeld], a [DeadlockError], [ErrInvalid], the context's error with its cause, or what the backend said.
func (l *Locker) Acquire(ctx context.Context, keys []string, o Options) (*Held, error) {
	outer, _ := ctx.Value(ownerKey{}).(string)
	r := Request{
		ID: uuid.Must(uuid.NewV7()).String(), Keys: keys, Owner: cmp.Or(o.Owner, outer), TTL: cmp.Or(o.TTL, DefaultTTL), Wait: o.Wait,
		MaxHold: o.MaxHold,
	}
	if r.NewOwner = r.Owner == ""; r.NewOwner {
		r.Owner = r.ID
	}
	r, err := r.Clean()
	if err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	o.TTL, r.TTL = r.TTL, r.TTL.Truncate(time.Microsecond)
	began := time.Now()
	g, err := l.backend.Acquire(ctx, r)
	if end := ctx.Err(); end != nil && errors.Is(err, context.Cause(ctx)) && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", end, err)
	}
	if l.observer != nil {
		l.observer.Asked(o.Class, OutcomeOf(err), time.Since(began), g.Waited)
	}
	if err != nil {
		if d, ok := errors.AsType[*DeadlockError](err); ok {
			l.logger.WarnContext(ctx, "request refused to break a deadlock", "owner", r.Owner, "keys", r.Keys, "cycle", d.Cycle)
		}
		return nil, fmt.Errorf("lock: acquire %q: %w", r.Keys, err)
	}
	return l.hold(ctx, g, o), nil
}

// Held is a lock that was acquired. It is safe for concurrent use.
type Held struct {
	locker *Locker
	grant  Grant
	class  string
	ctx    context.Context //nolint:containedctx // Its end is what the holder has to know.
	end    func(cause error)

	once    sync.Once
	outcome error // of the release
}

// Margin is the part of a lease that is not trusted: for clocks that do not run equally fast, and for what is done
// between the end of the context and the holder's noticing it.
func Margin(ttl time.Duration) time.Duration { return ttl / 10 }

const (
	// renewals are tried so often in a TTL, so that one may fail altogether.
	renewals = 3
	// attempts is how often in a TTL a failed renewal is tried again.
	attempts = 20
	// minAttempt is the least time that a renewal is given, though the TTL be short.
	minAttempt = 200 * time.Millisecond
)

func (l *Locker) hold(ctx context.Context, g Grant, o Options) *Held {
	h := &Held{locker: l, grant: g, class: o.Class}
	k := wait.Keeping{
		Since: g.Start, Life: o.TTL - Margin(o.TTL), First: time.Until(g.Start.Add(o.TTL / renewals)), Every: o.TTL / renewals,
		Retry: o.TTL / attempts, Bound: max(o.TTL/renewals, 2*minAttempt), Lost: ErrLost, TooLate: ErrUnrenewed, AtLimit: ErrHeldTooLong,
		Ended: h.lost,
	}
	if o.MaxHold > 0 {
		k.Limit = g.Start.Add(o.MaxHold - Margin(min(o.MaxHold, o.TTL)))
	}
	if !o.NoRenewal {
		k.Renew = func(ctx context.Context) error {
			_, err := l.backend.Renew(ctx, g.ID, o.TTL)
			if errors.Is(err, ErrLost) {
				return ErrLost
			}
			if err != nil {
				l.logger.Debug("lock renewal failed, and is tried again", "id", g.ID, "error", err)
			}
			return err
		}
	}
	h.ctx, h.end = wait.Keep(context.WithValue(ctx, ownerKey{}, g.Owner), k)
	return h
}

// lost logs that the lock is lost.
func (h *Held) lost(cause error) {
	keys := slices.Sorted(maps.Keys(h.grant.Tokens))
	h.locker.logger.Warn("lock lost", "id", h.grant.ID, "owner", h.grant.Owner, "keys", keys, "cause", cause)
}

// ID names the lock.
func (h *Held) ID() string { return h.grant.ID }

// Owner is who holds it.
func (h *Held) Owner() string { return h.grant.Owner }

// Tokens returns the fencing token of each key.
func (h *Held) Tokens() map[string]int64 { return maps.Clone(h.grant.Tokens) }

// Token returns the fencing token of one key. It panics when the lock does not cover the key: a write fenced by no token
// would not be fenced.
func (h *Held) Token(key string) int64 {
	t, ok := h.grant.Tokens[key]
	if !ok {
		panic("lock: a token was asked for that the lock does not have")
	}
	return t
}

// Context ends before the lease can have expired. Its cause is an [ErrLost] or [ErrReleased], or that of the context
// under which the lock was acquired; the lock is then renewed no more, and released as ever. It compares the clock whenever it
// is asked, so that a process which was stopped past its lease is told at once. A context made from it may be told a moment
// later: ask this one before a step that can't be undone.
func (h *Held) Context() context.Context { return h.ctx }

// releaseTimeout bounds a release. A lock that is not released by then expires.
const releaseTimeout = 5 * time.Second

// Release ends the lock and hands its keys on, even when ctx has ended; it takes at most some seconds. Only the first
// call does so, the others return what it returned. It returns [ErrLost] when the lock was no longer held: then what was
// done under it may have been done by another, too.
func (h *Held) Release(ctx context.Context) error {
	h.once.Do(func() {
		h.end(ErrReleased)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		err := h.locker.backend.Release(ctx, h.grant)
		lost := context.Cause(h.ctx) //nolint:contextcheck // Why the lock ended, which bounds nothing here.

		// The backend's own word, and not that of a clock, holds however the release went.
		if err != nil && lost == ErrLost { //nolint:errorlint // The other causes wrap it.
			err = errors.Join(ErrLost, err)
		}
		if errors.Is(err, ErrLost) || !errors.Is(lost, ErrLost) {
			lost = err
		}
		if h.locker.observer != nil {
			h.locker.observer.Ended(h.class, time.Since(h.grant.Start), lost)
		}
		if err != nil {
			h.outcome = fmt.Errorf("lock: release %s: %w", h.grant.ID, err)
		}
	})
	return h.outcome
}
