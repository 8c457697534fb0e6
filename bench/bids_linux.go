package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// The auction. Its one round is far longer than any run. Amounts have eight digits: they begin at firstAmount and grow
// by one a bid, and the run ends before lastAmount, which every account can pay.
const (
	auctionRound   = "24h"
	auctionWinners = 100
	firstAmount    = 10_000_000
	lastAmount     = 99_000_000
)

// bidding is one side's auction and where its bids have got to. Accounts bid in turn, in a random order that is the same
// in each cycle, and every bid is one more than the one before: it is unique, higher than its account's last one, and
// a new leader (or, where requests overtook one another, nearly). No account has two bids on their way at a time.
type bidding struct {
	path   string
	order  []int // Of the accounts.
	raised int   // How far it has got in the order.
	sent   int
	// Every so-many-th bid is that of a newcomer, if there are to be any.
	every     int
	newcomers []int
	total     int64            // Accepted bids since the start.
	others    map[string]int64 // Answers that refused, by their code, in this turn.
	refused   int64
}

// bids opens an auction at each side, has every account bid once, and then runs the turns. All measured bids are raises.
func (h *house) bids(ctx context.Context, o *options, results *Results) error {
	for _, s := range h.sides {
		slog.Info("opening bids", "side", s.name, "accounts", o.accounts)
		if err := s.openAuction(ctx, o.accounts); err != nil {
			return fmt.Errorf("%s: open an auction: %w", s.name, err)
		}
	}
	for _, connections := range connectionCounts() {
		for pair := range o.bidPairs {
			for _, s := range inTurn(pair, h.sides) {
				turn, err := s.bidTurn(ctx, o, connections)
				if err != nil {
					return fmt.Errorf("%s: bids: %w", s.name, err)
				}
				slog.Info("bids", "side", s.name, "connections", connections, "pair", pair+1,
					"per_second", math.Round(turn.PerSecond), "p99_ms", turn.P99MS, "others", turn.Others)
				results.Bids = append(results.Bids, *turn)
			}
		}
	}
	return nil
}

func (s *side) openAuction(ctx context.Context, accounts int) error {
	b, err := s.newBidding(ctx, rand.Perm(accounts)) //nolint:gosec // Load needs no secrecy.
	if err != nil {
		return err
	}
	s.bidding = b
	if err := s.bidOnce(b); err != nil {
		return err
	}
	if err := s.analyze(ctx); err != nil {
		return err
	}
	return s.requireTotal(ctx)
}

// newBidding opens an auction in which nobody has bid.
func (s *side) newBidding(ctx context.Context, order []int) (*bidding, error) {
	return s.openBidding(ctx, order, map[string]any{
		"rounds":     []any{map[string]any{"winners": auctionWinners, "duration": auctionRound}},
		"anti_snipe": map[string]any{"window": "30s", "extension": "30s", "max_extensions": 10},
	})
}

// openBidding is newBidding with rounds, and further settings, of one's own.
func (s *side) openBidding(ctx context.Context, order []int, settings map[string]any) (*bidding, error) {
	in := map[string]any{
		"title": "hot", "currency": currency, "seller": beneficiary, "min_bid": 1, "min_increment": 1, "cooldown": "0s", "unique_amounts": true,
	}
	maps.Copy(in, settings)
	var auction struct {
		ID string `json:"id"`
	}
	if err := s.call(ctx, http.MethodPost, "/v1/auctions", in, http.StatusCreated, &auction); err != nil {
		return nil, err
	}
	b := &bidding{path: "/v1/auctions/" + auction.ID, order: order}
	return b, s.call(ctx, http.MethodPost, b.path+"/start", map[string]any{}, http.StatusOK, nil)
}

