package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
)

const (
	// A part of a closing is some blocks of the accounts, of 8 kB.
	closeAtFirst = 2
	closeAtLeast = 1
	closeAtMost  = 2048
	// closeWork is what a part should do, about 10 ms of a processor: its statement keeps its snapshot for as long, and commands wait for the
	// processor. A changed account is one, an entry with its transfer two. It is no time, because most of a small part's time is a wait for its
	// commit, on a busy machine the more, so that parts would get smaller the less they do.
	closeWork = 1024
	// closeByIDs is how many accounts are a block where accounts are closed by their ids.
	closeByIDs = 16
)

// closeNext returns how many blocks the next part has, after one that had up to limit and looked at n accounts with so many new entries.
func closeNext(limit, n, entries int64) int64 {
	return min(max(limit*closeWork/max(n+2*entries, 1), closeAtLeast), 2*limit, closeAtMost)
}

// closeFrom is above all ids, also those that somebody has made by hand.
const closeFrom = "\U0010FFFF"

const (
	// closeAccounts counts what is new of the changed accounts in some blocks, and closes those that agree. A closing that another process has
	// made in the meantime, of a later version, stays. It returns those that do not follow from their closing, and how many have an entry that is
	// not what its transfer says, which are not closed either.
	closeAccounts = `WITH part AS MATERIALIZED (SELECT` + partOfAccounts + changedSince + ` AND a.ctid >= $1::text::tid AND a.ctid < $4::text::tid),` + closeChanged
	// closeAccountsPlainly does so from the last id to the first, where rows tell neither their places nor who has changed them.
	closeAccountsPlainly = `WITH part AS MATERIALIZED (SELECT` + partOfAccounts + anyAccount + ` AND a.id < $1 ORDER BY a.id DESC LIMIT $4),` + closeChanged
	partOfAccounts       = ` a.id, a.currency, a.version, a.available, a.held FROM accounts AS a WHERE `
	closeChanged         = `
	changed AS MATERIALIZED (
		SELECT p.id, p.currency, p.version, p.available, p.held, c.version AS since, coalesce(c.available::numeric + c.held, 0) AS before
		FROM part AS p LEFT JOIN closed_accounts AS c ON c.account = ANY (ARRAY[p.id])
		WHERE c.account IS NULL OR c.version <> p.version OR c.available <> p.available OR c.held <> p.held),
	counted AS MATERIALIZED (
		SELECT x.id, x.version, x.available, x.held, x.since IS NULL OR x.since < x.version AS newer,
			x.before + n.total = x.available::numeric + x.held AND n.others = 0 AS adds, n.strange IS NULL AS known, n.entries
		FROM changed AS x CROSS JOIN LATERAL ` + newEntries + ` AS n),
	closed AS (
		INSERT INTO closed_accounts AS c (account, version, available, held)
		SELECT id, version, available, held FROM counted WHERE newer AND adds AND known ORDER BY id
		ON CONFLICT (account) DO UPDATE SET version = excluded.version, available = excluded.available, held = excluded.held
			WHERE c.version < excluded.version RETURNING 1)
	SELECT (SELECT count(*) FROM part), coalesce((SELECT min(id) FROM part), ''), (SELECT count(*) FROM closed),
		(SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM counted WHERE known AND NOT (newer AND adds)), (SELECT count(*) FROM counted WHERE NOT known), (SELECT coalesce(sum(entries), 0)::bigint FROM counted)`
	// planOnce has a session make one plan of closeAccounts. Else it makes one for each part, which takes as long as 500 accounts when the
	// history has a year of partitions.
	planOnce = `SET LOCAL plan_cache_mode = force_generic_plan`
	// closeAnew closes accounts by all of their entries, where these agree with their balances. A closing that was wrong ends here.
	closeAnew = `
	INSERT INTO closed_accounts (account, version, available, held)
	SELECT a.id, a.version, a.available, a.held FROM unnest($1::text[]) AS n (id) JOIN accounts AS a ON a.id = ANY (ARRAY[n.id])
		CROSS JOIN LATERAL (SELECT coalesce(sum(e.amount), 0) AS total, count(*) FILTER (WHERE e.currency <> a.currency) AS others
			FROM ` + allAmounts + ` WHERE e.account = a.id) AS e
	WHERE e.total = a.available::numeric + a.held AND e.others = 0
	ON CONFLICT (account) DO UPDATE SET version = excluded.version, available = excluded.available, held = excluded.held`
	// moveClosing writes what a closing has found, where no other one has come as far.
	moveClosing = `UPDATE ledger_closing SET` + moveSums + `horizon = $4::bigint, cluster = ` + thisCluster + moveOn + ` AND pg_relation_filenode('accounts') = $5::bigint`
	moveSums    = ` at = $1, settled = $2, sums = $3, `
	moveOn      = ` WHERE at < $1 AND settled <= $2`
	// beginClosing reads the time, and the first transaction that may not have ended yet: what it and later ones write, nested ones
	// included, is looked at by the next closing, wherever in the table it is. Behind the horizon come the table's file, in which rows stay where they are
	// unless they change, and how many blocks it has: rows of earlier transactions are in these.
	beginClosing = `SELECT clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_relation_filenode('accounts')::bigint,
		pg_relation_size('accounts') / current_setting('block_size')::bigint`
)

