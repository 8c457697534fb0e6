package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// BenchmarkBooks counts a ledger of b.N transfers among a fifth as many accounts, which have two entries each, and then checks it from its last
// closing on, at rest and after some more: go test -run - -bench Books -benchtime 5000000x -timeout 1h ./internal/postgres
func BenchmarkBooks(b *testing.B) {
	accounts := max(b.N/5, 2)
	db, err := Open(b.Context(), Options{URL: pgtest.NewDatabase(b, migrated), MaxConns: 8})
	testwait.Must(b, err)
	b.Cleanup(db.Close)
	run := func(sql string, args ...any) {
		b.Helper()
		testwait.Must(b, pgx.BeginFunc(b.Context(), db.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(b.Context(), scanFreely); err != nil {
				return err
			}
			return testwait.Err(tx.Exec(b.Context(), sql, args...))
		}))
	}
	// move makes transfers of these numbers. An id is of its number.
	move := func(kind, source, destination, amount string, from, to int) {
		const id = `(lpad(to_hex(1700000000000 + i), 12, '0') || '7%s8000000000000000')::uuid`
		transfer, entry := fmt.Sprintf(id, "000"), fmt.Sprintf(id, "001")
		version := `2 * i`
		if kind == "deposit" {
			version = `0`
		}
		for _, rows := range []string{
			`transfers SELECT ` + transfer + `, '` + kind + `', ` + source + `, ` + destination + `, ` + amount + `, 'EUR', 'completed', '', '', now()`,
			`entries SELECT ` + source + `, ` + entry + `, ` + version + `, ` + transfer + `, -(` + amount + `), 'EUR', now(), ''`,
			`entries SELECT ` + destination + `, ` + entry + `, 2 * i + 1, ` + transfer + `, ` + amount + `, 'EUR', now(), ''`,
		} {
			run(`INSERT INTO `+rows+` FROM generate_series($1::bigint, $2::bigint - 1) AS i WHERE `+source+` <> `+destination, from, to)
		}
	}
	account := func(i string) string { return fmt.Sprintf(`'acc-' || (%s) %% %d`, i, accounts) }
	// Everybody gets a million from outside, and then the transfers go round.
	move("deposit", `'outside/EUR'`, account(`i`), `1000000`, 0, accounts)
	for from := accounts; from < accounts+b.N; from += 1_000_000 {
		move("transfer", account(`i`), account(`i * 7 + 1`), `1 + i % 9`, from, min(from+1_000_000, accounts+b.N))
	}
	run(`INSERT INTO accounts SELECT account, 'EUR', sum(amount), 0, max(version), now() FROM entries WHERE account LIKE 'acc-%' GROUP BY account`)
	testwait.Must(b, db.pool.AcquireFunc(b.Context(), func(c *pgxpool.Conn) error {
		if _, err := c.Exec(b.Context(), `SET statement_timeout = 0`); err != nil {
			return err
		}
		return testwait.Err(c.Exec(b.Context(), `VACUUM ANALYZE`))
	}))
	books := NewLedger(db)
	b.ResetTimer()
	measure := func(name string, do func() error) {
		b.Helper()
		began := time.Now()
		testwait.Must(b, do())
		b.ReportMetric(float64(time.Since(began).Milliseconds()), name+"-ms")
		b.Log(name, time.Since(began))
	}
	check := func() error {
		in, err := books.Integrity(b.Context())
		if err == nil && !in.Valid {
			err = fmt.Errorf("%+v", in)
		}
		return err
	}
	closing := func() error { return testwait.Err(books.CloseBooks(b.Context(), Pace{})) }
	measure("whole", func() error { return testwait.Err(books.whole(b.Context())) })
	for _, atOnce := range []int{1, 2} {
		measure([]string{"", "recount", "recount-by-2"}[atOnce], func() error {
			in, err := books.Recount(b.Context(), RecountOptions{Runner: RunnerOperator, Blocks: 32768, AtOnce: atOnce})
			if err == nil && !in.Valid {
				err = fmt.Errorf("%+v", in)
			}
			return err
		})
	}
	measure("check-before-closing", check)
	measure("first-closing", closing)
	measure("closing", closing)
	for range 3 {
		measure("check", check)
	}
	// A twentieth of the accounts changes.
	next := accounts + b.N
	next += next % 2
	move("transfer", account(`i`), account(`i + 1`), `1`, next, next+accounts/20)
	run(`UPDATE accounts AS a SET available = available + n.total, version = n.version FROM (SELECT account, sum(amount) AS total, max(version) AS version
		FROM entries WHERE id >= (lpad(to_hex(1700000000000 + $1::bigint), 12, '0') || '70000000000000000000')::uuid GROUP BY account) AS n WHERE a.id = n.account`, next)
	for range 3 {
		measure("check-after-changes", check)
	}
	measure("closing-of-changes", closing)
	measure("check-after-closing", check)
}
