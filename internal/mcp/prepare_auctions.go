package mcp

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/client"
)

type roundInput struct {
	Winners  int64  `json:"winners" jsonschema:"how many bids win the round"`
	Duration string `json:"duration" jsonschema:"how long it is open, such as 30m"`
}

type antiSnipeInput struct {
	Window        string `json:"window" jsonschema:"a bid this close to the end extends the round, such as 30s"`
	Extension     string `json:"extension" jsonschema:"by how much, such as 30s"`
	MaxExtensions int64  `json:"max_extensions" jsonschema:"how often at most"`
}

type auctionInput struct {
	Title         string         `json:"title" jsonschema:"shown to bidders"`
	Currency      string         `json:"currency" jsonschema:"such as EUR"`
	Seller        id             `json:"seller" jsonschema:"the account that winners pay; it must have the currency"`
	Rounds        []roundInput   `json:"rounds" jsonschema:"one after the other; losers are carried over to the next"`
	MinBid        amount         `json:"min_bid,omitzero" jsonschema:"least bid in minor units; 1 when absent"`
	MinIncrement  amount         `json:"min_increment,omitzero" jsonschema:"least raise of an account's own bid; 1 when absent"`
	AntiSnipe     antiSnipeInput `json:"anti_snipe,omitzero" jsonschema:"when late bids extend a round; not at all when absent"`
	Cooldown      string         `json:"cooldown,omitzero" jsonschema:"least time between two bids of an account, 0s for none; 1s when absent"`
	UniqueAmounts *bool          `json:"unique_amounts,omitzero" jsonschema:"whether no two standing bids may have one amount; true when absent"`
}

type auctionStepInput struct {
	Auction id          `json:"auction" jsonschema:"the auction's id"`
	Step    auctionStep `json:"step" jsonschema:"start: open the first round. cancel: end it, and free the money of all bids. Rounds close by themselves"`
}

type bidInput struct {
	Auction id     `json:"auction" jsonschema:"the auction's id"`
	Account id     `json:"account" jsonschema:"the account that bids"`
	Amount  amount `json:"amount" jsonschema:"the whole bid in minor units, not the raise"`
}

// addAuctions adds the tools that prepare what happens in auctions.
func (s *service) addAuctions(b *builder) {
	addPrepare(s, b, "auction", "Prepare a new auction", "Prepares making an auction, which is not open until it is started.", describeAuction)
	addPrepare(s, b, "auction_step", "Prepare an auction's next step", "Prepares starting or cancelling an auction.", describeAuctionStep)
	addPrepare(s, b, "bid", "Prepare a bid", "Prepares a bid, or a raise of the account's bid, in an auction whose round is open. The whole amount is held until the bid has lost.", describeBid)
}

func describeAuction(ctx context.Context, p *plan, in auctionInput) error {
	q := client.CreateAuctionRequest{
		Title: in.Title, Currency: in.Currency, Seller: string(in.Seller), MinBid: int64(in.MinBid), MinIncrement: int64(in.MinIncrement),
		Cooldown: in.Cooldown, UniqueAmounts: in.UniqueAmounts, Rounds: []client.RoundRequest{},
		AntiSnipe: client.AntiSnipeRequest{Window: in.AntiSnipe.Window, Extension: in.AntiSnipe.Extension, MaxExtensions: in.AntiSnipe.MaxExtensions},
	}
	for _, r := range in.Rounds {
		q.Rounds = append(q.Rounds, client.RoundRequest{Winners: r.Winners, Duration: r.Duration})
	}
	if err := p.receiver(ctx, in.Seller, in.Currency); err != nil {
		return err
	}
	p.summary = fmt.Sprintf("Make an auction titled %q of %d rounds in %s, whose winners pay %s. It is not open until it is started.", in.Title, len(in.Rounds), in.Currency, in.Seller)
	p.path, p.body = "/v1/auctions", q
	return nil
}

