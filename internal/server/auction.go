package server

import (
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// maxTitle bounds an auction's title, in characters.
const maxTitle = 500

// What an auction has where its request says nothing.
const (
	defaultMinBid       = 1
	defaultMinIncrement = 1
	defaultCooldown     = time.Second
)

type createAuctionRequest struct {
	Title         string            `json:"title" minLength:"1" maxLength:"500"`
	Currency      string            `json:"currency" pattern:"^[A-Z][A-Z0-9]{2,11}$"`
	Seller        string            `json:"seller" doc:"the account that winners pay"`
	Rounds        []roundRequest    `json:"rounds" minItems:"1" maxItems:"1000"`
	MinBid        *int64            `json:"min_bid,omitempty" minimum:"1" maximum:"9007199254740991" doc:"minor units, 1 when absent"`
	MinIncrement  *int64            `json:"min_increment,omitempty" minimum:"1" maximum:"9007199254740991" doc:"least by which a raise exceeds the bid before it, 1 when absent"`
	AntiSnipe     *antiSnipeRequest `json:"anti_snipe,omitempty" doc:"absent, or with any zero: rounds are not extended"`
	Cooldown      *string           `json:"cooldown,omitempty" doc:"Go duration between the bids of one account, 1s when absent, 0s for none" example:"1s"`
	UniqueAmounts *bool             `json:"unique_amounts,omitempty" doc:"whether no two active bids may have one amount, true when absent"`
}

type roundRequest struct {
	Winners  int    `json:"winners" minimum:"1" maximum:"10000"`
	Duration string `json:"duration" doc:"Go duration from 1ms to 8784h, whole microseconds" example:"30m"`
}

type antiSnipeRequest struct {
	Window        string `json:"window" doc:"Go duration before a round's end in which a bid extends it" example:"30s"`
	Extension     string `json:"extension" doc:"Go duration by which the end moves" example:"30s"`
	MaxExtensions *int   `json:"max_extensions" nullable:"false" minimum:"0" maximum:"1000000" doc:"most extensions of a round"`
}

// op checks an auction and makes the operation of it.
func (q *createAuctionRequest) op() (auction.Op, error) {
	var c checks
	c.text("title", q.Title, 1, maxTitle)
	c.currency("currency", q.Currency)
	c.id("seller", q.Seller)
	op := auction.Create{
		Title: q.Title, Currency: q.Currency, Seller: q.Seller, Rounds: q.checkRounds(&c),
		MinBid: defaultMinBid, MinIncrement: defaultMinIncrement, Cooldown: defaultCooldown, UniqueAmounts: true,
	}
	if q.MinBid != nil {
		c.amount("min_bid", *q.MinBid)
		op.MinBid = *q.MinBid
	}
	if q.MinIncrement != nil {
		c.amount("min_increment", *q.MinIncrement)
		op.MinIncrement = *q.MinIncrement
	}
	if a := q.AntiSnipe; a != nil {
		op.AntiSnipe.Window = c.auctionSpan("anti_snipe's window", a.Window, 0)
		op.AntiSnipe.Extension = c.auctionSpan("anti_snipe's extension", a.Extension, 0)
		op.AntiSnipe.MaxExtensions = c.from0("anti_snipe's max_extensions", a.MaxExtensions, auction.MaxExtensions)
	}
	if q.Cooldown != nil {
		op.Cooldown = c.auctionSpan("cooldown", *q.Cooldown, 0)
	}
	if q.UniqueAmounts != nil {
		op.UniqueAmounts = *q.UniqueAmounts
	}
	return op, c.err
}

func (q *createAuctionRequest) checkRounds(c *checks) []auction.NewRound {
	c.upTo("the number of rounds", len(q.Rounds), auction.MaxRounds)
	if c.err != nil {
		return nil
	}
	rounds := make([]auction.NewRound, len(q.Rounds))
	for i, r := range q.Rounds {
		c.upTo("a round's winners", r.Winners, auction.MaxWinners)
		rounds[i] = auction.NewRound{
			Winners: r.Winners, Duration: c.auctionSpan("a round's duration", r.Duration, auction.MinDuration),
		}
	}
	return rounds
}

// auctionSpan reads a Go duration string from low to [auction.MaxDuration]. Times are kept to the microsecond, so a finer duration would not be
// the one that was asked for.
func (c *checks) auctionSpan(field, value string, low time.Duration) time.Duration {
	const high = auction.MaxDuration
	d, err := time.ParseDuration(value)
	switch {
	case err != nil || d < low || d > high:
		c.fail("%s must be a duration such as \"30m\" or \"1.5s\", from %s to %s", field, low, high)
	case d%time.Microsecond != 0:
		c.fail("%s must be a whole number of microseconds", field)
	}
	return d
}

// from0 reads a number from 0 to high that must be there.
func (c *checks) from0(field string, value *int, high int) int {
	if value == nil || *value < 0 || *value > high {
		c.fail("%s must be an integer from 0 to %d", field, high)
		return 0
	}
	return *value
}

func (s *Server) auctionRoutes() []route {
	act := func(verb, summary string, op auction.Op) route {
		return actRoute("auctions", verb, "auction", summary, as[auctionView, *auction.Auction], s.Auction.Execute, fixed(op))
	}
	return []route{
		commandRoute("/v1/auctions", accessStaff, http.StatusCreated, "Make an auction, pending", as[auctionView, *auction.Auction],
			mutation[createAuctionRequest, auction.Op]{execute: s.Auction.Create, op: plain((*createAuctionRequest).op)}),
		listRoute("/v1/auctions", accessUser, "List auctions, oldest first", oldestFirst(), func(r *http.Request, after int64, limit int) ([]auction.Auction, error) {
			return s.Auction.Auctions(r.Context(), after, limit, seesDrafts(infoOf(r).principal))
		}, as[auctionSummaryView], numberOfAuction),
		readRoute("/v1/auctions/{id}", accessUser, "Read an auction", s.auctionOf, as[auctionView]),
		act("start", "Open the first round", auction.Start{}),
		act("cancel", "End an auction, with every hold released", auction.Cancel{}),
		hot(commandRoute("/v1/auctions/{id}/bids", accessUser, http.StatusCreated, "Bid, or raise the account's bid", viewBid, s.bids())),
		get("/v1/auctions/{id}/leaderboard", accessUser, leaderboardDoc(), s.getLeaderboard),
		listRoute("/v1/auctions/{id}/winners", accessUser, "List winners by round and rank", oldestFirst(), rowsWith(s.auctionOf, s.winners), as[auctionWinnerView], placeOfWinner),
		listRoute("/v1/auctions/{id}/bids", accessUser, "List accepted bids in order", oldestFirst(), rowsWith(s.auctionOf, s.placed), as[placedBidView], seqOfBid),
		readRoute("/v1/auctions/{id}/min-winning-bid", accessUser, "Read the least new bid that would now win", s.minWinningBid, same[minWinningBidView]),
	}
}