// bidOnce has every account bid once.
func (s *side) bidOnce(b *bidding) error {
	engine, err := load.Dial(fillConnections, s.addr)
	if err != nil {
		return err
	}
	defer engine.Close()
	source := b.source(s.key)
	next := func() []byte {
		if b.sent == len(b.order) {
			return nil
		}
		return source()
	}
	if _, err := engine.Closed(load.Phases{Measure: time.Hour}, next, wantCreated); err != nil {
		return err
	}
	b.total = int64(len(b.order))
	return nil
}

// account is that of the next bid; there is none once the newcomers are used up.
func (b *bidding) account() (int, bool) {
	if b.every > 0 && b.sent%b.every == 0 {
		if len(b.newcomers) == 0 {
			return 0, false
		}
		account := b.newcomers[0]
		b.newcomers = b.newcomers[1:]
		return account, true
	}
	account := b.order[b.raised%len(b.order)]
	b.raised++
	return account, true
}

// bids are those that follow, until the accounts' money could run out.
func (b *bidding) bids() bodies {
	const before, between = `{"account":"acc-`, `","amount":`
	longest := accountID(slices.Max(b.order))
	body := fmt.Sprintf(`{"account":%q,"amount":%d}`, longest, firstAmount)
	digits := len(longest) - len("acc-")
	amountAt := len(before) + digits + len(between)
	return bodies{b.path + "/bids", body, func(body []byte) bool {
		account, ok := b.account()
		if !ok || b.sent == lastAmount-firstAmount {
			return false
		}
		load.PutDecimal(body[len(before):len(before)+digits], account)
		load.PutDecimal(body[amountAt:len(body)-len("}")], firstAmount+b.sent)
		b.sent++
		return true
	}}
}

// source makes the bids that follow, each in a request and with a key of its own.
func (b *bidding) source(key string) func() []byte { return b.bids().requests(key) }

// check counts accepted bids and refusals; an answer that is neither ends the run.
func (b *bidding) check(status int, body []byte) error {
	switch {
	case status == http.StatusCreated:
		b.total++
		return nil
	case status < http.StatusBadRequest || status >= http.StatusInternalServerError:
		return fmt.Errorf("answer %d: %s", status, body)
	}
	code := "without code"
	if _, rest, ok := bytes.Cut(body, []byte(`"code":"`)); ok {
		word, _, _ := bytes.Cut(rest, []byte(`"`))
		code = string(word)
	}
	b.others[fmt.Sprintf("%d %s", status, code)]++
	b.refused++
	return nil
}

func (s *side) bidTurn(ctx context.Context, o *options, connections int) (*BidTurn, error) {
	if err := s.h.checkpoint(ctx); err != nil {
		return nil, err
	}
	b := s.bidding
	b.others, b.refused = make(map[string]int64), 0
	var before int64
	r, used, err := s.closedTurn(o, connections, b.source(s.key), b.check, func() { before = b.refused })
	if err != nil {
		return nil, err
	}
	if err := s.requireTotal(ctx); err != nil {
		return nil, err
	}
	// The few refusals after the measured part are counted as if they were in it, which only lowers the figure.
	accepted := r.Answers - (b.refused - before)
	return &BidTurn{
		TransferTurn: TransferTurn{
			Side: s.name, Connections: connections, Answers: accepted, PerSecond: float64(accepted) / r.Elapsed.Seconds(),
			P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: used,
		},
		Others: b.others,
	}, nil
}

// requireTotal checks that a side that promises durability counts exactly the bids that it acknowledged. The Redis peer
// keeps no count.
func (s *side) requireTotal(ctx context.Context) error {
	if s.name == peerRedis {
		return nil
	}
	var auction struct {
		TotalBids int64 `json:"total_bids"`
	}
	if err := s.call(ctx, http.MethodGet, s.bidding.path, nil, http.StatusOK, &auction); err != nil {
		return err
	}
	if auction.TotalBids != s.bidding.total {
		return fmt.Errorf("%d bids were acknowledged, but the auction has %d", s.bidding.total, auction.TotalBids)
	}
	return nil
}
