package client_test

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw"
)

// newClient calls the server of these tests; a program gives its own server's address and key.
func newClient() *client.Client {
	c, err := client.New(shared.URL, shared.Key)
	check(err)
	return c
}

// check stands for what a program does about an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// openAccount is content with an account that is there already.
func openAccount(ctx context.Context, c *client.Client, id string) {
	_, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: "EUR"})
	if client.CodeOf(err) != "account_exists" {
		check(err)
	}
}

func Example() {
	ctx := context.Background()
	c := newClient() // client.New("http://127.0.0.1:8080", os.Getenv("FAIRLEAD_KEY"))

	openAccount(ctx, c, "theatre")
	openAccount(ctx, c, "ann")
	_, err := c.Deposit(ctx, client.MovementRequest{Account: "ann", Amount: 5_000})
	check(err)

	// Three positions: one in the first layer, two in the second.
	campaign, err := c.CreateCampaign(ctx, client.CreateCampaignRequest{
		Name: "Premiere", BaseLength: 2, Price: 1_500, Currency: "EUR", Beneficiary: "theatre",
		Prizes: []client.PrizeRequest{{Name: "box seat", Quantity: 1}},
	})
	check(err)
	_, err = c.PublishCampaign(ctx, campaign.ID)
	check(err)
	for range 3 {
		_, err = c.Buy(ctx, campaign.ID, client.PurchaseRequest{Account: "ann"})
		check(err)
	}
	_, err = c.Buy(ctx, campaign.ID, client.PurchaseRequest{Account: "ann"})
	fmt.Println("the fourth:", client.CodeOf(err))

	// The last sale drew. The proof is checked here, not there, against the commitment from before the first sale.
	document, err := c.Proof(ctx, campaign.ID)
	check(err)
	proof, err := fairdraw.ParseProof(document)
	check(err)
	fmt.Println("proof:", proof.Verify(), proof.VerifyCommitment(campaign.Commitment))
	for _, w := range proof.Winners {
		fmt.Println(w.Prize, "goes to", w.Position.Account)
	}
	// Output:
	// the fourth: sold_out
	// proof: <nil> <nil>
	// box seat goes to ann
}

// A key of the program's own survives the program: whatever happened to the first call, the second has no effect of its
// own.
func ExampleKey() {
	ctx := context.Background()
	c := newClient()
	openAccount(ctx, c, "bob")

	invoice := uuid.NewString() // made with the invoice, and stored with it
	for range 2 {
		var answer client.Answer
		_, err := c.Deposit(ctx, client.MovementRequest{Account: "bob", Amount: 700}, client.Key(invoice), client.Into(&answer))
		check(err)
		fmt.Println(answer.Status, "replayed:", answer.Replayed)
	}
	// Output:
	// 201 replayed: false
	// 201 replayed: true
}
