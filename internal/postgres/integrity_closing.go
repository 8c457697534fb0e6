package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

const (
	// closeWork is how many entries a part of a closing should count, in some 20 ms: the ids of a time, which is as long as the last part's entries
	// suggest, closeAtFirst at the beginning.
	closeWork    = 16 << 10
	closeAtFirst = time.Second
	closeAtLeast = time.Millisecond
	// closeUnknown is how many entries a part should count where the index does not know the newest ones, so that each part reads all of these.
	closeUnknown = 16 * closeWork

	beginClosing = `SELECT clock_timestamp(), ` + thisMoment
	// moveClosing writes what a closing has counted, unless another one has come further.
	moveClosing = `UPDATE ledger_closing AS c SET at = $1, upto = $2, snapshot = $3, books = $4, cluster = ` + thisCluster + sameSeed +
		` AND split_part(c.snapshot, ':', 2)::bigint <= split_part($3::text, ':', 2)::bigint`
	sameSeed    = ` WHERE c.seed = $5`
	dropClosing = `DELETE FROM ledger_closing WHERE at = $1`
	// summarize has the indexes by which entries are found by their ids know what is new. It does not wait for long, lest an autovacuum be asked to
	// leave: that does the same at its end.
	summarize = `SELECT brin_summarize_new_values(i.indexrelid) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam
		WHERE i.indrelid = ANY ($1::text[]::regclass[]) AND m.amname = 'brin' AND i.indisvalid`
)

// closeNext returns of how much time the ids are which the next part counts, so that it has work entries, after one of so much that had n.
func closeNext(last time.Duration, n, work int64) time.Duration {
	return max(min(time.Duration(float64(last)*float64(work)/float64(max(n, 1))), 2*last), closeAtLeast)
}

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
	ledger.Integrity // what it has found

	Entries int64 // that it has counted
}

// CloseBooks closes the books for the integrity check: it counts the entries that are new since the last closing, part by part, each in a snapshot of
// its own and none longer than the others take. Then it checks in one snapshot that they lead to the balances, and remembers their sums. A process that
// dies before that leaves the last closing as it was. Any number of processes may do this at a time: the latest one stays.
//
// There is nothing to do, and it returns nil, as long as the whole ledger is counted whenever somebody asks: while it is small, and
// before the first recount. A closing that does not explain the balances, although no account is wrong, is dropped: the next recount makes another.
func (l *Ledger) CloseBooks(ctx context.Context, pace Pace) (*Closing, error) {
	c, err := l.closeBooks(ctx, pace)
	if err != nil {
		return nil, fmt.Errorf("postgres: close the books: %w", err)
	}
	return c, nil
}

func (l *Ledger) closeBooks(ctx context.Context, pace Pace) (*Closing, error) {
	base, next, err := l.beginClosing(ctx)
	if err != nil || base == nil {
		return nil, err
	}
	work := int64(closeWork)
	known, err := l.summarize(ctx, base.upto)
	if err != nil {
		return nil, err
	}
	if !known {
		work = closeUnknown
	}
	start := time.Now()
	since, err := l.countParts(ctx, base, next, work, func() float64 { return pace.after(time.Since(start)) })
	if err != nil {
		return nil, err
	}
	next.books = base.books.plus(since.books)
	in, err := l.explains(ctx, next)
	if errors.Is(err, errUnexplained) && base.snapshot != nil {
		var late spanCount
		if err := l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			late, err = l.countEntries(ctx, tx, base, idSpan{base.lateFrom(), base.upto, next.moment})
			return err
		}); err != nil {
			return nil, err
		}
		if late.entries > 0 {
			l.countsWhole("late")
			since.add(late)
			next.books = base.books.plus(since.books)
			in, err = l.explains(ctx, next)
		}
	}
	if errors.Is(err, errUnexplained) {
		l.countsWhole("closings")
		_, failed := l.db.pool.Exec(ctx, dropClosing, base.at)
		err = errors.Join(fmt.Errorf("%w: it is dropped, and the next recount makes another", err), failed)
	}
	if err != nil {
		return nil, err
	}
	c := Closing{in, since.entries}
	// New entries of an account, or a transfer, that is wrong are looked at again.
	c.BadTransfers += int64(len(since.bad))
	if c.Valid = c.Valid && c.BadTransfers == 0; !c.Valid {
		return &c, nil
	}
	text, err := json.Marshal(next.books)
	if err != nil {
		return nil, err
	}
	_, err = l.db.pool.Exec(ctx, l.bookkeeping().moveClosing, next.at, next.upto, next.snapshot, string(text), next.seed)
	return &c, err
}

