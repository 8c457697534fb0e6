package server

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// maxTitle bounds an auction's title, in characters.
const maxTitle = 500

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
		MinBid: or(q.MinBid, 1), MinIncrement: or(q.MinIncrement, 1), UniqueAmounts: or(q.UniqueAmounts, true),
	}
	c.amount("min_bid", op.MinBid)
	c.amount("min_increment", op.MinIncrement)
	if a := q.AntiSnipe; a != nil {
		op.AntiSnipe.Window = c.auctionSpan("anti_snipe's window", a.Window, 0)
		op.AntiSnipe.Extension = c.auctionSpan("anti_snipe's extension", a.Extension, 0)
		op.AntiSnipe.MaxExtensions = or(a.MaxExtensions, -1)
		if n := op.AntiSnipe.MaxExtensions; n < 0 || n > auction.MaxExtensions {
			c.fail("anti_snipe's max_extensions must be an integer from 0 to %d", auction.MaxExtensions)
		}
	}
	op.Cooldown = c.auctionSpan("cooldown", or(q.Cooldown, "1s"), 0)
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

// auctionSpan reads a Go duration string from low to [auction.MaxDuration].
func (c *checks) auctionSpan(field, value string, low time.Duration) time.Duration {
	return c.span(field, value, `"30m" or "1.5s"`, low, auction.MaxDuration, time.Microsecond)
}

func (s *Server) auctionRoutes() []route {
	act := func(verb, summary string, op auction.Op) route {
		return actRoute("auctions", verb, "auction", summary, viewAuction, s.Auction.Execute, fixed(op))
	}
	return []route{
		commandRoute("/v1/auctions", accessStaff, http.StatusCreated, "Make an auction, pending", viewAuction,
			mutation[createAuctionRequest, auction.Op]{execute: s.Auction.Create, op: plain((*createAuctionRequest).op)}),
		listRoute("/v1/auctions", accessUser, "List auctions, oldest first", oldestFirst(), func(r *http.Request, after int64, limit int) ([]auction.Auction, error) {
			return s.Auction.Auctions(r.Context(), after, limit, seesDrafts(infoOf(r).principal))
		}, as[auctionSummaryView], numberOfAuction),
		readRoute("/v1/auctions/{id}", accessUser, "Read an auction", s.auctionOf, viewAuction),
		act("start", "Open the first round", auction.Start{}),
		act("cancel", "End an auction, with every hold released", auction.Cancel{}),
		hot(commandRoute("/v1/auctions/{id}/bids", accessUser, http.StatusCreated, "Bid, or raise the account's bid", viewBid, s.bids())),
		get("/v1/auctions/{id}/leaderboard", accessUser, leaderboardDoc(), s.getLeaderboard),
		listRoute("/v1/auctions/{id}/winners", accessUser, "List winners by round and rank", oldestFirst(), rowsWith(s.existingAuction, s.winners), as[auctionWinnerView], placeOfWinner),
		listRoute("/v1/auctions/{id}/bids", accessUser, "List accepted bids in order", oldestFirst(), rowsWith(s.existingAuction, s.Auction.Bids), as[placedBidView], seqOfBid),
		fresh(s.ofAccount(listRoute("/v1/accounts/{id}/bids", accessUser, "List an account's standing bids in auctions under way, oldest auction first", oldestFirst(),
			rowsWith(s.existingAccount, s.accountBids), as[accountBidView], numberOfBid))),
		readRoute("/v1/auctions/{id}/min-winning-bid", accessUser, "Read the least new bid that would now win", s.minWinningBid, same[minWinningBidView]),
	}
}

type bidRequest struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units, of the whole bid and not of the raise"`
}

// bids are how bids are made, over HTTP and over the live stream.
func (s *Server) bids() mutation[bidRequest, auction.Op] {
	return mutation[bidRequest, auction.Op]{
		what: "auction", executeOn: s.Auction.Execute, executeAll: s.Auction.ExecuteAll, answer: answered(http.StatusCreated, viewBid),
		accounts: func(q *bidRequest) []string { return []string{q.Account} },
		op: func(from sender, q *bidRequest) (auction.Op, error) {
			var c checks
			c.id("account", q.Account)
			c.amount("amount", q.Amount)
			return auction.PlaceBid{Account: q.Account, Amount: q.Amount, User: !seesDrafts(from.principal)}, c.err
		},
	}
}

// placeBid bids for a principal as a request to the route would. key is what a client would send as Idempotency-Key, and
// names the same request here as there: who repeats a bid over the other protocol gets the first one's answer. The
// answer's body is the document of the bid, or of the problem that it was refused with; an error becomes a problem by
// problemOf.
func (s *Server) placeBid(ctx context.Context, p auth.Principal, requestID, id string, q bidRequest, key string) (command.Answer, error) {
	parsed, err := idempotency.ParseKey(key)
	if err != nil {
		return command.Answer{}, err
	}
	bids := s.bids()
	return bids.run(ctx, sender{
		principal: p, requestID: requestID, method: http.MethodPost, path: "/v1/auctions/" + id + "/bids", id: id, key: parsed,
		acknowledge: s.Acknowledge, metrics: s.metrics,
	}, &q, nil)
}

