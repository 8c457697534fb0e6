package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// The size of the auction. Rounds are short, so that the story is; the window is long enough for a late bid to be decided
// in it on a busy machine.
const (
	demoBots          = 48
	demoBotFunds      = 50_000 // minor units a bot
	demoRoundLength   = 2500 * time.Millisecond
	demoSnipeWindow   = 600 * time.Millisecond
	demoExtension     = 800 * time.Millisecond
	demoMaxExtensions = 2
	demoCooldown      = 500 * time.Millisecond
	demoMinBid        = 100
	demoIncrement     = 50
	// demoAuctionLimit bounds the whole act.
	demoAuctionLimit = 90 * time.Second
	// maxLiveMessage is the longest message of the live stream that the demo takes.
	maxLiveMessage = 1 << 20
)

// How bots bid, in minor units and time. Some want more than they can afford, and are refused.
const (
	demoFirstBid   = 5_000
	demoFirstRange = 8_000
	demoLeastLimit = 20_000
	demoLimitRange = 35_000
	demoStep       = 350
	demoFastest    = 150 * time.Millisecond
	demoSlowest    = 700 * time.Millisecond
	// Each demoSnipers-th bot bids near the ends of rounds alone.
	demoSnipers = 8
)

// demoPlaces are the winners of each round.
func demoPlaces() []int { return []int{3, 2, 1} }

// Auction is what the bidders and the watcher saw.
type Auction struct {
	ID         string         `json:"id"`
	Bots       int            `json:"bots"`
	Bids       int            `json:"bids"`
	Refused    map[string]int `json:"refused"`
	Rounds     []Round        `json:"rounds"`
	Paid       int64          `json:"paid"`
	Refunded   int64          `json:"refunded"`
	Losers     int            `json:"losers"` // of the last round
	Events     int            `json:"events"`
	Countdowns int            `json:"countdowns"`
	TotalMS    float64        `json:"total_ms"`
	P50MS      float64        `json:"p50_ms"`
	P99MS      float64        `json:"p99_ms"`
}

// Round is a round as the live stream showed it.
type Round struct {
	Places      int       `json:"places"`
	Bids        int       `json:"bids"`
	Extensions  int       `json:"extensions"`
	CarriedOver int       `json:"carried_over"`
	Winners     []payment `json:"winners"`
}

// payment is what a winner pays.
type payment struct {
	Account string
	Amount  int64
}

// auctionAct plays the auction.
type auctionAct struct {
	*Demo

	bidder *client.Client // tries once: a bot that is refused thinks again
	bots   []string
	over   []chan struct{} // closed round by round, once everything is known of a round

	mu        sync.Mutex // guards the result, too, while the auction runs
	latencies []time.Duration
	current   int // round, from 1; 0 while none is open
	endsAt    time.Time
	standing  map[string]int64
}

func (d *Demo) seller() string { return "gallery" + d.tag }

func (d *Demo) bots() []string {
	bots := make([]string, demoBots)
	for i := range bots {
		bots[i] = fmt.Sprintf("bidder%s-%02d", d.tag, i+1)
	}
	return bots
}

