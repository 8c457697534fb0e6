package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// wholeBelow is how many bytes of entries are counted at once whenever somebody asks: some 60,000. Larger ledgers are counted from the last
// closing on, and as a whole by recounts.
const wholeBelow = 8 << 20

// lateIDs is how much older than a closing the id of an entry may be which that has not counted: by the time that its transaction took, and by the clock of
// its server. An account with one that is older does not add up without it, and then all of its entries are counted.
const lateIDs = 24 * time.Hour

// maxSuspects is how many accounts that a closing does not explain are counted from their beginning in one check.
const maxSuspects = 1000

// allAmounts are the amounts whose sums are the balances: those of the entries, and what was archived (package archive).
const allAmounts = `(SELECT account, currency, amount FROM entries UNION ALL SELECT account, currency, amount FROM brought_forward) AS e`

// beginning is the first id that was not archived. Entries come after their transfer, so of a transfer from there on all entries are kept. A transfer of before may
// have some that are, and may be kept itself, without entries.
const beginning = `(SELECT upto FROM archived)`

// Deposits and withdrawals are read from the outside's entries, which are negative for what came in. What came from another
// ledger, or went there, is to this ledger a deposit or withdrawal too. Sums are numeric, which does not overflow.
const sumCurrencies = `
	WITH outside AS (
		SELECT currency, coalesce(sum(-amount) FILTER (WHERE amount < 0), 0) AS deposits,
			coalesce(sum(amount) FILTER (WHERE amount > 0), 0) AS withdrawals
		FROM ` + allAmounts + ` WHERE account = 'outside/' || currency OR account LIKE 'transit/%' GROUP BY currency),
	inside AS (SELECT currency, sum(available) AS available, sum(held) AS held FROM accounts GROUP BY currency)
	SELECT currency, coalesce(deposits, 0)::text, coalesce(withdrawals, 0)::text, coalesce(available, 0)::text,
		coalesce(held, 0)::text,
		(coalesce(deposits, 0) - coalesce(withdrawals, 0) - coalesce(available, 0) - coalesce(held, 0))::text
	FROM inside FULL JOIN outside USING (currency) ORDER BY currency COLLATE "C"`

// An account is bad when its balance is not the sum of its entries, when one of them is in another currency, when what
// it holds is not the sum of its open holds, when one of those is for a bid that does not stand, or when there are entries
// without an account.
const (
	judgeAccounts = ` coalesce(min(coalesce(a.id, s.account, o.account)), '') FROM accounts AS a
		FULL JOIN sums AS s ON s.account = a.id FULL JOIN open AS o ON o.account = a.id
	WHERE a.id IS NULL OR a.available::numeric + a.held <> coalesce(s.total, 0) OR a.held <> coalesce(o.held, 0)
		OR o.strays > 0 OR a.currency <> s.least OR a.currency <> s.most`
	firstBadAccount = `
	WITH sums AS (
		SELECT account, sum(amount) AS total, min(currency) AS least, max(currency) AS most
		FROM ` + allAmounts + ` WHERE account NOT LIKE 'outside/%' AND account NOT LIKE 'transit/%' GROUP BY account),
	open AS (SELECT account, sum(amount) AS held, count(*) - count(amount) AS strays FROM current_holds WHERE status = 'open' GROUP BY account) SELECT` + judgeAccounts
	// firstBadOf is firstBadAccount among some.
	firstBadOf = `
	WITH sums AS (
		SELECT account, sum(amount) AS total, min(currency) AS least, max(currency) AS most
		FROM ` + allAmounts + ` WHERE account = ANY ($1) GROUP BY account),
	open AS (SELECT account, sum(amount) AS held, count(*) - count(amount) AS strays FROM current_holds WHERE status = 'open' AND account = ANY ($1) GROUP BY account),
	accounts AS (SELECT * FROM accounts WHERE id = ANY ($1)) SELECT` + judgeAccounts
)