// auctionOf reads the auction of the path.
func (s *Server) auctionOf(r *http.Request) (*auction.Auction, error) {
	id, err := pathID("auction")(r)
	if err != nil {
		return nil, err
	}
	return s.auctionFor(r.Context(), infoOf(r).principal, id)
}

// auctionFor reads an auction for somebody who may see it.
func (s *Server) auctionFor(ctx context.Context, p auth.Principal, id uuid.UUID) (*auction.Auction, error) {
	a, err := s.Auction.Auction(ctx, id)
	if err == nil && a.Draft() && !seesDrafts(p) {
		return nil, &auction.NotFoundError{ID: id}
	}
	return a, err
}

// existingAuction reads the id of an auction that there is, for somebody who may see it.
func (s *Server) existingAuction(r *http.Request) (id uuid.UUID, err error) {
	a, err := s.auctionOf(r)
	if err == nil {
		id = a.ID
	}
	return id, err
}

// auctionID is existingAuction for reads that find out themselves whether there is such an auction: staff may see all.
func (s *Server) auctionID(r *http.Request) (uuid.UUID, error) {
	if !seesDrafts(infoOf(r).principal) {
		return s.existingAuction(r)
	}
	return pathID("auction")(r)
}

func numberOfAuction(a auction.Auction) int64 { return a.Number }

func seqOfBid(b auction.Placed) int64 { return b.Seq }

// leaderboardDoc documents a list that has a member more.
func leaderboardDoc() operation {
	o := doc[none, leaderboardView]("List standing bids by rank: of the open round, or of the last one after the end")
	o.query = paged[rankView]("").query
	return o
}

// nearPlaces is how far down a leaderboard's page may begin and still cost no more than another list's: the places above it
// are counted.
const nearPlaces = 1000

func (s *Server) getLeaderboard(w http.ResponseWriter, r *http.Request) error {
	p, err := parsePage(r, r.URL.Path, maxLimit, oldestFirst())
	if err != nil {
		return err
	}
	id, err := s.auctionID(r)
	if err != nil {
		return err
	}
	leave := func() {}
	if p.after > nearPlaces {
		if leave, err = s.scans.enter(r.Context()); err != nil {
			return err
		}
	}
	places, round, err := s.Auction.Leaderboard(r.Context(), id, int(min(p.after, math.MaxInt32)), p.limit+1)
	leave()
	if err != nil {
		return err
	}
	l := newList(p, places, as[rankView], func(row auction.Ranked) int64 { return int64(row.Rank) })
	return writeView(w, leaderboardView{Items: l.Items, Round: round, Next: l.Next})
}

// rankBits is how much of a winner's place in the list is its rank, which is at most [auction.MaxWinners].
const rankBits = 16

func placeOfWinner(w auction.Winner) int64 { return int64(w.Round)<<rankBits | int64(w.Rank) }

func (s *Server) winners(ctx context.Context, id uuid.UUID, after int64, limit int) ([]auction.Winner, error) {
	round, rank := int(min(after>>rankBits, auction.MaxRounds+1)), int(after&(1<<rankBits-1))
	return s.Auction.Winners(ctx, id, round, rank, limit)
}

// accountBids takes its turn, because it goes over the standing bids of each auction.
func (s *Server) accountBids(ctx context.Context, account string, after int64, limit int) ([]auction.AccountBid, error) {
	return bounded(ctx, s.scans, func(ctx context.Context) ([]auction.AccountBid, error) {
		return s.Auction.AccountBids(ctx, account, after, limit)
	})
}

func numberOfBid(b auction.AccountBid) int64 { return b.Number }

func (s *Server) minWinningBid(r *http.Request) (v minWinningBidView, err error) {
	id, err := s.auctionID(r)
	if err != nil {
		return v, err
	}
	floor, err := s.Auction.Floor(r.Context(), id)
	v.Amount = floor.Least
	if floor.Free <= ledger.MaxAmount {
		v.FreeAmount = &floor.Free
	}
	return v, err
}

// duration is a time span as the contract spells it: a Go string.
type duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

type roundView struct {
	Round      int                 `json:"round" from:"Number" doc:"from 1"`
	Winners    int                 `json:"winners" doc:"places"`
	Duration   duration            `json:"duration" doc:"without extensions"`
	Status     auction.RoundStatus `json:"status" enum:"pending,active,completed"`
	StartedAt  *timestamp          `json:"started_at"`
	EndsAt     *timestamp          `json:"ends_at" doc:"moved by extensions"`
	Extensions int                 `json:"extensions"`
	Cancelled  bool                `json:"cancelled" from:"-" doc:"the auction was cancelled before the round was closed: it has no winners, whatever its status is"`
}

