//go:build unix

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
)

// The kinds of commands on auctions. They are not of type [Kind] by themselves, because the books of [History.Check] do
// not keep auctions: package replay does.
const (
	KindAuction       = "auction"
	KindAuctionStart  = "start auction"
	KindAuctionCancel = "cancel auction"
	KindBid           = "bid"
)

// AuctionSpec says how an auction is created. All of it is sent, so that nothing depends on defaults.
type AuctionSpec struct {
	Title string
	Rules replay.Rules
}

type auctionBody struct {
	Title         string        `json:"title"`
	Currency      string        `json:"currency"`
	Seller        string        `json:"seller"`
	Rounds        []roundBody   `json:"rounds"`
	MinBid        int64         `json:"min_bid"`
	MinIncrement  int64         `json:"min_increment"`
	AntiSnipe     antiSnipeBody `json:"anti_snipe"`
	Cooldown      string        `json:"cooldown"`
	UniqueAmounts bool          `json:"unique_amounts"`
}

type roundBody struct {
	Winners  int    `json:"winners"`
	Duration string `json:"duration"`
}

type antiSnipeBody struct {
	Window        string `json:"window"`
	Extension     string `json:"extension"`
	MaxExtensions int    `json:"max_extensions"`
}

type bidBody struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

// BidAnswer is the answer to an accepted bid.
type BidAnswer struct {
	Auction        string    `json:"auction"`
	Account        string    `json:"account"`
	Amount         int64     `json:"amount"`
	PreviousAmount int64     `json:"previous_amount"`
	Round          int       `json:"round"`
	RoundEndsAt    time.Time `json:"round_ends_at"`
	Rank           int       `json:"rank"`
	Seq            int64     `json:"seq"`
}

// NewAuction makes the command that creates an auction in SIM.
func NewAuction(key string, spec AuctionSpec) *Op {
	r := spec.Rules
	body := auctionBody{
		Title: spec.Title, Currency: "SIM", Seller: r.Seller, MinBid: max(r.MinBid, 1), MinIncrement: max(r.MinIncrement, 1),
		AntiSnipe: antiSnipeBody{r.Window.String(), r.Extension.String(), r.MaxExtensions},
		Cooldown:  r.Cooldown.String(), UniqueAmounts: r.UniqueAmounts,
	}
	for _, round := range r.Rounds {
		body.Rounds = append(body.Rounds, roundBody{round.Winners, round.Duration.String()})
	}
	return NewOp(KindAuction, "/v1/auctions", key, body)
}

// NewAuctionStart makes the command that opens the first round.
func NewAuctionStart(key, auction string) *Op {
	return NewOp(KindAuctionStart, "/v1/auctions/"+auction+"/start", key, nil)
}

// NewAuctionCancel makes the command that cancels an auction.
func NewAuctionCancel(key, auction string) *Op {
	return NewOp(KindAuctionCancel, "/v1/auctions/"+auction+"/cancel", key, nil)
}

// NewBid makes the command that bids, or raises a bid.
func NewBid(key, auction, account string, amount int64) *Op {
	return NewOp(KindBid, "/v1/auctions/"+auction+"/bids", key, bidBody{account, amount})
}

// Topic is the name of an auction in the live stream.
func Topic(auction string) string { return "auction:" + auction }

// CreateAuction creates an auction without starting it, under a key made of name, and returns its id.
func CreateAuction(ctx context.Context, c *Client, name string, spec AuctionSpec) (string, error) {
	answer, err := c.expect(ctx, NewAuction(name+"-create", spec), http.StatusCreated)
	if err != nil {
		return "", err
	}
	made, err := replay.ParseAuction(answer.Body)
	return made.ID, err
}

// StartAuction opens the first round, under a key made of name.
func StartAuction(ctx context.Context, c *Client, name, auction string) error {
	_, err := c.expect(ctx, NewAuctionStart(name+"-start", auction), http.StatusOK)
	return err
}

