// Package servicetest is the conformance suite of the services: it tries on servers that share a database what they promise under contention.
package servicetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Harness is servers on one database, as processes that share it have them.
type Harness struct {
	// Servers are at work: two at least.
	Servers []*fairlead.Server
	// Open opens one more, which ends with the check.
	Open func() *fairlead.Server
	// AdminKey is that of the servers.
	AdminKey string
}

// patience bounds what should be quick, and may meet a slow database.
const patience = testwait.Patience

func tests() conformance.Suite[*suite] {
	of := conformance.NewTrial[*suite]
	return conformance.Suite[*suite]{
		of("LastPositions", "W1 I1", "40 buyers at two servers want 10 positions: 10 are sold, and the one draw is recomputed from its proof", (*suite).lastPositions),
		of("OneRound", "U1", "12 bidders at two servers bid in one round: the 2 highest pay, and the others get everything back", (*suite).oneRound),
		of("TransfersBothWays", "A2", "transfers in both directions between few accounts, at two servers: the recount agrees to the unit", (*suite).transfers),
		of("Retries", "I1 I2", "24 copies of each request at two servers: one effect, and answers equal to the byte", (*suite).retries),
		of("LostAnswers", "I3 A2", "half of all answers are lost, and their requests repeated: each has one effect", (*suite).lostAnswers),
		of("AcknowledgedIsThere", "A1", "a server that starts later has each acknowledged change; no crash is tried", (*suite).acknowledged),
	}
}

// Checks lists what the suite has, in order.
func Checks() []conformance.Check { return tests().Checks() }

// Run runs the suite. The checks may share a harness.
func Run[T conformance.Test[T]](t T, harness func(t T) Harness) {
	t.Helper()
	conformance.Run(t, tests(), func(t T, _ conformance.Check) *suite {
		t.Parallel()
		s := &suite{TB: t, h: harness(t), tag: uuid.NewString()[:8]}
		s.rng, _ = testwait.Rand(t)
		return s
	})
}

// suite is one check.
type suite struct {
	conformance.TB

	h   Harness
	tag string // of the names in this check
	rng *rand.Rand
}

func (s *suite) ctx() context.Context {
	s.Helper()
	return testwait.Context(s, patience)
}

// at is a client of one of the servers in turn.
func (s *suite) at(i int) *client.Client { return s.h.Servers[i%len(s.h.Servers)].Client() }

const currency = "EUR"

// account opens an account with so much on it, and returns its name.
func (s *suite) account(name string, amount int64) string {
	s.Helper()
	id := name + "-" + s.tag
	testwait.Must(s, testwait.Err(s.at(0).CreateAccount(s.ctx(), client.CreateAccountRequest{ID: id, Currency: currency})))
	if amount > 0 {
		testwait.Must(s, testwait.Err(s.at(1).Deposit(s.ctx(), client.MovementRequest{Account: id, Amount: amount})))
	}
	return id
}

func (s *suite) accounts(name string, n int, amount int64) []string {
	s.Helper()
	all := make([]string, n)
	for i := range all {
		all[i] = s.account(fmt.Sprint(name, i), amount)
	}
	return all
}

// has fails the check unless an account has so much available, and nothing held.
func (s *suite) has(c *client.Client, id string, want int64) {
	s.Helper()
	a, err := c.GetAccount(s.ctx(), id)
	if err != nil || a.Available != want || a.Held != 0 {
		s.Errorf("account %s: %+v, %v; want %d available and nothing held", id, a, err, want)
	}
}

// recounted fails the check unless the balances are what the entries sum up to.
func (s *suite) recounted() {
	s.Helper()
	if r, err := s.at(1).Integrity(s.ctx()); err != nil || !r.Valid || r.BadTransfers != 0 {
		s.Errorf("the recount: %+v, %v", r, err)
	}
}

