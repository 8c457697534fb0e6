package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// wholeBelow is how many bytes of entries are counted at once whenever somebody asks: some 60,000. Larger ledgers are counted from the last
// closing on, and as a whole by recounts.
const wholeBelow = 8 << 20

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
			return err
		}
		switch out, _, err = l.countSince(ctx, tx, base); {
		case errors.Is(err, errUnexplained):
			l.countsWhole("closings")
			out, err = countWhole(ctx, tx)
		case err == nil && !base.valid:
			// What the last recount has found may be older than the closing.
			if out.FirstBadAccount == "" || base.badAccount != "" && base.badAccount < out.FirstBadAccount {
				out.FirstBadAccount = base.badAccount
			}
			out.BadTransfers = max(out.BadTransfers, base.badTransfers)
			out.Valid = false
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
	// sumOutside sums what came in and went out, in all entries that are not archived.
	sumOutside = `
	SELECT e.currency, coalesce(sum(-e.amount) FILTER (WHERE e.amount < 0), 0)::text, coalesce(sum(e.amount) FILTER (WHERE e.amount > 0), 0)::text
	FROM unnest($1::text[]) AS n (account), LATERAL (SELECT currency, amount FROM entries WHERE account = n.account AND version = 0 OFFSET 0) AS e
	WHERE n.account = 'outside/' || e.currency OR n.account LIKE 'transit/%' GROUP BY e.currency`
	// sumForward sums what came in and went out in entries that were archived.
	sumForward = `SELECT currency, coalesce(sum(-amount) FILTER (WHERE amount < 0), 0)::text, coalesce(sum(amount) FILTER (WHERE amount > 0), 0)::text
		FROM brought_forward WHERE account = 'outside/' || currency OR account LIKE 'transit/%' GROUP BY currency`
	manyEntries   = sizeOfEntries + ` > $1`
	sizeOfEntries = `(SELECT sum(pg_relation_size(relid))::bigint FROM ` + piecesOfEntries + ` AS p)`
	// piecesOfEntries are the tables that have the entries: the partitions, or the only one.
	piecesOfEntries = `(SELECT relid FROM pg_partition_tree('entries') WHERE isleaf UNION SELECT oid::regclass FROM pg_class WHERE oid = 'entries'::regclass AND relkind = 'r')`
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

// holdings are what all accounts have, by currency.
type holdings map[string]balance

type balance struct{ Available, Held *big.Int }

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

// flowsAnew sums what came in and went out from the first entry on, archived ones included.
func flowsAnew(ctx context.Context, tx pgx.Tx) (flows, error) {
	var accounts []string
	for _, names := range [...][2]string{{"outside/", "outside0"}, {"transit/", "transit0"}} {
		found, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], outsideAccounts, names[0], names[1])
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, found...)
	}
	kept, err := readFlows(ctx, tx, sumOutside, accounts)
	if err != nil {
		return nil, err
	}
	forward, err := readFlows(ctx, tx, sumForward)
	return kept.plus(forward), err
}

func readFlows(ctx context.Context, tx pgx.Tx, sql string, args ...any) (flows, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	all := flows{}
	var currency, in, out string
	_, err = pgx.ForEachRow(rows, []any{&currency, &in, &out}, func() error {
		n, err := integers(in, out)
		if err == nil {
			all[currency] = flow{n[0], n[1]}
		}
		return err
	})
	return all, err
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
