package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/bench/load"
)

const sizePurchases = "purchases"

// sizes runs so many bids, purchases and transfers, each over singleConnections and under a key of its own, and tells by how many bytes
// each table and each index has grown, and what was written to the log.
func (h *house) sizes(ctx context.Context, o *options, results *Results) error {
	for _, s := range h.sides {
		if s.name != product {
			continue
		}
		// All that is there comes from opening the accounts, each with a first deposit.
		opened := &SizeTurn{What: "accounts", Commands: o.accounts}
		if err := s.grown(ctx, opened, nil, nil); err != nil {
			return err
		}
		first := &SizeTurn{What: "first bids", Commands: o.accounts}
		if err := s.grown(ctx, first, opened.after, func() error { return s.openAuction(ctx, o.accounts) }); err != nil {
			return fmt.Errorf("open an auction: %w", err)
		}
		results.Sizes = append(results.Sizes, *opened, *first)
		purchases, err := s.purchases(ctx, inSequence(o.accounts))
		if err != nil {
			return fmt.Errorf("open a campaign: %w", err)
		}
		b := s.bidding
		b.others, b.refused = map[string]int64{}, 0
		for _, load := range []struct {
			what  string
			next  func() []byte
			check load.Check
		}{
			{batchBids, b.bids().requests(s.key), b.check},
			{sizePurchases, purchases, wantCreated},
			{batchTransfers, s.transferSource(o.accounts), wantCompleted},
		} {
			turn, err := s.sizeTurn(ctx, o.sizeCommands, load.what, load.next, load.check)
			if err != nil {
				return fmt.Errorf("%s: %w", load.what, err)
			}
			if b.refused > 0 {
				return fmt.Errorf("bids were refused: %v", b.others)
			}
			slog.Info("sizes", "what", load.what, "bytes_each", math.Round(turn.total()), "wal_bytes_each", math.Round(turn.WALBytesEach))
			results.Sizes = append(results.Sizes, *turn)
		}
	}
	return nil
}

// relation is a table's bytes, and those of its indexes.
type relation struct {
	name           string
	table, indexes int64
}

func (s *side) sizeTurn(ctx context.Context, n int, what string, next func() []byte, check load.Check) (*SizeTurn, error) {
	engine, err := load.Dial(singleConnections, s.addr)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	sent := 0
	turn := &SizeTurn{What: what, Commands: n}
	before, err := s.relations(ctx)
	if err != nil {
		return nil, err
	}
	return turn, s.grown(ctx, turn, before, func() error {
		_, err := engine.Closed(load.Phases{Measure: 24 * time.Hour}, func() []byte {
			if sent == n {
				return nil
			}
			sent++
			return next()
		}, check)
		return err
	})
}

// grown runs do, and notes what was written meanwhile and by how much all relations are larger than before; nil for nothing.
func (s *side) grown(ctx context.Context, turn *SizeTurn, before map[string]relation, do func() error) error {
	if do != nil {
		if err := s.h.checkpoint(ctx); err != nil {
			return err
		}
		walBefore, err := s.h.walUse(ctx)
		if err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		walAfter, err := s.h.walUse(ctx)
		if err != nil {
			return err
		}
		turn.WALBytesEach = (walAfter.bytes - walBefore.bytes) / float64(turn.Commands)
	}
	after, err := s.relations(ctx)
	if err != nil {
		return err
	}
	turn.after = after
	for name, now := range after {
		was := before[name]
		size := SizeOf{
			Table: name, BytesEach: float64(now.table-was.table) / float64(turn.Commands),
			IndexBytesEach: float64(now.indexes-was.indexes) / float64(turn.Commands),
		}
		if math.Abs(size.BytesEach)+math.Abs(size.IndexBytesEach) >= 8 {
			turn.Tables = append(turn.Tables, size)
		}
	}
	_, turn.ServerPeakBytes, err = residentMemory(s.cmd.Process.Pid)
	return err
}

// relations reads the sizes of all tables, once dead rows are removed.
func (s *side) relations(ctx context.Context) (_ map[string]relation, err error) {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to its database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, "VACUUM"); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `SELECT relname::text, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class
		WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
	if err != nil {
		return nil, err
	}
	found := map[string]relation{}
	var r relation
	_, err = pgx.ForEachRow(rows, []any{&r.name, &r.table, &r.indexes}, func() error {
		found[r.name] = r
		return nil
	})
	return found, err
}