// together runs f for each of n at one moment.
func together(n int, f func(i int)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

func (s *suite) lastPositions() {
	const buyers, price, funds = 40, 100, 1000
	shop := s.account("shop", 0)
	people := s.accounts("buyer", buyers, funds)
	c, err := s.at(0).CreateCampaign(s.ctx(), client.CreateCampaignRequest{
		Name: "Last positions", BaseLength: 4, Price: price, Currency: currency, Beneficiary: shop, PurchaseLimit: 1,
		Prizes: []client.PrizeRequest{{Name: "First", Quantity: 1}, {Name: "Second", Quantity: 2}},
	})
	testwait.Must(s, err)
	testwait.Must(s, testwait.Err(s.at(0).PublishCampaign(s.ctx(), c.ID)))
	var mu sync.Mutex
	positions, bought := map[string]string{}, map[string]bool{}
	together(2*buyers, func(i int) { // Each buyer sends the request twice.
		who := people[i/2]
		p, err := s.at(i).Buy(s.ctx(), c.ID, client.PurchaseRequest{Account: who}, client.Key("buy-"+who))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			if other, twice := positions[p.Position.ID]; twice && other != p.ID {
				s.Errorf("position %s is sold twice", p.Position.ID)
			}
			positions[p.Position.ID], bought[who] = p.ID, true
		case client.CodeOf(err) != "sold_out":
			s.Error(err)
		}
	})
	if len(positions) != int(c.TotalPositions) || len(bought) != len(positions) {
		s.Fatalf("%d buyers have %d positions of %d", len(bought), len(positions), c.TotalPositions)
	}
	for _, who := range people {
		left := int64(funds)
		if bought[who] {
			left -= price
		}
		s.has(s.at(0), who, left)
	}
	s.has(s.at(1), shop, price*c.TotalPositions)
	var draw *client.Draw
	testwait.Eventually(s, patience, "the campaign is drawn", func() bool {
		draw, err = s.at(1).GetDraw(s.ctx(), c.ID)
		return err == nil && len(draw.Winners) == 3
	})
	testwait.Must(s, testwait.Err(s.at(0).GetDraw(s.ctx(), c.ID)))
	document, err := s.at(0).Proof(s.ctx(), c.ID)
	testwait.Must(s, err)
	proof, err := fairdraw.ParseProof(document)
	testwait.Must(s, err)
	testwait.Check(s, errors.Join(proof.Verify(), proof.VerifyCommitment(c.Commitment)))
	if proof.Root != draw.Root {
		s.Errorf("the proof is for %s, and the draw for %s", proof.Root, draw.Root)
	}
}

func (s *suite) oneRound() {
	const bidders, winners, funds, length = 12, 2, 10_000, "8s"
	seller, people := s.account("seller", 0), s.accounts("bidder", bidders, funds)
	a, err := s.at(0).CreateAuction(s.ctx(), client.CreateAuctionRequest{
		Title: "One round", Currency: currency, Seller: seller, Cooldown: "0s", Rounds: []client.RoundRequest{{Winners: winners, Duration: length}},
	})
	testwait.Must(s, err)
	testwait.Must(s, testwait.Err(s.at(0).StartAuction(s.ctx(), a.ID)))
	highest := make([]int64, bidders)
	together(bidders, func(i int) {
		for _, amount := range []int64{int64(100 + i), int64(300 + 2*i), int64(1000 + 3*i)} {
			switch _, err := s.at(i).Bid(s.ctx(), a.ID, client.BidRequest{Account: people[i], Amount: amount}); {
			case err == nil:
				highest[i] = amount
			case client.CodeOf(err) != "not_active": // A slow database may be late for the round.
				s.Error(err)
			}
		}
	})
	if bid := slices.DeleteFunc(slices.Clone(highest), func(amount int64) bool { return amount == 0 }); len(bid) < winners {
		s.Skipf("the database is too slow for a round of %s: %d of %d bidders could bid in it", length, len(bid), bidders)
	}
	testwait.Eventually(s, patience, "the round closes", func() bool {
		a, err = s.at(1).GetAuction(s.ctx(), a.ID)
		return err == nil && a.Status == client.AuctionStatusCompleted
	})
	paid, won := int64(0), map[string]int64{}
	for w, err := range s.at(1).AuctionWinners(s.ctx(), a.ID) {
		testwait.Must(s, err)
		won[w.Account] = w.Amount
		paid += w.Amount
	}
	if len(won) != winners {
		s.Fatalf("%d winners", len(won))
	}
	for i, who := range people {
		amount, wins := won[who]
		if wins && amount != highest[i] {
			s.Errorf("%s pays %d, and has bid %d", who, amount, highest[i])
		}
		for other, least := range won {
			if !wins && highest[i] > least {
				s.Errorf("%s loses with %d, and %s wins with %d", who, highest[i], other, least)
			}
		}
		s.has(s.at(0), who, funds-amount)
	}
	s.has(s.at(0), seller, paid)
	s.recounted()
}

