package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// What commands go to when they go to many targets. Each auction has a few bidders of its own.
const (
	manyAuctions  = 1000
	manyBidders   = 10
	manyCampaigns = 64
)

// manyTargets are bids in many auctions, purchases in many campaigns, and transfers, in turn.
func manyTargets(ctx context.Context, s *side, accounts int) (*mixed, error) {
	m := &mixed{refusals: &bidding{others: map[string]int64{}}}
	var bids, purchases []func() []byte
	for range manyAuctions {
		order := make([]int, manyBidders)
		for i, first := 0, rand.IntN(accounts); i < manyBidders; i++ { //nolint:gosec // Load needs no secrecy.
			order[i] = (first + i) % accounts
		}
		b, err := s.newBidding(ctx, order)
		if err != nil {
			return nil, err
		}
		m.auctions = append(m.auctions, b)
		bids = append(bids, b.source(s.key))
	}
	if err := s.bidOnceInAll(m.auctions, bids); err != nil {
		return nil, err
	}
	for range manyCampaigns {
		next, err := s.purchases(ctx, inSequence(accounts))
		if err != nil {
			return nil, err
		}
		purchases = append(purchases, next)
	}
	m.sources = []func() []byte{inOrder(bids), inOrder(purchases), s.transferSource(accounts)}
	m.check = func(status int, body []byte) error {
		switch {
		case status != http.StatusCreated:
			return m.refusals.check(status, body)
		case bytes.Contains(body, []byte(`"previous_amount"`)): // A bid's; they are counted together.
			m.auctions[0].total++
		case bytes.Contains(body, []byte(`"from"`)):
			return wantCompleted(status, body)
		case !bytes.Contains(body, []byte(`"position"`)):
			return fmt.Errorf("neither a bid's, a purchase's nor a transfer's answer: %s", body)
		}
		return nil
	}
	return m, nil
}

// inOrder takes what is next from each source in turn.
func inOrder(sources []func() []byte) func() []byte {
	turn := -1
	return func() []byte {
		turn++
		return sources[turn%len(sources)]()
	}
}

// bidOnceInAll has the bidders of all auctions bid once.
func (s *side) bidOnceInAll(auctions []*bidding, bids []func() []byte) error {
	engine, err := load.Dial(fillConnections, s.addr)
	if err != nil {
		return err
	}
	defer engine.Close()
	next, left := inOrder(bids), 0
	for _, b := range auctions {
		b.total = int64(len(b.order))
		left += len(b.order)
	}
	_, err = engine.Closed(load.Phases{Measure: time.Hour}, func() []byte {
		if left == 0 {
			return nil
		}
		left--
		return next()
	}, wantCreated)
	return err
}
