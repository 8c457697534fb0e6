package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// MinAge is how old the newest row of an archive is at least. No server's clock may be that late.
	MinAge = 24 * time.Hour
	// lockPause is between tries to lock a table that somebody uses for long.
	lockPause = 250 * time.Millisecond
	// blocks are copied, and added up, at a time: some 60,000 entries, in a snapshot of their own.
	blocks   = 1024
	deadlock = "40P01"
)

// Options are what is archived, and how.
type Options struct {
	Before    time.Time     // what is older is archived, in whole partitions
	Directory string        // of the archives: each has one in it
	MinAge    time.Duration // 0 means [MinAge]
	Rest      int           // rest so many times as long as each part took
	// KeepPurchases leaves purchases where they are, so that the proofs of draws go on to be served.
	KeepPurchases bool
	DryRun        bool           // only say what would be archived
	Restart       bool           // leave an archive that is under way, and has not left the tables, and begin it anew
	Progress      func(Progress) // called after each part; may be nil
}

// Progress is how far an archive is.
type Progress struct {
	Archive     int
	Upto        time.Time
	Doing       string
	Done, Total int64 // blocks of a table; 0 of 0: that is not known
	Waiting     bool  // for somebody who uses a table
}

// Archive is one that was made.
type Archive struct {
	Number    int        `json:"archive"`
	From      *time.Time `json:"from"` // nil: from the beginning
	To        time.Time  `json:"to"`
	Directory string     `json:"directory"`
	Files     []File     `json:"files"`
}

// Result is what was archived, or would be.
type Result struct {
	Made []Archive `json:"archives"`
	// Next is the oldest history that stays: it ends at Next. nil: there is no other than what no partition has.
	Next *time.Time `json:"next"`
	Why  string     `json:"why"` // the next partitions stay
	// Purchases is why purchases stay that are as old as what is archived; empty: none do.
	Purchases string `json:"purchases"`
}

// Errors of [Run].
var (
	// ErrInOnePiece is returned where the tables have no partitions.
	ErrInOnePiece = errors.New("the history of this database is in one piece: run fairlead migrate up; on an engine that has no partitions, it can't be archived")
	// ErrUnderWay is returned where another process works on an archive, or has begun one elsewhere.
	ErrUnderWay = errors.New("an archive is under way")
)

// record is a row of the table archives.
type record struct {
	Number    int
	Upto      uuid.UUID
	From      uuid.UUID // where the archive before it ends
	Host      string
	Directory string
	Files     []File
	Carried   int64
	Detached  bool
	SalesFrom uuid.UUID // where the purchases of the archives before it end
}

// name is that of an archive's directory.
func (r *record) name() string {
	return fmt.Sprintf("%04d-before-%s", r.Number, strings.TrimSuffix(partitions.Time(r.Upto).Format("20060102-150405"), "-000000"))
}

// path is that of the archive's directory.
func (r *record) path() string { return filepath.Join(r.Directory, r.name()) }

// has reports whether there are rows of a table in it.
func (r *record) has(table string) bool {
	return slices.ContainsFunc(r.Files, func(f File) bool { return f.Table == table })
}

func (r *record) described() Archive {
	a := Archive{Number: r.Number, To: partitions.Time(r.Upto), Directory: r.path(), Files: r.Files}
	if r.From != uuid.Nil {
		from := partitions.Time(r.From)
		a.From = &from
	}
	return a
}

// runner makes archives.
type runner struct {
	Options

	pool *pgxpool.Pool
	host string
}

// Run archives all partitions that are older than o.Before, the oldest first. It goes on with an archive that was interrupted.
//
// Errors: [ErrInOnePiece], [ErrUnderWay], a [Damaged] file, the file system's, or the database's. After any of them, and after a crash,
// call it again.
func Run(ctx context.Context, pool *pgxpool.Pool, o Options) (Result, error) {
	host, err := os.Hostname()
	if err != nil {
		return Result{}, err
	}
	if o.Directory, err = filepath.Abs(o.Directory); err != nil {
		return Result{}, err
	}
	if o.MinAge == 0 {
		o.MinAge = MinAge
	}
	r := runner{o, pool, host}
	out, err := r.run(ctx)
	if err != nil {
		err = fmt.Errorf("archive: %w", err)
	}
	return out, err
}

func (r *runner) run(ctx context.Context) (out Result, err error) {
	out.Made = []Archive{}
	if err := r.sweepAll(ctx); err != nil {
		return out, err
	}
	if err := r.turnHolds(ctx); err != nil {
		return out, err
	}
	var last period
	for {
		a, err := r.underWay(ctx)
		if err != nil {
			return out, err
		}
		if a == nil {
			next, err := r.next(ctx, last)
			if err != nil {
				return out, err
			}
			out.Purchases = next.stay
			if out.Why = next.why; out.Why != "" {
				if next.upto != uuid.Nil {
					to := partitions.Time(next.upto)
					out.Next = &to
				}
				return out, nil
			}
			if r.DryRun {
				next.number += len(out.Made)
				out.Made = append(out.Made, next.described(r.Directory))
				last = next
				continue
			}
			if a, err = r.seal(ctx, next); err != nil {
				return out, err
			}
		}
		if r.DryRun {
			return out, fmt.Errorf("%w: number %d, begun on %s into %s", ErrUnderWay, a.Number, a.Host, a.Directory)
		}
		if err := r.make(ctx, a); err != nil {
			return out, err
		}
		out.Made = append(out.Made, a.described())
	}
}

