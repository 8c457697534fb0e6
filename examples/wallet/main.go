// Wallet moves money for an order, and may be killed at any moment and started again without moving it twice.
//
// An order is paid in steps: a deposit, a hold, its capture, a transfer. A program that notes after each step
// how far it has come can die between the step and the note. This one notes nothing. It names the order once, in a
// file, before anything is sent; each step's idempotency key is made of that name; and after a crash the program simply
// does everything from the start. The server executes a key once and repeats its answer: what was done is not done
// again, and what was not done is.
//
//	fairlead serve &
//	export FAIRLEAD_KEY=$(cat fairlead-data/admin.key)
//	go run ./examples/wallet -crash-at 3     # dies after step 3 was sent, before its answer is looked at
//	go run ./examples/wallet                 # the same order, to its end
//	go run ./examples/wallet                 # and once more: all steps are replays
//
// FAIRLEAD_URL says where the server is, http://127.0.0.1:8080 by default. The name is kept in wallet.order of the working
// directory, or where -order says; remove the file to begin another order.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
)

// crashed is the exit status of a run that was told to crash.
const crashed = 3

func main() {
	file := flag.String("order", "wallet.order", "file that keeps the order's name")
	crashAt := flag.Int("crash-at", 0, "die after this step was sent; 0: don't")
	flag.Parse()
	c, err := client.New(cmp.Or(os.Getenv("FAIRLEAD_URL"), "http://127.0.0.1:8080"), os.Getenv("FAIRLEAD_KEY"))
	check(err)
	pay(context.Background(), c, &order{name: orderName(*file), crashAt: *crashAt})
}

// orderName reads the order's name, or makes one and keeps it. It is on disk, whole, before the first request is sent.
func orderName(file string) string {
	name, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(name))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		check(err)
	}
	fresh := uuid.NewString()
	f, err := os.Create(file + ".tmp")
	check(err)
	_, err = f.WriteString(fresh + "\n")
	check(errors.Join(err, f.Sync(), f.Close()))
	check(os.Rename(file+".tmp", file))
	return fresh
}

// order is one order and how far this run has come with it.
type order struct {
	name    string
	step    int
	crashAt int
}

// pay does all steps, in order, as if for the first time, and prints where the money is then.
func pay(ctx context.Context, c *client.Client, o *order) {
	buyer, shop, carrier := "buyer-"+o.name, "shop-"+o.name, "carrier-"+o.name
	for _, id := range []string{buyer, shop, carrier} {
		do(o, "open "+kind(id), func(opts ...client.CallOption) (*client.Account, error) {
			return c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: "EUR"}, opts...)
		})
	}
	do(o, "deposit 50.00", func(opts ...client.CallOption) (*client.Movement, error) {
		return c.Deposit(ctx, client.MovementRequest{Account: buyer, Amount: 5_000, Memo: "by card"}, opts...)
	})
	// The price is set aside when the order comes in, and taken when the parcel leaves.
	hold := do(o, "hold 30.00", func(opts ...client.CallOption) (*client.Hold, error) {
		return c.Hold(ctx, client.HoldRequest{Account: buyer, Amount: 3_000}, opts...)
	})
	// One of two pieces was in stock: 20.00 is captured, and the rest of the hold is free again.
	do(o, "capture 20.00", func(opts ...client.CallOption) (*client.Hold, error) {
		return c.CaptureHold(ctx, hold.ID, client.CaptureRequest{To: shop, Amount: new(int64(2_000))}, opts...)
	})
	do(o, "postage 4.50", func(opts ...client.CallOption) (*client.Transfer, error) {
		return c.Transfer(ctx, client.TransferRequest{From: shop, To: carrier, Amount: 450, Memo: "parcel"}, opts...)
	})
	for _, id := range []string{buyer, shop, carrier} {
		a, err := c.GetAccount(ctx, id)
		check(err)
		fmt.Printf("%s: %d.%02d available, %d.%02d held\n", kind(id), a.Available/100, a.Available%100, a.Held/100, a.Held%100)
	}
}

// do does one step under its own key, and says whether it was done before.
func do[T any](o *order, what string, call func(...client.CallOption) (T, error)) T {
	o.step++
	var answer client.Answer
	result, err := call(client.Key(fmt.Sprintf("%s.%d", o.name, o.step)), client.Into(&answer))
	if o.step == o.crashAt {
		os.Exit(crashed) // The step was sent and done; its answer is lost, as it would be in any crash.
	}
	check(err)
	note := ""
	if answer.Replayed {
		note = " (was done before)"
	}
	fmt.Printf("%d. %s%s\n", o.step, what, note)
	return result
}

// kind is what an account's id begins with.
func kind(id string) string { return id[:strings.IndexByte(id, '-')] }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