func describeAuctionStep(ctx context.Context, p *plan, in auctionStepInput) error {
	a, err := p.s.client.GetAuction(ctx, string(in.Auction))
	if err != nil {
		return err
	}
	is := string(a.Status)
	switch in.Step {
	case "start":
		p.summary = fmt.Sprintf("Start auction %q (%s): the first of %d rounds opens.", a.Title, a.ID, len(a.Rounds))
		p.needs("bad_transition", "the auction", is, string(client.AuctionStatusPending))
	default: // cancel
		p.summary = fmt.Sprintf("Cancel auction %q (%s) for good, and free the money of all standing bids.", a.Title, a.ID)
		p.needs("bad_transition", "the auction", is, string(client.AuctionStatusPending), string(client.AuctionStatusActive))
		p.note("It can't be undone. What winners of closed rounds have paid stays paid. There were %d bids so far.", a.TotalBids)
	}
	p.path = at("/v1/auctions/%s/"+string(in.Step), in.Auction)
	p.may("bad_transition", "its status changes before")
	return nil
}

func describeBid(ctx context.Context, p *plan, in bidInput) error {
	a, err := p.s.client.GetAuction(ctx, string(in.Auction))
	if err != nil {
		return err
	}
	bidder, err := p.account(ctx, string(in.Account))
	if err != nil {
		return err
	}
	var own int64 // of the standing bid
	for bid, err := range p.s.client.AccountBids(ctx, string(in.Account)) {
		switch {
		case client.CodeOf(err) == "not_found":
			continue // Noted already.
		case err != nil:
			return err
		}
		if bid.Auction == a.ID {
			own = bid.Amount
		}
	}
	total := int64(in.Amount)
	if a.Status != client.AuctionStatusActive {
		p.refuse("not_active", "the auction is %s: no round is open", a.Status)
	}
	switch {
	case in.Account == id(a.Seller):
		p.refuse("own_auction", "%s is the seller", in.Account)
	case total < a.MinBid:
		p.refuse("bid_too_low", "the least bid is %d", a.MinBid)
	case own > 0 && total < own+a.MinIncrement:
		p.refuse("bid_too_low", "the account's bid is %d, and the least raise %d", own, a.MinIncrement)
	}
	if bidder.Currency != "" && bidder.Currency != a.Currency {
		p.refuse("currency_mismatch", "%s has %s, and the auction is in %s", in.Account, bidder.Currency, a.Currency)
	}
	p.spend(bidder, total-own)
	bidder.HeldChange += total - own
	p.summary = fmt.Sprintf("%s bids %s in auction %q (%s). The money is held, and paid to %s if the bid wins.", in.Account, money(total, a.Currency), a.Title, a.ID, a.Seller)
	if own > 0 {
		p.summary = fmt.Sprintf("%s raises its bid in auction %q (%s) from %d to %s. The difference is held, and all is paid to %s if the bid wins.", in.Account, a.Title, a.ID, own, money(total, a.Currency), a.Seller)
	}
	if err := p.chances(ctx, a, total); err != nil {
		return err
	}
	p.path, p.body = at("/v1/auctions/%s/bids", in.Auction), client.BidRequest{Account: string(in.Account), Amount: total}
	p.may("not_active", "the round ends before", "bid_too_low", "the account's bid is raised before", "amount_taken", "another bid has this very amount", "cooldown", "the account has just bid", "insufficient_funds", fundsDetail)
	return nil
}

// chances notes whether a bid would win now, and until when the round is open.
func (p *plan) chances(ctx context.Context, a *client.Auction, total int64) error {
	if a.Status != client.AuctionStatusActive {
		return nil
	}
	least, err := p.s.client.MinWinningBid(ctx, a.ID)
	switch {
	case client.CodeOf(err) == "not_active":
		return nil
	case err != nil:
		return err
	}
	would := "would"
	if total < least {
		would = "would not"
	}
	p.note("A new bid needs %d to win now, so this one %s.", least, would)
	for _, r := range a.Rounds {
		if r.Round == a.CurrentRound {
			p.note("Round %d of %d has %d winners and ends at %s.", r.Round, len(a.Rounds), r.Winners, r.EndsAt.Format(timeFormat))
		}
	}
	return nil
}
