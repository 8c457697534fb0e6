package audittest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Zero is when histories begin: shortly before round 42 of drand's quicknet was due, which their beacon draws use.
func Zero() time.Time { return time.Date(2023, 8, 23, 15, 0, 0, 0, time.UTC) }

// Player makes valid histories, topic by topic. It is not safe for concurrent use.
type Player struct {
	Rand *rand.Rand

	ids uint64
}

// Sort puts the leaves of several topics in the order of their times, as commits would.
func Sort(leaves []Leaf) []Leaf {
	slices.SortStableFunc(leaves, func(a, b Leaf) int { return a.At.Compare(b.At) })
	return leaves
}

func (p *Player) id() (id uuid.UUID) {
	p.ids++
	binary.BigEndian.PutUint64(id[8:], p.ids)
	id[0] = 1
	return id
}

func (p *Player) bytes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(p.Rand.UintN(256)) //nolint:gosec // It fits.
	}
	return hex.EncodeToString(b)
}

// Aliases makes so many.
func (p *Player) Aliases(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = p.bytes(16)
	}
	return all
}

func encode(v any) string {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// topicLog gathers the leaves of one topic.
type topicLog struct {
	topic  string
	leaves []Leaf
}

func (t *topicLog) add(kind string, at time.Time, data string) {
	t.leaves = append(t.leaves, Leaf{kind, t.topic, int64(len(t.leaves)), at, data})
}

// AuctionShape is what an auction is like.
type AuctionShape struct {
	Bidders []string // aliases
	Bids    int      // about how many are tried
	Batch   int      // tried in one transaction, at most
	Rounds  int
	Winners int  // of each round
	Cancel  bool // halfway
	Open    bool // it is still open at the end
	Unique  bool // amounts are
}

// Auction plays an auction by the core that the server decides with.
func (p *Player) Auction(start time.Time, shape AuctionShape) []Leaf {
	const seller = "5e11e75e11e75e11e75e11e75e11e75e"
	perRound := time.Duration(shape.Bids/shape.Rounds+1) * 10 * time.Millisecond
	create := auction.Create{
		Title: "a \"random\" auction", Currency: "SIM", Seller: seller, MinBid: 5, MinIncrement: 2, UniqueAmounts: shape.Unique,
		AntiSnipe: auction.AntiSnipe{Window: perRound / 8, Extension: perRound / 20, MaxExtensions: 3}, Cooldown: 2 * time.Millisecond,
	}
	rules := map[string]any{
		"title": create.Title, "currency": create.Currency, "seller": seller, "min_bid": create.MinBid, "min_increment": create.MinIncrement,
		"window": create.AntiSnipe.Window.Microseconds(), "extension": create.AntiSnipe.Extension.Microseconds(),
		"max_extensions": create.AntiSnipe.MaxExtensions, "cooldown": create.Cooldown.Microseconds(), "unique_amounts": shape.Unique,
	}
	var rounds []map[string]any
	for range shape.Rounds {
		create.Rounds = append(create.Rounds, auction.NewRound{Winners: shape.Winners, Duration: perRound})
		rounds = append(rounds, map[string]any{"winners": shape.Winners, "duration": perRound.Microseconds()})
	}
	rules["rounds"] = rounds
	r := &auctionRun{player: p, now: start, accounts: map[string]ledger.Account{}}
	for _, name := range append([]string{seller}, shape.Bidders...) {
		r.accounts[name] = ledger.Account{ID: name, Currency: "SIM", Available: 1 << 40, Version: 1, CreatedAt: start}
	}
	c := &auction.Creation{Book: r.book([]string{seller})}
	if _, err := auction.DecideCreate(c, create); err != nil {
		panic(err)
	}
	r.state = auction.NewState(&c.Auctions[0], nil)
	r.log.topic = r.state.Auction.Topic()
	r.log.add("auction.created", start, encode(rules))
	r.commit([]auction.Op{auction.Start{}})
	price := int64(5)
	for tried := 0; tried < shape.Bids && r.state.Auction.Status == auction.StatusActive; {
		r.now = r.now.Add(10 * time.Millisecond)
		n := min(1+p.Rand.IntN(shape.Batch), shape.Bids-tried)
		r.now = r.now.Add(time.Duration(n-1) * 10 * time.Millisecond)
		ops := make([]auction.Op, n)
		for i := range ops {
			price += p.Rand.Int64N(2)
			ops[i] = auction.PlaceBid{
				Account: shape.Bidders[p.Rand.IntN(len(shape.Bidders))], Amount: price + p.Rand.Int64N(1+price/2),
			}
		}
		tried += n
		r.commit(ops)
		if shape.Cancel && tried > shape.Bids/2 {
			r.commit([]auction.Op{auction.Cancel{}})
		}
		if round := r.state.Auction.Open(); round != nil && !r.now.Before(*round.EndsAt) && (!shape.Open || round.Number < shape.Rounds) {
			r.commit([]auction.Op{auction.CloseRound{Round: round.Number, Term: 1}})
		}
	}
	for !shape.Open && r.state.Auction.Status == auction.StatusActive {
		round := r.state.Auction.Open()
		if r.now.Before(*round.EndsAt) {
			r.now = *round.EndsAt
		}
		r.commit([]auction.Op{auction.CloseRound{Round: round.Number, Term: 1}})
	}
	return r.log.leaves
}

// auctionRun is one auction in the core, and what a database would hold of its accounts.
type auctionRun struct {
	player   *Player
	now      time.Time
	accounts map[string]ledger.Account
	state    *auction.State
	log      topicLog
}

func (r *auctionRun) book(names []string) *ledger.Book {
	b := ledger.NewBook(r.now, r.player.id)
	for _, name := range names {
		b.LoadAccount(r.accounts[name])
	}
	return b
}

// commit decides a transaction and logs its events. Refusals are no events.
func (r *auctionRun) commit(ops []auction.Op) {
	names := auction.Settling(r.state, ops)
	for _, op := range ops {
		if bid, ok := op.(auction.PlaceBid); ok {
			names = append(names, bid.Account)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	book := r.book(names)
	r.state.Begin(book)
	r.state.LoadHolds(names)
	for _, op := range ops {
		_, _ = auction.Decide(r.state, op) // As above.
	}
	for _, name := range names {
		account, err := book.Account(name)
		if err != nil {
			panic(err)
		}
		r.accounts[name] = account
	}
	for _, e := range r.state.Events {
		data := e.Data
		if bid, ok := data.(auction.BidPlacedData); ok {
			bid.Outbid, bid.Floor = nil, 0 // It follows, and is in no leaf.
			data = bid
		}
		r.log.add(string(e.Type), e.At, encode(data))
		if last := r.log.leaves[len(r.log.leaves)-1]; last.Seq != e.Seq {
			panic(fmt.Sprintf("event %d became leaf %d", e.Seq, last.Seq))
		}
	}
}
