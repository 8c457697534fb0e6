package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
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
	// demoStorm is how many bids meet on one amount, and how many come from one account, before the bots begin. The
	// amounts are below any bot's first bid.
	demoStorm       = 10
	demoStormAmount = 4_999
	demoTwinAmount  = 4_998
	// demoAuctionLimit bounds the whole act.
	demoAuctionLimit = 90 * time.Second
)

// demoPlaces are the winners of each round.
func demoPlaces() []int { return []int{3, 2, 1} }

// Auction is what the bidders and the watchers saw.
type Auction struct {
	ID           string         `json:"id"`
	Bots         int            `json:"bots"`
	Bids         int            `json:"bids"`
	Refused      map[string]int `json:"refused"`
	OneAmount    map[string]int `json:"one_amount"`  // ten accounts, one amount, at once: answers by code
	OneAccount   map[string]int `json:"one_account"` // one account, ten bids, at once
	Rounds       []Round        `json:"rounds"`
	Paid         int64          `json:"paid"`
	Refunded     int64          `json:"refunded"`
	Losers       int            `json:"losers"` // of the last round
	Events       int            `json:"events"`
	Resumes      int            `json:"resumes"`
	Countdowns   int            `json:"countdowns"`
	Snapshots    int            `json:"snapshots"`
	SnapshotsOff int            `json:"snapshots_off"`
	Integrity    bool           `json:"integrity"`
	TotalMS      float64        `json:"total_ms"`
	P50MS        float64        `json:"p50_ms"`
	P99MS        float64        `json:"p99_ms"`

	bots    []string
	told    []client.Bid // every bid that was acknowledged
	socket  []event      // as they came over the WebSocket
	stream  []event      // as they came as server-sent events
	replays []replay.Event
}

// Round is a round as the live stream told it.
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

// auctionAct plays the auction. What bidders are told is collected under the lock.
type auctionAct struct {
	*Demo

	bidder *client.Client // tries once: a bot that is refused thinks again
	result *Auction
	topic  string
	board  *board

	mu        sync.Mutex
	latencies []time.Duration
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

func (d *Demo) seller() string { return "gallery" + d.tag }

// holdAuction is the act: bots bid in three rounds, and everything is watched by two subscribers of the live stream.
func (d *Demo) holdAuction(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoAuctionLimit)
	defer cancel()
	d.screen.Heading(fmt.Sprintf("The auction: %d rounds, %d bots, money set aside for every bid", len(demoPlaces()), demoBots))
	a := &auctionAct{Demo: d, result: &d.result.Auction, board: newBoard(demoPlaces())}
	if err := a.prepare(ctx); err != nil {
		return err
	}
	began := time.Now()
	group, acting := errgroup.WithContext(ctx)
	group.Go(func() error { return a.watchSocket(acting) })
	group.Go(func() error { return a.watchStream(acting) })
	group.Go(func() error { return a.watchMoney(acting) })
	group.Go(func() error { return a.play(acting, group) })
	group.Go(func() error { return a.showRounds(acting) })
	if err := group.Wait(); err != nil {
		return err
	}
	a.result.TotalMS = inMilliseconds(time.Since(began))
	integrity, err := d.api.Integrity(ctx)
	if err != nil {
		return err
	}
	a.result.Integrity = integrity.Valid
	a.sumUp()
	return nil
}

// prepare opens the accounts and makes the auction.
func (a *auctionAct) prepare(ctx context.Context) error {
	if _, err := a.api.CreateAccount(ctx, client.CreateAccountRequest{ID: a.seller(), Currency: demoCurrency}); err != nil {
		return err
	}
	bots := make([]string, demoBots)
	for i := range bots {
		bots[i] = fmt.Sprintf("bidder%s-%02d", a.tag, i+1)
	}
	if err := a.fund(ctx, bots, demoBotFunds); err != nil {
		return err
	}
	q := client.CreateAuctionRequest{
		Title: "Demo", Currency: demoCurrency, Seller: a.seller(), MinBid: demoMinBid, MinIncrement: demoIncrement,
		Cooldown: demoCooldown.String(),
		AntiSnipe: client.AntiSnipeRequest{
			Window: demoSnipeWindow.String(), Extension: demoExtension.String(), MaxExtensions: demoMaxExtensions,
		},
	}
	for _, places := range demoPlaces() {
		q.Rounds = append(q.Rounds, client.RoundRequest{Winners: int64(places), Duration: demoRoundLength.String()})
	}
	made, err := a.api.CreateAuction(ctx, q)
	if err != nil {
		return err
	}
	*a.result = Auction{ID: made.ID, Bots: len(bots), Refused: map[string]int{}, bots: bots}
	a.topic = "auction:" + made.ID
	a.bidder, err = client.New(a.Demo.result.URL, a.key,
		client.WithHTTPClient(&http.Client{Transport: a.pool}), client.WithRetry(client.Retry{Attempts: 1}))
	return err
}

// play starts the auction, lets two storms pass, and lets the bots loose.
func (a *auctionAct) play(ctx context.Context, group *errgroup.Group) error {
	if _, err := a.api.StartAuction(ctx, a.result.ID); err != nil {
		return err
	}
	var err error
	bots := a.result.bots
	if a.result.OneAmount, err = a.storm(ctx, func(i int) (string, int64) { return bots[i], demoStormAmount }); err != nil {
		return err
	}
	if a.result.OneAccount, err = a.storm(ctx, func(int) (string, int64) { return bots[demoStorm], demoTwinAmount }); err != nil {
		return err
	}
	for i, bot := range bots {
		group.Go(func() error { return a.run(ctx, i, bot) })
	}
	return nil
}