// A transfer is bad when its entries are not two of its currency that take its amount from the source and bring it to the destination, or
// when there are entries of one that was not completed, or that does not exist. One with legs is bad, too, when they are not what was moved.
const (
	badLegs   = `SELECT l.transfer FROM transfer_legs AS l LEFT JOIN transfers AS t ON t.id = l.transfer LEFT JOIN transfers AS p ON p.id = l.part`
	judgeLegs = `
		GROUP BY l.transfer HAVING count(*) <> max(l.leg) + 1 OR NOT bool_and(CASE WHEN t.status = 'completed'
			THEN (p.source, p.destination, p.amount, p.currency, p.status, p.id = t.id)
				IS NOT DISTINCT FROM (l.source, l.destination, l.amount, l.currency, 'completed', l.leg = 0)
			ELSE t.status = 'failed' AND l.part IS NULL END IS TRUE)`
	countBadTransfers = `
	WITH sums AS (
		SELECT transfer, sum(amount) AS total, sum(abs(amount)) AS moved, count(*) AS sides,
			min(currency) AS least, max(currency) AS most,
			min(account) FILTER (WHERE amount < 0) AS payer, min(account) FILTER (WHERE amount > 0) AS payee
		FROM entries WHERE transfer >= ` + beginning + ` GROUP BY transfer),
	legs AS (` + badLegs + ` WHERE l.transfer >= ` + beginning + judgeLegs + `)
	SELECT (SELECT count(*) FROM legs) + count(*) FROM (SELECT * FROM transfers WHERE id >= ` + beginning + `) AS t FULL JOIN sums AS s ON s.transfer = t.id
	WHERE t.id IS NULL
		OR (t.status = 'completed' AND (s.sides IS DISTINCT FROM 2 OR s.total <> 0 OR s.moved <> 2 * t.amount::numeric
			OR s.least <> t.currency OR s.most <> t.currency OR s.payer <> t.source OR s.payee <> t.destination))
		OR (t.status <> 'completed' AND s.transfer IS NOT NULL)`
)

// Integrity implements [ledger.Reader]. What it counts is explained in docs/design/integrity.md.
func (l *Ledger) Integrity(ctx context.Context) (ledger.Integrity, error) {
	var out ledger.Integrity
	err := l.db.reads.snapshot(ctx, "integrity", scanTimeout, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanFreely); err != nil {
			return err
		}
		base, err := l.closedBooks(ctx, tx)
		if err != nil {
			return err
		}
		if base == nil {
			out, err = countWhole(ctx, tx)
		} else {
			out, err = l.countSince(ctx, tx, base)
		}
		return err
	})
	if err != nil {
		return ledger.Integrity{}, fmt.Errorf("postgres: integrity: %w", err)
	}
	return out, nil
}

// countWhole counts everything in one snapshot.
func countWhole(ctx context.Context, tx pgx.Tx) (ledger.Integrity, error) {
	out := ledger.Integrity{Currencies: []ledger.CurrencyIntegrity{}}
	rows, err := tx.Query(ctx, sumCurrencies)
	if err != nil {
		return out, err
	}
	out.Currencies, err = pgx.AppendRows(out.Currencies, rows, scanCurrency)
	err = errors.Join(err,
		tx.QueryRow(ctx, firstBadAccount).Scan(&out.FirstBadAccount),
		tx.QueryRow(ctx, countBadTransfers).Scan(&out.BadTransfers),
		tx.QueryRow(ctx, `SELECT transaction_timestamp()`).Scan(&out.CheckedAt))
	out.ClosedAt, out.RecountedAt = out.CheckedAt, out.CheckedAt
	judge(&out)
	return out, err
}

// judge adds up what was found.
func judge(out *ledger.Integrity) {
	out.Difference = new(big.Int)
	for _, c := range out.Currencies {
		out.Difference.Add(out.Difference, new(big.Int).Abs(c.Difference))
	}
	out.Valid = out.Difference.Sign() == 0 && out.FirstBadAccount == "" && out.BadTransfers == 0
}

