package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

const (
	// bookPages is into how many pages the accounts are divided, by a hash of account and currency. If the sum of one is wrong, its accounts are counted
	// one by one.
	bookPages = 1024
	// lateWithin is how long before a closing the id of an entry may have been made that was not committed then: by the time that its transaction took,
	// and by the clock of its server. Where the sums do not agree, entries of up to lateAtMost before are looked for.
	lateWithin = time.Minute
	lateAtMost = 24 * time.Hour
	// suspectsAtOnce is how many accounts are counted by one statement.
	suspectsAtOnce = 1000
)

const (
	// pageOf and weightOf are of a hash: the page of an account, and the number of 29 bits by which its money is weighed, which nobody can foresee. A
	// sum of money by weight is right by chance once in 2^29. A product of a small amount fits into 64 bits.
	pageOf   = `(hash & 1023)::integer`
	weightOf = `((hash >> 10) & 536870911)`
	hashSeed = `hashtextextended(currency, $1::bigint)`
	// halfSmall is half of a small amount, which is less than 2^33.
	halfSmall = ` < 4294967296`

	// sumAccounts sums what the accounts have, by currency and page, and counts them.
	sumAccounts = `SELECT currency, ` + pageOf + `, sum(available)::text, sum(held)::text, count(*),
			(coalesce(sum(` + weightOf + ` * (available + held)) FILTER (WHERE small), 0)
				+ coalesce(sum(` + weightOf + `::numeric * (available::numeric + held)) FILTER (WHERE NOT small), 0))::text
		FROM (SELECT currency, available, held, hashtextextended(id, ` + hashSeed + `) AS hash, available` + halfSmall + ` AND held` + halfSmall + ` AS small
			FROM accounts OFFSET 0) AS a GROUP BY 1, 2`

	// fresh are the entries e with ids from $2 on and before $3 that the snapshot of a closing, $4 and $5, does not have, and that another one, $6
	// and $7, has, if there is one. Entries are never changed, and rows tell which transaction has written them, so that each is counted once,
	// whatever its id is and wherever it lies.
	fresh = ` e.id >= $2 AND e.id < $3 AND (age(e.xmin) BETWEEN 0 AND age($4::text::xid) OR e.xmin = ANY ($5::text[]::xid[]))
		AND ($6::text IS NULL OR NOT (age(e.xmin) BETWEEN 0 AND age($6::text::xid) OR e.xmin = ANY ($7::text[]::xid[])))`
	// freshPlainly is fresh where rows do not tell. Then the ids from $2 on and before $3 are all there is to go by.
	freshPlainly = ` e.id >= $2 AND e.id < $3 AND $4::text IS NULL AND $5::text[] IS NULL AND $6::text IS NULL AND $7::text[] IS NULL`

	// isTransfer compares an entry e with its transfer t.
	isTransfer = `(t.status = 'completed' AND t.currency = e.currency
		AND CASE WHEN e.amount < 0 THEN (t.source, t.amount) = (e.account, -e.amount) ELSE (t.destination, t.amount) = (e.account, e.amount) END) IS TRUE`
	// sumEntries sums entries by page, and those of the outside by currency. Transfers have ids of the same time, and are read in the same order. It
	// returns those that are not there, or are not what their entries say, for judgeEntries.
	sumEntries = `SELECT` + pagesOf + fresh + endOfPages
	pagesOf    = ` CASE WHEN outside THEN currency ELSE '' END, CASE WHEN outside THEN 0 ELSE ` + pageOf + ` END, count(*),
			(coalesce(sum(` + weightOf + ` * amount) FILTER (WHERE small), 0) + coalesce(sum(` + weightOf + `::numeric * amount) FILTER (WHERE NOT small), 0))::text,
			coalesce(sum(-amount) FILTER (WHERE amount < 0), 0)::text, coalesce(sum(amount) FILTER (WHERE amount > 0), 0)::text,
			coalesce(array_agg(transfer) FILTER (WHERE strange), '{}')
		FROM (SELECT e.currency, e.amount, e.transfer, abs(e.amount) / 2` + halfSmall + ` AS small, hashtextextended(e.account, hashtextextended(e.currency, $1::bigint)) AS hash,
				e.version = 0 AND (e.account = 'outside/' || e.currency OR e.account LIKE 'transit/%') AS outside, NOT ` + isTransfer + ` AS strange
			FROM entries AS e LEFT JOIN transfers AS t ON t.id = e.transfer AND t.id >= $2 AND t.id < $3 WHERE`
	endOfPages = ` OFFSET 0) AS e GROUP BY 1, 2`
	// judgeEntries returns those of some transfers that are not what the entries say.
	judgeEntries = `SELECT` + judgedOf + fresh
	judgedOf     = ` DISTINCT e.transfer FROM entries AS e LEFT JOIN transfers AS t ON t.id = ANY (ARRAY[e.transfer])
		WHERE e.transfer = ANY ($1::uuid[]) AND e.transfer >= ` + beginning + ` AND NOT ` + isTransfer + ` AND`
	// byOrder has entries and transfers be found by the blocks that may have their ids, and joined and grouped by hashes, whatever a planner believes who does not
	// know how many are new: that the primary key of all entries is read, or each transfer is compared with each entry.
	byOrder = `SELECT set_config('statement_timeout', '15min', true), set_config('enable_bitmapscan', 'on', true), set_config('enable_seqscan', 'off', true),
		set_config('enable_indexscan', 'off', true), set_config('enable_indexonlyscan', 'off', true),
		set_config('enable_hashjoin', 'on', true), set_config('enable_nestloop', 'off', true), set_config('enable_mergejoin', 'off', true),
		set_config('enable_sort', 'off', true), set_config('jit', 'off', true), set_config('work_mem', '64MB', true)`
	// asUsual ends byOrder within its transaction.
	asUsual = scanFreely + `, set_config('enable_indexscan', 'on', true), set_config('enable_indexonlyscan', 'on', true),
		set_config('enable_nestloop', 'on', true), set_config('enable_sort', 'on', true)`

	// suspectAccounts are accounts of some pages, in the order of their ids.
	suspectAccounts = `SELECT id FROM (SELECT id, hashtextextended(id, ` + hashSeed + `) AS hash FROM accounts WHERE id > $3 OFFSET 0) AS a
		WHERE ` + pageOf + ` = ANY ($2::integer[]) ORDER BY id LIMIT $4`

	// selectClosing leaves out a closing of another cluster, from which the database was restored, one that numbers of transactions have come
	// again since, and one whose snapshot is none.
	selectClosing = `SELECT` + closingFrom + usableClosing + ` AND ` + manyEntries
	closingFrom   = ` c.at, c.upto, c.snapshot, c.seed, c.books, r.began_at, r.valid, r.first_bad_account, r.bad_transfers
		FROM ledger_closing AS c, (SELECT * FROM ledger_recounts WHERE finished_at IS NOT NULL ORDER BY began_at DESC LIMIT 1) AS r
		WHERE `
	usableClosing = `c.cluster = ` + thisCluster + ` AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint
		- substring(c.snapshot, '^\d{1,18}:(\d{1,18}):(?:\d{1,18}(?:,\d{1,18})*)?$')::bigint BETWEEN 0 AND 2147483647`
)

