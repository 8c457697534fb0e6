package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// These benchmarks compare the defences of a draw: see docs/adr/0028-how-a-draw-is-defended.md.

// sequential is how many advisory locks, or transitions, a round of a benchmark has.
const sequential = 1000

// times reports the mean and two quantiles of what was measured.
func times(b *testing.B, what string, all []time.Duration) {
	b.Helper()
	slices.Sort(all)
	for name, d := range map[string]time.Duration{
		"mean": mean(all), "p95": all[len(all)*95/100], "p99": all[len(all)*99/100],
	} {
		b.ReportMetric(float64(d)/float64(time.Millisecond), what+name+"-ms")
	}
}

func mean(all []time.Duration) (sum time.Duration) {
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(len(all))
}

func try(b *testing.B, err error) {
	b.Helper()
	testwait.Must(b, err)
}

// onSale makes a campaign of a triangle, and an account that can buy all of it.
func onSale(b *testing.B, base int) (db *DB, s *lottery.Service, id uuid.UUID) {
	b.Helper()
	db, err := Open(b.Context(), Options{URL: durable(b)})
	try(b, err)
	b.Cleanup(db.Close)
	_, err = db.pool.Exec(b.Context(), `INSERT INTO accounts SELECT name, 'EUR', 1000000, 0, 1, now() FROM unnest('{ann,house}'::text[]) AS name`)
	try(b, err)
	s = lottery.NewService(NewLottery(db), lottery.Options{})
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return db, s, another(b, s, base)
}

func another(b *testing.B, s *lottery.Service, base int) uuid.UUID {
	b.Helper()
	a, err := s.Create(b.Context(), own[lottery.Op](lottery.Create{
		Name: "spring", BaseLength: &base, Price: new(int64(1)), Currency: "EUR", Beneficiary: "house", Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}},
	}))
	try(b, errors.Join(err, a.Err))
	made, _ := a.Result.(*lottery.Campaign)
	a, err = s.Execute(b.Context(), made.ID, own[lottery.Op](lottery.Publish{}))
	try(b, errors.Join(err, a.Err))
	return made.ID
}

// BenchmarkAdvisoryLocks takes advisory locks one after the other: alone in a transaction, as the requirement measures them, and as
// a sale takes its campaign's, with the campaign read.
func BenchmarkAdvisoryLocks(b *testing.B) {
	db, _, id := onSale(b, 20)
	for name, lock := range map[string]func(i int) error{
		"alone": func(i int) error {
			return pgx.BeginFunc(b.Context(), db.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), `SELECT pg_advisory_xact_lock($1)`, i)
				return err
			})
		},
		"campaign": func(int) error {
			return db.run(b.Context(), "lottery", func(ctx context.Context, tx pgx.Tx) error {
				_, _, err := db.lockCampaign(ctx, tx, id, new(*knownInventory), nil)
				return err
			})
		},
	} {
		b.Run(name, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				for i := range sequential {
					began := time.Now()
					try(b, lock(i))
					all = append(all, time.Since(began))
				}
			}
			times(b, "", all)
		})
	}
}

// BenchmarkTransition has PostgreSQL say how long it plans and executes the guarded transition to drawing, and by which index.
func BenchmarkTransition(b *testing.B) {
	db, _, id := onSale(b, 1)
	var planned, executed []time.Duration
	for b.Loop() {
		for range sequential {
			tx, err := db.pool.Begin(b.Context())
			try(b, err)
			var raw []byte
			try(b, tx.QueryRow(b.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+updateCampaign, pgx.QueryExecModeExec, id, 3, "drawing", 1, nil, time.Now(), nil, nil).Scan(&raw))
			try(b, tx.Rollback(b.Context()))
			var plan []struct {
				Planning  float64 `json:"Planning Time"`
				Execution float64 `json:"Execution Time"`
			}
			try(b, json.Unmarshal(raw, &plan))
			if !strings.Contains(string(raw), "campaigns_pkey") {
				b.Fatalf("not by the primary key: %s", raw)
			}
			planned = append(planned, time.Duration(plan[0].Planning*float64(time.Millisecond)))
			executed = append(executed, time.Duration(plan[0].Execution*float64(time.Millisecond)))
		}
	}
	times(b, "planning-", planned)
	times(b, "execution-", executed)
}

// defence is a way to sell a place, and to draw with the last one, in one transaction. All of them do less than a purchase does: no
// money moves, and no answer is kept.
type defence struct {
	name  string
	level pgx.TxIsoLevel
	gate  string // before all
	pick  string // behind the selection of a free place
}

// errTaken says that another transaction was faster.
var errTaken = errors.New("the place is taken")