// viewRounds shows the rounds of an auction. A cancelled one ended in its current round, and those behind it never open.
func viewRounds(a *auction.Auction) []roundView {
	rounds := as[[]roundView](a.Rounds)
	for i := range rounds {
		rounds[i].Cancelled = a.Status == auction.StatusCancelled && rounds[i].Round >= a.CurrentRound
	}
	return rounds
}

type antiSnipeView struct {
	Window        duration `json:"window"`
	Extension     duration `json:"extension"`
	MaxExtensions int      `json:"max_extensions"`
}

type auctionView struct {
	ID            uuid.UUID      `json:"id"`
	Title         string         `json:"title"`
	Status        auction.Status `json:"status" enum:"pending,active,completed,cancelled"`
	Currency      string         `json:"currency"`
	Seller        string         `json:"seller"`
	CurrentRound  int            `json:"current_round" doc:"0 before the start"`
	Rounds        []roundView    `json:"rounds" from:"-"`
	MinBid        int64          `json:"min_bid" doc:"minor units"`
	MinIncrement  int64          `json:"min_increment" doc:"minor units"`
	AntiSnipe     antiSnipeView  `json:"anti_snipe" doc:"any zero: rounds are not extended"`
	Cooldown      duration       `json:"cooldown"`
	UniqueAmounts bool           `json:"unique_amounts"`
	TotalBids     int64          `json:"total_bids" doc:"accepted bids, raises too"`
	Seq           int64          `json:"seq" doc:"of the last event"`
	CreatedAt     timestamp      `json:"created_at"`
	StartedAt     *timestamp     `json:"started_at"`
	EndedAt       *timestamp     `json:"ended_at"`
}

func viewAuction(a *auction.Auction) auctionView {
	v := as[auctionView](a)
	v.Rounds = viewRounds(a)
	return v
}

// auctionSummaryView is an auction in a list.
type auctionSummaryView struct {
	ID           uuid.UUID      `json:"id"`
	Title        string         `json:"title"`
	Status       auction.Status `json:"status" enum:"pending,active,completed,cancelled"`
	Currency     string         `json:"currency"`
	Seller       string         `json:"seller"`
	CurrentRound int            `json:"current_round" doc:"0 before the start"`
	TotalBids    int64          `json:"total_bids"`
	CreatedAt    timestamp      `json:"created_at"`
}

type bidView struct {
	Auction        uuid.UUID `json:"auction"`
	Account        string    `json:"account"`
	Amount         int64     `json:"amount"`
	PreviousAmount int64     `json:"previous_amount" doc:"of the account's bid before, 0 at first"`
	Round          int       `json:"round"`
	RoundEndsAt    timestamp `json:"round_ends_at" doc:"after an extension that this bid caused"`
	Rank           int       `json:"rank" doc:"right after this bid"`
	Seq            int64     `json:"seq" doc:"of its event bid.placed"`
}

func viewBid(p auction.Placed) bidView {
	return bidView{
		Auction: p.Auction, Account: p.Account, Amount: p.Amount, PreviousAmount: p.PreviousAmount, Round: p.Round,
		RoundEndsAt: timestamp(p.RoundEndsAt), Rank: p.Rank, Seq: p.Seq,
	}
}

// placedBidView is a bid in the history.
type placedBidView struct {
	Account        string    `json:"account"`
	Amount         int64     `json:"amount"`
	PreviousAmount int64     `json:"previous_amount"`
	Round          int       `json:"round"`
	Seq            int64     `json:"seq"`
	At             timestamp `json:"at"`
}

// accountBidView is a standing bid of an account.
type accountBidView struct {
	Auction     uuid.UUID `json:"auction"`
	Round       int       `json:"round" doc:"the open one"`
	Amount      int64     `json:"amount"`
	Rank        int       `json:"rank" doc:"at the time of reading"`
	Winning     bool      `json:"winning" doc:"whether the bid would win if the round ended now"`
	RoundEndsAt timestamp `json:"round_ends_at"`
}

type auctionWinnerView struct {
	Round   int    `json:"round"`
	Rank    int    `json:"rank"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

type rankView struct {
	Rank    int    `json:"rank" doc:"from 1"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
	Winning bool   `json:"winning" doc:"whether the bid would win if the round ended now, or has won"`
}

type leaderboardView struct {
	Items []rankView `json:"items"`
	Round int        `json:"round" doc:"0 before the start"`
	Next  *string    `json:"next" doc:"cursor of the next page, null on the last"`
}

type minWinningBidView struct {
	Amount     int64  `json:"amount" doc:"minor units"`
	FreeAmount *int64 `json:"free_amount" doc:"the least amount from there on that no standing bid has, with unique_amounts: what to bid now; else the same. null: there is none"`
}