func scanCurrency(row pgx.CollectableRow) (c ledger.CurrencyIntegrity, err error) {
	var text [5]string
	if err = row.Scan(&c.Currency, &text[0], &text[1], &text[2], &text[3], &text[4]); err != nil {
		return c, err
	}
	n, err := integers(text[:]...)
	if err == nil {
		c.Deposits, c.Withdrawals, c.Available, c.Held, c.Difference = n[0], n[1], n[2], n[3], n[4]
	}
	return c, err
}

// A hold that is open is in its account's held.
const suspectHolds = `SELECT coalesce(a.id, o.account) FROM (SELECT id, held FROM accounts WHERE held <> 0) AS a
	FULL JOIN (SELECT account, sum(amount) AS held, count(*) - count(amount) AS strays FROM current_holds WHERE status = 'open' GROUP BY account) AS o
		ON o.account = a.id
	WHERE a.held IS DISTINCT FROM o.held OR o.strays > 0 ORDER BY 1 LIMIT $1`

const (
	// strangeEntry is an entry e of an account a that does not belong there, or is not what its transfer t says.
	strangeEntry = `e.transfer >= ` + beginning + ` AND (t.status = 'completed' AND t.currency = e.currency
		AND CASE WHEN e.amount < 0 THEN (t.source, t.amount) = (e.account, -e.amount) ELSE (t.destination, t.amount) = (e.account, e.amount) END) IS NOT TRUE`
	// newEntries counts the entries of an account x since its closing, from an id on, so that old partitions are not looked at. Its entries of before
	// are not looked at either. Transfers are looked up one by one, whatever the planner may believe of a new table.
	newEntries = `(SELECT count(*) AS entries, coalesce(sum(e.amount), 0) AS total, count(*) FILTER (WHERE e.currency <> x.currency) AS others,
			array_agg(DISTINCT e.transfer) FILTER (WHERE ` + strangeEntry + `) AS strange
		FROM entries AS e LEFT JOIN transfers AS t ON t.id = ANY (ARRAY[e.transfer]) WHERE e.account = x.id AND e.version > coalesce(x.since, -1) AND e.id >= $3)`
	// changedSince are the rows of accounts a that a transaction from a horizon on has written, whoever it was: all others were closed as they are.
	// Rows have the lower 32 bits of their transaction's number. One that comes again makes a row a changed one, which does no harm.
	changedSince = `($2::text IS NULL OR age(a.xmin) BETWEEN 0 AND age($2::text::xid))`
	// anyAccount is changedSince where rows don't tell: there is no horizon.
	anyAccount = `$2::text IS NULL`
	// suspectAccounts are the changed accounts whose balance does not follow from the closing and the entries since. Each row tells how many
	// were never closed, too; the only row where there is no suspect has no id.
	suspectAccounts = `WITH changed AS MATERIALIZED (SELECT` + changedAccounts + changedSince + suspectsAmong
	changedAccounts = ` a.id, a.currency, a.version, a.available, a.held, c.version AS since, c.available AS was_available, c.held AS was_held
		FROM accounts AS a LEFT JOIN closed_accounts AS c ON c.account = ANY (ARRAY[a.id]) WHERE `
	suspectsAmong = `),
	suspects AS (
		SELECT x.id, n.strange FROM (
			SELECT id, currency, since, since >= version AS odd, available::numeric + held AS balance, coalesce(was_available::numeric + was_held, 0) AS before
			FROM changed WHERE (version, available, held) IS DISTINCT FROM (since, was_available, was_held) OFFSET 0) AS x
		CROSS JOIN LATERAL ` + newEntries + ` AS n
		WHERE x.odd OR x.before + n.total <> x.balance OR n.others > 0 OR n.strange IS NOT NULL ORDER BY x.id LIMIT $1)
	SELECT c.fresh, coalesce(s.id, ''), coalesce(s.strange, '{}')
	FROM (SELECT count(*) FILTER (WHERE since IS NULL) AS fresh FROM changed) AS c LEFT JOIN suspects AS s ON true ORDER BY s.id`
	sumAccounts = `SELECT currency, sum(available)::text, sum(held)::text, count(*) FROM accounts GROUP BY currency`
	countClosed = `SELECT count(*) FROM closed_accounts`
	// goneAccounts are closed and have no row any more.
	goneAccounts = `SELECT account FROM closed_accounts AS c WHERE NOT EXISTS (SELECT FROM accounts WHERE id = c.account) ORDER BY account LIMIT $1`
	// sumOutside sums what came in and went out in entries after one, and, in the last two columns, those of them that are up to another.
	sumOutside = `
	SELECT e.currency, coalesce(sum(-e.amount) FILTER (WHERE e.amount < 0), 0)::text, coalesce(sum(e.amount) FILTER (WHERE e.amount > 0), 0)::text,
		coalesce(sum(-e.amount) FILTER (WHERE e.amount < 0 AND e.id <= $3), 0)::text, coalesce(sum(e.amount) FILTER (WHERE e.amount > 0 AND e.id <= $3), 0)::text
	FROM unnest($1::text[]) AS n (account),
		LATERAL (SELECT currency, amount, id FROM entries WHERE account = n.account AND version = 0 AND id > $2 OFFSET 0) AS e
	WHERE n.account = 'outside/' || e.currency OR n.account LIKE 'transit/%' GROUP BY e.currency`
	// selectClosing leaves out a horizon of another cluster, from which the database was restored, and one whose number has come again.
	selectClosing = `SELECT ` + lastHorizon + lastBooks + manyEntries
	lastHorizon   = `CASE WHEN c.cluster = ` + thisCluster + `
			AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint - c.horizon < 2147483648 THEN (c.horizon % 4294967296)::text END`
	lastBooks = `, c.at, c.settled, c.sums, r.began_at, r.valid, r.first_bad_account, r.bad_transfers
		FROM ledger_closing AS c, (SELECT * FROM ledger_recounts WHERE finished_at IS NOT NULL ORDER BY began_at DESC LIMIT 1) AS r
		WHERE `
	manyEntries   = sizeOfEntries + ` > $1`
	sizeOfEntries = `(SELECT sum(pg_relation_size(relid))::bigint FROM ` + piecesOfEntries + ` AS p)`
	// piecesOfEntries are the tables that have the entries: the partitions, or the only one.
	piecesOfEntries = `(SELECT relid FROM pg_partition_tree('entries') WHERE isleaf UNION SELECT oid::regclass FROM pg_class WHERE oid = 'entries'::regclass AND relkind = 'r')`
	// sumForward sums what came in and went out in entries that were archived.
	sumForward = `SELECT currency, coalesce(sum(-amount) FILTER (WHERE amount < 0), 0)::text, coalesce(sum(amount) FILTER (WHERE amount > 0), 0)::text
		FROM brought_forward WHERE account = 'outside/' || currency OR account LIKE 'transit/%' GROUP BY currency`
)

