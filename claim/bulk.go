package claim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// bulk is from how many rows on [Claims.ClaimDue] looks behind the rows that it claimed last.
const bulk = 100

// place is up to when this process has claimed what is due. A row that was claimed leaves a dead entry in the index of claimable rows, and while somebody holds
// a snapshot, as a dump does, PostgreSQL removes none: a look from the beginning goes through all of them, and one from the place on passes them over. The place is
// a hint: only the order of claims rests on it.
type place struct {
	mu    sync.Mutex
	due   *time.Time // the latest due time that was claimed; nil: it is not known
	until time.Time  // when to look from the beginning again
}

// get returns where to look from, nil from the beginning.
func (p *place) get() *time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due == nil || time.Now().After(p.until) {
		return nil
	}
	return p.due
}

// move notes what a look from so far on that began at a time has claimed last.
func (p *place) move(from, due *time.Time, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := time.Now(); {
	case due == nil:
		p.due = nil
	case from == nil:
		p.due, p.until = due, now.Add(wait.Sparing(now.Sub(began)))
	case p.due != nil && p.due.Before(*due): // Another look may have come further.
		p.due = due
	}
}

// claimBulk is [Claims.ClaimDue] for many rows. Where there are fewer behind the place than it wants, it looks from the beginning, too.
func (c *Claims[ID]) claimBulk(ctx context.Context, db DB, limit int) (all []Claim[ID], err error) {
	lockID := uuid.New()
	for from := c.place.get(); ; from = nil {
		began := time.Now()
		sql, args := c.sql.bulkSelected, []any{lockID, limit - len(all)}
		if from != nil {
			sql, args = c.sql.bulkBehind, append(args, *from)
		}
		var due *time.Time
		rows, err := db.Query(ctx, sql, args...)
		got, err := collect[ID](rows, err, &due)
		switch {
		case err != nil && len(all) > 0 && !transaction(db):
			return all, nil // They are claimed.
		case err != nil:
			return nil, fmt.Errorf("claim: claim rows: %w", err)
		case due != nil:
			*due = due.UTC()
		}
		c.place.move(from, due, began)
		for i := range got {
			got[i].since = began
		}
		if all = append(all, got...); from == nil || len(all) == limit {
			return all, nil
		}
	}
}
