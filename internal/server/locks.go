package server

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/lock"
)

// Locks is what the server needs of the lock service.
type Locks interface {
	Acquire(ctx context.Context, c command.Command[lock.Request]) (command.Answer, error)
	Renew(ctx context.Context, c command.Command[lock.Renewal]) (command.Answer, error)
	Release(ctx context.Context, c command.Command[lock.Renewal]) (command.Answer, error)
	Snapshot(ctx context.Context) (lock.Snapshot, error)
	// DatabaseWaits lists who waits for the database's own locks, longest first.
	DatabaseWaits(ctx context.Context) ([]operator.DatabaseWait, error)
	// Deadlocks lists those that this process has broken, newest first.
	Deadlocks() []operator.Deadlock
}

// maxLockWait bounds how long a request may wait for a lock: proxies and people give up sooner.
const maxLockWait = 10 * time.Minute

// lockExample is such a duration as locks take.
const lockExample = `"30s" or "1.5s"`

type lockRequest struct {
	Keys  []string `json:"keys" minItems:"1" maxItems:"100" doc:"names of 1 to 200 characters, all to be locked or none"`
	Owner string   `json:"owner" minLength:"1" maxLength:"200" doc:"the line of work that asks; deadlocks are told by owners"`
	TTL   string   `json:"ttl" doc:"Go duration from 100ms to 24h: how long the lock lasts unless it is renewed" example:"30s"`
	Wait  *string  `json:"wait,omitempty" doc:"Go duration up to 10m: how long to wait in line, 0s when absent" example:"5s"`
}

type renewLockRequest struct {
	TTL *string `json:"ttl,omitempty" doc:"Go duration from 100ms to 24h, as before when absent" example:"30s"`
}

type lockView struct {
	ID        string           `json:"id"`
	Owner     string           `json:"owner"`
	Tokens    map[string]int64 `json:"tokens" doc:"the fencing token of each key"`
	ExpiresAt timestamp        `json:"expires_at" doc:"when the lock ends unless it is renewed, by the database's clock"`
}

func viewLock(g lock.Grant) lockView {
	return lockView{ID: g.ID, Owner: g.Owner, Tokens: g.Tokens, ExpiresAt: timestamp(g.ExpiresAt)}
}

type lockHolderView struct {
	ID        string           `json:"id"`
	Owner     string           `json:"owner"`
	Tokens    map[string]int64 `json:"tokens" doc:"the fencing token of each key"`
	GrantedAt timestamp        `json:"granted_at"`
	ExpiresAt timestamp        `json:"expires_at"`
}

type lockWaiterView struct {
	Owner string    `json:"owner"`
	Keys  []string  `json:"keys"`
	Since timestamp `json:"since"`
}

type lockEdgeView struct {
	From string `json:"from" doc:"the owner that waits"`
	To   string `json:"to" doc:"the owner that holds the key, or asked for it before"`
	Key  string `json:"key"`
}

type locksView struct {
	Holders []lockHolderView `json:"holders" doc:"oldest first, 10,000 at most"`
	Waiters []lockWaiterView `json:"waiters" doc:"in order of asking"`
	Edges   []lockEdgeView   `json:"edges" doc:"who waits for whom: each request for who holds its keys, and for the 64 before it in the line of each"`
}

type databaseBlockerView struct {
	PID              int32      `json:"pid" doc:"its process on the database's server, 0 for a prepared transaction"`
	Application      string     `json:"application"`
	State            string     `json:"state" example:"idle in transaction"`
	TransactionSince *timestamp `json:"transaction_since" doc:"null where it can't be seen"`
	Statement        string     `json:"statement" doc:"the beginning of its last one, which may have ended"`
}

type databaseWaitView struct {
	PID         int32                 `json:"pid" doc:"the session's process on the database's server"`
	Application string                `json:"application"`
	Kind        string                `json:"kind" doc:"what is waited for, in PostgreSQL's words" example:"transactionid"`
	Mode        string                `json:"mode" example:"ShareLock"`
	Relation    string                `json:"relation" doc:"the table, where the lock is one on a table or on a part of it"`
	Since       timestamp             `json:"since"`
	Statement   string                `json:"statement" doc:"the beginning of what waits"`
	Blockers    []databaseBlockerView `json:"blockers" doc:"the sessions in the way, those that wait in front included"`
}