// explains checks, in one snapshot, that a closing and what came after it lead to the balances, and notes how many accounts there are.
func (l *Ledger) explains(ctx context.Context, c *closedBooks) (in ledger.Integrity, err error) {
	err = l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanFreely); err != nil {
			return err
		}
		in, c.books.Accounts, err = l.countSince(ctx, tx, c)
		return err
	})
	return in, err
}

// beginClosing reads the last closing, nil where there is none, and begins another.
func (l *Ledger) beginClosing(ctx context.Context) (base, next *closedBooks, err error) {
	err = l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if base, err = l.closedBooks(ctx, tx); err != nil || base == nil {
			return err
		}
		next = &closedBooks{seed: base.seed}
		if err := tx.QueryRow(ctx, l.bookkeeping().beginClosing).Scan(&next.at, &next.snapshot); err != nil || next.snapshot == nil {
			return err
		}
		next.moment, err = readMoment(*next.snapshot)
		return err
	})
	if next != nil {
		next.upto = next.settled()
		if next.snapshot == nil && bytes.Compare(next.upto[:], base.upto[:]) < 0 {
			next.upto = base.upto // The clock was set back.
		}
	}
	return base, next, err
}

// settled is the least id of entries that a closing does not have, but for late ones.
func (b *closedBooks) settled() uuid.UUID {
	if b.snapshot == nil {
		return partitions.At(b.at.Add(-settledAfter))
	}
	return partitions.At(b.at.Add(-lateWithin))
}

// lateFrom is from which id on entries are looked for that a closing lacks, and that have ids of before it.
func (b *closedBooks) lateFrom() uuid.UUID { return partitions.At(b.at.Add(-lateAtMost)) }

// countParts counts the entries that one closing has and the other does not, about work of them at a time, and rests after each part.
func (l *Ledger) countParts(ctx context.Context, base, next *closedBooks, work int64, rest func() float64) (all spanCount, err error) {
	all = spanCount{books: newBooks(), bad: map[uuid.UUID]bool{}}
	// The last part has the ids of clocks that are ahead, too.
	until, end := partitions.At(next.at), uuid.Max
	if next.snapshot == nil {
		until, end = next.upto, next.upto
	}
	step := closeAtFirst
	for s := (idSpan{from: base.upto, upto: next.moment}); bytes.Compare(s.from[:], end[:]) < 0; s.from = s.to {
		again := base.snapshot != nil && s.from == base.upto // Nearly all of these are counted: it says nothing of the next.
		if s.to = partitions.At(partitions.Time(s.from).Add(step)); again {
			s.to = partitions.At(base.at)
		}
		if bytes.Compare(s.to[:], until[:]) >= 0 {
			s.to = end
		}
		var part spanCount
		if err := thenPause(ctx, rest(), func() error {
			return l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
				part, err = l.countEntries(ctx, tx, base, s)
				return err
			})
		}); err != nil {
			return all, err
		}
		if all.add(part); !again {
			step = closeNext(step, part.entries, work)
		}
		crashpoint.Hit(crashpoint.BooksClosed)
	}
	return all, nil
}

// summarize has the index know all entries with ids from one on, and reports whether it does: a role that does not own the tables can't, nor can
// anybody while an autovacuum is at work, which does it at its end.
func (l *Ledger) summarize(ctx context.Context, from uuid.UUID) (known bool, err error) {
	all, err := partitions.List(ctx, l.db.pool, partitions.Entries)
	if err != nil {
		return false, err
	}
	var pieces []string
	for _, p := range all {
		if bytes.Compare(p.To[:], from[:]) > 0 {
			pieces = append(pieces, p.Name)
		}
	}
	err = pgx.BeginFunc(ctx, l.db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, partitions.LockTimeout+`; SET LOCAL statement_timeout = '15min'`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, summarize, pieces)
		return err
	})
	if err == nil {
		return len(pieces) > 0, nil
	}
	if verdict, _ := pgkit.Classify(err); verdict == pgkit.Conflict || verdict == pgkit.Denied {
		return false, nil
	}
	return false, err
}

// snapshot reads from the primary's connections for reads, in one transaction.
func (l *Ledger) snapshot(ctx context.Context, read func(context.Context, pgx.Tx) error) error {
	primary := l.db.reads
	primary.replica = nil
	return primary.snapshot(ctx, "closing of the books", scanTimeout, read)
}
