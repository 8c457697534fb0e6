package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

const (
	// counted are the rows of a table that were committed when a recount began, whose snapshot $3, $4 and $5 are of: the first transaction
	// that had no number then, those that were under way, and the time. Numbers of transactions come again after 4 billion others, so rows
	// that bear a time of a day before belong to it whatever their numbers are.
	countedEntries   = `NOT (e.at > $5 AND (age(e.xmin) BETWEEN 0 AND age($3::text::xid) OR e.xmin = ANY ($4::text[]::xid[])))`
	countedTransfers = `NOT (created_at > $5 AND (age(xmin) BETWEEN 0 AND age($3::text::xid) OR xmin = ANY ($4::text[]::xid[])))`
	// placeOfPiece changes when a table's rows get other places, by VACUUM FULL, when the database is restored from a dump, and when some of the
	// history is archived.
	placeOfPiece = `concat_ws(' ', (SELECT oid FROM pg_database WHERE datname = current_database()), (SELECT upto FROM archived), `
	placeOfThis  = placeOfPiece + `pg_relation_filenode($7::text::regclass))`

	beginRecount = `SELECT ` + thisMoment + `, statement_timestamp(),
		pg_relation_size('accounts') / current_setting('block_size')::bigint, current_setting('transaction_read_only')::boolean`
	// selectPieces are the tables that have the rows of one: its partitions, or itself.
	selectPieces = `SELECT relid::text, pg_relation_size(relid) / current_setting('block_size')::bigint, ` + placeOfPiece + `pg_relation_filenode(relid))
		FROM (SELECT relid FROM pg_partition_tree($1::text::regclass) WHERE isleaf UNION SELECT oid FROM pg_class WHERE oid = $1::text::regclass AND relkind = 'r') AS p ORDER BY relid::oid`
	// sumForwardWeights sums what was archived by weight, as inside does.
	sumForwardWeights = `SELECT coalesce(sum(` + weightOf + ` * amount), 0)::text
		FROM (SELECT amount, hashtextextended(account, ` + hashSeed + `) AS hash FROM brought_forward WHERE side = 0) AS b`

	// countEntries counts the entries in some blocks, by currency: the hashes of the sides of transfers, the accounts' money by weight, the
	// entries that belong to no account of their currency, and what came in and went out. Nothing is grouped by account, so that sums stay small.
	countEntries = `
	WITH counted AS (
		SELECT e.currency, e.amount, e.transfer, hashtextextended(e.account, hashtextextended(e.currency, $6::bigint)) AS hash,
			a.currency IS DISTINCT FROM e.currency AS strange, abs(e.amount) / 2` + halfSmall + ` AS small,
			e.version = 0 AND (e.account = 'outside/' || e.currency OR e.account LIKE 'transit/%') AS outside
		FROM entries AS e LEFT JOIN accounts AS a ON a.id = e.account
		WHERE e.ctid >= $1::text::tid AND e.ctid < $2::text::tid AND ` + countedEntries + ` OFFSET 0)
	SELECT currency, count(*), coalesce(sum(uuid_hash_extended(transfer, hashint8extended(amount, hash))) FILTER (WHERE transfer >= ` + beginning + `), 0)::text,
		(coalesce(sum(` + weightOf + ` * amount) FILTER (WHERE NOT outside AND small), 0)
			+ coalesce(sum(` + weightOf + `::numeric * amount) FILTER (WHERE NOT outside AND NOT small), 0))::text,
		count(*) FILTER (WHERE strange AND NOT outside),
		coalesce(sum(-amount) FILTER (WHERE outside AND amount < 0), 0)::text, coalesce(sum(amount) FILTER (WHERE outside AND amount > 0), 0)::text,
		` + placeOfThis + `
	FROM counted GROUP BY currency`
	// countTransfers sums the hashes of the sides that the completed transfers in some blocks must have.
	countTransfers = `
	SELECT coalesce(sum(uuid_hash_extended(id, hashint8extended(-amount, hashtextextended(source, hashtextextended(currency, $6::bigint))))), 0)::text,
		coalesce(sum(uuid_hash_extended(id, hashint8extended(amount, hashtextextended(destination, hashtextextended(currency, $6::bigint))))), 0)::text,
		` + placeOfThis + `
	FROM transfers WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND id >= ` + beginning + ` AND status = 'completed' AND ` + countedTransfers
	// lastOfLegs ends a part of the legs with a whole transfer's.
	lastOfLegs = `SELECT transfer FROM transfer_legs WHERE transfer > $1 ORDER BY transfer, leg OFFSET $2 LIMIT 1`
	countLegs  = `SELECT count(*) FROM (` + badLegs + ` WHERE l.transfer > $1 AND l.transfer <= $2 AND l.transfer >= ` + beginning + judgeLegs + `) AS legs`
)

