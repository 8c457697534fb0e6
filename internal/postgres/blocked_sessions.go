package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// tablesEvery is how often it is looked who keeps tables locked. A look reads all locks of the database.
	tablesEvery = time.Second
	// tablesFor is for how long it is looked after a transaction has last waited in vain: longer than between two scrapes.
	tablesFor = time.Minute
)

// lockedTables is what is known of tables that other sessions keep locked, or rows there that no command can do without. Nobody looks for them
// before a transaction has waited in vain.
type lockedTables struct {
	met    time.Time // when a transaction has last waited in vain; zero: not within tablesFor
	looked time.Time
}

// meet notes that a transaction has waited for a lock in vain, and without the rows that it can do without.
func (b *blockedRows) meet() {
	if b == nil { // Elections have connections of their own, and need no table that commands do.
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tables.met = time.Now()
	b.watch()
}

// lookAtTables counts the tables that others keep locked, where transactions have waited in vain and the last look is old enough.
func (b *blockedRows) lookAtTables() {
	b.mu.Lock()
	t := b.tables
	over := !t.met.IsZero() && time.Since(t.met) > tablesFor
	if over {
		b.tables.met = time.Time{}
	}
	b.mu.Unlock()
	switch {
	case over:
		b.reportTables(0)
	case !t.met.IsZero() && time.Since(t.looked) > tablesEvery:
		b.countTables()
		b.mu.Lock()
		b.tables.looked = time.Now()
		b.mu.Unlock()
	}
}

// countTables reports how many tables others keep locked. Where it can't be told, the last count stays.
func (b *blockedRows) countTables() {
	ctx, cancel := context.WithTimeout(b.ctx, probeTimeout)
	defer cancel()
	rows, err := b.db.pool.Query(ctx, selectLockers, blockedFor, needed(), tableModes())
	if err != nil {
		return
	}
	lockers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[locker])
	if err != nil {
		return
	}
	tables := map[string]bool{}
	for i := range lockers {
		for _, name := range append(lockers[i].RowsOf, lockers[i].Tables...) {
			tables[name] = true
		}
	}
	b.reportTables(len(tables))
}

func (b *blockedRows) reportTables(n int) {
	if b.db.observer != nil {
		b.db.observer.BlockedTables(n)
	}
}