// holdAuction lets bots bid in three rounds, which are shown as the live stream tells of them.
func (d *Demo) holdAuction(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoAuctionLimit)
	defer cancel()
	d.screen.Heading(fmt.Sprintf("The auction: %d rounds, %d bots, money set aside for every bid", len(demoPlaces()), demoBots))
	a := &auctionAct{Demo: d, bots: d.bots(), standing: map[string]int64{}}
	if err := a.prepare(ctx); err != nil {
		return err
	}
	began := time.Now()
	group, acting := errgroup.WithContext(ctx)
	group.Go(func() error { return a.watch(acting) })
	group.Go(func() error { return a.showRounds(acting) })
	group.Go(func() error { _, err := a.api.StartAuction(acting, d.result.Auction.ID); return err })
	for i, bot := range a.bots {
		group.Go(func() error { return a.bid(acting, i, bot) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	d.result.Auction.TotalMS = inMilliseconds(time.Since(began))
	a.sumUp()
	return nil
}

// prepare opens the accounts and makes the auction.
func (a *auctionAct) prepare(ctx context.Context) error {
	if _, err := a.api.CreateAccount(ctx, client.CreateAccountRequest{ID: a.seller(), Currency: demoCurrency}); err != nil {
		return err
	}
	if err := a.fund(ctx, a.bots, demoBotFunds); err != nil {
		return err
	}
	q := client.CreateAuctionRequest{
		Title: "Demo", Currency: demoCurrency, Seller: a.seller(), MinBid: demoMinBid, MinIncrement: demoIncrement,
		Cooldown: demoCooldown.String(),
		AntiSnipe: client.AntiSnipeRequest{
			Window: demoSnipeWindow.String(), Extension: demoExtension.String(), MaxExtensions: demoMaxExtensions,
		},
	}
	a.result.Auction = Auction{Bots: len(a.bots), Refused: map[string]int{}}
	for _, places := range demoPlaces() {
		q.Rounds = append(q.Rounds, client.RoundRequest{Winners: int64(places), Duration: demoRoundLength.String()})
		a.result.Auction.Rounds = append(a.result.Auction.Rounds, Round{Places: places})
		a.over = append(a.over, make(chan struct{}))
	}
	made, err := a.api.CreateAuction(ctx, q)
	if err != nil {
		return err
	}
	a.result.Auction.ID = made.ID
	a.bidder, err = client.New(a.result.URL, a.key,
		client.WithHTTPClient(&http.Client{Transport: a.pool}), client.WithRetry(client.Retry{Attempts: 1}))
	return err
}

// ended is closed when the auction has ended.
func (a *auctionAct) ended() <-chan struct{} { return a.over[len(a.over)-1] }

// bid is one bot: it asks what would win, and bids when it does not win and can afford to.
func (a *auctionAct) bid(ctx context.Context, i int, account string) error {
	choice := rand.New(rand.NewPCG(uint64(i), demoBots)) //nolint:gosec // What a bot bids in a demo is no secret.
	limit, own := demoLeastLimit+choice.Int64N(demoLimitRange), int64(0)
	for {
		pause := demoFastest + rand.N(demoSlowest-demoFastest) //nolint:gosec // As above.
		if i%demoSnipers == 0 {
			pause = a.untilLate(pause)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.ended():
			return nil
		case <-time.After(pause):
		}
		least, err := a.bidder.MinWinningBid(ctx, a.result.Auction.ID)
		if client.CodeOf(err) == "not_active" || busy(err) || err == nil && own >= least-1 {
			continue // No round is open, nobody can tell at present, or the bot wins as things are.
		}
		if err != nil {
			return err
		}
		amount := max(own+demoIncrement, least) + choice.Int64N(demoStep)
		if own == 0 {
			amount = max(amount, demoFirstBid+choice.Int64N(demoFirstRange))
		}
		if amount > limit {
			continue
		}
		began, key := time.Now(), client.Key("demo-"+uuid.NewString())
		var b *client.Bid
		err = insist(ctx, func() (err error) {
			b, err = a.bidder.Bid(ctx, a.result.Auction.ID, client.BidRequest{Account: account, Amount: amount}, key)
			return err
		})
		code := client.CodeOf(err)
		if err != nil && !slices.Contains([]string{"not_active", "cooldown", "bid_too_low", "amount_taken", "insufficient_funds"}, code) {
			return fmt.Errorf("%s bids %d: %w", account, amount, err)
		}
		a.mu.Lock()
		a.latencies = append(a.latencies, time.Since(began))
		if err == nil {
			own = amount
			a.bidsPlaced = append(a.bidsPlaced, *b)
		} else {
			a.result.Auction.Refused[code]++
		}
		a.mu.Unlock()
	}
}

// untilLate is how long a sniper waits: until late in the window, or for a moment when it is late already, or no round is open.
func (a *auctionAct) untilLate(moment time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if late := time.Until(a.endsAt.Add(-demoSnipeWindow * 2 / 3)); a.current > 0 && late > 0 {
		return late
	}
	return moment
}

// watch follows the auction over a WebSocket to its end.
func (a *auctionAct) watch(ctx context.Context) error {
	conn, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(a.result.URL, "http")+"/v1/live", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: a.pool}, HTTPHeader: http.Header{"Authorization": {"Bearer " + a.key}},
	})
	if resp != nil && resp.Body != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxLiveMessage)
	request := fmt.Sprintf(`{"op":"subscribe","topic":"auction:%s","since":0}`, a.result.Auction.ID)
	if err := conn.Write(ctx, websocket.MessageText, []byte(request)); err != nil {
		return err
	}
	if _, _, err := conn.Read(ctx); err != nil { // That it is subscribed.
		return err
	}
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return fmt.Errorf("the live stream ended before the auction did: %w", err)
		}
		e, err := replay.ParseEvent(message)
		if err != nil {
			return fmt.Errorf("%w: %s", err, message)
		}
		if a.apply(e); e.Type == replay.AuctionCompleted {
			_ = conn.Close(websocket.StatusNormalClosure, "") // Nothing follows.
			return nil
		}
	}
}

