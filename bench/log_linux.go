package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// backlogLook is how often is looked how far the public log has come.
const backlogLook = 20 * time.Millisecond

// publicLog measures what the public log costs. With a binary of an older state, bids come at a rate that both sustain, and the processor
// time that a bid takes is compared. The product's keeper then appends a backlog beside a load.
func (h *house) publicLog(ctx context.Context, o *options, results *Results) error {
	sides := slices.DeleteFunc(slices.Clone(h.sides), func(s *side) bool { return s.name != product && s.name != productBefore })
	for _, s := range sides {
		if err := s.openAuction(ctx, o.accounts); err != nil {
			return fmt.Errorf("%s: open an auction: %w", s.name, err)
		}
	}
	if o.beforeBinary != "" {
		for pair := range o.logPairs {
			for _, s := range inTurn(pair, sides) {
				turn, err := s.openBids(ctx, o)
				if err != nil {
					return fmt.Errorf("%s: bids at %.0f a second: %w", s.name, o.logRate, err)
				}
				slog.Info("log", "side", s.name, "rate", o.logRate, "pair", pair+1, "us_each", math.Round(1e6*processorTimeEach(*turn)), "p99_ms", turn.P99MS)
				results.OpenBids = append(results.OpenBids, *turn)
			}
		}
	}
	for _, s := range sides {
		if s.name != product {
			continue
		}
		if err := s.depositForMixes(o.accounts); err != nil {
			return err
		}
		for pair := range o.logPairs {
			turn, err := s.backlogTurn(ctx, o)
			if err != nil {
				return fmt.Errorf("%s: a backlog of the log: %w", s.name, err)
			}
			slog.Info("log", "backlog", turn.Backlog, "pair", pair+1, "per_second", math.Round(turn.PerSecond), "load", math.Round(turn.Beside), "load_alone", math.Round(turn.Alone))
			results.Log = append(results.Log, *turn)
		}
	}
	return nil
}

// openBids are raises in an open loop.
func (s *side) openBids(ctx context.Context, o *options) (*TransferTurn, error) {
	b := s.bidding
	b.others, b.refused = map[string]int64{}, 0
	turn, err := s.openLoad(ctx, o, o.logRate, b.source(s.key), b.check)
	if err == nil && b.refused*100 > turn.Answers {
		err = fmt.Errorf("too many refusals: %v", b.others)
	}
	return turn, errors.Join(err, s.requireTotal(ctx))
}

// backlogTurn keeps the log from growing while bids are placed, and then lets all of them become leaves beside a load of bids in 1,000 auctions,
// purchases in 64 campaigns, and transfers.
func (s *side) backlogTurn(ctx context.Context, o *options) (_ *LogTurn, err error) {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to its database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	sent, err := manyTargets(ctx, s, o.accounts)
	if err != nil {
		return nil, err
	}
	// Whoever appends or publishes waits for this row, however long the bids take.
	if _, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT FROM log_state FOR UPDATE"); err != nil {
		return nil, err
	}
	if err := s.bidInBatches(o.logEvents); err != nil {
		return nil, err
	}
	timed := *o
	timed.warmup, timed.measure = o.mixWarmup, o.mixMeasure
	alone, _, err := s.closedTurn(&timed, mixConnections, inOrder(sent.sources), sent.check, nil)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		return nil, err
	}
	turn := &LogTurn{Backlog: o.logEvents, Alone: alone.PerSecond()}
	var done atomic.Bool
	watched := make(chan error, 1)
	go func() {
		defer done.Store(true)
		watched <- turn.watch(ctx, conn)
	}()
	next := inOrder(sent.sources)
	timed.warmup, timed.measure = 0, time.Hour
	beside, _, err := s.closedTurn(&timed, mixConnections, func() []byte {
		if done.Load() {
			return nil
		}
		return next()
	}, sent.check, nil)
	if err = errors.Join(err, <-watched); err != nil {
		return nil, err
	}
	turn.Beside = beside.PerSecond()
	return turn, nil
}

// watch waits until a backlog is in the log. What is committed meanwhile comes later.
func (t *LogTurn) watch(ctx context.Context, conn *pgx.Conn) error {
	size := func() (n int64, err error) {
		err = conn.QueryRow(ctx, "SELECT size FROM log_state").Scan(&n)
		return n, err
	}
	keeper := func() (seconds float64, err error) {
		rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fairlead log'")
		if err != nil {
			return 0, err
		}
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		for _, pid := range pids {
			own, _, failure := processorTime(pid)
			seconds, err = seconds+own, errors.Join(err, failure)
		}
		return seconds, err
	}
	first, err := size()
	if err != nil {
		return err
	}
	var (
		began  time.Time // when it had begun to grow
		from   int64
		before float64
	)
	for limit := time.Now().Add(10 * time.Minute); time.Now().Before(limit); time.Sleep(backlogLook) {
		now, err := size()
		switch {
		case err != nil:
			return err
		case now == first:
			continue
		case began.IsZero():
			if before, err = keeper(); err != nil {
				return err
			}
			began, from = time.Now(), now
		case now-first >= int64(t.Backlog):
			t.PerSecond = float64(now-from) / time.Since(began).Seconds()
			after, err := keeper()
			t.StoreSeconds = (after - before) / float64(now-from)
			return err
		}
	}
	return errors.New("the log does not come up with its backlog within ten minutes")
}

// bidInBatches places so many bids, and a few more.
func (s *side) bidInBatches(n int) error {
	engine, err := load.Dial(bidBatchRequests, s.addr)
	if err != nil {
		return err
	}
	defer engine.Close()
	b := s.bidding
	b.others, b.refused = map[string]int64{}, 0
	next, end := b.bids().batches(s.key, bidBatch), b.total+int64(n)
	_, err = engine.Closed(load.Phases{Measure: time.Hour}, func() []byte {
		if b.total >= end {
			return nil
		}
		return next()
	}, b.checkBatch(bidBatch))
	return err
}
