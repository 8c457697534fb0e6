package auction_test

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// model is the simplest form of an auction: one list of bids that is sorted whenever an order is asked for, balances in a
// map, and events as lines of text. It shares no code with the package.
type model struct {
	create   auction.Create
	status   string
	round    int // of rounds, from 1
	extended int
	ends     time.Time
	bids     []modelBid
	money    map[string]*modelMoney
	lines    []string
	total    int
	term     int64
	clock    time.Time // of the last change
	wall     time.Time // what the clock shows, which may have gone back
}

type modelBid struct {
	account string
	amount  int64
	nth     int // among all bids
	at      time.Time
}

type modelMoney struct {
	currency        string
	available, held int64
}

func newModel(create auction.Create, now time.Time) *model {
	return &model{create: create, status: "pending", money: map[string]*modelMoney{}, clock: now}
}

// ranking sorts the bids afresh.
func (m *model) ranking() []modelBid {
	sorted := slices.Clone(m.bids)
	sort.Slice(sorted, func(i, j int) bool {
		if sorted[i].amount == sorted[j].amount {
			return sorted[i].nth < sorted[j].nth
		}
		return sorted[i].amount > sorted[j].amount
	})
	return sorted
}

func (m *model) line(format string, args ...any) {
	m.lines = append(m.lines, fmt.Sprintf("%d ", len(m.lines)+1)+fmt.Sprintf(format, args...))
}

// apply says in words what one operation is answered.
func (m *model) apply(op auction.Op, now time.Time) string {
	m.wall = now
	if now.Before(m.clock) {
		now = m.clock
	}
	var answer string
	switch op := op.(type) {
	case auction.PlaceBid:
		answer = m.bid(op, now)
	case auction.CloseRound:
		answer = m.closeRound(op, now)
	case auction.Start:
		answer = m.start(now)
	case auction.Cancel:
		answer = m.cancel(now)
	}
	if strings.HasPrefix(answer, "ok") {
		m.clock = now
	}
	return answer
}

func (m *model) start(now time.Time) string {
	if m.status != "pending" {
		return "bad transition"
	}
	m.status = "active"
	m.line("auction.started")
	m.openRound(1, now)
	return "ok"
}

func (m *model) openRound(n int, now time.Time) {
	m.round, m.extended, m.ends = n, 0, now.Add(m.create.Rounds[n-1].Duration)
	m.line("round.started %d %s", n, m.ends)
}

func (m *model) cancel(time.Time) string {
	if m.status != "pending" && m.status != "active" {
		return "bad transition"
	}
	m.status = "cancelled"
	m.refundAll()
	m.line("auction.cancelled")
	return "ok"
}

func (m *model) refundAll() {
	for _, b := range m.bids {
		m.money[b.account].available += b.amount
		m.money[b.account].held -= b.amount
	}
	m.bids = nil
}

func (m *model) bid(op auction.PlaceBid, now time.Time) string {
	money := m.money[op.Account]
	if money == nil {
		return "no account"
	}
	if m.status != "active" || now.Compare(m.ends) >= 0 {
		return "not active"
	}
	if op.Account == m.create.Seller {
		return "own auction"
	}
	own := slices.IndexFunc(m.bids, func(b modelBid) bool { return b.account == op.Account })
	least, before := m.create.MinBid, int64(0)
	if own >= 0 {
		before = m.bids[own].amount
		least = before + m.create.MinIncrement
		at := m.bids[own].at
		if free := at.Add(m.create.Cooldown); now.Before(free) && at.Sub(m.wall) <= m.create.Cooldown+auction.MaxAhead {
			return fmt.Sprint("cooldown ", free.Sub(now))
		}
	}
	if op.Amount < least {
		return fmt.Sprint("least ", least)
	}
	for i, b := range m.bids {
		if m.create.UniqueAmounts && i != own && b.amount == op.Amount {
			return "taken"
		}
	}
	if money.currency != m.create.Currency {
		return "currency"
	}
	if money.available+before < op.Amount {
		return "funds"
	}
	winnersBefore := m.winners()
	money.available += before - op.Amount
	money.held += op.Amount - before
	if own >= 0 {
		m.bids = slices.Delete(m.bids, own, own+1)
	}
	m.total++
	m.bids = append(m.bids, modelBid{account: op.Account, amount: op.Amount, nth: m.total, at: now})
	rank := 1 + slices.IndexFunc(m.ranking(), func(b modelBid) bool { return b.account == op.Account })
	m.line("bid.placed %s %d %d %d %d%s", op.Account, op.Amount, before, m.round, rank, m.outbid(winnersBefore))
	seq := len(m.lines)
	left := m.ends.Sub(now)
	if snipe := m.create.AntiSnipe; snipe.Window > 0 && snipe.Extension > 0 && m.extended < snipe.MaxExtensions && left <= snipe.Window {
		m.extended++
		m.ends = m.ends.Add(snipe.Extension)
		m.line("round.extended %d %s %d", m.round, m.ends, m.extended)
	}
	return fmt.Sprintf("ok bid %d rank %d round %d ends %s before %d", seq, rank, m.round, m.ends, before)
}

