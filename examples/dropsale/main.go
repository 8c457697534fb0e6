// Dropsale sells a small edition to a crowd that comes all at once, and proves who won.
//
// Forty buyers race for the ten positions of a campaign. Ten get one, thirty are told that it is sold out, and nobody
// pays for nothing: a purchase moves the money and takes the position in one transaction. The last sale draws the
// winner. The program then checks the draw by itself, against the commitment that was published before the first sale.
//
//	fairlead serve &
//	export FAIRLEAD_KEY=$(cat fairlead-data/admin.key)
//	go run ./examples/dropsale
//
// FAIRLEAD_URL says where the server is, http://127.0.0.1:8080 by default. The program may be run again: what it makes
// anew is the campaign, and its accounts are opened once.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw"
)

const (
	buyers   = 40
	price    = 2_500 // 25.00 EUR
	currency = "EUR"
)

func main() {
	ctx := context.Background()
	c, err := client.New(cmp.Or(os.Getenv("FAIRLEAD_URL"), "http://127.0.0.1:8080"), os.Getenv("FAIRLEAD_KEY"))
	check(err)
	openAccount(ctx, c, "atelier")
	for i := range buyers {
		openAccount(ctx, c, buyer(i))
		_, err := c.Deposit(ctx, client.MovementRequest{Account: buyer(i), Amount: price, Memo: "for the drop"})
		check(err)
	}

	// A triangle of base length 4: 4 + 3 + 2 + 1 positions.
	campaign, err := c.CreateCampaign(ctx, client.CreateCampaignRequest{
		Name: "Ten prints", BaseLength: 4, Price: price, Currency: currency, Beneficiary: "atelier",
		Prizes:        []client.PrizeRequest{{Name: "the original", Quantity: 1}},
		PurchaseLimit: 1,
	})
	check(err)
	// Whoever writes this down now needs to trust nobody later.
	commitment := campaign.Commitment
	_, err = c.PublishCampaign(ctx, campaign.ID)
	check(err)
	race(ctx, c, campaign.ID)

	// The draw is recomputed here, from the proof document alone: the winners follow from the seed and the sold positions,
	// and the seed is the one of the commitment.
	document, err := c.Proof(ctx, campaign.ID)
	check(err)
	proof, err := fairdraw.ParseProof(document)
	check(err)
	check(errors.Join(proof.Verify(), proof.VerifyCommitment(commitment)))
	for _, w := range proof.Winners {
		fmt.Printf("%s goes to %s, layer %d, number %d: verified\n", w.Prize, w.Position.Account, w.Position.Layer, w.Position.Number)
	}
}

// race has all buyers buy at once, and counts who got a position and who found none left.
func race(ctx context.Context, c *client.Client, campaign string) {
	var sold, missed atomic.Int64
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range buyers {
		group.Go(func() {
			<-start
			// The client brings an idempotency key and asks again when no answer comes: still one purchase.
			_, err := c.Buy(ctx, campaign, client.PurchaseRequest{Account: buyer(i)})
			if client.CodeOf(err) == "sold_out" {
				missed.Add(1)
				return
			}
			check(err)
			sold.Add(1)
		})
	}
	close(start)
	group.Wait()
	fmt.Printf("%d buyers: %d bought, %d came too late\n", buyers, sold.Load(), missed.Load())
}

// openAccount is content with an account that is there already.
func openAccount(ctx context.Context, c *client.Client, id string) {
	_, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: currency})
	if client.CodeOf(err) != "account_exists" {
		check(err)
	}
}

func buyer(i int) string { return fmt.Sprintf("buyer-%02d", i+1) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