type databaseWaitsView struct {
	Waits []databaseWaitView `json:"waits" doc:"longest first, 200 at most"`
}

func (s *Server) lockRoutes() []route {
	return []route{
		commandRoute("/v1/locks", accessStaff, http.StatusCreated, "Lock all of the keys or none, waiting in line if asked to", viewLock, mutation[lockRequest, lock.Request]{
			op: plain((*lockRequest).op), wait: func(o lock.Request) time.Duration { return o.Wait },
			execute: func(ctx context.Context, c command.Command[lock.Request]) (command.Answer, error) {
				// When the server shuts down, a waiting request fails at once, and its client finds another server.
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				defer context.AfterFunc(s.draining, func() { cancel(groupcommit.ErrClosed) })() //nolint:contextcheck // The server's own.
				return s.Locks.Acquire(ctx, c)
			},
		}),
		readRoute("/v1/locks", accessAdmin, "See who holds, who waits, and for whom",
			func(r *http.Request) (lock.Snapshot, error) { return bounded(r.Context(), s.scans, s.Locks.Snapshot) }, as[locksView]),
		readRoute("/v1/admin/database-waits", accessAdmin, "See which sessions of the database wait for PostgreSQL's own locks, and for whom",
			func(r *http.Request) ([]operator.DatabaseWait, error) {
				return bounded(r.Context(), s.scans, s.Locks.DatabaseWaits)
			}, func(all []operator.DatabaseWait) databaseWaitsView {
				return databaseWaitsView{Waits: as[[]databaseWaitView](all)}
			}),
		commandRoute("/v1/locks/{id}/renew", accessStaff, http.StatusOK, "Renew a lock that is still held", viewLock, mutation[renewLockRequest, lock.Renewal]{
			execute: s.Locks.Renew,
			op: func(from sender, q *renewLockRequest) (o lock.Renewal, err error) {
				var c checks
				if q.TTL != nil {
					o.TTL = c.span("ttl", *q.TTL, lockExample, lock.MinTTL, lock.MaxTTL, time.Microsecond)
				}
				if c.err != nil {
					return o, c.err
				}
				o.ID, err = lockID(from.id)
				return o, err
			},
		}),
		deleted(commandRoute("/v1/locks/{id}", accessStaff, http.StatusNoContent, "Release a lock that is still held", same[none], mutation[noFields, lock.Renewal]{
			answer:  func(any) (int, []byte) { return http.StatusNoContent, nil }, // Success has no body.
			execute: s.Locks.Release,
			op: func(from sender, _ *noFields) (lock.Renewal, error) {
				id, err := lockID(from.id)
				return lock.Renewal{ID: id}, err
			},
		})),
	}
}

func (q *lockRequest) op() (lock.Request, error) {
	var c checks
	c.upTo("the number of keys", len(q.Keys), lock.MaxKeys)
	if c.err == nil {
		for _, k := range q.Keys {
			c.name("each of the keys", k)
		}
	}
	c.name("owner", q.Owner)
	r := lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Owner: q.Owner, TTL: c.span("ttl", q.TTL, lockExample, lock.MinTTL, lock.MaxTTL, time.Microsecond)}
	if q.Wait != nil {
		r.Wait = c.span("wait", *q.Wait, lockExample, 0, maxLockWait, time.Microsecond)
	}
	if c.err != nil {
		return r, c.err
	}
	var err error
	if r.Keys, err = lock.CleanKeys(q.Keys); err != nil {
		return r, refuse("the keys are not within the limits")
	}
	return r, nil
}

// lockID reads a lock's id from the path. An id that was never given out looks like that of a lock that
// ended, unless the server could not have made it: then it is not found.
func lockID(s string) (string, error) {
	id, err := pathUUID(s, "lock")
	if err == nil && id.Version() != 7 {
		err = &refusal{Kind: edge.NotFound, Detail: "there is no such lock"}
	}
	return id.String(), err
}