// The steps of a recount.
const (
	recountEntries = iota
	recountTransfers
	recountLegs
	recountSteps
)

// errTablesMoved is returned where rows have got other places since a recount began.
var errTablesMoved = errors.New("the tables were written anew")

func newRecount() *recount {
	return &recount{id: newID(), recountState: recountState{
		Seed:    rand.Int64(), //nolint:gosec // It is no secret: it only must not be the same each time.
		Entries: new(big.Int), Sides: new(big.Int), Accounts: new(big.Int), In: holdings{}, Flows: flows{},
	}}
}

// begin reads the balances, and which transactions are committed, in one snapshot. It reports whether there was no other recount.
func (r *recount) begin(ctx context.Context, tx pgx.Tx, o RecountOptions) (begun bool, err error) {
	if _, err := tx.Exec(ctx, scanFreely); err != nil {
		return false, err
	}
	if err := tx.QueryRow(ctx, beginRecount).Scan(&r.snapshot, &r.began, &r.Beside, &r.readOnly); err != nil {
		return false, err
	}
	for step, table := range [...]string{recountEntries: partitions.Entries, recountTransfers: partitions.Transfers} {
		var err error
		if r.Pieces[step], err = pgkit.Rows(ctx, tx, pgx.RowToStructByPos[piece], selectPieces, table); err != nil {
			return false, err
		}
	}
	if r.At, err = readMoment(r.snapshot); err != nil {
		return false, err
	}
	if err := r.bringForward(ctx, tx); err != nil {
		return false, err
	}
	var now books
	if r.In, now, err = inside(ctx, tx, r.Seed); err != nil {
		return false, err
	}
	for _, page := range now.Pages {
		r.Accounts.Add(r.Accounts, page)
	}
	suspects, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], suspectHolds, 1)
	if err != nil {
		return false, err
	}
	r.Holds = len(suspects) == 0
	if r.readOnly {
		return true, nil
	}
	if o.Restart {
		if _, err := tx.Exec(ctx, dropRecount, o.Runner); err != nil {
			return false, err
		}
	}
	state, err := json.Marshal(r.recountState)
	if err != nil {
		return false, err
	}
	balances, err := json.Marshal(now)
	if err != nil {
		return false, err
	}
	r.balances = string(balances)
	tag, err := tx.Exec(ctx, insertRecount, r.id, o.Runner, r.began, string(state), r.snapshot, r.balances)
	return err == nil && tag.RowsAffected() > 0, err
}

// bringForward begins the sums with what was archived.
func (r *recount) bringForward(ctx context.Context, tx pgx.Tx) (err error) {
	if r.Flows, err = readFlows(ctx, tx, sumForward); err != nil {
		return err
	}
	var weighed string
	if err := tx.QueryRow(ctx, sumForwardWeights, r.Seed).Scan(&weighed); err != nil {
		return err
	}
	n, err := integers(weighed)
	if err == nil {
		r.Entries = n[0]
	}
	return err
}

func (r *recount) progress() RecountProgress {
	entries, transfers := r.blocks(recountEntries), r.blocks(recountTransfers)
	done := r.Block
	if r.Step > recountEntries {
		done += entries
	}
	if r.Step > recountTransfers {
		done = entries + transfers
	}
	return RecountProgress{Began: r.began, Resumed: r.resumed, Done: done, Total: entries + transfers, Entries: r.Counted}
}

// blocks returns how many blocks a step counts.
func (r *recount) blocks(step int) (n int64) {
	for _, p := range r.Pieces[step] {
		n += p.Blocks
	}
	return n
}

// agrees reports whether what was counted is what the accounts have, and the transfers say.
func (r *recount) agrees() bool {
	return r.Holds && r.Bad == 0 && r.Sides.Sign() == 0 && r.Entries.Cmp(r.Accounts) == 0 && agree(r.In.against(r.Flows))
}

// atOnce returns how many blocks a statement counts. Each statement reads all accounts besides, so it counts at least half as many blocks as
// these have: to count a block takes some ten times as long as to read one.
func (r *recount) atOnce(o RecountOptions) int64 {
	if o.Least == 0 {
		return max(o.Blocks, 1)
	}
	return min(max(o.Least, r.Beside/2), o.Blocks)
}

