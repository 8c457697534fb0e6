package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
)

// maxShared bounds the requests and releases of one round trip, and so for how long their keys are locked.
const maxShared = 128

// errSent is of a round trip that may have been carried out.
var errSent = errors.New("the outcome of what shared a round trip is unknown")

// errand is a simple request, or a release of a lock of one key. The errands of one process for different keys share round trips and
// commits: while one is on its way, the next ones gather. lock_share carries out those that nobody else has to do with; the
// others find out by themselves.
type errand struct {
	key  string
	asks *waiter // nil: it releases
	ends string  // the id of the lock
}

// errandDone is what has become of an errand. The zero value says that nothing was done.
type errandDone struct {
	done   bool
	grant  *lock.Grant // of a request
	inTime bool        // the released lock's lease was not over
}

func (b *Backend) newErrands() *groupcommit.Group[struct{}, errand, errandDone] {
	return groupcommit.New(b.runErrands, groupcommit.Options{
		MaxBatch: maxShared, Overlap: 1, MinOverlap: 8, CloseGrace: cleanupTimeout, Divisible: func(error) bool { return false },
	})
}

// endErrands waits until those under way are done.
func (b *Backend) endErrands() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.base), cleanupTimeout)
	defer cancel()
	_ = b.errands.Close(ctx) // Whoever is answered before is told that the outcome is unknown.
}

// share carries out an errand together with others, if there are others.
func (b *Backend) share(ctx context.Context, e errand) (errandDone, decision) {
	if b.busy.Load() < 2 || b.unshared.Load() {
		return errandDone{}, undecided
	}
	out, err := b.errands.Do(ctx, struct{}{}, e)
	switch {
	case err == nil && out.done:
		return out, decided
	case errors.Is(err, groupcommit.ErrInFlight), errors.Is(err, errSent) && !pgkit.Undone(err):
		return errandDone{}, unknown
	}
	return errandDone{}, undecided
}

// runErrands is the round trip.
func (b *Backend) runErrands(ctx context.Context, _ struct{}, batch []errand) ([]errandDone, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	var (
		askKeys, askIDs, owners, endKeys, endIDs []string
		ttls, holds                              []int64

		ended, granted []string
		inTime         []bool
		tokens         []int64
		leases         []time.Time
	)
	places, asked := make(map[string]int, len(batch)), make(map[string]bool, len(batch))
	for i, e := range batch {
		switch {
		case e.asks == nil:
			endKeys, endIDs = append(endKeys, e.key), append(endIDs, e.ends)
			places[e.ends] = i
		case !asked[e.key]:
			asked[e.key] = true
			r := e.asks.request
			askKeys, askIDs, owners, ttls, holds = append(askKeys, e.key), append(askIDs, r.id.String()), append(owners, r.owner), append(ttls, r.ttl), append(holds, r.hold)
			places[r.id.String()] = i
		}
	}
	start := time.Now()
	err := b.pool.QueryRow(ctx, b.st.Share, askKeys, askIDs, owners, ttls, holds, endKeys, endIDs).Scan(&ended, &inTime, &granted, &tokens, &leases)
	if err != nil {
		const undefinedFunction = "42883"
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == undefinedFunction && !b.unshared.Swap(true) {
			b.logger.WarnContext(ctx, "locks of different keys share no commits, because the tables are of an older version: install the schema again", "error", err)
		}
		return nil, fmt.Errorf("%w: %w", errSent, err)
	}
	out := make([]errandDone, len(batch))
	for i, id := range ended {
		out[places[id]] = errandDone{done: true, inTime: inTime[i]}
	}
	for i, id := range granted {
		at := places[id]
		out[at] = errandDone{done: true, grant: batch[at].asks.grant(tokens[i], leases[i], start)}
	}
	return out, nil
}
