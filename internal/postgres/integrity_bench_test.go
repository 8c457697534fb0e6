package postgres

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// BenchmarkBooks counts a ledger of b.N transfers among 100,000 accounts, which have two entries each, and then checks it from its last
// closing on: go test -run - -bench Books -benchtime 5000000x ./internal/postgres
func BenchmarkBooks(b *testing.B) {
	const accounts = 100_000
	db, err := Open(b.Context(), Options{URL: pgtest.NewDatabase(b, migrated), MaxConns: 8})
	testwait.Must(b, err)
	b.Cleanup(db.Close)
	run := func(sql string, args ...any) {
		_, err := db.pool.Exec(b.Context(), `SET statement_timeout = 0`)
		testwait.Must(b, err)
		_, err = db.pool.Exec(b.Context(), sql, args...)
		testwait.Must(b, err)
	}
	// Everybody gets a million from outside, and then the transfers go round. An id is of the transfer's number.
	const id = `(lpad(to_hex(1700000000000 + i), 12, '0') || '7' || $3::text || '8000000000000000')::uuid`
	for from := 0; from < b.N+accounts; from += accounts {
		kind, source, destination, amount := "transfer", `'acc-' || i % 100000`, `'acc-' || (i * 7 + 1) % 100000`, `1 + i % 9`
		if from == 0 {
			kind, source, amount, destination = "deposit", `'outside/EUR'`, `1000000`, `'acc-' || i`
		}
		n := min(accounts, b.N+accounts-from)
		for _, insert := range []string{
			`INSERT INTO transfers SELECT ` + id + `, '` + kind + `', ` + source + `, ` + destination + `, ` + amount + `, 'EUR', 'completed', '', '', now()`,
			`INSERT INTO entries SELECT ` + source + `, ` + id + `, CASE WHEN $1 = 0 THEN 0 ELSE 2 * i END, (lpad(to_hex(1700000000000 + i), 12, '0') || '70008000000000000000')::uuid, -(` + amount + `), 'EUR', now(), ''`,
			`INSERT INTO entries SELECT ` + destination + `, ` + id + `, 2 * i + 1, (lpad(to_hex(1700000000000 + i), 12, '0') || '70008000000000000000')::uuid, ` + amount + `, 'EUR', now(), ''`,
		} {
			part := "000"
			if insert[12] == 'e' {
				part = "001"
			}
			run(insert+` FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS i
				WHERE `+source+` <> `+destination, from, n, part)
		}
	}
	run(`INSERT INTO accounts SELECT account, 'EUR', sum(amount), 0, max(version), now() FROM entries WHERE account LIKE 'acc-%' GROUP BY account`)
	run(`VACUUM ANALYZE`)
	books := NewLedger(db)
	b.ResetTimer()
	measure := func(name string, do func() error) {
		began := time.Now()
		testwait.Must(b, do())
		b.ReportMetric(float64(time.Since(began).Milliseconds()), name+"-ms")
		b.Log(name, time.Since(began))
	}
	measure("whole", func() error { _, err := books.whole(b.Context()); return err })
	for _, atOnce := range []int{1, 2} {
		measure([]string{"", "recount", "recount-by-2"}[atOnce], func() error {
			in, err := books.Recount(b.Context(), RecountOptions{Runner: RunnerOperator, Blocks: 8192, AtOnce: atOnce})
			if err == nil && !in.Valid {
				b.Fatalf("%+v", in)
			}
			return err
		})
	}
	measure("first-closing", func() error { _, err := books.CloseAccounts(b.Context()); return err })
	measure("closing", func() error { _, err := books.CloseAccounts(b.Context()); return err })
	for range 3 {
		measure("check", func() error { _, err := books.Integrity(b.Context()); return err })
	}
}
