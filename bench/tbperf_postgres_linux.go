package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/bench/load"
)

//go:embed tbperf.sql
var tbperfSchema string

// tbperfPools are the connections a client that are tried for the PostgreSQL sides.
func tbperfPools() []int { return []int{1, 2, 4, 8, 12} }

// tbperfPool is what makes transfers on one of the PostgreSQL sides: each connection is called by a worker of its own.
type tbperfPool struct {
	url, call             string
	conns                 []*pgx.Conn
	pairs                 []*zipfPairs // one a connection
	done, refused, failed atomic.Int64
}

// tbperfPostgres makes and fills a database, and finds the number of connections that is best.
func (h *house) tbperfPostgres(ctx context.Context, o *options, name, database, function string) (*tbperfSide, error) {
	url, err := h.makeDatabase(ctx, h.serverURL, database)
	if err != nil {
		return nil, err
	}
	pools := tbperfPools()
	p := &tbperfPool{url: url, call: "SELECT " + function + "($1, $2, $3)"}
	for range tbperfClients * pools[len(pools)-1] {
		p.pairs = append(p.pairs, newZipfPairs(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), tbperfExponent, o.tbperfAccounts)) //nolint:gosec // Load needs no secrecy.
	}
	if err := p.with(ctx, 1, func(conn *pgx.Conn) error { return fillTBPerf(ctx, conn, o.tbperfAccounts) }); err != nil {
		return nil, err
	}
	t := &tbperfSide{name: name, database: database, each: 1, close: func(context.Context) error { return nil }}
	best := 0.0
	for _, size := range pools {
		var r *load.Result
		if err := p.with(ctx, tbperfClients*size, func(*pgx.Conn) (err error) {
			r, err = load.CallClosed(ctx, tbperfClients*size, load.Phases{Warmup: o.warmup / 2, Measure: o.measure / 2}, p.transfer)
			return err
		}); err != nil {
			return nil, err
		}
		slog.Info("tb-perf: connections", "side", name, "connections", tbperfClients*size, "per_second", math.Round(r.PerSecond()))
		if r.PerSecond() > best {
			best, t.pool = r.PerSecond(), tbperfClients*size
		}
	}
	t.closed = func(ctx context.Context, phases load.Phases) (*load.Result, error) {
		return p.run(ctx, t, func() (*load.Result, error) { return load.CallClosed(ctx, t.pool, phases, p.transfer) })
	}
	t.open = func(ctx context.Context, rate float64, warmup, measure time.Duration) (*load.Result, error) {
		return p.run(ctx, t, func() (*load.Result, error) { return load.CallOpen(ctx, t.pool, rate, warmup, measure, p.transfer) })
	}
	t.usage = func() (u usage, err error) {
		if u.generator, _, err = processorTime(os.Getpid()); err != nil {
			return u, err
		}
		u.store, err = treeTime(h.pgPID)
		return h.withStandby(u, err)
	}
	t.verify = func(ctx context.Context) error {
		return p.with(ctx, 1, func(conn *pgx.Conn) error { return p.verify(ctx, conn, o.tbperfAccounts) })
	}
	return t, nil
}

// with opens so many connections for what is done in between: PostgreSQL has no room for those of all sides at once.
func (p *tbperfPool) with(ctx context.Context, connections int, do func(first *pgx.Conn) error) (err error) {
	p.conns = nil
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		for _, c := range p.conns {
			err = errors.Join(err, c.Close(ctx))
		}
	}()
	for range connections {
		c, err := connectSoon(ctx, p.url)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, c)
	}
	return do(p.conns[0])
}

// connectSoon tries again while PostgreSQL is still busy with ending connections that were closed just before.
func connectSoon(ctx context.Context, url string) (*pgx.Conn, error) {
	const tooMany = "53300"
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		c, err := pgx.Connect(ctx, url)
		if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != tooMany {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// run makes transfers on the side's connections, and notes what has been answered so far.
func (p *tbperfPool) run(ctx context.Context, t *tbperfSide, transfers func() (*load.Result, error)) (r *load.Result, err error) {
	err = p.with(ctx, t.pool, func(*pgx.Conn) (err error) {
		r, err = transfers()
		return err
	})
	t.counts = tbperfCounts{p.done.Load(), p.refused.Load(), p.failed.Load()}
	return r, err
}

func fillTBPerf(ctx context.Context, conn *pgx.Conn, accounts int) error {
	if _, err := conn.Exec(ctx, tbperfSchema); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "INSERT INTO accounts SELECT n, $2 FROM generate_series(0, $1 - 1) AS n", accounts, tbperfBalance); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "VACUUM (ANALYZE)")
	return err
}

// transfer makes one, in one statement that is a transaction of its own. What PostgreSQL ends for the sake of others is counted, and not
// tried again, as at tb-perf.
func (p *tbperfPool) transfer(ctx context.Context, worker int) error {
	const deadlock, serialization = "40P01", "40001"
	from, to, amount := p.pairs[worker].next()
	var done bool
	err := p.conns[worker].QueryRow(ctx, p.call, from, to, amount).Scan(&done)
	refusal, isRefusal := errors.AsType[*pgconn.PgError](err)
	switch {
	case isRefusal && (refusal.Code == deadlock || refusal.Code == serialization):
		p.failed.Add(1)
		return nil
	case err != nil:
		return err
	case done:
		p.done.Add(1)
	default:
		p.refused.Add(1)
	}
	return nil
}

// verify recomputes all balances, and compares the number of transfers with what was acknowledged.
func (p *tbperfPool) verify(ctx context.Context, conn *pgx.Conn, accounts int) error {
	var kept, wrong int64
	const sql = `WITH moved AS (
			SELECT id, sum(amount) AS amount FROM (
				SELECT source_id AS id, -amount AS amount FROM transfers UNION ALL SELECT dest_id, amount FROM transfers) AS entries GROUP BY id)
		SELECT (SELECT count(*) FROM transfers), count(*) FILTER (WHERE balance <> $1 + coalesce(amount, 0)) + $2 - count(*)
		FROM accounts LEFT JOIN moved USING (id)`
	if err := conn.QueryRow(ctx, sql, tbperfBalance, accounts).Scan(&kept, &wrong); err != nil {
		return err
	}
	if wrong != 0 || kept != p.done.Load() {
		return fmt.Errorf("%d balances are wrong; %d transfers were acknowledged, and there are %d", wrong, p.done.Load(), kept)
	}
	return nil
}