// books are what the entries up to some point add up to.
type books struct {
	Pages    []*big.Int // by weight
	Flows    flows
	Accounts int64 // how many there were
}

func newBooks() books {
	b := books{Pages: make([]*big.Int, bookPages), Flows: flows{}}
	for i := range b.Pages {
		b.Pages[i] = new(big.Int)
	}
	return b
}

// plus adds what came after it.
func (b books) plus(c books) books {
	sum := newBooks()
	for i := range sum.Pages {
		sum.Pages[i].Add(b.Pages[i], c.Pages[i])
	}
	sum.Flows, sum.Accounts = b.Flows.plus(c.Flows), b.Accounts
	return sum
}

// minus takes back what came after it.
func (b books) minus(c books) books {
	less := newBooks()
	for i := range less.Pages {
		less.Pages[i].Neg(c.Pages[i])
	}
	for currency, f := range c.Flows {
		less.Flows[currency] = flow{new(big.Int).Neg(f.Deposits), new(big.Int).Neg(f.Withdrawals)}
	}
	return b.plus(less)
}

// differ returns the pages that do not agree.
func (b books) differ(c books) (odd []int32) {
	for i := range b.Pages {
		if b.Pages[i].Cmp(c.Pages[i]) != 0 {
			odd = append(odd, int32(i))
		}
	}
	return odd
}

// moment is which transactions were committed at some time, as rows have their numbers. The zero value is none.
type moment struct {
	Next *string // the first that had no number
	Open []string
}

// thisMoment is the snapshot of a statement, as PostgreSQL spells it. Nested transactions that are under way belong to it, too, which have numbers of
// their own: those among the first 100,000 since the oldest transaction. One that was missed makes the closing unexplained.
const thisMoment = `(SELECT concat(pg_snapshot_xmin(s), ':', pg_snapshot_xmax(s), ':', (SELECT string_agg(open::text, ',') FROM (
	SELECT pg_snapshot_xip(s)::text::bigint AS open
	UNION SELECT x FROM generate_series(pg_snapshot_xmin(s)::text::bigint, least(pg_snapshot_xmax(s)::text::bigint, pg_snapshot_xmin(s)::text::bigint + 100000) - 1) AS x
		WHERE pg_xact_status(x::text::xid8) = 'in progress') AS open)) FROM pg_current_snapshot() AS s)`