// winners are those who would win if the round ended now.
func (m *model) winners() []modelBid {
	ranking := m.ranking()
	return ranking[:min(m.create.Rounds[m.round-1].Winners, len(ranking))]
}

// outbid names everybody who was among the winners before and is not now.
func (m *model) outbid(before []modelBid) string {
	now, said := m.winners(), ""
	for _, b := range before {
		same := func(other modelBid) bool { return other.account == b.account }
		if !slices.ContainsFunc(now, same) {
			said += fmt.Sprintf(" out %s %d %d", b.account, b.amount, 1+slices.IndexFunc(m.ranking(), same))
		}
	}
	if said != "" {
		said += fmt.Sprintf(" floor %d", now[len(now)-1].amount+1)
	}
	return said
}

func (m *model) closeRound(op auction.CloseRound, now time.Time) string {
	if op.Term < m.term {
		return "superseded"
	}
	if m.status != "active" || op.Round != m.round || now.Before(m.ends) {
		return "nothing"
	}
	ranking := m.ranking()
	places := min(m.create.Rounds[m.round-1].Winners, len(ranking))
	winners, losers := ranking[:places], ranking[places:]
	seller := m.money[m.create.Seller]
	after := big.NewInt(seller.available)
	after.Add(after, big.NewInt(seller.held))
	for _, b := range winners {
		after.Add(after, big.NewInt(b.amount))
	}
	if !after.IsInt64() {
		return "overflow"
	}
	m.term = op.Term
	line := fmt.Sprintf("round.completed %d", m.round)
	for _, b := range winners {
		m.money[b.account].held -= b.amount
		seller.available += b.amount
		line += fmt.Sprintf(" %s:%d", b.account, b.amount)
	}
	m.line("%s", line)
	m.bids = slices.Clone(losers)
	if m.round == len(m.create.Rounds) {
		m.refundAll()
		m.status = "completed"
		m.line("auction.completed")
		return "ok"
	}
	for _, b := range losers {
		m.line("bid.carried_over %s %d %d %d", b.account, b.amount, m.round, m.round+1)
	}
	m.openRound(m.round+1, now)
	return "ok"
}

// spoken puts what the package has answered into the model's words.
func spoken(o outcome) string {
	var (
		missing *ledger.AccountNotFoundError
		soon    *auction.CooldownError
		low     *auction.BidTooLowError
		short   *ledger.InsufficientFundsError
	)
	switch {
	case o.err == nil:
	case errors.As(o.err, &missing):
		return "no account"
	case errors.As(o.err, &soon):
		return fmt.Sprint("cooldown ", soon.RetryAfter)
	case errors.As(o.err, &low):
		return fmt.Sprint("least ", low.Least)
	case errors.As(o.err, &short):
		return "funds"
	default:
		return map[error]string{
			auction.ErrNotActive: "not active", auction.ErrOwnAuction: "own auction", auction.ErrAmountTaken: "taken",
			auction.ErrBadTransition: "bad transition", auction.ErrSuperseded: "superseded",
			ledger.ErrCurrencyMismatch: "currency", ledger.ErrBalanceOverflow: "overflow",
		}[o.err]
	}
	switch r := o.result.(type) {
	case auction.Placed:
		return fmt.Sprintf("ok bid %d rank %d round %d ends %s before %d", r.Seq, r.Rank, r.Round, r.RoundEndsAt, r.PreviousAmount)
	case *auction.Auction:
		if r == nil {
			return "nothing"
		}
		return "ok"
	}
	return "?"
}

// told converts an event to the model's form.
func told(e auction.Event) string {
	line := fmt.Sprintf("%d %s", e.Seq, e.Type)
	switch d := e.Data.(type) {
	case auction.BidPlacedData:
		line += fmt.Sprintf(" %s %d %d %d %d", d.Account, d.Amount, d.PreviousAmount, d.Round, d.Rank)
		for _, o := range d.Outbid {
			line += fmt.Sprintf(" out %s %d %d floor %d", o.Account, o.Amount, o.Rank, d.Floor)
		}
	case auction.RoundExtendedData:
		line += fmt.Sprintf(" %d %s %d", d.Round, time.Time(d.EndsAt), d.Extensions)
	case auction.RoundStartedData:
		line += fmt.Sprintf(" %d %s", d.Round, time.Time(d.EndsAt))
	case auction.RoundCompletedData:
		line += fmt.Sprintf(" %d", d.Round)
		for _, w := range d.Winners {
			line += fmt.Sprintf(" %s:%d", w.Account, w.Amount)
		}
	case auction.BidCarriedOverData:
		line += fmt.Sprintf(" %s %d %d %d", d.Account, d.Amount, d.FromRound, d.ToRound)
	case auction.RoundsData:
	}
	return line
}
