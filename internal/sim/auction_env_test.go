//go:build unix

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// soonAfterDeath is for how long a leader's death may still be the reason for a delay.
const soonAfterDeath = 7 * time.Second

// auctionHouse is a database with servers on it and accounts that have money for auctions.
type auctionHouse struct {
	database string
	servers  []*sim.Server
	client   *sim.Client
	history  *sim.History
	funds    map[string]int64 // of each account while nothing is held, by the auditor's books
}

// openHouse starts servers on a fresh database and opens the accounts, each with so much money.
func openHouse(t *testing.T, servers int, accounts []string, each int64) *auctionHouse {
	t.Helper()
	h := &auctionHouse{database: newDatabase(t), funds: map[string]int64{}}
	for range servers {
		h.servers = append(h.servers, newServer(t, h.database))
	}
	h.client, h.history = newClient(t, h.servers...)
	h.open(t, accounts, each)
	return h
}

// open opens more accounts.
func (h *auctionHouse) open(t *testing.T, accounts []string, each int64) {
	t.Helper()
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, 2*patience), h.client, accounts, each))
	for _, account := range accounts {
		h.funds[account] = each
	}
}

// close closes the books: what was told to be tried again is settled, keys are replayed, the database audited.
func (h *auctionHouse) close(t *testing.T, every int) {
	t.Helper()
	h.settle(t, "")
	replayed, err := h.history.Replay(testwait.Context(t, 5*time.Minute), h.client, 16, func(i int) bool { return i%every == 0 })
	complain(t, err)
	auditNow(t, h.database)
	auditLog(t, h.database, h.client)
	t.Logf("books closed: %d commands, %d replayed, %v", len(h.history.Ops()), replayed, h.history.Count())
}

// settle repeats what got no final answer, among the commands on paths that begin so. A bid that was too soon is decided
// when its auction is over.
func (h *auctionHouse) settle(t *testing.T, path string) {
	t.Helper()
	for _, op := range h.history.Ops() {
		if _, ok := op.Final(); ok || !strings.HasPrefix(op.Path, path) {
			continue
		}
		testwait.Check(t, testwait.Err(h.client.Settle(testwait.Context(t, patience), op)))
	}
}

// bidding is one auction with a subscriber on each server.
type bidding struct {
	house       *auctionHouse
	name, id    string
	rules       replay.Rules
	accounts    []string // the bidders
	subscribers []*sim.Subscriber
	price       atomic.Int64 // about what a winning bid is
}

// launch creates an auction for these bidders, subscribes to it and starts it. Nobody else may touch their money while
// the auction lasts.
func (h *auctionHouse) launch(t *testing.T, name string, accounts []string, rules replay.Rules) *bidding {
	t.Helper()
	answer, err := h.client.Expect(testwait.Context(t, patience), newAuction(name+"-create", name, &rules), http.StatusCreated)
	testwait.Must(t, err)
	var made client.Auction
	testwait.Must(t, answer.JSON(&made))
	id := made.ID
	b := &bidding{house: h, name: name, id: id, rules: rules, accounts: accounts}
	for _, server := range h.servers {
		s := sim.Subscribe(t.Context(), "auction:"+id, 0, server)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		b.subscribers = append(b.subscribers, s)
	}
	for _, s := range b.subscribers {
		testwait.Must(t, s.AwaitConnection(testwait.Context(t, patience), 1))
	}
	b.act(t, "start")
	return b
}

// act starts or cancels the auction.
func (b *bidding) act(t *testing.T, verb string) {
	t.Helper()
	op := sim.NewOp(sim.KindAuction, "/v1/auctions/"+b.id+"/"+verb, b.name+"-"+verb, nil)
	testwait.Must(t, testwait.Err(b.house.client.Expect(testwait.Context(t, patience), op, http.StatusOK)))
}

// await waits on every subscriber for an event, and returns it.
func (b *bidding) await(t *testing.T, limit time.Duration, what string, match func(replay.Event) bool) replay.Event {
	t.Helper()
	ctx := testwait.Context(t, limit)
	var event replay.Event
	for i, s := range b.subscribers {
		var err error
		if event, err = s.Await(ctx, what, match); err != nil {
			t.Fatalf("%s: subscriber %d: %v", b.name, i, err)
		}
	}
	return event
}

func isEnd(e replay.Event) bool {
	return e.Type == replay.AuctionCompleted || e.Type == replay.AuctionCancelled
}

