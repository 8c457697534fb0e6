// Embedded sells the tickets of a small venue with a Fairlead server inside the program: nothing else runs, and nothing
// listens. The program opens the server, calls it by the Go client as it would call one on another machine, and closes it.
//
//	go run ./examples/embedded
//
// DATABASE_URL names the PostgreSQL to use. Without it the server has a private one in embedded-data of the working
// directory, or where -data says; PostgreSQL's server programs must be installed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
)

func main() {
	data := flag.String("data", "embedded-data", "directory of the private PostgreSQL and the keys")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server, err := fairlead.Open(ctx, fairlead.Options{DatabaseURL: os.Getenv("DATABASE_URL"), Data: *data})
	check(err)
	defer func() { check(server.Close(ctx)) }()
	sell(ctx, server.Client())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// sell lets twelve visitors want ten seats at once.
func sell(ctx context.Context, c *client.Client) {
	night := uuid.NewString()[:8] // Every run sells another night.
	venue := "venue-" + night
	_, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: venue, Currency: "EUR"})
	check(err)
	campaign, err := c.CreateCampaign(ctx, client.CreateCampaignRequest{
		Name: "Tonight", BaseLength: 4, Price: 1_500, Currency: "EUR", Beneficiary: venue,
		Prizes: []client.PrizeRequest{{Name: "a drink", Quantity: 1}},
	})
	check(err)
	_, err = c.PublishCampaign(ctx, campaign.ID)
	check(err)
	const crowd = 12
	var seats atomic.Int64
	visitors, asking := errgroup.WithContext(ctx)
	for i := range crowd {
		visitors.Go(func() error {
			visitor := fmt.Sprintf("visitor-%s-%d", night, i)
			if _, err := c.CreateAccount(asking, client.CreateAccountRequest{ID: visitor, Currency: "EUR"}); err != nil {
				return err
			}
			if _, err := c.Deposit(asking, client.MovementRequest{Account: visitor, Amount: 2_000}); err != nil {
				return err
			}
			_, err := c.Buy(asking, campaign.ID, client.PurchaseRequest{Account: visitor})
			if client.CodeOf(err) == "sold_out" {
				return nil
			}
			if err == nil {
				seats.Add(1)
			}
			return err
		})
	}
	check(visitors.Wait())
	draw, err := c.GetDraw(ctx, campaign.ID)
	check(err)
	books, err := c.Integrity(ctx)
	check(err)
	fmt.Printf("%d visitors, %d seats sold, %d winner; the books balance: %t\n", crowd, seats.Load(), len(draw.Winners), books.Valid)
}
