package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	insertRecount = `INSERT INTO ledger_recounts (id, runner, began_at, worked_at, state, snapshot, balances) VALUES ($1, $2, $3, clock_timestamp(), $4, $5, $6)
		ON CONFLICT (runner) WHERE finished_at IS NULL DO NOTHING`
	dropRecount = `DELETE FROM ledger_recounts WHERE runner = $1 AND finished_at IS NULL`
	openRecount = `SELECT id, began_at, round, state, snapshot, balances FROM ledger_recounts WHERE runner = $1 AND finished_at IS NULL`
	saveRecount = `UPDATE ledger_recounts SET state = $3, round = round + 1, worked_at = clock_timestamp()
		WHERE id = $1 AND round = $2 AND finished_at IS NULL`
	endRecount = `WITH ended AS (
			UPDATE ledger_recounts SET finished_at = clock_timestamp(), valid = $3, first_bad_account = $4, bad_transfers = $5, round = round + 1
			WHERE id = $1 AND round = $2 AND finished_at IS NULL RETURNING id, runner)
		DELETE FROM ledger_recounts AS r USING ended AS e WHERE r.runner = e.runner AND r.id <> e.id`
	// startClosing gives closings what they go on from, where there is none. What they have counted themselves stays: it is newer.
	startClosing = `INSERT INTO ledger_closing AS c (at, upto, snapshot, seed, books, cluster) VALUES ($1, $2, $3, $4, $5, ` + thisCluster + `)` + overUseless +
		usableClosing + `) IS NOT TRUE`
	overUseless = ` ON CONFLICT (one) DO UPDATE SET at = excluded.at, upto = excluded.upto, snapshot = excluded.snapshot, seed = excluded.seed, books = excluded.books,
		cluster = excluded.cluster WHERE (`
	selectBooksKept = `SELECT ` + manyEntries + `, ` + sizeOfEntries + booksKept + usableClosing + booksBegun
	booksKept       = `, count(*) FILTER (WHERE finished_at IS NULL AND runner = $2) > 0, clock_timestamp() - (SELECT at FROM ledger_closing AS c WHERE `
	booksBegun      = `), clock_timestamp() - max(began_at) FILTER (WHERE finished_at IS NOT NULL),
		coalesce((array_agg(valid ORDER BY began_at DESC) FILTER (WHERE finished_at IS NOT NULL))[1], true) FROM ledger_recounts`
)

// Runners of recounts.
const (
	RunnerServer   = "server"
	RunnerOperator = "operator"
)

const (
	// legsAtOnce is how many legs are counted at once.
	legsAtOnce = 20_000
	// wraps is how old a row is that a recount counts whatever its transaction's number is.
	wraps = 24 * time.Hour
)

// RecountOptions are how a recount goes.
type RecountOptions struct {
	Runner   string                   // whose it is
	Restart  bool                     // leave one that was interrupted, and begin anew
	Blocks   int64                    // how many blocks a statement counts at most
	Least    int64                    // how many it counts when there are few accounts; 0: always Blocks
	AtOnce   int                      // how many statements are under way at a time
	Rest     int                      // rest so many times as long as each part took
	Progress func(at RecountProgress) // called after each part; may be nil
}

// RecountProgress is how far a recount has come.
type RecountProgress struct {
	Began       time.Time
	Resumed     bool
	Done, Total int64 // blocks of entries and transfers
	Entries     int64
}

// recount is one that is under way.
type recount struct {
	id       uuid.UUID
	began    time.Time
	round    int64
	readOnly bool // it can't be saved
	resumed  bool
	snapshot string // in which it began
	balances string // as [books]
	recountState
}

// piece is a table that a recount goes over.
type piece struct {
	Name   string
	Blocks int64  // when the recount began
	Place  string // changes when rows get other places
}

// recountState is what is kept of it.
type recountState struct {
	At       moment
	Seed     int64
	Pieces   [2][]piece // of entries, of transfers
	Beside   int64      // blocks of accounts, which are read with each part of the entries
	Step     int
	Block    int64 // the next one
	Leg      uuid.UUID
	Accounts *big.Int // all balances, by weight
	Entries  *big.Int // all entries, likewise
	Sides    *big.Int // the hashes of entries, less those that the transfers must have
	Counted  int64    // entries
	Bad      int64    // accounts of entries, and legs, that are not what they should be
	Holds    bool     // whether all held money is that of holds
	In       holdings
	Flows    flows
}

// Recount counts all entries, transfers and legs, and compares them with the balances as they were when it began. It goes over the tables
// part by part: each is read in a snapshot of its own, and what was committed after the beginning is left out. What it has counted is
// kept in the database, so that a recount that was interrupted, by whatever, goes on with the part that it was at. If anything disagrees,
// a check in one snapshot decides, and says what it is.
//
// A small ledger is counted at once.
func (l *Ledger) Recount(ctx context.Context, o RecountOptions) (ledger.Integrity, error) {
	in, err := l.recount(ctx, o)
	if err != nil {
		return ledger.Integrity{}, fmt.Errorf("postgres: recount: %w", err)
	}
	return in, nil
}