// finish waits for the end of the auction and lets the auditor play it: every subscriber got the same events, they come
// to what the server says, and every bid was answered as it happened. It ends the subscriptions.
func (b *bidding) finish(t *testing.T, limit time.Duration) *replay.Outcome {
	t.Helper()
	b.await(t, limit, "the end of the auction", isEnd)
	b.house.settle(t, "/v1/auctions/"+b.id)
	events := b.subscribers[0].Events()
	for i, s := range b.subscribers[1:] {
		other := s.Events()
		if len(other) != len(events) {
			t.Errorf("%s: subscriber %d has %d events, the first %d", b.name, i+1, len(other), len(events))
		}
		for n := range min(len(events), len(other)) {
			if err := replay.Compare("event", b.comparable(events[n]), b.comparable(other[n])); err != nil {
				t.Fatalf("%s: subscriber %d was given another event %d: %v", b.name, i+1, n+1, err)
			}
		}
	}
	out := b.replay(t, events)
	complain(t, compareAuction(testwait.Context(t, patience), b.house.client, b.id, out))
	complain(t, checkBids(b.house.history.Ops(), b.id, out))
	for account, balance := range out.Accounts {
		b.house.funds[account] = balance.Available
	}
	for _, s := range b.subscribers { // A credential has a hundred connections at most.
		testwait.Check(t, s.Close())
	}
	return out
}

// comparable is an event without what not every server tells.
func (b *bidding) comparable(e replay.Event) replay.Event {
	if b.rules.OutbidOptional && e.Bid != nil {
		bid := *e.Bid
		bid.Outbid, bid.MinWinning = nil, nil
		e.Bid = &bid
	}
	return e
}

// newAuction makes the command that creates an auction in SIM. All of it is sent, so that nothing depends on defaults.
func newAuction(key, title string, r *replay.Rules) *sim.Op {
	q := client.CreateAuctionRequest{
		Title: title, Currency: "SIM", Seller: r.Seller, MinBid: max(r.MinBid, 1), MinIncrement: max(r.MinIncrement, 1),
		AntiSnipe: client.AntiSnipeRequest{Window: r.Window.String(), Extension: r.Extension.String(), MaxExtensions: int64(r.MaxExtensions)},
		Cooldown:  r.Cooldown.String(), UniqueAmounts: &r.UniqueAmounts,
	}
	for _, round := range r.Rounds {
		q.Rounds = append(q.Rounds, client.RoundRequest{Winners: int64(round.Winners), Duration: round.Duration.String()})
	}
	return sim.NewOp(sim.KindAuction, "/v1/auctions", key, q)
}

// compareAuction compares all that the interface says of an auction with what its events come to: the auction, the whole
// leaderboard, the winners, the history of bids, and what the accounts have. Nothing may change meanwhile.
func compareAuction(ctx context.Context, c *sim.Client, id string, out *replay.Outcome) error {
	api := c.API(client.Retry{Attempts: 1000, Limit: patience})
	shown, err := api.GetAuction(ctx, id)
	if err != nil {
		return err
	}
	places, err := collect(api.Leaderboard(ctx, id), func(r client.Rank) replay.Place {
		return replay.Place{Rank: int(r.Rank), Account: r.Account, Amount: r.Amount, Winning: r.Winning}
	})
	if err != nil {
		return err
	}
	page, err := client.Call[struct{ Round int }](ctx, api, http.MethodGet, "/v1/auctions/"+id+"/leaderboard", nil)
	if err != nil {
		return err
	}
	wins, err := collect(api.AuctionWinners(ctx, id), func(w client.AuctionWinner) replay.Win {
		return replay.Win{Round: int(w.Round), Rank: int(w.Rank), Account: w.Account, Amount: w.Amount}
	})
	if err != nil {
		return err
	}
	bids, err := collect(api.Bids(ctx, id), func(b client.PlacedBid) client.PlacedBid { return b })
	if err != nil {
		return err
	}
	balances := map[string]replay.Balance{}
	for account := range out.Accounts {
		a, err := api.GetAccount(ctx, account)
		if err != nil {
			return err
		}
		balances[a.ID] = replay.Balance{Available: a.Available, Held: a.Held}
	}
	rounds := make([]replay.RoundView, len(shown.Rounds))
	for i, r := range shown.Rounds {
		rounds[i] = replay.RoundView{Round: int(r.Round), Winners: int(r.Winners), Extensions: int(r.Extensions), Status: string(r.Status)}
		if !r.EndsAt.IsZero() {
			rounds[i].EndsAt = &r.EndsAt
		}
	}
	placed := make([]client.PlacedBid, len(out.Bids))
	for i, b := range out.Bids {
		placed[i] = client.PlacedBid{Account: b.Account, Amount: b.Amount, PreviousAmount: b.PreviousAmount, Round: int64(b.Round), Seq: b.Seq, At: b.At}
	}
	differences := []error{
		replay.Compare("seq of the auction", shown.Seq, out.Seq), replay.Compare("status", string(shown.Status), out.Status),
		replay.Compare("current round", shown.CurrentRound, int64(out.CurrentRound)), replay.Compare("total bids", shown.TotalBids, int64(len(placed))),
		replay.Compare("rounds", rounds, out.Views()), out.CompareLeaderboard(page.Round, places), replay.Compare("winners", wins, out.Wins()),
		replay.Compare("bids", bids, placed), replay.Compare("accounts", balances, out.Accounts),
	}
	if out.Status == "active" {
		floor, err := api.MinWinningBid(ctx, id)
		if err != nil {
			return err
		}
		differences = append(differences, replay.Compare("least winning bid", floor, out.Floor()))
	}
	if err := errors.Join(differences...); err != nil {
		return fmt.Errorf("auction %s: %w", id, err)
	}
	return nil
}