// thisCluster tells the numbers of this cluster's transactions from those of others.
const thisCluster = `(SELECT system_identifier FROM pg_control_system())`

// flow is what came into a ledger and went out, in one currency.
type flow struct{ Deposits, Withdrawals *big.Int }

func (f flow) plus(g flow) flow {
	return flow{new(big.Int).Add(f.Deposits, g.Deposits), new(big.Int).Add(f.Withdrawals, g.Withdrawals)}
}

// flows are by currency. An absent one is zero.
type flows map[string]flow

func (f flows) of(currency string) flow {
	if g, ok := f[currency]; ok {
		return g
	}
	return flow{new(big.Int), new(big.Int)}
}

func (f flows) plus(g flows) flows {
	sum := maps.Clone(f)
	if sum == nil {
		sum = flows{}
	}
	for currency, more := range g {
		sum[currency] = sum.of(currency).plus(more)
	}
	return sum
}

// closedBooks is what a check begins from.
type closedBooks struct {
	at      time.Time
	settled uuid.UUID
	sums    flows     // of entries up to settled
	horizon *string   // as rows have it; nil: all accounts count as changed
	from    uuid.UUID // the least id that an entry may have which no closing has counted, but for late ones (lateIDs)
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
		sums string
	)
	err := tx.QueryRow(ctx, l.books().selectClosing, l.wholeBelow).Scan(&b.horizon, &b.at, &b.settled, &sums, &b.recounted, &b.valid, &b.badAccount, &b.badTransfers)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		b.from = partitions.At(b.at.Add(-lateIDs))
		err = json.Unmarshal([]byte(sums), &b.sums)
	}
	return &b, err
}

