package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// once makes lock_held and deadlock final: the request itself says how long to wait for a lock, and the victim of a deadlock
// has to release something before it asks again.
func once(r *request) { r.final = []string{codeLockHeld, codeDeadlock} }

const (
	codeLockHeld = "lock_held"
	codeLockLost = "lock_lost"
	codeDeadlock = "deadlock"
)

// AcquireLock locks all of the keys or none, waiting in line for as long as the request says; an HTTP client's Timeout,
// two minutes by default, has to be longer. Codes lock_held, and deadlock with the [Problem]'s Cycle; neither is tried
// again. For a lock that is renewed by itself see [Client.LockBackend].
func (c *Client) AcquireLock(ctx context.Context, q LockRequest, opts ...CallOption) (*Lock, error) {
	return post[Lock](ctx, c, "/v1/locks", q, append([]CallOption{once}, opts...))
}

// RenewLock lets a lock live for the request's TTL from now on, or as long as before. Code lock_lost: it is no longer held.
func (c *Client) RenewLock(ctx context.Context, id string, q RenewLockRequest, opts ...CallOption) (*Lock, error) {
	return post[Lock](ctx, c, at("/v1/locks/%s/renew", id), q, opts)
}

// ReleaseLock ends a lock and gives its keys to the next in line. Code lock_lost: it was no longer held.
func (c *Client) ReleaseLock(ctx context.Context, id string, opts ...CallOption) error {
	_, err := c.do(ctx, http.MethodDelete, at("/v1/locks/%s", id), nil, func(a *Answer) error {
		if a.Status != http.StatusNoContent {
			return errors.New("204 was expected")
		}
		return nil
	}, opts)
	return err
}

// Locks tells who holds, who waits, and for whom. It takes an admin key.
func (c *Client) Locks(ctx context.Context, opts ...CallOption) (*Locks, error) {
	return get[Locks](ctx, c, "/v1/locks", opts)
}

// LockBackend is the server's lock service as a [lock.Backend], so that a program has over HTTP what package lock gives
// on a database: locks that are renewed by themselves, and a context that ends when one may be lost. It is safe for
// concurrent use.
//
// A call whose answer never came may have been granted a lock that nobody knows of; it ends with its TTL.
type LockBackend struct {
	client *Client
	closed context.Context //nolint:containedctx // It is the backend's lifetime.
	close  context.CancelFunc
}

var (
	_ lock.Backend   = (*LockBackend)(nil)
	_ lock.Inspector = (*LockBackend)(nil)
)

// LockBackend returns the server's lock service for [lock.New].
func (c *Client) LockBackend() *LockBackend {
	b := &LockBackend{client: c}
	b.closed, b.close = context.WithCancel(context.Background())
	return b
}

// Close answers those that wait with [lock.ErrClosed]. Locks stay as they are.
func (b *LockBackend) Close() { b.close() }

// longestWait is asked for at once: less than an HTTP client's Timeout. Who waits for longer asks again, and comes last.
const longestWait = time.Minute

// Acquire implements [lock.Backend]. A wait of more than a minute is made of several, each at the end of the line. The
// maximum hold is unknown to the server: a [lock.Locker] watches it. If ctx ends at the moment of the grant, nobody learns of
// that, and the lock is held until its lease ends: choose a TTL that you can wait for.
func (b *LockBackend) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	if !lock.ValidMaxHold(r.MaxHold) {
		return lock.Grant{}, fmt.Errorf("%w: the maximum hold must be 0 or at least %s", lock.ErrInvalid, lock.MinTTL)
	}
	ctx, stop := b.untilClosed(ctx)
	defer stop()
	began := time.Now()
	for turn := 0; ; turn++ {
		wait := longestWait
		if r.Wait >= 0 {
			wait = max(0, min(wait, r.Wait-time.Since(began))).Truncate(time.Microsecond)
		}
		start := time.Now()
		l, err := b.client.AcquireLock(ctx, LockRequest{Keys: r.Keys, Owner: r.Owner, TTL: r.TTL.String(), Wait: wait.String()},
			Key(r.ID+"."+strconv.Itoa(turn)))
		switch {
		case err == nil:
			return b.fresh(ctx, grantOf(l, r.TTL, start))
		case ctx.Err() != nil:
			return lock.Grant{}, context.Cause(ctx)
		case CodeOf(err) == codeLockHeld && (r.Wait < 0 || time.Since(began) < r.Wait):
			continue
		}
		return lock.Grant{}, lockError(err)
	}
}

// fresh makes sure that a lease has not run while its request was in line: when it began is not known here.
func (b *LockBackend) fresh(ctx context.Context, g lock.Grant) (lock.Grant, error) {
	if time.Since(g.Start) < lock.Margin(g.TTL) {
		return g, nil
	}
	renewed, err := b.Renew(ctx, g.ID, g.TTL)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		_ = b.Release(undo, g) // What can't be undone expires.
		return lock.Grant{}, err
	}
	renewed.Waited = true
	return renewed, nil
}

const undoTimeout = 5 * time.Second

// Renew implements [lock.Backend].
func (b *LockBackend) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	var q RenewLockRequest
	if ttl > 0 {
		q.TTL = ttl.String()
	}
	start := time.Now()
	l, err := b.client.RenewLock(ctx, id, q)
	if err != nil {
		return lock.Grant{}, lockError(err)
	}
	return grantOf(l, ttl, start), nil
}

// Release implements [lock.Backend].
func (b *LockBackend) Release(ctx context.Context, g lock.Grant) error {
	return lockError(b.client.ReleaseLock(ctx, g.ID))
}

// Snapshot implements [lock.Inspector]. It takes an admin key.
func (b *LockBackend) Snapshot(ctx context.Context) (out lock.Snapshot, err error) {
	all, err := b.client.Locks(ctx)
	if err != nil {
		return out, err
	}
	for _, h := range all.Holders {
		out.Holders = append(out.Holders, lock.Grant{ID: h.ID, Owner: h.Owner, Tokens: h.Tokens, GrantedAt: h.GrantedAt, ExpiresAt: h.ExpiresAt})
	}
	for i, w := range all.Waiters {
		out.Waiters = append(out.Waiters, lock.Waiter{Owner: w.Owner, Keys: w.Keys, Ticket: int64(i), Since: w.Since})
	}
	for _, e := range all.Edges {
		out.Edges = append(out.Edges, lock.Edge{From: e.From, To: e.To, Key: e.Key})
	}
	return out, nil
}

// Find implements [lock.Inspector]. It takes an admin key, and reads what Snapshot does.
func (b *LockBackend) Find(ctx context.Context, key string) (g lock.Grant, ok bool, err error) {
	all, err := b.Snapshot(ctx)
	for _, g := range all.Holders {
		if _, ok := g.Tokens[key]; ok {
			return g, true, nil
		}
	}
	return g, false, err
}

// untilClosed ends a context when the backend is closed.
func (b *LockBackend) untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.closed, func() { cancel(lock.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func grantOf(l *Lock, ttl time.Duration, start time.Time) lock.Grant {
	return lock.Grant{ID: l.ID, Owner: l.Owner, Tokens: l.Tokens, TTL: ttl, ExpiresAt: l.ExpiresAt, Start: start}
}

// lockError is a problem in the words of package lock.
func lockError(err error) error {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		return err
	}
	switch p.Code {
	case codeLockHeld:
		return fmt.Errorf("%w: %w", lock.ErrHeld, err)
	case codeLockLost, "not_found":
		return fmt.Errorf("%w: %w", lock.ErrLost, err)
	case codeDeadlock:
		return &lock.DeadlockError{Cycle: p.Cycle}
	}
	return err
}