// CancelAuction cancels an auction, under a key made of name.
func CancelAuction(ctx context.Context, c *Client, name, auction string) error {
	_, err := c.expect(ctx, NewAuctionCancel(name+"-cancel", auction), http.StatusOK)
	return err
}

// CompareAuction compares all that the interface says of an auction with what its events come to: the auction, the whole
// leaderboard, the winners, the history of bids, and what the accounts have. Nothing may change meanwhile.
func CompareAuction(ctx context.Context, c *Client, auction string, out *replay.Outcome) error {
	for _, compare := range []func(context.Context, string, *replay.Outcome) error{
		c.compareState, c.compareLeaderboard, c.compareWinners, c.compareFloor, c.compareBids, c.compareBalances,
	} {
		if err := compare(ctx, "/v1/auctions/"+auction, out); err != nil {
			return fmt.Errorf("auction %s: %w", auction, err)
		}
	}
	return nil
}

func (c *Client) compareState(ctx context.Context, path string, out *replay.Outcome) error {
	body, err := c.read(ctx, path)
	if err != nil {
		return err
	}
	shown, err := replay.ParseAuction(body)
	if err != nil {
		return err
	}
	return out.CompareAuction(shown)
}

func (c *Client) compareLeaderboard(ctx context.Context, path string, out *replay.Outcome) error {
	var places []replay.Place
	var round int
	if err := c.pages(ctx, path+"/leaderboard", func(body []byte) (string, error) {
		l, err := replay.ParseLeaderboard(body)
		places, round = append(places, l.Places...), l.Round
		return l.Next, err
	}); err != nil {
		return err
	}
	return out.CompareLeaderboard(round, places)
}

func (c *Client) compareWinners(ctx context.Context, path string, out *replay.Outcome) error {
	wins, err := readAll(ctx, c, path+"/winners", replay.ParseWinners)
	if err != nil {
		return err
	}
	return out.CompareWinners(wins)
}

func (c *Client) compareFloor(ctx context.Context, path string, out *replay.Outcome) error {
	if out.Status != "active" {
		return nil
	}
	var floor struct {
		Amount int64 `json:"amount"`
	}
	if err := c.GetJSON(ctx, path+"/min-winning-bid", &floor); err != nil {
		return err
	}
	return out.CompareFloor(floor.Amount)
}

func (c *Client) compareBids(ctx context.Context, path string, out *replay.Outcome) error {
	bids, err := readAll(ctx, c, path+"/bids", replay.ParseBids)
	if err != nil {
		return err
	}
	return out.CompareBids(bids)
}

func (c *Client) compareBalances(ctx context.Context, _ string, out *replay.Outcome) error {
	balances := map[string]replay.Balance{}
	for account := range out.Accounts {
		body, err := c.read(ctx, "/v1/accounts/"+account)
		if err != nil {
			return err
		}
		name, balance, err := replay.ParseBalance(body)
		if err != nil {
			return err
		}
		balances[name] = balance
	}
	return out.CompareAccounts(balances)
}

// readAll reads a list to its end; parse returns a page's items and the cursor of the next page.
func readAll[T any](ctx context.Context, c *Client, path string, parse func([]byte) ([]T, string, error)) (all []T, err error) {
	err = c.pages(ctx, path, func(body []byte) (string, error) {
		page, next, err := parse(body)
		all = append(all, page...)
		return next, err
	})
	return all, err
}

// read reads a path until it is answered with 200.
func (c *Client) read(ctx context.Context, path string) ([]byte, error) {
	var body json.RawMessage
	err := c.GetJSON(ctx, path, &body)
	return body, err
}

// pages reads a list to its end; take reads one page and tells the cursor of the next.
func (c *Client) pages(ctx context.Context, path string, take func(body []byte) (next string, err error)) error {
	for query := "?limit=200"; ; {
		body, err := c.read(ctx, path+query)
		if err != nil {
			return err
		}
		next, err := take(body)
		if err != nil || next == "" {
			return err
		}
		query = "?limit=200&after=" + url.QueryEscape(next)
	}
}
