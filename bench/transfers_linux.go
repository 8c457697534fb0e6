package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// openConnections bound what an open-loop turn can have on its way at once; a side that sustains the rate needs far
// fewer.
const openConnections = 256

// transfers runs the closed-loop turns at each number of connections, then the open-loop ones.
func (h *house) transfers(ctx context.Context, o *options, results *Results) error {
	for _, connections := range connectionCounts() {
		for pair := range o.transferPairs {
			for _, s := range inTurn(pair, h.durable()) {
				turn, err := s.closedTransfers(ctx, o, connections)
				if err != nil {
					return fmt.Errorf("%s: transfers: %w", s.name, err)
				}
				slog.Info("transfers", "side", s.name, "connections", connections, "pair", pair+1,
					"per_second", math.Round(turn.PerSecond), "p99_ms", turn.P99MS)
				results.Transfers = append(results.Transfers, *turn)
			}
		}
	}
	if o.beforeBinary != "" {
		return nil
	}
	rate := o.openRate
	if rate == 0 {
		rate = math.Floor(results.medianThroughput(peer, connectionCounts()[0])/200) * 100
	}
	for pair := range o.transferPairs {
		for _, s := range inTurn(pair, h.durable()) {
			if err := h.openTurn(ctx, o, s, rate, pair, results); err != nil {
				return err
			}
		}
	}
	// What the product's latency is at a load that is to it what the rate above is to the peer.
	own := math.Floor(results.medianThroughput(product, connectionCounts()[0])/200) * 100
	for _, s := range h.durable() {
		if s.name != product {
			continue
		}
		for pair := range o.transferPairs {
			if err := h.openTurn(ctx, o, s, own, pair, results); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *house) openTurn(ctx context.Context, o *options, s *side, rate float64, pair int, results *Results) error {
	turn, err := s.openTransfers(ctx, o, rate)
	if err != nil {
		return fmt.Errorf("%s: transfers at %.0f a second: %w", s.name, rate, err)
	}
	slog.Info("transfers, open loop", "side", s.name, "rate", rate, "pair", pair+1, "p50_ms", turn.P50MS,
		"p99_ms", turn.P99MS)
	results.Open = append(results.Open, *turn)
	return nil
}

// transferSource makes transfers between two different random accounts, each with a key of its own.
func (s *side) transferSource(accounts int) func() []byte { return s.transferSourceAmong(0, accounts) }

// transferSourceAmong is transferSource for the accounts from first on.
func (s *side) transferSourceAmong(first, accounts int) func() []byte {
	return transferBodies(first, accounts).requests(s.key)
}

func transferBodies(first, accounts int) bodies {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // Load needs no secrecy.
	return transfersOf(1, accountID(first), func() (from, to, amount int) {
		from = random.IntN(accounts)
		to = (from + 1 + random.IntN(accounts-1)) % accounts
		return first + from, first + to, 1 + random.IntN(9)
	})
}

// transfersOf lays out the transfers that pick chooses, with amounts of so many digits, among accounts whose ids are as long as this one.
func transfersOf(digitsOfAmount int, account string, pick func() (from, to, amount int)) bodies {
	const before, between = `{"from":"acc-`, `","to":"acc-`
	body := fmt.Sprintf(`{"from":%q,"to":%q,"amount":%s}`, account, account, strings.Repeat("1", digitsOfAmount))
	digits := len(account) - len("acc-")
	toAt := len(before) + digits + len(between)
	return bodies{"/v1/transfers", body, func(body []byte) bool {
		from, to, amount := pick()
		load.PutDecimal(body[len(before):len(before)+digits], from)
		load.PutDecimal(body[toAt:toAt+digits], to)
		load.PutDecimal(body[len(body)-len("}")-digitsOfAmount:len(body)-len("}")], amount)
		return true
	}}
}

func wantCompleted(status int, body []byte) error {
	if status != http.StatusCreated || !bytes.Contains(body, []byte(`"completed"`)) {
		return fmt.Errorf("answer %d: %s", status, body)
	}
	return nil
}

func (s *side) closedTransfers(ctx context.Context, o *options, connections int) (*TransferTurn, error) {
	if err := s.h.checkpoint(ctx); err != nil {
		return nil, err
	}
	r, used, err := s.closedTurn(o, connections, s.transferSource(o.accounts), wantCompleted, nil)
	if err != nil {
		return nil, err
	}
	return &TransferTurn{
		Side: s.name, Connections: connections, Answers: r.Answers, PerSecond: r.PerSecond(),
		P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: used,
	}, nil
}

// closedTurn runs one turn of a closed loop and tells what was used in its measured part, at whose beginning begin is
// called, when it isn't nil.
func (s *side) closedTurn(o *options, connections int, next func() []byte, check load.Check, begin func()) (
	*load.Result, Usage, error,
) {
	engine, err := load.Dial(connections, append([]string{s.addr}, s.beside...)...)
	if err != nil {
		return nil, Usage{}, err
	}
	defer engine.Close()
	var before, after usage
	var usageErr error
	note := func(u *usage) {
		var err error
		if *u, err = s.usage(); err != nil {
			usageErr = err
		}
	}
	phases := load.Phases{Warmup: o.warmup, Measure: o.measure}
	phases.Begin = func() {
		if begin != nil {
			begin()
		}
		note(&before)
	}
	ended := false
	phases.End = func() {
		ended = true
		note(&after)
	}
	r, err := engine.Closed(phases, next, check)
	if err == nil {
		err = usageErr
	}
	if err == nil && !ended {
		err = fmt.Errorf("nothing was left to ask for before the %s of warm-up and %s of measuring were over", o.warmup, o.measure)
	}
	return r, after.since(before), err
}

func (s *side) openTransfers(ctx context.Context, o *options, rate float64) (*TransferTurn, error) {
	return s.openLoad(ctx, o, rate, s.transferSource(o.accounts), wantCompleted)
}

// openLoad runs one turn of an open loop.
func (s *side) openLoad(ctx context.Context, o *options, rate float64, next func() []byte, check load.Check) (*TransferTurn, error) {
	if err := s.h.checkpoint(ctx); err != nil {
		return nil, err
	}
	engine, err := load.Dial(openConnections, s.addr)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	r, err := engine.Open(rate, o.warmup, o.measure, next, check)
	if err != nil {
		return nil, err
	}
	after, err := s.usage()
	if err != nil {
		return nil, err
	}
	return &TransferTurn{
		Side: s.name, Rate: rate, Connections: openConnections, Answers: r.Answers, PerSecond: r.PerSecond(),
		P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: after.since(before),
	}, nil
}