// turnHolds has the closed holds be where archives take them from. Servers do it, too. Where somebody uses holds for long, they stay for a later archive.
func (r *runner) turnHolds(ctx context.Context) error {
	if r.DryRun {
		return nil
	}
	var now time.Time
	if err := r.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return err
	}
	_, err := partitions.TurnHolds(ctx, r.pool, now)
	if code := pgkit.Code(err); code == pgkit.LockTimeout || code == deadlock {
		return nil
	}
	return err
}

// period is what the next archive has.
type period struct {
	number     int
	from, upto uuid.UUID
	pieces     []partitions.Partition
	turn       int    // of the closed holds among the pieces; 0: there are none
	why        string // there is none

	salesFrom, sales uuid.UUID // where the purchases among the pieces begin, and end; the same: there are none
	stay             string    // why other purchases do that are older than upto
}

func (p *period) described(directory string) Archive {
	a := record{Number: p.number, From: p.from, Upto: p.upto, Directory: directory, Files: p.files()}
	return a.described()
}

// files are those that the archive will have.
func (p *period) files() (all []File) {
	for _, piece := range p.pieces {
		f := File{Table: piece.Table, Partition: piece.Name}
		if piece.Table == partitions.Purchases {
			f.Upto = piece.To
		}
		all = append(all, f)
	}
	return all
}

// next returns what is to be archived next, after the last archive; in a dry run, after what would be the last one.
func (r *runner) next(ctx context.Context, last period) (p period, err error) {
	const selectLast = `SELECT coalesce(max(number), 0) + 1, (SELECT upto FROM archived), (SELECT upto FROM archived_sales), clock_timestamp() FROM archives`
	var now time.Time
	if err := r.pool.QueryRow(ctx, selectLast).Scan(&p.number, &p.from, &p.salesFrom, &now); err != nil {
		return p, err
	}
	if r.DryRun && less(p.from, last.upto) {
		p.from, p.salesFrom = last.upto, last.sales
	}
	p.sales = p.salesFrom
	all, err := partitions.List(ctx, r.pool, partitions.Tables()...)
	if err != nil {
		return p, err
	}
	if len(all) == 0 {
		return p, ErrInOnePiece
	}
	var purchases []partitions.Partition
	for _, piece := range all {
		if piece.Table == partitions.Purchases {
			purchases = append(purchases, piece)
			continue
		}
		if piece.Rest || !less(p.from, piece.To) {
			continue
		}
		if p.upto == uuid.Nil {
			p.upto = piece.To
		}
		if piece.To == p.upto {
			p.pieces = append(p.pieces, piece)
		}
	}
	limit, end := now.Add(-r.MinAge), partitions.Time(p.upto)
	switch {
	case p.upto == uuid.Nil:
		p.why = "there are no further partitions"
	case len(p.pieces) < len(partitions.Tables())-1 || len(purchases) == 0:
		p.why = "the tables' partitions end at different times; fairlead migrate up has not come to its end"
	case end.After(r.Before):
		p.why = fmt.Sprintf("the oldest partitions end at %s, which is not before %s", end.Format(time.RFC3339), r.Before.UTC().Format(time.RFC3339))
	case end.After(limit):
		p.why = fmt.Sprintf("the oldest partitions end at %s: history is archived when it is %g hours old", end.Format(time.RFC3339), r.MinAge.Hours())
	}
	if r.KeepPurchases {
		purchases = nil
	}
	if p.why != "" {
		return p, p.staying(ctx, r.pool, purchases)
	}
	if err = p.addPurchases(ctx, r.pool, purchases); err == nil {
		err = p.addHolds(ctx, r.pool, last.turn)
	}
	return p, err
}

func less(a, b uuid.UUID) bool { return string(a[:]) < string(b[:]) }

// addHolds adds the oldest holds after a turn, where all of them were closed before the archive's end. Months of two turns are those of a pause in which no
// server was at work; the later one's holds leave with the next archive.
func (p *period) addHolds(ctx context.Context, q partitions.Querier, after int) error {
	turns, err := partitions.Settled(ctx, q)
	for _, t := range turns {
		if t.Number > after {
			if !t.SettledAt.After(partitions.Time(p.upto)) {
				p.turn = t.Number
				p.pieces = append(p.pieces, partitions.Partition{Table: partitions.ClosedHolds, Name: t.Table(), To: p.upto})
			}
			break
		}
	}
	return err
}

const selectRecords = `SELECT *, coalesce(lag(upto) OVER (ORDER BY number), '` + nothing + `') AS since,
	coalesce((SELECT sales_upto FROM archives AS b WHERE b.number < archives.number AND sales_upto IS NOT NULL ORDER BY b.number DESC LIMIT 1), '` + nothing + `') AS sales_since
	FROM archives`