// countSince counts what is new since a closing, all balances, and all holds.
func (l *Ledger) countSince(ctx context.Context, tx pgx.Tx, base *closedBooks) (ledger.Integrity, error) {
	out := ledger.Integrity{Currencies: []ledger.CurrencyIntegrity{}, ClosedAt: base.at, RecountedAt: base.recounted}
	inside, accounts, err := sumInside(ctx, tx)
	if err != nil {
		return out, err
	}
	suspects, bad, err := l.findSuspects(ctx, tx, base, accounts)
	if err != nil {
		return out, err
	}
	// A closing is no proof against an account: its own entries are.
	if len(suspects) > 0 {
		if err := tx.QueryRow(ctx, firstBadOf, suspects).Scan(&out.FirstBadAccount); err != nil {
			return out, err
		}
		if len(suspects) >= maxSuspects && out.FirstBadAccount == "" {
			l.countsWhole("closings") // So many closings are wrong that a bad account may be behind them.
			return countWhole(ctx, tx)
		}
	}
	out.BadTransfers = int64(len(bad))
	now, _, err := flowsSince(ctx, tx, base.settled, base.settled)
	if err != nil {
		return out, err
	}
	if out.Currencies = inside.against(base.sums.plus(now)); !agree(out.Currencies) {
		// An entry may have come late, under an id that was passed already.
		if now, _, err = flowsSince(ctx, tx, uuid.UUID{}, base.settled); err != nil {
			return out, err
		}
		out.Currencies = inside.against(now)
	}
	if err := tx.QueryRow(ctx, `SELECT transaction_timestamp()`).Scan(&out.CheckedAt); err != nil {
		return out, err
	}
	if !base.valid {
		if out.FirstBadAccount == "" || base.badAccount != "" && base.badAccount < out.FirstBadAccount {
			out.FirstBadAccount = base.badAccount
		}
		out.BadTransfers = max(out.BadTransfers, base.badTransfers)
	}
	judge(&out)
	out.Valid = out.Valid && base.valid
	return out, nil
}

// findSuspects returns the accounts that their closings and the entries since don't explain, maxSuspects of a kind at most, and transfers
// that are not what their entries say.
func (l *Ledger) findSuspects(ctx context.Context, tx pgx.Tx, base *closedBooks, accounts int64) (suspects []string, bad map[uuid.UUID]bool, err error) {
	if suspects, err = pgkit.Rows(ctx, tx, pgx.RowTo[string], suspectHolds, maxSuspects); err != nil {
		return nil, nil, err
	}
	rows, err := tx.Query(ctx, l.books().suspectAccounts, maxSuspects, base.horizon, base.from)
	if err != nil {
		return nil, nil, err
	}
	var (
		closed, fresh int64
		account       string
		strange       []uuid.UUID
	)
	bad = map[uuid.UUID]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&fresh, &account, &strange}, func() error {
		if account != "" {
			suspects = append(suspects, account)
		}
		for _, id := range strange {
			bad[id] = true
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if err := tx.QueryRow(ctx, countClosed).Scan(&closed); err != nil {
		return nil, nil, err
	}
	if closed != accounts-fresh {
		gone, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], goneAccounts, maxSuspects)
		if err != nil {
			return nil, nil, err
		}
		suspects = append(suspects, gone...)
	}
	return suspects, bad, nil
}

