package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// What the turns of sagas are made of.
const (
	sagaSteps    = 4     // of a saga, each an update of a row of its own
	sagaAccounts = 1_000 // of each ledger
	sagaFunds    = 1_000_000
	fsyncTurn    = time.Second
	fsyncBlock   = 8 << 10 // bytes written before each fsync, a page of WAL
)

// The names of the turns.
const (
	sagaTurn     = "saga steps"
	crossSaga    = "transfers between ledgers, saga"
	crossTwoPC   = "transfers between ledgers, two-phase"
	sagaServices = 30 * time.Second // to end what is under way
)

// sagaLoads are how many callers wait for their sagas at once.
func sagaLoads() []int { return []int{1, 32} }

// sagas measures the steps of sagas and transfers between ledgers, in this process, with both ledgers on the house's
// PostgreSQL, and beside them what its disk can do.
func (h *house) sagas(ctx context.Context, o *options, results *Results) error {
	var err error
	if results.Fsyncs, err = measureFsyncs(h.dir); err != nil {
		return err
	}
	own, other, err := h.openLedgers(ctx)
	if err != nil {
		return err
	}
	defer own.Close()
	defer other.Close()
	pool, err := pgxpool.New(ctx, own.url)
	if err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	defer pool.Close()
	if err := pgsaga.Schema("bench").Install(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE bench.counters AS SELECT n AS id, 0::bigint AS value FROM generate_series(1, 1000) AS n; ALTER TABLE bench.counters ADD PRIMARY KEY (id)`); err != nil {
		return fmt.Errorf("make counters: %w", err)
	}
	for pair := range o.sagaPairs {
		for _, callers := range sagaLoads() {
			for _, measure := range []func() (*SagaTurn, error){
				func() (*SagaTurn, error) { return h.stepsTurn(ctx, o, pool, callers) },
				func() (*SagaTurn, error) { return h.crossTurn(ctx, o, own, other, saga.Compensated, callers) },
				func() (*SagaTurn, error) { return h.crossTurn(ctx, o, own, other, saga.TwoPhase, callers) },
			} {
				turn, err := measure()
				if err != nil {
					return err
				}
				slog.Info("sagas", "what", turn.What, "callers", callers, "pair", pair+1, "per_second", math.Round(turn.PerSecond))
				results.Sagas = append(results.Sagas, *turn)
			}
		}
	}
	return nil
}

// measureFsyncs counts how often a page can be written and synced in a second, one after the other: the most commits that
// nothing shares.
func measureFsyncs(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fsync")) //nolint:gosec // The directory is our own.
	if err != nil {
		return 0, fmt.Errorf("measure fsyncs: %w", err)
	}
	defer f.Close() //nolint:errcheck // Nothing in it matters.
	page := make([]byte, fsyncBlock)
	n, began := 0, time.Now()
	for time.Since(began) < fsyncTurn {
		// Within a file that is there already, as PostgreSQL recycles its segments.
		if _, err := f.WriteAt(page, int64(n%1024)*fsyncBlock); err != nil {
			return 0, fmt.Errorf("measure fsyncs: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil { //nolint:gosec // A descriptor is small.
			return 0, fmt.Errorf("measure fsyncs: %w", err)
		}
		n++
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// benchLedger is a ledger's database.
type benchLedger struct {
	*postgres.DB

	url string
}

func (h *house) openLedgers(ctx context.Context) (own, other *benchLedger, err error) {
	var both [2]*benchLedger
	for i := range both {
		url, err := h.makeDatabase(ctx, h.serverURL, fmt.Sprintf("bench_ledger_%d", i))
		if err != nil {
			return nil, nil, err
		}
		if _, err := postgres.Migrate(ctx, url); err != nil {
			return nil, nil, err
		}
		db, err := postgres.Open(ctx, postgres.Options{URL: url, MaxConns: 24})
		if err != nil {
			return nil, nil, err
		}
		if err := fillLedger(ctx, url); err != nil {
			db.Close()
			return nil, nil, err
		}
		both[i] = &benchLedger{DB: db, url: url}
	}
	return both[0], both[1], nil
}

// fillLedger opens accounts with money, as deposits would.
func fillLedger(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("fill a ledger: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, sql := range []string{
		`INSERT INTO accounts (id, currency, available, held, version, created_at) SELECT 'acc-' || n, 'EUR', $1, 0, 2, now() FROM generate_series(0, $2 - 1) AS n`,
		`INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
			SELECT md5(n::text)::uuid, 'deposit', 'outside/EUR', 'acc-' || n, $1, 'EUR', 'completed', now() FROM generate_series(0, $2 - 1) AS n`,
		`INSERT INTO entries (account, id, version, transfer, amount, currency, at)
			SELECT CASE side WHEN 1 THEN 'acc-' || n ELSE 'outside/EUR' END, gen_random_uuid(), CASE side WHEN 1 THEN 2 ELSE 0 END, md5(n::text)::uuid, side * $1::bigint, 'EUR', now()
			FROM generate_series(0, $2 - 1) AS n, (VALUES (1), (-1)) AS sides (side)`,
	} {
		if _, err := conn.Exec(ctx, sql, int64(sagaFunds), sagaAccounts); err != nil {
			return fmt.Errorf("fill a ledger: %w", err)
		}
	}
	_, err = conn.Exec(ctx, "ANALYZE")
	return err
}

// closedSagas lets callers run one saga after the other, and returns how many ended in the measured part and what WAL they
// cost.
func (h *house) closedSagas(ctx context.Context, o *options, what string, callers int, weight float64, one func(context.Context, *rand.Rand) error) (*SagaTurn, error) {
	if err := h.checkpoint(ctx); err != nil {
		return nil, err
	}
	var (
		group    sync.WaitGroup
		ended    atomic.Int64
		mu       sync.Mutex
		failures []error
	)
	loading, stop := context.WithCancel(ctx)
	defer stop()
	for range callers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // Load needs no secrecy.
			for loading.Err() == nil {
				// Not the context that ends the load: what was begun is ended.
				if err := one(ctx, random); err != nil {
					mu.Lock()
					failures = append(failures, err)
					mu.Unlock()
					stop()
					return
				}
				ended.Add(1)
			}
		})
	}
	rest(loading, o.sagaWarmup)
	syncsBefore, err := h.walSyncs(ctx)
	before, began := ended.Load(), time.Now()
	rest(loading, o.sagaMeasure)
	n, took := float64(ended.Load()-before), time.Since(began).Seconds()
	syncsAfter, syncErr := h.walSyncs(ctx)
	stop()
	group.Wait()
	if err := errors.Join(append(failures, err, syncErr, ctx.Err())...); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &SagaTurn{What: what, Callers: callers, PerSecond: n * weight / took, SyncsPerSecond: float64(syncsAfter-syncsBefore) / took}, nil
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// walSyncs is how often PostgreSQL has synced its log so far, as far as its backends have reported it.
func (h *house) walSyncs(ctx context.Context) (n int64, err error) {
	err = h.admin.QueryRow(ctx, `SELECT wal_sync FROM pg_stat_wal`).Scan(&n)
	return n, err
}

// whileReconciled runs a service beside use.
func whileReconciled(reconcile func(context.Context), stop func(context.Context) error, use func() (*SagaTurn, error)) (turn *SagaTurn, err error) {
	tending, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { reconcile(tending) })
	defer func() {
		cancel()
		group.Wait()
		closing, cancel := context.WithTimeout(context.Background(), sagaServices)
		defer cancel()
		err = errors.Join(err, stop(closing))
	}()
	return use()
}

// stepsTurn runs sagas of some steps through the library, each step an update in a transaction of its own.
func (h *house) stepsTurn(ctx context.Context, o *options, pool *pgxpool.Pool, callers int) (*SagaTurn, error) {
	d := pgsaga.NewDatabase(pool, pgsaga.Options{Schema: "bench"})
	update := func(ctx context.Context, tx pgx.Tx, _ saga.Call) (saga.Outcome, error) {
		_, err := tx.Exec(ctx, `UPDATE bench.counters SET value = value + 1 WHERE id = $1`, 1+rand.IntN(1000)) //nolint:gosec // Load needs no secrecy.
		return saga.Outcome{}, err
	}
	var steps []saga.Step
	for i := range sagaSteps {
		steps = append(steps, d.Step(fmt.Sprint("step", i), update, update))
	}
	service := saga.NewService(pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: "bench"}), saga.Options{
		Definitions: []saga.Definition{{Name: "bench", Plan: func(*saga.Saga) (saga.Plan, error) { return saga.Plan{Steps: steps}, nil }}},
	})
	return whileReconciled(service.Reconcile, service.Close, func() (*SagaTurn, error) {
		return h.closedSagas(ctx, o, sagaTurn, callers, sagaSteps, func(ctx context.Context, _ *rand.Rand) error {
			s, err := service.Run(ctx, saga.New{Name: "bench"})
			if err == nil && s.Status != saga.Completed {
				err = fmt.Errorf("saga %s is %s", s.ID, s.Status)
			}
			return err
		})
	})
}

// crossTurn moves money between two ledgers, in both directions.
func (h *house) crossTurn(ctx context.Context, o *options, own, other *benchLedger, mode saga.Protocol, callers int) (*SagaTurn, error) {
	log := postgres.NewSagas(own.DB)
	coordinator, err := log.Coordinator(ctx)
	if err != nil {
		return nil, err
	}
	service := cross.NewService(log, map[string]cross.Ledger{
		cross.Local: postgres.NewCrossLedger(own.DB), "other": postgres.NewCrossLedger(other.DB),
	}, saga.Options{Coordinator: coordinator})
	what := crossSaga
	if mode == saga.TwoPhase {
		what = crossTwoPC
	}
	return whileReconciled(service.Reconcile, service.Close, func() (*SagaTurn, error) {
		return h.closedSagas(ctx, o, what, callers, 1, func(ctx context.Context, random *rand.Rand) error {
			end := func(ledger string) cross.End {
				return cross.End{Ledger: ledger, Account: fmt.Sprint("acc-", random.IntN(sagaAccounts))}
			}
			q := cross.Request{From: end(cross.Local), To: end("other"), Amount: 1, Mode: mode}
			if random.IntN(2) == 0 {
				q.From, q.To = q.To, q.From
			}
			a, err := service.Create(ctx, command.Command[cross.Request]{Op: q})
			if s, ok := a.Result.(*saga.Saga); err == nil && (!ok || s.Status != saga.Completed) {
				err = fmt.Errorf("the transfer was answered with %+v, %w", a.Result, a.Err)
			}
			return err
		})
	})
}
