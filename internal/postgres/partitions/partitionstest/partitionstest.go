// Package partitionstest makes histories of long ago for tests.
package partitionstest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

// Begin has the empty tables of a migrated database be in partitions since a time: as if it had been migrated then, and servers had been at work from
// then to now.
func Begin(ctx context.Context, conn *pgx.Conn, then, now time.Time) error {
	for _, table := range partitions.Tables() {
		if _, err := conn.Exec(ctx, fmt.Sprintf(`CREATE TABLE anew (LIKE %s INCLUDING ALL); DROP TABLE %[1]s; ALTER TABLE anew RENAME TO %[1]s`, table)); err != nil {
			return err
		}
	}
	if err := partitions.Convert(ctx, conn, then); err != nil {
		return err
	}
	if err := partitions.Index(ctx, conn); err != nil {
		return err
	}
	_, err := partitions.Extend(ctx, conn, now)
	return err
}

// Month is a statement that adds a month's history: for each of twelve accounts in the currency SIM, on each of 28 days and so many times a day (up to 2,000),
// a deposit of 12, a withdrawal of 1, and a transfer of 2 to the next account, with a memo of so many bytes and some more.
func Month(year int, month time.Month, times, memo int) string {
	return fmt.Sprintf(`
	WITH numbers AS (SELECT d, a, k, 'old-' || lpad(a::text, 2, '0') AS account, 'old-' || lpad(((a + 1) %% 12)::text, 2, '0') AS other,
			make_timestamptz(%d, %d, 1, 0, 0, 0, 'UTC') + d * interval '1 day' + (i * 40 + a * 3 + k) * interval '1 second' AS at
		FROM generate_series(0, 27) AS d, generate_series(0, %d) AS i, generate_series(0, 11) AS a, generate_series(0, 2) AS k),
	wanted AS (SELECT *, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid AS transfer,
			(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70018000000000000000')::uuid AS first,
			(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70028000000000000000')::uuid AS second,
			(ARRAY['deposit', 'withdrawal', 'transfer'])[k + 1] AS kind, (ARRAY[12, 1, 2])[k + 1] AS amount,
			(ARRAY['outside/SIM', account, account])[k + 1] AS source, (ARRAY[account, 'outside/SIM', other])[k + 1] AS destination,
			repeat('m', %d) || ' "quoted", and' || chr(10) || 'on two lines' AS memo FROM numbers),
	sides AS (SELECT source AS account, first AS id, transfer, -amount AS amount, at, memo FROM wanted
		UNION ALL SELECT destination, second, transfer, amount, at, memo FROM wanted),
	numbered AS (SELECT s.*, CASE WHEN s.account LIKE 'outside/%%' THEN 0 ELSE coalesce(a.version, 0) + row_number() OVER (PARTITION BY s.account ORDER BY s.id) END AS version
		FROM sides AS s LEFT JOIN accounts AS a ON a.id = s.account),
	moved AS (INSERT INTO transfers SELECT transfer, kind, source, destination, amount, 'SIM', 'completed', '', memo, at FROM wanted),
	opened AS (INSERT INTO accounts AS a SELECT account, 'SIM', sum(amount), 0, max(version), min(at) FROM numbered WHERE account NOT LIKE 'outside/%%' GROUP BY account ORDER BY 1
		ON CONFLICT ON CONSTRAINT accounts_pkey DO UPDATE SET available = a.available + excluded.available, version = excluded.version)
	INSERT INTO entries (account, id, version, transfer, amount, currency, at, memo)
	SELECT account, id, version, transfer, amount, 'SIM', at, memo FROM numbered`, year, month, times-1, memo)
}

// Holds adds holds to a month of [Month] with one time a day, and turns the table of holds, as servers do at the end of a month: for each account a hold
// that was captured on each day, one that was released, and one that is open still.
func Holds(ctx context.Context, db partitions.DB, month time.Time) error {
	end := month.AddDate(0, 1, 0)
	err := inTx(ctx, db, fmt.Sprintf(`
	WITH captured AS (UPDATE transfers SET kind = 'capture' WHERE kind = 'transfer' AND id >= '%s' AND id < '%s' RETURNING id, source, amount, created_at)
	INSERT INTO hold_rows (id, account, amount, captured, status, created_at, closed_at, transfer)
	SELECT gen_random_uuid(), source, amount + 1, amount, 'captured', created_at - interval '1 hour', created_at, id FROM captured
	UNION ALL
	SELECT gen_random_uuid(), id, 3, 0, s.status, '%s', CASE s.status WHEN 'released' THEN timestamptz '%[3]s' END, NULL
		FROM accounts, (VALUES ('open'), ('released')) AS s (status) WHERE id LIKE 'old-%%'`, partitions.At(month), partitions.At(end), end.AddDate(0, 0, -2).Format(time.RFC3339)),
		`UPDATE accounts SET available = available - 3, held = held + 3 WHERE id LIKE 'old-%'`,
		`UPDATE hold_turns SET settled_at = settled_at - interval '1 year' WHERE number = 0`)
	if err != nil {
		return err
	}
	if n, err := partitions.TurnHolds(ctx, db, time.Now()); err != nil || n != 1 {
		return fmt.Errorf("%d turns were settled: %w", n, err)
	}
	return inTx(ctx, db, fmt.Sprintf(`UPDATE hold_turns SET turned_at = '%s', settled_at = '%[1]s' WHERE number = (SELECT max(number) FROM hold_turns)`, end.Add(-time.Hour).Format(time.RFC3339)))
}

func inTx(ctx context.Context, db partitions.DB, statements ...string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}
