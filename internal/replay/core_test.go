package replay_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAuditorAgreesWithTheCore draws auctions and runs them through the core that the server decides with, in batches,
// some of them undone, the state read anew now and then; the auditor plays what the core tells. 10,000 bids are accepted,
// half a million when FAIRLEAD_TORTURE is set.
func TestAuditorAgreesWithTheCore(t *testing.T) {
	target := testwait.Count(10_000, 500_000)
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	rng := rand.New(rand.NewPCG(seed, 0))
	var tried, accepted, outbid, wins, extensions, cancelled int
	for auctions := 0; accepted < target && tried < 20*target && !t.Failed(); auctions++ {
		r := newRun(t, rng)
		tried += r.play(t)
		out, err := replay.Replay(r.rules, r.funds, r.events)
		if err != nil {
			t.Fatalf("auction %d: %v", auctions, err)
		}
		balances := map[string]replay.Balance{}
		for id, a := range r.accounts {
			balances[id] = replay.Balance{Available: a.Available, Held: a.Held}
		}
		if err := replay.Compare("accounts", balances, out.Accounts); err != nil {
			t.Fatalf("auction %d: %v", auctions, err)
		}
		for i, p := range r.placed {
			if b := out.Bids[i]; b.Seq != p.Seq || !b.RoundEndsAt.Equal(p.RoundEndsAt) || b.Rank != p.Rank || b.PreviousAmount != p.PreviousAmount {
				t.Fatalf("auction %d: answered %+v, by the events %+v", auctions, p, b)
			}
			if b := out.Bids[i]; b.Outbid == nil || (len(*b.Outbid) > 0) != (p.Outbid > 0) {
				t.Fatalf("auction %d: bid %d is said to outbid %v, and %d is to be written", auctions, b.Seq, b.Outbid, p.Outbid)
			} else if p.Outbid > 0 {
				outbid++
				if o := (*b.Outbid)[0]; !slices.ContainsFunc(r.placed[:i], func(q auction.Placed) bool {
					return q.Seq == p.Outbid && q.Account == o.Account && q.Amount == o.Amount
				}) {
					t.Fatalf("auction %d: bid %d outbids %+v, which is not bid %d", auctions, b.Seq, o, p.Outbid)
				}
			}
		}
		accepted += len(out.Bids)
		wins += len(out.Wins())
		for _, round := range out.Rounds {
			extensions += round.Extensions
		}
		if out.Status == "cancelled" {
			cancelled++
		}
	}
	t.Logf("%d bids, %d accepted, %d times somebody was outbid, %d wins, %d extensions, %d auctions cancelled", tried, accepted, outbid, wins, extensions, cancelled)
	if accepted < target || outbid == 0 || wins == 0 || extensions == 0 {
		t.Error("too few bids were accepted, or something never happened")
	}
}

// run is one auction in the core, and what a database would hold of its accounts.
type run struct {
	rng      *rand.Rand
	rules    replay.Rules
	funds    map[string]int64
	bidders  []string
	accounts map[string]ledger.Account
	state    *auction.State
	now      time.Time
	ids      uint64
	price    int64 // about what bidders offer
	events   []replay.Event
	placed   []auction.Placed
}

func newRun(t *testing.T, rng *rand.Rand) *run {
	t.Helper()
	r := &run{rng: rng, funds: map[string]int64{"gallery": 0}, accounts: map[string]ledger.Account{}, now: zero}
	ms := func(least, most int) time.Duration {
		return time.Duration(least+rng.IntN(most-least)) * time.Millisecond
	}
	create := auction.Create{
		Title: "random", Currency: "SIM", Seller: "gallery", MinBid: 1 + rng.Int64N(5), MinIncrement: 1 + rng.Int64N(9),
		UniqueAmounts: rng.IntN(3) > 0,
	}
	if rng.IntN(4) > 0 {
		create.AntiSnipe = auction.AntiSnipe{Window: ms(1, 300), Extension: ms(1, 300), MaxExtensions: 1 + rng.IntN(6)}
	}
	if rng.IntN(2) == 0 {
		create.Cooldown = ms(1, 50)
	}
	for range 1 + rng.IntN(5) {
		create.Rounds = append(create.Rounds, auction.NewRound{Winners: 1 + rng.IntN(6), Duration: ms(100, 2000)})
	}
	r.rules = replay.Rules{
		Seller: create.Seller, MinBid: create.MinBid, MinIncrement: create.MinIncrement, Cooldown: create.Cooldown,
		Window: create.AntiSnipe.Window, Extension: create.AntiSnipe.Extension, MaxExtensions: create.AntiSnipe.MaxExtensions,
		UniqueAmounts: create.UniqueAmounts,
	}
	for _, round := range create.Rounds {
		r.rules.Rounds = append(r.rules.Rounds, replay.RoundRule{Winners: round.Winners, Duration: round.Duration})
	}
	for i := range 2 + rng.IntN(60) {
		name := fmt.Sprintf("bidder-%d", i)
		r.bidders, r.funds[name] = append(r.bidders, name), rng.Int64N(30_000)
	}
	for id, amount := range r.funds {
		r.accounts[id] = ledger.Account{ID: id, Currency: "SIM", Available: amount, Version: 1, CreatedAt: zero}
	}
	c := &auction.Creation{Book: r.book()}
	testwait.Must(t, testwait.Err(auction.DecideCreate(c, create)))
	r.state = auction.NewState(&c.Auctions[0], nil)
	return r
}

