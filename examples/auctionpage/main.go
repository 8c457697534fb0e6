// Auctionpage is the web site of an auction: a page that shows the bids as they are placed, and takes bids itself.
//
// The API key stays in this program. Browsers talk to it alone: the auction's events, which Fairlead serves as
// server-sent events, are passed through to the page, whose script makes the leaderboard of them. They are numbered
// without a gap, so that a browser whose connection broke goes on where it was. Some bots keep the page alive.
//
//	fairlead serve &
//	export FAIRLEAD_KEY=$(cat fairlead-data/admin.key)
//	go run ./examples/auctionpage            # and open the address that it prints
//
// FAIRLEAD_URL says where the server is, http://127.0.0.1:8080 by default.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
)

// pocketMoney is what every bidder of this example is given once: 10,000.00 EUR.
const pocketMoney = 1_000_000

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "address of the page")
	round := flag.Duration("round", time.Minute, "length of each of the two rounds")
	bots := flag.Int("bots", 3, "bidders that are programs")
	flag.Parse()
	fairlead, key := cmp.Or(os.Getenv("FAIRLEAD_URL"), "http://127.0.0.1:8080"), os.Getenv("FAIRLEAD_KEY")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := client.New(fairlead, key)
	check(err)
	auction := startAuction(ctx, c, *round)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	check(err)
	server := &http.Server{Handler: newSite(c, fairlead, key, auction), ReadHeaderTimeout: 5 * time.Second}
	fmt.Printf("The auction is on at http://%s/ (Ctrl-C ends this program)\n", listener.Addr())
	runBots(ctx, c, auction, *bots)
	// Close and not Shutdown: event streams have no end of their own.
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		check(err)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// startAuction makes an auction of two rounds, two winners and then one, and starts it.
func startAuction(ctx context.Context, c *client.Client, round time.Duration) (id string) {
	check(openAccount(ctx, c, "gallery", 0))
	auction, err := c.CreateAuction(ctx, client.CreateAuctionRequest{
		Title: "A lamp", Currency: "EUR", Seller: "gallery", MinBid: 1_000,
		Rounds: []client.RoundRequest{{Winners: 2, Duration: round.String()}, {Winners: 1, Duration: round.String()}},
		// A bid in the last five seconds adds ten, so that nobody wins by the quicker line.
		AntiSnipe: client.AntiSnipeRequest{Window: "5s", Extension: "10s", MaxExtensions: 6},
	})
	check(err)
	_, err = c.StartAuction(ctx, auction.ID)
	check(err)
	return auction.ID
}

// openAccount opens an account and gives it money, once: the deposit's key is made of the account's name.
func openAccount(ctx context.Context, c *client.Client, id string, amount int64) error {
	_, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: "EUR"})
	if err != nil && client.CodeOf(err) != "account_exists" {
		return err
	}
	if amount == 0 {
		return nil
	}
	_, err = c.Deposit(ctx, client.MovementRequest{Account: id, Amount: amount}, client.Key("pocket-money."+id))
	return err
}

// placeBid bids in the name of a bidder, who may be new here. key is the bid's idempotency key.
func placeBid(ctx context.Context, c *client.Client, auction, bidder string, amount int64, key string) (*client.Bid, error) {
	account := "bidder." + bidder
	if err := openAccount(ctx, c, account, pocketMoney); err != nil {
		return nil, err
	}
	// The whole amount is held while the bid stands, and free again if it loses.
	return c.Bid(ctx, auction, client.BidRequest{Account: account, Amount: amount}, client.Key(cmp.Or(key, uuid.NewString())))
}

// runBots lets n programs bid against each other, a little more than what would win now, every few seconds.
func runBots(ctx context.Context, c *client.Client, auction string, n int) {
	for i := range n {
		go func() {
			for {
				least, err := c.MinWinningBid(ctx, auction)
				if client.CodeOf(err) == "not_active" {
					return // It is over.
				}
				if err == nil {
					_, err = placeBid(ctx, c, auction, fmt.Sprintf("bot-%d", i+1), least+rand.Int64N(500), "") //nolint:gosec // Nothing depends on a bot's taste.
				}
				// To be outbid, too late or out of money is a bidder's life; that the server is away is not.
				if err != nil && client.CodeOf(err) == "" {
					return
				}
				time.Sleep(time.Second + rand.N(2*time.Second)) //nolint:gosec // As above.
			}
		}()
	}
}
