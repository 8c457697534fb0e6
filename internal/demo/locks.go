package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/screen"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

const (
	demoContenders = 8
	demoTurns      = 10 // of each contender
	demoOwners     = 3  // in the deadlock
	demoLockTTL    = time.Minute
	demoLockWait   = 30 * time.Second
	// What the design promises: a deadlock is broken so soon, and a dead holder's lock granted so soon after its TTL.
	deadlockLimit = time.Second
	handoverLimit = 2 * time.Second
	// askEvery is the pause between two questions of the late holder.
	askEvery = time.Millisecond
	// doubtLimit is how soon after a crash no transfer is in doubt any more.
	doubtLimit = 30 * time.Second
)

// Locks is what those saw who asked for locks.
type Locks struct {
	Grants     int      `json:"grants"`
	Tokens     []int64  `json:"-"` // in the order of the grants
	Victims    int      `json:"deadlock_victims"`
	Cycle      []string `json:"deadlock_cycle"`
	DeadlockMS float64  `json:"deadlock_ms"`
}

func (d *Demo) turnKey() string { return "demo/turn" + d.tag }

func (d *Demo) deadlockKeys() []string {
	keys := make([]string, demoOwners)
	for i := range keys {
		keys[i] = fmt.Sprintf("demo/fork-%d%s", i+1, d.tag)
	}
	return keys
}

func philosopher(i int) string { return []string{"Ada", "Bo", "Cy"}[i%demoOwners] }

// contend lets clients take one lock in turn, and three of them close a circle.
func (d *Demo) contend(ctx context.Context) error {
	d.screen.Heading("The locks: every grant has a higher token, and a deadlock one victim")
	if err := d.takeTurns(ctx); err != nil {
		return err
	}
	return d.deadlock(ctx)
}

func (d *Demo) takeTurns(ctx context.Context) error {
	step, done := d.screen.Progress("One lock, taken in turn", demoContenders*demoTurns)
	var mu sync.Mutex
	l := &d.result.Locks
	began := time.Now()
	group, asking := errgroup.WithContext(ctx)
	for i := range demoContenders {
		group.Go(func() error {
			for range demoTurns {
				held, err := d.api.AcquireLock(asking, client.LockRequest{
					Keys: []string{d.turnKey()}, Owner: fmt.Sprintf("contender-%d%s", i+1, d.tag), TTL: demoLockTTL.String(), Wait: demoLockWait.String(),
				})
				if err != nil {
					return err
				}
				mu.Lock() // The lock is held: the next grant is later.
				l.Tokens = append(l.Tokens, held.Tokens[d.turnKey()])
				mu.Unlock()
				if err := d.api.ReleaseLock(asking, held.ID); err != nil {
					return err
				}
				step()
			}
			return nil
		})
	}
	err := group.Wait()
	done()
	if l.Grants = len(l.Tokens); err == nil {
		d.screen.End("%d clients, %d grants, in %s", demoContenders, l.Grants, screen.Milliseconds(inMilliseconds(time.Since(began))))
	}
	return err
}

// deadlock lets three owners hold a lock each and wait for that of the next. The victim gives up what it holds.
func (d *Demo) deadlock(ctx context.Context) error {
	keys := d.deadlockKeys()
	ask := func(ctx context.Context, i, key int) (*client.Lock, error) {
		return d.api.AcquireLock(ctx, client.LockRequest{
			Keys: []string{keys[key%demoOwners]}, Owner: philosopher(i) + d.tag, TTL: demoLockTTL.String(), Wait: demoLockWait.String(),
		})
	}
	l := &d.result.Locks
	first := make([]*client.Lock, demoOwners)
	for i := range first {
		var err error
		if first[i], err = ask(ctx, i, i); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	began := time.Now()
	group, waiting := errgroup.WithContext(ctx)
	for i := range first {
		group.Go(func() error {
			second, err := ask(waiting, i, i+1)
			if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "deadlock" {
				mu.Lock()
				l.Victims, l.Cycle, l.DeadlockMS = l.Victims+1, p.Cycle, inMilliseconds(time.Since(began))
				mu.Unlock()
				return d.api.ReleaseLock(waiting, first[i].ID)
			}
			if err != nil {
				return err
			}
			return errors.Join(d.api.ReleaseLock(waiting, first[i].ID), d.api.ReleaseLock(waiting, second.ID))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	d.screen.Fact("Three wait for each other", "%d told of the deadlock, in %s; the others got both locks", l.Victims, screen.Milliseconds(l.DeadlockMS))
	return nil
}

// cycleTold reports whether the victim was told every owner once.
func (d *Demo) cycleTold() bool {
	var owners []string
	for i := range demoOwners {
		owners = append(owners, philosopher(i)+d.tag)
	}
	return slices.Equal(slices.Sorted(slices.Values(d.result.Locks.Cycle)), owners)
}

// guardedWrite writes a token under it, unless the database has seen a newer one.
func (d *Demo) guardedWrite(ctx context.Context, key string, token int64) error {
	conn, err := pgx.Connect(ctx, d.databases.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pglock.Fence(ctx, tx, key, token); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO "+d.databases.writes+" (token) VALUES ($1)", token)
		return err
	})
}

// lateHolder holds a lock through a server that is killed. It is this process that goes on, not knowing.
type lateHolder struct {
	*lock.Held
	close func()
	ended chan time.Time // when it was told last that it has the lock still
}

func (d *Demo) lastLock() string { return "demo/report" + d.tag }

// holderTTL is long enough that a machine which is stalled for a while does not lose the lock before the server is killed.
func (d *Demo) holderTTL() time.Duration { return demoHolderTTL + d.slack/5 }

// holdThrough acquires the lock by a server, and keeps it renewed by that.
func (d *Demo) holdThrough(ctx context.Context, h *helper) (*lateHolder, error) {
	backend := h.api.LockBackend()
	held, err := lock.New(backend, lock.LockerOptions{}).Acquire(ctx, []string{d.lastLock()}, lock.Options{TTL: d.holderTTL()})
	if err != nil {
		backend.Close()
		return nil, err
	}
	l := &lateHolder{Held: held, close: backend.Close, ended: make(chan time.Time, 1)}
	go l.ask() //nolint:contextcheck // It is made from ctx.
	return l, nil
}

// ask asks again and again, as a holder does before each step, whether the lock is held still. The time before a question is what counts: a
// holder that is stalled between question and answer is told what was true when it asked.
func (l *lateHolder) ask() {
	held := time.Now()
	for now := held; l.Context().Err() == nil; now = time.Now() {
		held = now
		wait.For(l.Context(), askEvery)
	}
	l.ended <- held
}