func (r *run) book() *ledger.Book {
	b := ledger.NewBook(r.now, func() (id uuid.UUID) {
		r.ids++
		binary.BigEndian.PutUint64(id[8:], r.ids)
		return id
	})
	for _, a := range r.accounts {
		b.LoadAccount(a)
	}
	return b
}

// play decides batches until the auction has ended, and returns how many bids were tried.
func (r *run) play(t *testing.T) (bids int) {
	t.Helper()
	r.commit(t, []auction.Op{auction.Start{}})
	for r.state.Auction.Status == auction.StatusActive {
		r.now = r.now.Add(time.Duration(r.rng.IntN(20_000)) * time.Microsecond)
		ops := make([]auction.Op, 1+r.rng.IntN(24))
		for i := range ops {
			account := r.bidders[r.rng.IntN(len(r.bidders))]
			if r.rng.IntN(100) == 0 {
				account = "gallery"
			}
			r.price += r.rng.Int64N(3)
			ops[i] = auction.PlaceBid{Account: account, Amount: 1 + r.rng.Int64N(20) + max(0, r.price-r.rng.Int64N(60))}
			bids++
		}
		if r.rng.IntN(3) == 0 {
			ops[r.rng.IntN(len(ops))] = auction.CloseRound{Round: r.state.Auction.CurrentRound, Term: 1}
			bids--
		}
		if r.rng.IntN(500) == 0 {
			ops[len(ops)-1] = auction.Cancel{}
		}
		if r.rng.IntN(10) == 0 { // A transaction that does not commit, and is run again or not.
			r.decide(ops)
			r.state.Undo()
		}
		r.commit(t, ops)
	}
	return bids
}

func (r *run) decide(ops []auction.Op) *ledger.Book {
	names := make([]string, 0, len(r.accounts))
	for id := range r.accounts {
		names = append(names, id)
	}
	book := r.book()
	r.state.Begin(book)
	r.state.LoadHolds(names)
	for _, op := range ops {
		_, _ = auction.Decide(r.state, op) // Refusals are no events; whether they are right, acceptance tells.
	}
	return book
}

// commit runs a transaction and keeps what it did, the events as the live stream would tell them.
func (r *run) commit(t *testing.T, ops []auction.Op) {
	t.Helper()
	book := r.decide(ops)
	for id := range r.accounts {
		a, err := book.Account(id)
		testwait.Must(t, err)
		r.accounts[id] = a
	}
	r.placed = append(r.placed, r.state.Placed...)
	for _, e := range r.state.Events {
		text, err := json.Marshal(map[string]any{
			"topic": r.state.Auction.Topic(), "seq": e.Seq, "type": e.Type, "at": e.At, "data": e.Data,
		})
		testwait.Must(t, err)
		event, err := replay.ParseEvent(text)
		testwait.Must(t, err)
		r.events = append(r.events, event)
	}
	if r.rng.IntN(20) == 0 { // Another process goes on.
		var bids []auction.Bid
		for _, bid := range r.state.Standing.All() {
			bids = append(bids, bid)
		}
		r.rng.Shuffle(len(bids), func(i, j int) { bids[i], bids[j] = bids[j], bids[i] })
		r.state = auction.NewState(r.state.Auction, bids)
	}
}
