package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"regexp"
	"slices"
)

// hotAccounts is how many accounts the transfers on several servers are among.
const hotAccounts = 64

// serverLoads are the loads that one server is given, and then two on the same database, whose connections know nothing of targets.
func serverLoads() []mix {
	return []mix{
		{name: "one auction", required: requiredOneAuction, make: firstBids(0)},
		{name: "two auctions", required: requiredTwoAuctions, make: twoAuctions(false)},
		{name: "purchases in a campaign", required: requiredPurchases, make: func(ctx context.Context, s *side, accounts int) (*mixed, error) {
			next, err := s.purchases(ctx, inSequence(accounts))
			return &mixed{sources: []func() []byte{next}, check: wantCreated}, err
		}},
		{name: "transfers among 64 accounts", required: requiredHotTransfers, make: func(_ context.Context, s *side, _ int) (*mixed, error) {
			return &mixed{sources: []func() []byte{s.transferSource(hotAccounts)}, check: wantCompleted}, nil
		}},
	}
}

// servers runs each load on the product's server, and then on that and a second one. The second one is there only then.
func (h *house) servers(ctx context.Context, o *options, results *Results) error {
	only, err := regexp.Compile(o.serverLoads)
	if err != nil {
		return fmt.Errorf("--server-loads: %w", err)
	}
	s := h.sides[slices.IndexFunc(h.sides, func(s *side) bool { return s.name == product })]
	if err := s.depositForMixes(o.accounts); err != nil {
		return err
	}
	turns := func(pair, servers int) error {
		for _, m := range serverLoads() {
			if !only.MatchString(m.name) {
				continue
			}
			turn, err := s.mixTurn(ctx, o, m)
			if err != nil {
				return fmt.Errorf("%d servers: %s: %w", servers, m.name, err)
			}
			slog.Info("servers", "load", m.name, "pair", pair+1, "servers", servers, "per_second", math.Round(turn.PerSecond), "p99_ms", turn.P99MS)
			results.Servers = append(results.Servers, ServersTurn{*turn, servers})
		}
		return nil
	}
	for pair := range o.serverPairs {
		if err := turns(pair, 1); err != nil {
			return err
		}
		second := &side{name: secondServer, store: h.pgPID, databaseURL: s.databaseURL}
		others := slices.Clone(h.sides)
		err := h.start(ctx, second, s.key, o.productBinary, append([]string{
			"serve", "--data=" + filepath.Join(h.dir, second.name), "--database-url=" + s.databaseURL,
		}, h.productOptions...)...)
		if err == nil {
			s.beside = []string{second.addr}
			err = turns(pair, 2)
			s.beside = nil
		}
		h.sides = others
		if err := errors.Join(err, second.stop()); err != nil {
			return err
		}
	}
	return nil
}
