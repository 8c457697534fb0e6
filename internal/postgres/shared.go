package postgres

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/turns"
)

const (
	// sharedWindow is over what time changes by other servers are counted.
	sharedWindow = 10 * time.Second
	// sharedFrom is how many of them in a window make a target shared: fewer cost nobody anything.
	sharedFrom = 20
	// maxCounted bounds the targets that are counted at a time, and maxShared those that are listed.
	maxCounted = 4096
	maxShared  = 20
	// sharedLogEvery is how often the log says so at most.
	sharedLogEvery = 10 * time.Minute
)

// SharedTarget is an auction or campaign that this process works on in turns with others: each of them has to read what the others
// have committed. A proxy that sends all commands for one target to one server spares that.
type SharedTarget struct {
	Target string // such as "auction:" and its id
	// Rate is how many times in a second this process found that another one had changed it.
	Rate float64
}

// sharedTargets counts how often this process found that another one had changed a target. It is safe for concurrent use.
type sharedTargets struct {
	logger *slog.Logger

	mu      sync.Mutex
	began   time.Time // of the window
	current map[string]int
	last    map[string]int // of the window before it
	logged  time.Time
}

// met notes that another process has changed a target since this one worked on it.
func (s *sharedTargets) met(target string) { s.metAt(target, time.Now()) }

func (s *sharedTargets) metAt(target string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roll(now)
	if s.current == nil {
		s.current = map[string]int{}
	}
	n, known := s.current[target]
	if !known && len(s.current) >= maxCounted {
		return
	}
	s.current[target] = n + 1
	if n+1 == sharedFrom && s.logger != nil && (s.logged.IsZero() || now.Sub(s.logged) >= sharedLogEvery) {
		s.logged = now
		s.logger.Warn("several servers work on one target: let the proxy send its commands to one of them", "target", target)
	}
}

// roll begins a new window when the present one is over.
func (s *sharedTargets) roll(now time.Time) {
	switch age := now.Sub(s.began); {
	case age < sharedWindow:
	case age < 2*sharedWindow:
		s.began, s.last, s.current = s.began.Add(sharedWindow), s.current, nil
	default:
		s.began, s.last, s.current = now, nil, nil
	}
}

// list returns the targets that are shared, by the last whole window, those that change most first.
func (s *sharedTargets) list(now time.Time) []SharedTarget {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roll(now)
	var shared []SharedTarget
	for target, n := range s.last {
		if n >= sharedFrom {
			shared = append(shared, SharedTarget{Target: target, Rate: float64(n) / sharedWindow.Seconds()})
		}
	}
	slices.SortFunc(shared, func(a, b SharedTarget) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Target, b.Target))
	})
	return shared[:min(len(shared), maxShared)]
}

// SharedTargets returns the targets that this process works on in turns with others, as of the last ten seconds or more: up to 20, those
// that change most often first.
func (db *DB) SharedTargets() []SharedTarget { return db.shared.list(time.Now()) }

// newTurns returns the turns that this process takes at targets which others work on, too. Their session is one of the pool's, which is closed
// when it is given back.
func (db *DB) newTurns(none bool) *turns.Turns {
	var o turns.Options
	if db.engine.Has(pgkit.AdvisoryLocks) && !none {
		o.Connect = func(ctx context.Context) (*pgx.Conn, func(context.Context), error) {
			ctx, cancel := context.WithTimeout(ctx, turns.Patience) // Commands wait for it.
			defer cancel()
			conn, err := db.pool.Acquire(ctx)
			if err != nil {
				return nil, nil, err
			}
			closes := func(ctx context.Context) {
				_ = conn.Conn().Close(ctx) // With the session go its lock and its settings.
				conn.Release()
			}
			names, values := turns.Settings()
			if _, err := conn.Exec(ctx, setAll, names, values); err != nil {
				closes(ctx)
				return nil, nil, err
			}
			return conn.Conn(), closes, nil
		}
	}
	if db.observer != nil {
		o.Without = func(reason string) { db.observer.Fallback(turnsTransaction, reason) }
	}
	return turns.New(o)
}

// turnsTransaction is the name in metrics of turns that were not to be had.
const turnsTransaction = "turns"

// metAnother notes that another process works on a target: it is counted, and from now on this process takes turns at it.
func (db *DB) metAnother(target string) {
	db.shared.met(target)
	db.turns.Met(target)
}

// refreshed reads what others have committed to a target, at the beginning of a turn, which does not wait for it for long.
func (db *DB) refreshed(ctx context.Context, b *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, db.spec.Accounts.Patience) // That of a read alone would be no shorter than how long the database may be silent.
	defer cancel()
	return db.read(ctx, "news", db.spec.Accounts.Patience, func(ctx context.Context, pool *pgxpool.Pool) error { return pool.SendBatch(ctx, b).Close() })
}
