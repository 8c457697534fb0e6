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
	"os/signal"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *file, *crashAt); err != nil {
		fmt.Fprintln(os.Stderr, "wallet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, crashAt int) error {
	c, err := client.New(cmp.Or(os.Getenv("FAIRLEAD_URL"), "http://127.0.0.1:8080"), os.Getenv("FAIRLEAD_KEY"))
	if err != nil {
		return err
	}
	name, err := orderName(file)
	if err != nil {
		return err
	}
	o := &order{client: c, name: name, crashAt: crashAt}
	o.pay(ctx)
	return o.err
}

// orderName reads the order's name, or makes one and keeps it. It must be on disk before the first request is sent.
func orderName(file string) (string, error) {
	name, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(name)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	fresh := uuid.NewString()
	return fresh, writeDurably(file, fresh+"\n")
}

// writeDurably writes a file whole or not at all.
func writeDurably(file, text string) error {
	f, err := os.Create(file + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// order is one order and how far this run has come with it.
type order struct {
	client  *client.Client
	name    string
	step    int
	crashAt int
	err     error // of the first step that failed: no further one is done
}

// pay does all steps, in order, as if for the first time.
func (o *order) pay(ctx context.Context) {
	c := o.client
	buyer, shop, carrier := "buyer-"+o.name, "shop-"+o.name, "carrier-"+o.name
	for _, id := range []string{buyer, shop, carrier} {
		o.do("open "+id[:strings.IndexByte(id, '-')], func(opts ...client.CallOption) error {
			_, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: "EUR"}, opts...)
			return err
		})
	}
	o.do("deposit 50.00", func(opts ...client.CallOption) error {
		_, err := c.Deposit(ctx, client.MovementRequest{Account: buyer, Amount: 5_000, Memo: "by card"}, opts...)
		return err
	})
	// The price is set aside when the order comes in, and taken when the parcel leaves.
	var hold *client.Hold
	o.do("hold 30.00", func(opts ...client.CallOption) (err error) {
		hold, err = c.Hold(ctx, client.HoldRequest{Account: buyer, Amount: 3_000}, opts...)
		return err
	})
	// One of two pieces was in stock: 20.00 is captured, and the rest of the hold is free again.
	o.do("capture 20.00", func(opts ...client.CallOption) error {
		_, err := c.CaptureHold(ctx, hold.ID, client.CaptureRequest{To: shop, Amount: new(int64(2_000))}, opts...)
		return err
	})
	o.do("postage 4.50", func(opts ...client.CallOption) error {
		_, err := c.Transfer(ctx, client.TransferRequest{From: shop, To: carrier, Amount: 450, Memo: "parcel"}, opts...)
		return err
	})
	o.balances(ctx, buyer, shop, carrier)
}

// do does one step under its own key, and says whether it was done before.
func (o *order) do(what string, call func(...client.CallOption) error) {
	if o.err != nil {
		return
	}
	o.step++
	var answer client.Answer
	err := call(client.Key(fmt.Sprintf("%s.%d", o.name, o.step)), client.Into(&answer))
	if o.step == o.crashAt {
		os.Exit(crashed) // The step was sent and done; its answer is lost, as it would be in any crash.
	}
	if err != nil {
		o.err = fmt.Errorf("step %d, %s: %w", o.step, what, err)
		return
	}
	note := ""
	if answer.Replayed {
		note = " (was done before)"
	}
	fmt.Printf("%d. %s%s\n", o.step, what, note)
}

// balances prints where the money is.
func (o *order) balances(ctx context.Context, accounts ...string) {
	for _, id := range accounts {
		if o.err != nil {
			return
		}
		var a *client.Account
		if a, o.err = o.client.GetAccount(ctx, id); o.err == nil {
			who, _, _ := strings.Cut(id, "-")
			fmt.Printf("%s: %d.%02d available, %d.%02d held\n", who, a.Available/100, a.Available%100, a.Held/100, a.Held%100)
		}
	}
}
