//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

const (
	lockTTL    = time.Second
	lockTurns  = 2 // of each process
	lockTakes  = 400 * time.Millisecond
	guardedKey = "report"
)

// locks has two processes take turns at a lock, and write under its fence also when they have lost it without knowing.
func locks() Scenario {
	return Scenario{
		Kills: true, Stall: 2500 * time.Millisecond, Unbooked: true,
		Install: func(ctx context.Context, db *pgx.Conn) error {
			return errors.Join(pglock.Schema(library).Install(ctx, db), execute(ctx, db,
				`CREATE TABLE library.writes (n bigint GENERATED ALWAYS AS IDENTITY, token bigint, process text)`))
		},
		Play: func(ctx context.Context, w *World) {
			all := &tenures{tokens: map[int64]string{}, held: map[*lock.Held]string{}}
			for _, name := range []string{"p1", "p2"} {
				w.Process(ctx, name, func(ctx context.Context, pool *pgxpool.Pool) error {
					backend := pglock.New(pool, pglock.Options{Schema: library})
					defer backend.Close()
					p := &lockUser{World: w, tenures: all, name: name, pool: pool, locker: lock.New(backend, lock.LockerOptions{})}
					for range lockTurns {
						p.turn(ctx)
					}
					return nil
				})
			}
		},
		Check: func(ctx context.Context, _ *World, db *pgx.Conn) error {
			var late string
			err := db.QueryRow(ctx, `SELECT coalesce(string_agg(format('write %s under token %s came after one under token %s', n, token, before), '; '), '')
				FROM (SELECT n, token, max(token) OVER (ORDER BY n) AS before FROM library.writes) w WHERE token < before`).Scan(&late)
			if err == nil && late != "" {
				err = errors.New(late)
			}
			return err
		},
	}
}

// tenures are the locks that were granted.
type tenures struct {
	mu     sync.Mutex
	tokens map[int64]string
	newest int64
	held   map[*lock.Held]string // that nobody has released yet
}

// last is the newest token that anybody was told of.
func (t *tenures) last() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest
}

// begin notes a grant, whose request was made when before was the newest token.
func (t *tenures) begin(h *lock.Held, name string, before int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var wrong []error
	token := h.Token(guardedKey)
	if other, twice := t.tokens[token]; twice {
		wrong = append(wrong, fmt.Errorf("%s and %s have the same token %d", other, name, token))
	}
	if token <= before {
		wrong = append(wrong, fmt.Errorf("%s has token %d, though %d was granted before it asked", name, token, before))
	}
	for other, whose := range t.held {
		if h.Context().Err() == nil && other.Context().Err() == nil { // An answer that came after the lease says at once that it is lost.
			wrong = append(wrong, fmt.Errorf("%s has the lock with token %d, while %s holds it with token %d", name, token, whose, other.Token(guardedKey)))
		}
	}
	t.tokens[token], t.held[h], t.newest = name, name, max(t.newest, token)
	return errors.Join(wrong...)
}

func (t *tenures) end(h *lock.Held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, h)
}

type lockUser struct {
	*World
	*tenures

	name   string
	pool   *pgxpool.Pool
	locker *lock.Locker
}

// turn takes the lock, works, writes, and releases it.
func (p *lockUser) turn(ctx context.Context) {
	var held *lock.Held
	for held == nil {
		before := p.last()
		h, err := p.locker.Acquire(ctx, []string{guardedKey}, lock.Options{TTL: lockTTL, Wait: time.Minute})
		if err == nil {
			held = h
			p.Wrong(p.begin(h, p.name, before))
		} else if !wait.For(ctx, 100*time.Millisecond) {
			return
		}
	}
	token := held.Token(guardedKey)
	wait.For(held.Context(), lockTakes)
	// A holder that lost its lock may not know it yet: the fence must refuse what it writes.
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if err := pglock.Schema(library).Fence(ctx, tx, guardedKey, token); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO library.writes (token, process) VALUES ($1, $2)`, token, p.name)
		return err
	})
	cause := context.Cause(held.Context())
	if errors.Is(cause, lock.ErrLost) && !errors.Is(cause, lock.ErrUnrenewed) {
		p.Wrong(fmt.Errorf("the lock of %s with token %d was lost while its lease was trusted", p.name, token))
	}
	p.See("%s, token %d: written %t", p.name, token, err == nil)
	p.end(held)
	_ = held.Release(ctx) // What was lost is refused by the fence.
}