// countPart counts the next part of the tables. Nothing of it is added unless all of it was counted.
func (l *Ledger) countPart(ctx context.Context, r *recount, o RecountOptions) error {
	if r.Step == recountLegs {
		return l.countLegs(ctx, r)
	}
	if r.Pieces[r.Step] == nil {
		return errTablesMoved // An earlier version has begun it.
	}
	total := r.blocks(r.Step)
	parts := make([]recountState, max(o.AtOnce, 1))
	all, inAll := errgroup.WithContext(ctx)
	next := r.Block
	for i := range parts {
		from := next
		next = min(from+r.atOnce(o), total)
		part := &parts[i]
		*part = newRecount().recountState
		if from == next {
			continue
		}
		to := next
		all.Go(func() error {
			return l.snapshot(inAll, func(ctx context.Context, tx pgx.Tx) error {
				*part = newRecount().recountState
				return r.countBlocks(ctx, tx, part, from, to)
			})
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	for i := range parts {
		r.add(&parts[i])
	}
	if r.Block = next; next == total {
		r.Step++
		r.Block = 0
	}
	return nil
}

func (r *recount) add(part *recountState) {
	r.Entries.Add(r.Entries, part.Entries)
	r.Sides.Add(r.Sides, part.Sides)
	r.Counted += part.Counted
	r.Bad += part.Bad
	r.Flows = r.Flows.plus(part.Flows)
}

// countBlocks counts the entries or the transfers in some blocks into a part. The blocks of a step's tables are numbered through.
func (r *recount) countBlocks(ctx context.Context, tx pgx.Tx, part *recountState, from, to int64) error {
	if _, err := tx.Exec(ctx, scanFreely+`, set_config('work_mem', '64MB', true)`); err != nil {
		return err
	}
	count := r.countEntries
	if r.Step == recountTransfers {
		count = r.countTransfers
	}
	for _, p := range r.Pieces[r.Step] {
		if first, last := max(from, 0), min(to, p.Blocks); first < last {
			place, err := count(ctx, tx, part, p, fmt.Sprintf("(%d,0)", first), fmt.Sprintf("(%d,0)", last))
			if pgkit.Code(err) == undefinedTable || err == nil && place != p.Place {
				return errTablesMoved
			}
			if err != nil {
				return err
			}
		}
		from, to = from-p.Blocks, to-p.Blocks
	}
	return nil
}

// of returns a statement on one piece of the table that it names.
func (p piece) of(table, sql string) string {
	return strings.Replace(sql, "FROM "+table+" ", "FROM "+p.Name+" ", 1)
}

// countTransfers counts the transfers in some blocks of a table. It returns the table's place.
func (r *recount) countTransfers(ctx context.Context, tx pgx.Tx, part *recountState, p piece, first, last string) (place string, err error) {
	var paid, got string
	if err := tx.QueryRow(ctx, p.of(partitions.Transfers, countTransfers), first, last, r.At.Next, r.At.Open, r.began.Add(-wraps), r.Seed, p.Name).
		Scan(&paid, &got, &place); err != nil {
		return "", err
	}
	n, err := integers(paid, got)
	if err == nil {
		part.Sides.Sub(part.Sides, n[0]).Sub(part.Sides, n[1])
	}
	return place, err
}

// countEntries counts the entries in some blocks of a table. It returns the table's place.
func (r *recount) countEntries(ctx context.Context, tx pgx.Tx, part *recountState, p piece, first, last string) (place string, err error) {
	place = p.Place
	rows, err := tx.Query(ctx, p.of(partitions.Entries, countEntries), first, last, r.At.Next, r.At.Open, r.began.Add(-wraps), r.Seed, p.Name)
	if err != nil {
		return "", err
	}
	var (
		currency, sides, weighed, in, out string
		entries, bad                      int64
	)
	_, err = pgx.ForEachRow(rows, []any{&currency, &entries, &sides, &weighed, &bad, &in, &out, &place}, func() error {
		n, err := integers(sides, weighed, in, out)
		if err == nil {
			part.Counted += entries
			part.Bad += bad
			part.Sides.Add(part.Sides, n[0])
			part.Entries.Add(part.Entries, n[1])
			part.Flows[currency] = part.Flows.of(currency).plus(flow{n[2], n[3]})
		}
		return err
	})
	return place, err
}

// countLegs counts the next transfers with legs. What is read of them agrees in each snapshot, so later ones may be among them.
func (l *Ledger) countLegs(ctx context.Context, r *recount) error {
	var (
		last uuid.UUID
		bad  int64
	)
	err := l.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		last = uuid.Max
		if err := tx.QueryRow(ctx, lastOfLegs, r.Leg, legsAtOnce).Scan(&last); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return tx.QueryRow(ctx, countLegs, r.Leg, last).Scan(&bad)
	})
	if err != nil {
		return err
	}
	r.Bad += bad
	if r.Leg = last; last == uuid.Max {
		r.Step++
	}
	return nil
}