// readMoment reads it. Rows have the lower 32 bits of their transaction's number.
func readMoment(snapshot string) (m moment, err error) {
	parts := strings.Split(snapshot, ":")
	if len(parts) != 3 {
		return m, fmt.Errorf("snapshot %q", snapshot)
	}
	number := func(text string) string {
		n, bad := strconv.ParseUint(text, 10, 64)
		err = errors.Join(err, bad)
		return strconv.FormatUint(n&(1<<32-1), 10)
	}
	next := number(parts[1])
	m = moment{Next: &next, Open: []string{}}
	if parts[2] != "" {
		for text := range strings.SplitSeq(parts[2], ",") {
			m.Open = append(m.Open, number(text))
		}
	}
	return m, err
}

// closedBooks is a closing, from which a check goes on.
type closedBooks struct {
	at       time.Time
	upto     uuid.UUID // entries of before are counted, but for late ones
	snapshot *string   // nil where rows do not tell who has written them
	moment   moment    // of the snapshot
	seed     int64
	books    books
	// The last recount.
	recounted    time.Time
	valid        bool
	badAccount   string
	badTransfers int64
}

// closedBooks returns the last closing; nil where everything is to be counted, because it is little or no closing was made.
func (l *Ledger) closedBooks(ctx context.Context, tx pgx.Tx) (*closedBooks, error) {
	var (
		b    closedBooks
		text string
	)
	err := tx.QueryRow(ctx, l.bookkeeping().selectClosing, l.wholeBelow).
		Scan(&b.at, &b.upto, &b.snapshot, &b.seed, &text, &b.recounted, &b.valid, &b.badAccount, &b.badTransfers)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil && b.snapshot != nil {
		b.moment, err = readMoment(*b.snapshot)
	}
	b.books = readBooks(text)
	return &b, err
}

// readBooks reads the sums of a closing. Those that somebody has changed by hand into something else are none, which explains no balances.
func readBooks(text string) (b books) {
	if err := json.Unmarshal([]byte(text), &b); err != nil || len(b.Pages) != bookPages || slices.Contains(b.Pages, nil) {
		return newBooks()
	}
	for _, f := range b.Flows {
		if f.Deposits == nil || f.Withdrawals == nil {
			return newBooks()
		}
	}
	return b
}

// inside is what the accounts have.
func inside(ctx context.Context, tx pgx.Tx, seed int64) (holdings, books, error) {
	rows, err := tx.Query(ctx, sumAccounts, seed)
	if err != nil {
		return nil, books{}, err
	}
	has, b := holdings{}, newBooks()
	var (
		currency, available, held, weighed string
		page                               int32
		count                              int64
	)
	_, err = pgx.ForEachRow(rows, []any{&currency, &page, &available, &held, &count, &weighed}, func() error {
		n, err := integers(available, held, weighed)
		if err != nil {
			return err
		}
		sum := has[currency]
		if sum.Available == nil {
			sum = balance{new(big.Int), new(big.Int)}
			has[currency] = sum
		}
		sum.Available.Add(sum.Available, n[0])
		sum.Held.Add(sum.Held, n[1])
		b.Pages[page].Add(b.Pages[page], n[2])
		b.Accounts += count
		return nil
	})
	return has, b, err
}

// idSpan is some of the entries that are newer than a closing.
type idSpan struct {
	from, to uuid.UUID // ids, before to
	upto     moment    // and what it has; the zero value: all
}

// spanCount is what a span has.
type spanCount struct {
	books

	entries int64
	bad     map[uuid.UUID]bool // transfers that are not what their entries say
}

func (c *spanCount) add(d spanCount) {
	c.books = c.plus(d.books)
	c.entries += d.entries
	maps.Copy(c.bad, d.bad)
}