// holdings are what all accounts have, by currency.
type holdings map[string]balance

type balance struct{ Available, Held *big.Int }

// sumInside sums what the accounts have, and counts them.
func sumInside(ctx context.Context, tx pgx.Tx) (inside holdings, accounts int64, err error) {
	rows, err := tx.Query(ctx, sumAccounts)
	if err != nil {
		return nil, 0, err
	}
	inside = holdings{}
	var (
		currency, available, held string
		count                     int64
	)
	_, err = pgx.ForEachRow(rows, []any{&currency, &available, &held, &count}, func() error {
		n, err := integers(available, held)
		if err == nil {
			inside[currency] = balance{n[0], n[1]}
			accounts += count
		}
		return err
	})
	return inside, accounts, err
}

// against holds the balances against what came in and went out.
func (b holdings) against(f flows) []ledger.CurrencyIntegrity {
	all := map[string]bool{}
	for currency := range b {
		all[currency] = true
	}
	for currency := range f {
		all[currency] = true
	}
	sums := make([]ledger.CurrencyIntegrity, 0, len(all))
	for _, currency := range slices.Sorted(maps.Keys(all)) {
		moved, has := f.of(currency), b[currency]
		if has.Available == nil {
			has.Available, has.Held = new(big.Int), new(big.Int)
		}
		difference := new(big.Int).Sub(moved.Deposits, moved.Withdrawals)
		difference.Sub(difference, has.Available).Sub(difference, has.Held)
		sums = append(sums, ledger.CurrencyIntegrity{
			Currency: currency, Deposits: moved.Deposits, Withdrawals: moved.Withdrawals, Available: has.Available, Held: has.Held, Difference: difference,
		})
	}
	return sums
}

func agree(sums []ledger.CurrencyIntegrity) bool {
	return !slices.ContainsFunc(sums, func(c ledger.CurrencyIntegrity) bool { return c.Difference.Sign() != 0 })
}

// flowsSince sums what came in and went out in entries after one, and of these up to another. Entries after none include the archived ones.
func flowsSince(ctx context.Context, tx pgx.Tx, since, upto uuid.UUID) (all, settled flows, err error) {
	var accounts []string
	for _, names := range [...][2]string{{"outside/", "outside0"}, {"transit/", "transit0"}} {
		found, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], outsideAccounts, names[0], names[1])
		if err != nil {
			return nil, nil, err
		}
		accounts = append(accounts, found...)
	}
	rows, err := tx.Query(ctx, sumOutside, accounts, since, upto)
	if err != nil {
		return nil, nil, err
	}
	all, settled = flows{}, flows{}
	var currency, in, out, oldIn, oldOut string
	_, err = pgx.ForEachRow(rows, []any{&currency, &in, &out, &oldIn, &oldOut}, func() error {
		n, err := integers(in, out, oldIn, oldOut)
		if err == nil {
			all[currency], settled[currency] = flow{n[0], n[1]}, flow{n[2], n[3]}
		}
		return err
	})
	if err != nil || since != uuid.Nil {
		return all, settled, err
	}
	forward, err := flowsForward(ctx, tx)
	return all.plus(forward), settled.plus(forward), err
}

// flowsForward sums what came in and went out in entries that were archived.
func flowsForward(ctx context.Context, tx pgx.Tx) (flows, error) {
	rows, err := tx.Query(ctx, sumForward)
	if err != nil {
		return nil, err
	}
	forward := flows{}
	var currency, in, out string
	_, err = pgx.ForEachRow(rows, []any{&currency, &in, &out}, func() error {
		n, err := integers(in, out)
		if err == nil {
			forward[currency] = flow{n[0], n[1]}
		}
		return err
	})
	return forward, err
}

// integers reads sums, which may be larger than 64 bits.
func integers(texts ...string) ([]*big.Int, error) {
	all := make([]*big.Int, len(texts))
	for i, text := range texts {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return nil, fmt.Errorf("sum %q is not an integer", text)
		}
		all[i] = n
	}
	return all, nil
}