func (d defence) buy(ctx context.Context, pool *pgxpool.Pool, sale int) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: d.level}, func(tx pgx.Tx) error {
		if d.gate != "" {
			if _, err := tx.Exec(ctx, d.gate, sale); err != nil {
				return err
			}
		}
		var place int
		err := tx.QueryRow(ctx, `SELECT n FROM places WHERE sale = $1 AND NOT sold ORDER BY random() LIMIT 1 `+d.pick, sale).Scan(&place)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // Sold out.
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `UPDATE places SET sold = true WHERE sale = $1 AND n = $2 AND NOT sold`, sale, place)
		if err == nil && tag.RowsAffected() == 0 {
			err = errTaken
		}
		if err != nil {
			return err
		}
		var last bool
		if err := tx.QueryRow(ctx, `UPDATE sales SET sold = sold + 1 WHERE id = $1 RETURNING sold = total`, sale).Scan(&last); err != nil || !last {
			return err
		}
		_, err = tx.Exec(ctx, `WITH drawing AS (UPDATE sales SET status = 'completed' WHERE id = $1 AND status = 'active' AND sold = total RETURNING id)
			INSERT INTO draw_keys SELECT id, (SELECT n FROM places WHERE sale = id ORDER BY random() LIMIT 1) FROM drawing`, sale)
		return err
	})
}

// BenchmarkDrawDefences sells 210 places to 500 buyers at once. It reports the time from the start to an answer, the last one's too,
// and the share of transactions that failed and were run again.
func BenchmarkDrawDefences(b *testing.B) {
	const buyers, base, total = 500, 20, 210
	race := func(b *testing.B, buy func() error) (all []time.Duration) {
		b.Helper()
		var group sync.WaitGroup
		all = make([]time.Duration, buyers)
		began := time.Now()
		for i := range buyers {
			group.Go(func() {
				testwait.Check(b, buy())
				all[i] = time.Since(began)
			})
		}
		group.Wait()
		return all
	}
	url := durable(b)
	exec := func(pool *pgxpool.Pool, sql string, args ...any) {
		_, err := pool.Exec(b.Context(), sql, args...)
		try(b, err)
	}
	for _, connections := range []int{10, 50} {
		config, err := pgxpool.ParseConfig(url)
		try(b, err)
		config.MaxConns, config.MinConns = int32(connections), int32(connections)
		pool, err := pgxpool.NewWithConfig(b.Context(), config)
		try(b, err)
		exec(pool, `DROP TABLE IF EXISTS sales, places, draw_keys`)
		exec(pool, `CREATE TABLE sales (id int PRIMARY KEY, status text NOT NULL, sold int NOT NULL, total int NOT NULL)`)
		exec(pool, `CREATE TABLE places (sale int, n int, sold bool NOT NULL, PRIMARY KEY (sale, n))`)
		exec(pool, `CREATE TABLE draw_keys (sale int PRIMARY KEY, winner int NOT NULL)`)
		sale := 0
		for _, d := range []defence{
			{name: "advisory lock", gate: `SELECT pg_advisory_xact_lock($1)`},
			{name: "guards alone"},
			{name: "SKIP LOCKED", pick: `FOR UPDATE SKIP LOCKED`},
			{name: "SERIALIZABLE", level: pgx.Serializable},
		} {
			b.Run(fmt.Sprintf("%s, %d connections", d.name, connections), func(b *testing.B) {
				var longest, each []time.Duration
				var tries, failed atomic.Int64
				for b.Loop() {
					sale++
					exec(pool, `INSERT INTO sales VALUES ($1, 'active', 0, $2)`, sale, total)
					exec(pool, `INSERT INTO places SELECT $1, n, false FROM generate_series(1, $2::int) AS n`, sale, total)
					all := race(b, func() error {
						for {
							err := d.buy(b.Context(), pool, sale)
							tries.Add(1)
							if err == nil {
								return nil
							}
							if verdict, _ := pgkit.Classify(err); verdict != pgkit.Conflict && !errors.Is(err, errTaken) {
								return err
							}
							failed.Add(1)
						}
					})
					each, longest = append(each, all...), append(longest, slices.Max(all))
					var sold, draws int
					try(b, pool.QueryRow(b.Context(), `SELECT (SELECT count(*) FROM places WHERE sale = $1 AND sold), (SELECT count(*) FROM draw_keys WHERE sale = $1)`, sale).Scan(&sold, &draws))
					if sold != total || draws != 1 {
						b.Errorf("%d sold, %d draws", sold, draws)
					}
				}
				b.ReportMetric(float64(mean(longest))/float64(time.Millisecond), "last-ms")
				times(b, "", each)
				b.ReportMetric(100*float64(failed.Load())/float64(tries.Load()), "%failed")
			})
		}
		pool.Close()
	}
	b.Run("lane", func(b *testing.B) {
		db, s, id := onSale(b, base)
		var longest, each []time.Duration
		for i := 0; b.Loop(); i++ {
			if i > 0 {
				id = another(b, s, base)
			}
			all := race(b, func() error {
				_, err := s.Execute(b.Context(), id, own[lottery.Op](lottery.Buy{Account: "ann"}))
				return err
			})
			each, longest = append(each, all...), append(longest, slices.Max(all))
			var sold, draws int
			try(b, db.pool.QueryRow(b.Context(), `SELECT (SELECT count(*) FROM purchases WHERE campaign = $1), (SELECT count(*) FROM draws WHERE campaign = $1)`, id).Scan(&sold, &draws))
			if sold != total || draws != 1 {
				b.Errorf("%d sold, %d draws", sold, draws)
			}
		}
		b.ReportMetric(float64(mean(longest))/float64(time.Millisecond), "last-ms")
		times(b, "", each)
	})
}