// Pace says how much of a processor a closing takes: after each part it rests for Rest times as long as the part took. The longer it takes,
// the less it rests, and after Within not at all: what is new meanwhile is work of the next closing and of every check until then, and
// would grow without a bound.
type Pace struct {
	Rest   int
	Within time.Duration // 0: it always rests for Rest times as long
}

// after returns for how many times the duration of a part a closing rests that has taken so long.
func (p Pace) after(took time.Duration) float64 {
	if p.Within == 0 {
		return float64(p.Rest)
	}
	return float64(p.Rest) * float64(max(p.Within-took, 0)) / float64(p.Within)
}

// Closing says what a closing of the books has done.
type Closing struct {
	Closed   int64 // accounts of which something was new, and agrees
	Bad      int64 // accounts that do not agree with their entries
	Balanced bool  // whether they have, together, what came in
}

// closingWork is a closing under way.
type closingWork struct {
	Closing
	base    *closedBooks // the last one
	began   time.Time
	horizon *int64 // nil where rows don't tell who has written them
	file    *int64 // nil where rows don't tell their places
	blocks  int64  // of the accounts
	block   int64  // the next one
	before  string // where there are no blocks: the accounts from here on were looked at
	limit   int64  // blocks of the next part
}

// CloseAccounts closes the books for the integrity check: it counts the entries that are new since the last closing, and remembers the
// balances that they lead to. It goes over the accounts that were changed since, part by part, each in a statement of its own, so that no
// snapshot is kept for long. A process that dies leaves the parts that it has closed. Any number of processes may do this at a time.
//
// There is nothing to do, and it returns nil, as long as the whole ledger is counted whenever somebody asks: while it is small, and
// before the first recount.
func (l *Ledger) CloseAccounts(ctx context.Context, pace Pace) (*Closing, error) {
	c, err := l.beginClosing(ctx)
	if err != nil || c == nil {
		return nil, err
	}
	start := time.Now()
	for more := true; more; {
		if err := thenPause(ctx, pace.after(time.Since(start)), func() (err error) {
			more, err = l.closeSome(ctx, c)
			return err
		}); err != nil {
			return nil, err
		}
	}
	if err := thenPause(ctx, pace.after(time.Since(start)), func() (err error) {
		settled, upto, balanced, err := l.closeFlows(ctx, c.base, c.began)
		// An account that does not agree is looked at again, and its entries since the last closing.
		if c.Balanced = balanced; err == nil && c.Bad == 0 {
			err = l.moveClosing(ctx, c, upto, settled)
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("postgres: close the books: %w", err)
	}
	return &c.Closing, nil
}

// closeSome closes the next part, and reports whether there may be more.
func (l *Ledger) closeSome(ctx context.Context, c *closingWork) (more bool, err error) {
	var n, closed, strange, entries int64
	var suspects []string
	from, to := any(c.before), any(c.limit*closeByIDs)
	if c.file != nil {
		from, to = fmt.Sprintf("(%d,0)", c.block), fmt.Sprintf("(%d,0)", min(c.block+c.limit, c.blocks))
	}
	if err := l.write(ctx, func(tx pgx.Tx) error {
		if c.file != nil {
			if _, err := tx.Exec(ctx, planOnce); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, l.books().closeAccounts, from, c.base.horizon, c.base.from, to).Scan(&n, &c.before, &closed, &suspects, &strange, &entries)
	}); err != nil {
		return false, fmt.Errorf("postgres: close accounts: %w", err)
	}
	crashpoint.Hit(crashpoint.BooksClosed)
	c.Closed += closed
	c.Bad += strange
	if len(suspects) > 0 {
		var anew int64
		if err := l.write(ctx, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, closeAnew, suspects)
			anew = tag.RowsAffected()
			return err
		}); err != nil {
			return false, fmt.Errorf("postgres: close accounts anew: %w", err)
		}
		c.Closed += anew
		c.Bad += int64(len(suspects)) - anew
	}
	c.block += c.limit
	more = c.block < c.blocks || c.file == nil && n == c.limit*closeByIDs
	c.limit = closeNext(c.limit, n, entries)
	return more, nil
}