func (s *suite) transfers() {
	const people, senders, each, funds = 3, 8, 12, 500
	all := s.accounts("payer", people, funds)
	balance := make([]int64, people)
	var mu sync.Mutex
	together(senders, func(i int) {
		for k := range each {
			from, to, amount := (i+k)%people, (i+k+1+k%2)%people, int64(10+7*((i+k)%9))
			_, err := s.at(i).Transfer(s.ctx(), client.TransferRequest{From: all[from], To: all[to], Amount: amount})
			switch {
			case err == nil:
				mu.Lock()
				balance[from] -= amount
				balance[to] += amount
				mu.Unlock()
			case client.CodeOf(err) != "insufficient_funds":
				s.Error(err)
			}
		}
	})
	for i, id := range all {
		s.has(s.at(i), id, funds+balance[i])
	}
	s.recounted()
}

func (s *suite) retries() {
	const copies, keys, amount = 24, 4, 25
	id := s.account("retried", 0)
	for k := range keys {
		key := fmt.Sprintf("%s-%d", s.tag, k)
		answers := make([]client.Answer, copies)
		together(copies, func(i int) {
			_, err := s.at(i).Deposit(s.ctx(), client.MovementRequest{Account: id, Amount: amount}, client.Key(key), client.Into(&answers[i]))
			testwait.Check(s, err)
		})
		own := 0
		for i := range answers {
			if string(answers[i].Body) != string(answers[0].Body) {
				s.Errorf("answers differ: %s and %s", answers[0].Body, answers[i].Body)
			}
			if !answers[i].Replayed {
				own++
			}
		}
		if own != 1 {
			s.Errorf("%d of %d answers are not marked as repeated", own, copies)
		}
		if _, err := s.at(k).Deposit(s.ctx(), client.MovementRequest{Account: id, Amount: amount + 1}, client.Key(key)); client.CodeOf(err) != "idempotency_key_reused" {
			s.Errorf("another request under the key: %v", err)
		}
	}
	s.has(s.at(0), id, keys*amount)
}

// losing sends requests, and loses some of the answers.
type losing struct {
	http.RoundTripper

	mu   sync.Mutex
	rng  *rand.Rand
	lost int
}

var errLost = errors.New("the answer is lost")

// RoundTrip implements [http.RoundTripper].
func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.rng.IntN(2) == 0 {
		return resp, err
	}
	l.lost++
	return nil, errors.Join(errLost, resp.Body.Close())
}

func (s *suite) lostAnswers() {
	const payers, each, funds = 4, 10, 1000
	shop, people := s.account("shop", 0), s.accounts("payer", payers, funds)
	transport := &losing{RoundTripper: s.handlers(), rng: s.rng}
	c, err := client.New("http://conformance", s.h.AdminKey, client.WithHTTPClient(&http.Client{Transport: transport}), client.WithRetry(client.Retry{Attempts: 1}))
	testwait.Must(s, err)
	together(payers, func(i int) {
		for k := range each {
			key, q := fmt.Sprintf("%s-%d-%d", s.tag, i, k), client.TransferRequest{From: people[i], To: shop, Amount: int64(k + 1)}
			for tries := 1; ; tries++ {
				_, err := c.Transfer(s.ctx(), q, client.Key(key))
				if err == nil {
					break
				}
				if !errors.Is(err, errLost) || tries == 60 {
					s.Errorf("after %d tries: %v", tries, err)
					return
				}
			}
		}
	})
	sum := int64(each * (each + 1) / 2)
	for _, who := range people {
		s.has(s.at(0), who, funds-sum)
	}
	s.has(s.at(1), shop, payers*sum)
	if transport.lost == 0 {
		s.Error("no answer was lost")
	}
	s.recounted()
}

func (s *suite) acknowledged() {
	people := s.accounts("kept", 5, 0)
	together(20, func(i int) {
		testwait.Check(s, testwait.Err(s.at(i).Deposit(s.ctx(), client.MovementRequest{Account: people[i%5], Amount: int64(1 + i)})))
	})
	later := s.h.Open().Client()
	for i, id := range people {
		s.has(later, id, int64(4*(1+i)+5+10+15))
	}
}
