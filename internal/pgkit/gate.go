package pgkit

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Gate says how transactions of one schema take turns: by advisory locks, or by rows of the table fairlead_gates, which [Install] makes
// where there are none. So all programs of a database agree. It is safe for concurrent use.
type Gate struct {
	Schema string // as in [In]

	known atomic.Bool
	rows  atomic.Bool
}

// The rows have numbers below gates. Two keys may have the same row, by a chance of 1 in 1,024, and then wait for each other without need.
const (
	gates     = 1 << 10
	makeGates = `CREATE TABLE IF NOT EXISTS fairlead_gates (n integer PRIMARY KEY)`
	fillGates = `INSERT INTO fairlead_gates SELECT generate_series(0, $1::integer - 1) ON CONFLICT DO NOTHING`

	// GateTable is the table, for [In].
	GateTable = `@fairlead_gates`
	// GateRow waits for its turn at the row of a number, and has it until the transaction ends.
	GateRow   = `SELECT FROM ` + GateTable + ` WHERE n = $1 FOR UPDATE`
	gateRowOf = `SELECT FROM ` + GateTable + ` WHERE n = (SELECT get_byte(key, 0) * 4 + get_byte(key, 1) / 64 FROM `
)

// GateRowOf is [GateRow] for the number that [GateOf] makes of the key of a table's row whose id is $1, if it has a key.
func GateRowOf(table string) string {
	return gateRowOf + table + ` WHERE id = $1 AND key IS NOT NULL) FOR UPDATE`
}

// GateOf is the number of the row for two random bytes.
func GateOf(a, b byte) int32 { return int32(a)*4 + int32(b)/64 }

// Rows reports whether turns are taken by rows. It asks the database at first.
func (g *Gate) Rows(ctx context.Context, tx pgx.Tx) (bool, error) {
	if !g.known.Load() {
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, In(g.Schema, GateTable)).Scan(&there); err != nil {
			return false, err
		}
		g.rows.Store(there)
		g.known.Store(true)
	}
	return g.rows.Load(), nil
}

// takeAdvisory takes an advisory lock until the transaction ends, and reports false where the database has none. It takes one round trip.
func takeAdvisory(ctx context.Context, tx pgx.Tx, key int64) (bool, error) {
	const turn = `SAVEPOINT turn; SELECT pg_advisory_xact_lock('%d'::bigint); ` + lockListed + `; RELEASE SAVEPOINT turn`
	results, err := tx.Conn().PgConn().Exec(ctx, fmt.Sprintf(turn, key)).ReadAll()
	if err == nil {
		return string(results[2].Rows[0][0]) == "t", nil
	}
	if !Refused(err) {
		return false, err
	}
	_, err = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT turn`)
	return false, err
}

// takeGate makes the rows, and takes the one of a number until the transaction ends. It reports whether there were none. Where another
// transaction is making them, it fails by a conflict.
func takeGate(ctx context.Context, tx pgx.Tx, n int64) (made bool, err error) {
	if _, err := tx.Exec(ctx, makeGates); err != nil {
		return false, err
	}
	filled, err := tx.Exec(ctx, fillGates, gates)
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, In("", GateRow), n%gates)
	return filled.RowsAffected() > 0, err
}