// countEntries counts the entries of a span that a closing does not have.
func (l *Ledger) countEntries(ctx context.Context, tx pgx.Tx, base *closedBooks, s idSpan) (spanCount, error) {
	keep := l.bookkeeping()
	if _, err := tx.Exec(ctx, keep.byOrder); err != nil {
		return spanCount{}, err
	}
	args := []any{base.seed, s.from, s.to, base.moment.Next, base.moment.Open, s.upto.Next, s.upto.Open}
	rows, err := tx.Query(ctx, keep.sumEntries, args...)
	if err != nil {
		return spanCount{}, err
	}
	c := spanCount{books: newBooks(), bad: map[uuid.UUID]bool{}}
	var (
		currency, weighed, in, out string
		page                       int32
		count                      int64
		strange, suspects          []uuid.UUID
	)
	if _, err := pgx.ForEachRow(rows, []any{&currency, &page, &count, &weighed, &in, &out, &strange}, func() error {
		n, err := integers(weighed, in, out)
		if err != nil {
			return err
		}
		c.entries += count
		suspects = append(suspects, strange...)
		if currency != "" {
			c.Flows[currency] = c.Flows.of(currency).plus(flow{n[1], n[2]})
		} else {
			c.Pages[page].Add(c.Pages[page], n[0])
		}
		return nil
	}); err != nil {
		return c, err
	}
	if _, err := tx.Exec(ctx, keep.asUsual); err != nil || len(suspects) == 0 {
		return c, err
	}
	args[0] = suspects
	bad, err := pgkit.Rows(ctx, tx, pgx.RowTo[uuid.UUID], keep.judgeEntries, args...)
	for _, transfer := range bad {
		c.bad[transfer] = true
	}
	return c, err
}

// errUnexplained is returned where a closing and what came after it do not lead to the balances, and no account is to blame: the closing may be wrong.
var errUnexplained = errors.New("the last closing does not explain the balances")

// countSince counts all balances, all holds, and the entries that are newer than a closing. It returns how many accounts there are, too.
//
// Errors: errUnexplained.
func (l *Ledger) countSince(ctx context.Context, tx pgx.Tx, base *closedBooks) (out ledger.Integrity, accounts int64, err error) {
	out = ledger.Integrity{Currencies: []ledger.CurrencyIntegrity{}, ClosedAt: base.at, RecountedAt: base.recounted}
	has, now, err := inside(ctx, tx, base.seed)
	if err != nil {
		return out, 0, err
	}
	since, err := l.countEntries(ctx, tx, base, idSpan{from: base.upto, to: uuid.Max})
	if err != nil {
		return out, 0, err
	}
	sum := base.books.plus(since.books)
	odd, agrees := sum.differ(now), agree(has.against(sum.Flows))
	if base.snapshot != nil && (len(odd) > 0 || !agrees) {
		late, err := l.countEntries(ctx, tx, base, idSpan{from: base.lateFrom(), to: base.upto})
		if err != nil {
			return out, 0, err
		}
		if late.entries > 0 {
			l.countsWhole("late")
			maps.Copy(since.bad, late.bad)
			sum = sum.plus(late.books)
			odd, agrees = sum.differ(now), agree(has.against(sum.Flows))
		}
	}
	if !agrees {
		// A closing accuses nobody: what came in from the first entry on does.
		if sum.Flows, err = flowsAnew(ctx, tx); err != nil {
			return out, 0, err
		}
	}
	out.Currencies = has.against(sum.Flows)
	if out.FirstBadAccount, err = firstBad(ctx, tx, base.seed, odd); err != nil {
		return out, 0, err
	}
	explains := len(odd) == 0 && agrees && now.Accounts >= base.books.Accounts
	if !explains && out.FirstBadAccount == "" && agree(out.Currencies) {
		return out, 0, errUnexplained
	}
	out.BadTransfers = int64(len(since.bad))
	if err := tx.QueryRow(ctx, `SELECT transaction_timestamp()`).Scan(&out.CheckedAt); err != nil {
		return out, 0, err
	}
	judge(&out)
	return out, now.Accounts, nil
}

// firstBad returns the first account that its own entries accuse, of those whose holds are not what they hold, and of some pages.
func firstBad(ctx context.Context, tx pgx.Tx, seed int64, pages []int32) (bad string, err error) {
	suspects, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], suspectHolds, suspectsAtOnce)
	if err != nil {
		return "", err
	}
	if len(suspects) > 0 {
		if err := tx.QueryRow(ctx, firstBadOf, suspects).Scan(&bad); err != nil {
			return "", err
		}
	}
	for last := ""; len(pages) > 0; last = suspects[len(suspects)-1] {
		suspects, err = pgkit.Rows(ctx, tx, pgx.RowTo[string], suspectAccounts, seed, pages, last, suspectsAtOnce)
		if err != nil || len(suspects) == 0 || bad != "" && bad < suspects[0] {
			return bad, err
		}
		var first string
		if err := tx.QueryRow(ctx, firstBadOf, suspects).Scan(&first); err != nil {
			return "", err
		}
		if first != "" && (bad == "" || first < bad) {
			return first, nil
		}
	}
	return bad, nil
}