// collect reads a list to its end, each item as something else.
func collect[T, U any](items iter.Seq2[T, error], as func(T) U) (all []U, err error) {
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		all = append(all, as(item))
	}
	return all, nil
}

func (b *bidding) replay(t *testing.T, events []replay.Event) *replay.Outcome {
	t.Helper()
	funds := map[string]int64{b.rules.Seller: b.house.funds[b.rules.Seller]}
	for _, account := range b.accounts {
		funds[account] = b.house.funds[account]
	}
	out, err := replay.Replay(b.rules, funds, events)
	if err != nil {
		t.Fatalf("%s: %v", b.name, err)
	}
	return out
}

// storm sends all commands at the same moment, and none anew that has its answer.
func storm(ctx context.Context, client *sim.Client, ops []*sim.Op) []sim.Answer {
	answers := make([]sim.Answer, len(ops))
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i, op := range ops {
		group.Go(func() {
			<-begin
			answers[i] = decided(ctx, client, op)
		})
	}
	close(begin)
	group.Wait()
	return answers
}

// statuses counts answers by status and code. An answer of 5xx, or none, is a failure.
func statuses(t *testing.T, answers []sim.Answer) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for i, a := range answers {
		if a.Err != nil || a.Status >= 500 {
			t.Errorf("answer %d: %v", i, a)
		}
		counts[strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, a.Code()))]++
	}
	return counts
}

// crowd bids in the background until it is told to stop, and settles what is under way by then.
type crowd struct {
	stop  chan struct{}
	group sync.WaitGroup
	sent  atomic.Int64

	mu    sync.Mutex
	wrong []error
}

// crowd lets workers bid, each for its own share of the bidders. No more than most bids are sent, if that is not 0.
func (b *bidding) crowd(t *testing.T, seed uint64, workers int, most int64) *crowd {
	t.Helper()
	c := &crowd{stop: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		c.group.Wait()
	})
	for w := range workers {
		var own []string
		for i := w; i < len(b.accounts); i += workers {
			own = append(own, b.accounts[i])
		}
		if len(own) == 0 {
			break
		}
		c.group.Go(func() {
			if err := b.work(ctx, c, w, own, rand.New(rand.NewPCG(seed, uint64(w))), most); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.wrong = append(c.wrong, fmt.Errorf("%s: worker %d: %w", b.name, w, err))
			}
		})
	}
	return c
}

// finish stops the crowd.
func (c *crowd) finish(t *testing.T) {
	t.Helper()
	close(c.stop)
	c.drain(t)
}

// drain waits until the crowd has sent all it was to send.
func (c *crowd) drain(t *testing.T) {
	t.Helper()
	c.group.Wait()
	complain(t, errors.Join(c.wrong...))
}

// work draws bids and settles each: raises of all sizes, some of the price to beat, some too low.
func (b *bidding) work(ctx context.Context, c *crowd, id int, accounts []string, rng *rand.Rand, most int64) error {
	last := make([]int64, len(accounts))
	for n := 0; sim.GoesOn(ctx, c.stop); n++ {
		if sent := c.sent.Add(1); most > 0 && sent > most {
			return nil
		}
		i := rng.IntN(len(accounts))
		amount := last[i] + 1 + rng.Int64N(60)
		switch rng.IntN(10) {
		case 0:
			amount = 1 + rng.Int64N(20)
		case 1, 2:
			amount = b.price.Load() + 1 + rng.Int64N(20)
		}
		op := sim.NewBid(fmt.Sprintf("%s-%d-%d", b.name, id, n), b.id, accounts[i], amount)
		opCtx, cancel := context.WithTimeout(ctx, 2*patience)
		answer, err := b.house.client.Settle(opCtx, op)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err != nil: // The test is over, for a reason of its own.
		case answer.Status == http.StatusCreated:
			last[i] = amount
			b.raise(amount)
		case answer.Code() == "not_active":
			// The moment between a round's end and its close; no need to fill it with refusals.
			wait.For(ctx, time.Duration(1+rng.IntN(10))*time.Millisecond)
		case !slices.Contains([]string{"amount_taken", "bid_too_low", "insufficient_funds"}, answer.Code()):
			return fmt.Errorf("%s: %v", op, answer)
		}
		if !testwait.Torture() {
			sim.Rest(ctx, rng, bidderRest)
		}
	}
	return nil
}

func (b *bidding) raise(price int64) {
	for {
		now := b.price.Load()
		if price <= now || b.price.CompareAndSwap(now, price) {
			return
		}
	}
}