// apply notes an event.
func (a *auctionAct) apply(e replay.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &a.result.Auction
	if e.Countdown != nil {
		r.Countdowns++
		return
	}
	a.events = append(a.events, e)
	switch {
	case e.Opening != nil:
		if e.Opening.Round > 1 {
			close(a.over[e.Opening.Round-2])
		}
		a.current, a.endsAt = e.Opening.Round, e.Opening.EndsAt
	case e.Bid != nil:
		a.standing[e.Bid.Account] = e.Bid.Amount
		r.Rounds[e.Bid.Round-1].Bids++
	case e.Extension != nil:
		a.endsAt = e.Extension.EndsAt
		r.Rounds[e.Extension.Round-1].Extensions = e.Extension.Extensions
	case e.Close != nil:
		a.current = 0
		for _, w := range e.Close.Winners {
			r.Rounds[e.Close.Round-1].Winners = append(r.Rounds[e.Close.Round-1].Winners, payment(w))
			r.Paid += w.Amount
			delete(a.standing, w.Account)
		}
	case e.Carry != nil:
		r.Rounds[e.Carry.FromRound-1].CarriedOver++
	case e.Type == replay.AuctionCompleted:
		r.Losers = len(a.standing)
		for _, amount := range a.standing {
			r.Refunded += amount
		}
		close(a.over[len(a.over)-1])
	}
}

// showRounds tells of each round, as it goes on where that can be seen, and when it is over.
func (a *auctionAct) showRounds(ctx context.Context) error {
	tick := time.NewTicker(screen.Frame)
	defer tick.Stop()
	for i, places := range demoPlaces() {
		show, done := a.screen.Status(fmt.Sprintf("Round %d, %s", i+1, plural(places, "place")))
		for over := false; !over; {
			select {
			case <-ctx.Done():
				done()
				a.screen.Break()
				return context.Cause(ctx)
			case <-a.over[i]:
				over = true
			case <-tick.C:
				show(a.progress())
			}
		}
		done()
		a.mu.Lock()
		r, rest := a.result.Auction.Rounds[i], fmt.Sprintf("%d refunded", a.result.Auction.Losers)
		a.mu.Unlock()
		if i < len(demoPlaces())-1 {
			rest = fmt.Sprintf("%d carried over", r.CarriedOver)
		}
		a.screen.End("%s, %s, %s", plural(r.Bids, "bid"), plural(r.Extensions, "extension"), rest)
		for _, w := range r.Winners {
			a.screen.Note("  %s", a.screen.Paint(screen.Faint, fmt.Sprintf("%s pays %s", w.Account, money(w.Amount))))
		}
	}
	return nil
}

// progress tells how far the open round is, from 0 to 1, and what to say of it.
func (a *auctionAct) progress() (part float64, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == 0 {
		return 0, "closing"
	}
	r := a.result.Auction.Rounds[a.current-1]
	left := max(0, time.Until(a.endsAt))
	whole := demoRoundLength + time.Duration(r.Extensions)*demoExtension
	text = fmt.Sprintf("%s, %s", screen.Seconds(left), plural(r.Bids, "bid"))
	if r.Extensions > 0 {
		text += ", extended"
	}
	return 1 - left.Seconds()/whole.Seconds(), text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (a *auctionAct) sumUp() {
	r := &a.result.Auction
	r.Bids, r.Events = len(a.bidsPlaced), len(a.events)
	r.P50MS, r.P99MS, _ = quantiles(a.latencies)
	var refused []string
	for code, n := range r.Refused {
		refused = append(refused, fmt.Sprintf("%d %s", n, code))
	}
	slices.Sort(refused)
	s := a.screen
	s.Fact("Refused bids", "%s", strings.Join(refused, ", "))
	s.Fact("Paid, and given back at the end", "%s, %s", money(r.Paid), money(r.Refunded))
	s.Fact("Each bidder waited", "p50 %s, p99 %s", screen.Milliseconds(r.P50MS), screen.Milliseconds(r.P99MS))
	s.Fact("Watched over a WebSocket", "%d events, %s", r.Events, plural(r.Countdowns, "countdown"))
}

// auctionRules are the auction's, as its independent auditor knows them.
func (d *Demo) auctionRules() replay.Rules {
	rules := replay.Rules{
		Seller: d.seller(), MinBid: demoMinBid, MinIncrement: demoIncrement, Window: demoSnipeWindow, Extension: demoExtension,
		MaxExtensions: demoMaxExtensions, Cooldown: demoCooldown, UniqueAmounts: true,
	}
	for _, places := range demoPlaces() {
		rules.Rounds = append(rules.Rounds, replay.RoundRule{Winners: places, Duration: demoRoundLength})
	}
	return rules
}