// nothing is uuid.Nil.
const nothing = "00000000-0000-0000-0000-000000000000"

// records returns archives, in their order.
func records(ctx context.Context, q partitions.Querier, which string) ([]record, error) {
	rows, err := q.Query(ctx, `SELECT number, upto, since, host, directory, files::json, carried, detached_at IS NOT NULL, sales_since FROM (`+selectRecords+`) AS a WHERE `+which+` ORDER BY number`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[record])
}

// underWay returns the archive that was begun and has not come to its end; nil: there is none.
func (r *runner) underWay(ctx context.Context) (*record, error) {
	all, err := records(ctx, r.pool, `dropped_at IS NULL`)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	a := &all[0]
	unwanted := r.KeepPurchases && a.has(partitions.Purchases)
	switch {
	case a.Detached || !unwanted && a.Host == r.host && a.Directory == r.Directory:
		return a, nil
	case r.Restart:
		return nil, r.giveUp(ctx, a)
	case unwanted:
		return nil, fmt.Errorf("%w: number %d, begun with purchases: give --purchases to go on with it, or --restart to begin it anew without them", ErrUnderWay, a.Number)
	}
	return nil, fmt.Errorf("%w: number %d, begun on %s into %s: go on there, or give --restart", ErrUnderWay, a.Number, a.Host, a.Directory)
}

// make brings an archive to its end.
func (r *runner) make(ctx context.Context, a *record) error {
	if !a.Detached {
		for _, work := range []func(context.Context, *record) error{r.writeAll, r.keep, r.expire, r.detach} {
			if err := work(ctx, a); err != nil {
				return err
			}
		}
	}
	return r.drop(ctx, a)
}

// writeAll has the files of an archive be on the disk, and the sums in the database. Meanwhile no other run takes its files for left ones.
func (r *runner) writeAll(ctx context.Context, a *record) error {
	if err := os.MkdirAll(a.path(), 0o750); err != nil {
		return err
	}
	free, _, err := lock(a.path(), false)
	if err != nil {
		return err
	}
	for _, work := range []func(context.Context, *record) error{r.copyAll, r.carry, r.compare} {
		if err == nil {
			err = work(ctx, a)
		}
	}
	free()
	if err == nil {
		sweep(a.path()) // Of a run beside this one.
	}
	return err
}

func (r *runner) tell(a *record, doing string, done, total int64) {
	if r.Progress != nil {
		r.Progress(Progress{Archive: a.Number, Upto: partitions.Time(a.Upto), Doing: doing, Done: done, Total: total})
	}
}

// locking runs a transaction that locks tables. Where somebody uses one for long, it gives up before commands have to wait, and tries again, until ctx ends.
// An autovacuum is asked to leave once only: the tries may go on for hours, and the other tables need their vacuum.
func (r *runner) locking(ctx context.Context, a *record, doing string, change func(pgx.Tx) error) error {
	for told, asked := false, false; ; asked = true {
		err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, partitions.LockTimeout); err != nil {
				return err
			}
			return change(tx)
		})
		if code := pgkit.Code(err); code != pgkit.LockTimeout && code != deadlock {
			return err
		}
		if !told && r.Progress != nil {
			told = true
			r.Progress(Progress{Archive: a.Number, Upto: partitions.Time(a.Upto), Doing: doing, Waiting: true})
		}
		if !asked {
			pgkit.AskVacuum(ctx, r.pool, "")
		}
		if !wait.For(ctx, lockPause) {
			return ctx.Err()
		}
	}
}

// parts does something with the blocks of a table, some at a time, from one on, and rests after each part.
func (r *runner) parts(ctx context.Context, a *record, doing string, from, total int64, part func(from, to int64) error) error {
	for from < total {
		to := min(from+blocks, total)
		began := time.Now()
		if err := part(from, to); err != nil {
			return err
		}
		from = to
		r.tell(a, doing, from, total)
		if rest := time.Duration(r.Rest) * time.Since(began); rest > 0 && !wait.For(ctx, rest) {
			return ctx.Err()
		}
	}
	return nil
}

// rowsAtOnce are read of a file, or copied in order, between two rests.
const rowsAtOnce = 20_000

// paced returns what is called for each row of a file that is read, and rests now and then.
func (r *runner) paced(ctx context.Context) func() error {
	rows, rest := 0, r.resting(ctx)
	return func() error {
		if rows++; rows%rowsAtOnce != 0 {
			return nil
		}
		return rest()
	}
}

// resting returns what is called after each part of a work, and rests so many times as long as the part took.
func (r *runner) resting(ctx context.Context) func() error {
	began := time.Now()
	return func() error {
		if rest := time.Duration(r.Rest) * time.Since(began); rest > 0 && !wait.For(ctx, rest) {
			return ctx.Err()
		}
		began = time.Now()
		return nil
	}
}

// unpaced is paced without rests.
func unpaced() error { return nil }
