package client

import (
	"context"
	"net/http"
)

// unhurried makes a call return a lock that is held, or a deadlock, at once: how long to wait for a lock is said in the
// request, and the victim of a deadlock has to let go of something before it asks again.
func unhurried(r *request) { r.final = []string{codeLockHeld, codeDeadlock} }

const (
	codeLockHeld = "lock_held"
	codeLockLost = "lock_lost"
	codeDeadlock = "deadlock"
)

// AcquireLock locks all of the keys or none, waiting in line for as long as the request says; an HTTP client's Timeout,
// two minutes by default, has to be longer. Codes lock_held, and deadlock with the [Problem]'s Cycle; neither is tried
// again. For a lock that is renewed by itself see [Client.LockBackend].
func (c *Client) AcquireLock(ctx context.Context, q LockRequest, opts ...CallOption) (*Lock, error) {
	return post[Lock](ctx, c, "/v1/locks", q, append([]CallOption{unhurried}, opts...))
}

// RenewLock lets a lock live for the request's TTL from now on, or as long as before. Code lock_lost: it is no longer held.
func (c *Client) RenewLock(ctx context.Context, id string, q RenewLockRequest, opts ...CallOption) (*Lock, error) {
	return post[Lock](ctx, c, at("/v1/locks/%s/renew", id), q, opts)
}

// ReleaseLock ends a lock and hands its keys to the next in line. Code lock_lost: it was no longer held.
func (c *Client) ReleaseLock(ctx context.Context, id string, opts ...CallOption) error {
	_, err := c.do(ctx, http.MethodDelete, at("/v1/locks/%s", id), nil, opts)
	return err
}

// Locks tells who holds, who waits, and for whom. It takes an admin key.
func (c *Client) Locks(ctx context.Context, opts ...CallOption) (*Locks, error) {
	return get[Locks](ctx, c, "/v1/locks", opts)
}