func (l *Ledger) recount(ctx context.Context, o RecountOptions) (ledger.Integrity, error) {
	var large bool
	err := l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, l.bookkeeping().large, l.wholeBelow).Scan(&large)
	})
	if err != nil {
		return ledger.Integrity{}, err
	}
	if !large {
		return l.whole(ctx)
	}
	if !l.tellsRows() {
		return l.recountAtOnce(ctx, o)
	}
	r, err := l.openRecount(ctx, o)
	for err == nil && r.Step < recountSteps {
		if o.Progress != nil {
			o.Progress(r.progress())
		}
		err = thenPause(ctx, float64(o.Rest), func() error {
			switch err = l.countPart(ctx, r, o); {
			case err == nil:
				crashpoint.Hit(crashpoint.BooksCounted)
				r, err = l.saveRecount(ctx, r, o)
				crashpoint.Hit(crashpoint.BooksSaved)
			case errors.Is(err, errTablesMoved):
				o.Restart = true
				r, err = l.openRecount(ctx, o)
			}
			return err
		})
	}
	if err != nil {
		return ledger.Integrity{}, err
	}
	return l.endRecount(ctx, r)
}

// thenPause does one part of the work and pauses for times its duration, even after an error.
func thenPause(ctx context.Context, times float64, work func() error) error {
	began := time.Now()
	err := work()
	if pause := time.Duration(times * float64(time.Since(began))); pause > 0 && !wait.For(ctx, pause) {
		return ctx.Err()
	}
	return err
}

// countsWhole reports that one snapshot has to decide, because what was counted in parts does not agree.
func (l *Ledger) countsWhole(reason string) {
	if l.db.observer != nil {
		l.db.observer.Fallback(booksInParts, reason)
	}
}

// booksInParts names checks of the books in metrics.
const booksInParts = "books in parts"

// whole counts everything in one snapshot.
func (l *Ledger) whole(ctx context.Context) (out ledger.Integrity, err error) {
	err = l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanFreely); err != nil {
			return err
		}
		out, err = countWhole(ctx, tx)
		return err
	})
	return out, err
}

// openRecount returns the recount that is under way, or begins one.
func (l *Ledger) openRecount(ctx context.Context, o RecountOptions) (*recount, error) {
	for {
		if !o.Restart {
			if r, err := l.goOn(ctx, o.Runner); r != nil || err != nil {
				return r, err
			}
		}
		r := newRecount()
		var begun bool
		err := pgx.BeginTxFunc(ctx, l.db.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
			begun, err = r.begin(ctx, tx, o)
			return err
		})
		if pgkit.Code(err) == serializationFailure {
			begun, err = false, nil
		}
		if begun || err != nil {
			crashpoint.Hit(crashpoint.BooksBegun)
			return r, err
		}
		o.Restart = false // Another process has begun one in this moment.
	}
}

// goOn returns the recount that is under way; nil: there is none.
func (l *Ledger) goOn(ctx context.Context, runner string) (*recount, error) {
	r := recount{resumed: true}
	var state string
	err := l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, openRecount, runner).Scan(&r.id, &r.began, &r.round, &state, &r.snapshot, &r.balances)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(state), &r.recountState)
	}
	return &r, err
}

// saveRecount keeps what was counted. Where another process has done so before, it goes on from there.
func (l *Ledger) saveRecount(ctx context.Context, r *recount, o RecountOptions) (*recount, error) {
	if r.readOnly {
		return r, nil
	}
	state, err := json.Marshal(r.recountState)
	if err != nil {
		return nil, err
	}
	tag, err := l.db.pool.Exec(ctx, saveRecount, r.id, r.round, string(state))
	if err == nil && tag.RowsAffected() == 0 {
		if r, err = l.goOn(ctx, o.Runner); r == nil && err == nil {
			err = errRecountEnded
		}
		return r, err
	}
	r.round++
	return r, err
}

// errRecountEnded is returned where another process has ended a recount, or begun it anew.
var errRecountEnded = errors.New("another process has ended this recount, or begun it anew: try again")

// endRecount compares what was counted.
func (l *Ledger) endRecount(ctx context.Context, r *recount) (ledger.Integrity, error) {
	out := ledger.Integrity{Currencies: r.In.against(r.Flows), CheckedAt: r.began, ClosedAt: r.began, RecountedAt: r.began}
	judge(&out)
	if out.Valid = out.Valid && r.agrees(); !out.Valid {
		l.countsWhole("recount")
		var err error
		if out, err = l.whole(ctx); err != nil {
			return out, err
		}
	}
	if r.readOnly {
		return out, nil
	}
	err := pgx.BeginFunc(ctx, l.db.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, endRecount, r.id, r.round, out.Valid, out.FirstBadAccount, out.BadTransfers)
		if err == nil && r.agrees() {
			err = r.startClosing(ctx, tx)
		}
		return err
	})
	return out, err
}

// startClosing makes a closing of the balances as they were when the recount began, which its entries have proven.
func (r *recount) startClosing(ctx context.Context, tx pgx.Tx) error {
	proven := readBooks(r.balances)
	proven.Flows = r.Flows
	text, err := json.Marshal(proven)
	if err != nil {
		return err
	}
	c := closedBooks{at: r.began, snapshot: &r.snapshot}
	_, err = tx.Exec(ctx, startClosing, c.at, c.settled(), c.snapshot, r.Seed, string(text))
	return err
}

// Books is what was done with the books so far.
type Books struct {
	Large             bool           // false: all of it is counted whenever somebody asks
	Size              int64          // bytes of entries; 0 where the engine doesn't tell
	UnderWay          bool           // a recount of the runner
	Closed, Recounted *time.Duration // how long ago the last closing and the last recount that has ended began; nil: there was none
	Valid             bool           // whether that recount has found nothing
}

// Books returns it. Recounts under way are those of one runner.
func (l *Ledger) Books(ctx context.Context, runner string) (b Books, err error) {
	err = l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, l.bookkeeping().kept, l.wholeBelow, runner).Scan(&b.Large, &b.Size, &b.UnderWay, &b.Closed, &b.Recounted, &b.Valid)
	})
	if err != nil {
		err = fmt.Errorf("postgres: read what was done with the books: %w", err)
	}
	return b, err
}