// storm sends bids at one moment, each with a key of its own, and counts the answers by code.
func (a *auctionAct) storm(ctx context.Context, of func(i int) (account string, amount int64)) (map[string]int, error) {
	codes := make([]string, demoStorm)
	start := make(chan struct{})
	group, storming := errgroup.WithContext(ctx)
	for i := range demoStorm {
		account, amount := of(i)
		group.Go(func() (err error) {
			<-start
			codes[i], err = a.bid(storming, account, amount)
			return err
		})
	}
	close(start)
	err := group.Wait()
	counts := map[string]int{}
	for _, code := range codes {
		counts[code]++
	}
	return counts, err
}

// accepted is the code of a bid that was not refused.
const accepted = "accepted"

// bid bids once and returns the code of the answer.
func (a *auctionAct) bid(ctx context.Context, account string, amount int64) (code string, err error) {
	began := time.Now()
	b, err := a.bidder.Bid(ctx, a.result.ID, client.BidRequest{Account: account, Amount: amount})
	took := time.Since(began)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.result.told = append(a.result.told, *b)
		a.latencies = append(a.latencies, took)
		return accepted, nil
	}
	switch code = client.CodeOf(err); code {
	case "not_active", "cooldown", "bid_too_low", "amount_taken", "insufficient_funds":
		a.result.Refused[code]++
		a.latencies = append(a.latencies, took)
		return code, nil
	}
	return code, fmt.Errorf("%s bids %d: %w", account, amount, err)
}

// showRounds tells of each round, as it goes on where that can be seen, and when it is over.
func (a *auctionAct) showRounds(ctx context.Context) error {
	for i, places := range demoPlaces() {
		show, done := a.screen.Status(fmt.Sprintf("Round %d, %s", i+1, plural(places, "place")))
		tick := time.NewTicker(screen.Frame)
		for over := false; !over; {
			select {
			case <-ctx.Done():
				tick.Stop()
				done()
				a.screen.Break()
				return context.Cause(ctx)
			case <-a.board.over[i]:
				over = true
			case <-tick.C:
				show(a.board.progress(time.Now()))
			}
		}
		tick.Stop()
		done()
		r := a.board.round(i)
		a.result.Rounds = append(a.result.Rounds, r)
		rest := fmt.Sprintf("%d carried over", r.CarriedOver)
		if i == len(demoPlaces())-1 {
			rest = fmt.Sprintf("%d refunded", a.board.refund.bids)
		}
		a.screen.End("%s, %s, %s", plural(r.Bids, "bid"), plural(r.Extensions, "extension"), rest)
		for _, w := range r.Winners {
			a.screen.Note("  %s", a.screen.Paint(screen.Faint, fmt.Sprintf("%s pays %s", w.Account, money(w.Amount))))
			a.result.Paid += w.Amount
		}
	}
	a.result.Refunded, a.result.Losers = a.board.refund.amount, a.board.refund.bids
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (a *auctionAct) sumUp() {
	r := a.result
	r.Bids, r.Events = len(r.told), len(r.socket)
	slices.Sort(a.latencies)
	r.P50MS = inMilliseconds(a.latencies[len(a.latencies)/2])
	r.P99MS = inMilliseconds(a.latencies[len(a.latencies)*99/100])
	s := a.screen
	s.Fact("Ten at once on one amount", "%s", codeList(r.OneAmount))
	s.Fact("Ten at once from one account", "%s", codeList(r.OneAccount))
	s.Note("  %s", s.Paint(screen.Faint, "all refusals: "+codeList(r.Refused)))
	s.Fact("Paid, and given back at the end", "%s, %s", money(r.Paid), money(r.Refunded))
	s.Fact("Each bidder waited", "p50 %s, p99 %s", screen.Milliseconds(r.P50MS), screen.Milliseconds(r.P99MS))
	s.Fact("Watched over a WebSocket", "%d events, %s", r.Events, plural(r.Countdowns, "countdown"))
	s.Fact("Watched as server-sent events", "%d events, left and resumed %d times", len(r.stream), r.Resumes)
}

// codeList shows how often each code came, the most frequent last.
func codeList(codes map[string]int) string {
	var parts []string
	for code, n := range codes {
		parts = append(parts, fmt.Sprintf("%d %s", n, code))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// demoSnapshots is how often the books are looked at while the bots bid.
const demoSnapshots = 200 * time.Millisecond

// watchMoney asks the database, again and again while money is being set aside and paid, whether every snapshot adds up.
func (a *auctionAct) watchMoney(ctx context.Context) (err error) {
	conn, err := pgx.Connect(ctx, a.server.DatabaseURL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	tick := time.NewTicker(demoSnapshots)
	defer tick.Stop()
	for {
		// One statement is one snapshot.
		var adds bool
		err := conn.QueryRow(ctx, `
			SELECT (SELECT coalesce(sum(held), 0) FROM accounts WHERE id = ANY($2))
			       = (SELECT coalesce(sum(amount), 0) FROM auction_standing WHERE auction = $1 AND active)
			   AND (SELECT coalesce(sum(CASE kind WHEN 'deposit' THEN amount WHEN 'withdrawal' THEN -amount ELSE 0 END), 0)
			        FROM transfers WHERE status = 'completed' AND currency = $3)
			       = (SELECT coalesce(sum(available::numeric + held), 0) FROM accounts WHERE currency = $3)`,
			a.result.ID, a.result.bots, demoCurrency).Scan(&adds)
		if err != nil {
			return err
		}
		a.result.Snapshots++
		if !adds {
			a.result.SnapshotsOff++
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.board.ended():
			return nil
		case <-tick.C:
		}
	}
}
