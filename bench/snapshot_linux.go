package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// snapshotKeys are locked in turn, also by multi-draws: few, so that each has many versions of its row, and more than there are connections.
const snapshotKeys = 1_000

// snapshots runs bids, transfers, purchases, locks, multi-draws and publications, each without a reader and then beside one that holds a snapshot. It measures once the load has
// run for --snapshot-after.
func (h *house) snapshots(ctx context.Context, o *options, results *Results) error {
	kinds, err := regexp.Compile(o.snapshotKinds)
	if err != nil {
		return fmt.Errorf("--snapshot-kinds: %w", err)
	}
	for _, s := range h.sides {
		if s.name != product {
			continue
		}
		if err := s.openAuction(ctx, o.accounts); err != nil {
			return fmt.Errorf("%s: open an auction: %w", s.name, err)
		}
		for pair := range o.snapshotPairs {
			for _, what := range snapshotKinds() {
				if !kinds.MatchString(what) {
					continue
				}
				for _, reader := range []bool{false, true} {
					turn, err := s.snapshotTurn(ctx, o, what, reader)
					if err != nil {
						return fmt.Errorf("%s: %s: %w", s.name, what, err)
					}
					slog.Info("snapshot", "what", what, "reader", reader, "pair", pair+1, "per_second", math.Round(turn.PerSecond), "p99_ms", turn.P99MS)
					results.Snapshots = append(results.Snapshots, *turn)
				}
			}
		}
	}
	return nil
}

func (s *side) snapshotTurn(ctx context.Context, o *options, what string, reader bool) (_ *SnapshotTurn, err error) {
	// Each turn begins on pages without dead rows.
	if err := errors.Join(s.analyze(ctx), s.h.checkpoint(ctx)); err != nil {
		return nil, err
	}
	if what == snapshotPublications {
		return s.snapshotPublications(ctx, o, reader)
	}
	if reader {
		conn, err := s.beginReading(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	}
	b := s.bidding
	b.others, b.refused = map[string]int64{}, 0
	next, check := b.source(s.key), b.check
	switch what {
	case batchTransfers:
		next, check = transferBodies(0, o.accounts).requests(s.key), wantCompleted
	case snapshotPurchases:
		if next, err = s.snapshotPurchases(ctx, o.accounts); err != nil {
			return nil, err
		}
		check = wantCreated
	case snapshotLocks:
		next, check = s.locks(snapshotKeys)
	case snapshotMultidraws:
		next, check = s.multidraws(snapshotKeys), wantCreated
	}
	timed := *o
	timed.warmup = o.snapshotAfter
	r, _, err := s.closedTurn(&timed, singleConnections, next, check, nil)
	if err != nil {
		return nil, err
	}
	if b.refused*100 > r.Answers {
		return nil, fmt.Errorf("too many refusals: %v", b.others)
	}
	return &SnapshotTurn{What: what, Reader: reader, PerSecond: r.PerSecond(), P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99))}, s.requireTotal(ctx)
}

// snapshotPurchases are those of a few new campaigns in turn: one would be sold out before the end.
func (s *side) snapshotPurchases(ctx context.Context, accounts int) (func() []byte, error) {
	const campaigns = 4
	var all [campaigns]func() []byte
	for i := range all {
		var err error
		if all[i], err = s.purchases(ctx, inSequence(accounts)); err != nil {
			return nil, err
		}
	}
	sent := 0
	return func() []byte {
		sent++
		return all[sent%campaigns]()
	}, nil
}

// multidraws are of ten draws each, behind the locks of so many keys in turn.
func (s *side) multidraws(keys int) func() []byte {
	const digits = 8
	body := `{"lock_key":"draw-00000000","count":10,"range":{"min":1,"max":1000}}`
	template := load.NewTemplate("/v1/multidraws", s.key, body)
	at := template.BodyOffset(body) + len(`{"lock_key":"draw-`)
	sent := 0
	return func() []byte {
		sent++
		request := template.Next()
		load.PutDecimal(request[at:at+digits], sent%keys)
		return request
	}
}

// beginReading takes a snapshot of a side's database, which lasts until the connection is closed.
func (s *side) beginReading(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to its database: %w", s.name, err)
	}
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM accounts")
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}