// beginClosing reads the last closing, and what one that begins now goes over; nil where there is nothing to do.
func (l *Ledger) beginClosing(ctx context.Context) (*closingWork, error) {
	c := closingWork{before: closeFrom, limit: closeAtFirst}
	err := l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if c.base, err = l.closedBooks(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, l.books().beginClosing).Scan(&c.began, &c.horizon, &c.file, &c.blocks)
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: read the last closing: %w", err)
	}
	if c.base == nil {
		return nil, nil
	}
	return &c, nil
}

// snapshot reads from the primary's connections for reads, in one transaction.
func (l *Ledger) snapshot(ctx context.Context, read func(context.Context, pgx.Tx) error) error {
	primary := l.db.reads
	primary.replica = nil
	return primary.snapshot(ctx, "closing of the books", scanTimeout, read)
}

// write runs a transaction that may take longer than a command's.
func (l *Ledger) write(ctx context.Context, write func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, l.db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', '15min', true)`); err != nil {
			return err
		}
		return write(tx)
	})
}

// closeFlows adds what came in and went out to that of the last closing, up to an id, and reports whether the accounts have it.
func (l *Ledger) closeFlows(ctx context.Context, base *closedBooks, began time.Time) (settled flows, upto uuid.UUID, balanced bool, err error) {
	upto = uuidAt(began.Add(-settledAfter))
	if string(upto[:]) < string(base.settled[:]) {
		upto = base.settled
	}
	err = l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanFreely); err != nil {
			return err
		}
		inside, _, err := sumInside(ctx, tx)
		if err != nil {
			return err
		}
		now, old, err := flowsSince(ctx, tx, base.settled, upto)
		if err != nil {
			return err
		}
		settled = base.sums.plus(old)
		if balanced = agree(inside.against(base.sums.plus(now))); balanced {
			return nil
		}
		if now, settled, err = flowsSince(ctx, tx, uuid.UUID{}, upto); err == nil {
			balanced = agree(inside.against(now))
		}
		return err
	})
	return settled, upto, balanced, err
}

// moveClosing writes that a closing has ended, unless the accounts were written anew since it began: some may then have passed from where it had
// not been yet to where it had. The next one looks at these.
func (l *Ledger) moveClosing(ctx context.Context, c *closingWork, upto uuid.UUID, settled flows) error {
	sums, err := json.Marshal(settled)
	if err != nil {
		return err
	}
	return l.write(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, l.books().moveClosing, c.began, upto, string(sums), c.horizon, c.file)
		return err
	})
}
