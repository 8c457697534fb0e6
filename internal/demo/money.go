package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	demoPayers     = 4         // of each kind of transfer
	demoPayerFunds = 1_000_000 // minor units
	demoAmount     = 10
	// The first transfer of each demoRefused goes to an account of the branch that takes no more.
	demoRefused = 6
	// demoAnswered is how many answers each payer gets before the crash.
	demoAnswered = 3
	mostDeposit  = 1<<53 - 1
	busyPause    = 50 * time.Millisecond // before a busy server is asked again
	twoPhase     = "twophase"
)

// movement is a transfer within one ledger, or between two: what was asked for, and what the caller was told in the end.
type movement struct {
	ID      string `json:"id"`
	Account string `json:"account"` // that pays
	Mode    string `json:"mode"`    // empty within one ledger
	Status  string `json:"status"`
	Amount  int64  `json:"amount"`
	key     string
	to      string
}

// modes are the kinds of transfers: within one ledger, and between two.
func (d *Demo) modes() []string {
	if d.databases.branch == "" {
		return []string{""}
	}
	return []string{"", "saga", twoPhase}
}

func (d *Demo) payer(mode string, i int) string { return fmt.Sprintf("payer-%s%d%s", mode, i+1, d.tag) }
func (d *Demo) shop() string                    { return "shop" + d.tag }
func (d *Demo) full() string                    { return "full" + d.tag } // in the branch

// branchShop is who is paid in the branch.
func (d *Demo) branchShop(mode string, i int) string {
	return fmt.Sprintf("shop-%s%d%s", mode, i+1, d.tag)
}

// openBranch makes the branch's books, by a server of its own, and the accounts of those who pay.
func (d *Demo) openBranch(ctx context.Context) error {
	open := func(c *client.Client, id string, amount int64) error {
		_, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: demoCurrency})
		if err == nil && amount > 0 {
			_, err = c.Deposit(ctx, client.MovementRequest{Account: id, Amount: amount})
		}
		return err
	}
	if err := open(d.api, d.shop(), 0); err != nil {
		return err
	}
	for _, mode := range d.modes() {
		for i := range demoPayers {
			if err := open(d.api, d.payer(mode, i), demoPayerFunds); err != nil {
				return err
			}
		}
	}
	if d.databases.branch == "" {
		return nil
	}
	branch, err := fairlead.Open(ctx, fairlead.Options{DatabaseURL: d.databases.branch, Data: filepath.Join(d.Data, branchLedger), DatabaseConnections: 4, Logger: d.logger()})
	if err != nil {
		return err
	}
	defer func() { _ = branch.Close(context.WithoutCancel(ctx)) }()
	c := branch.Client()
	for _, mode := range d.modes()[1:] {
		for i := range demoPayers {
			if err := open(c, d.branchShop(mode, i), 0); err != nil {
				return err
			}
		}
	}
	return d.fillFull(ctx, c)
}

// fillFull makes an account that has all the money that an account can have.
func (d *Demo) fillFull(ctx context.Context, c *client.Client) error {
	if _, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: d.full(), Currency: demoCurrency}); err != nil {
		return err
	}
	const whole = 1024 // Together they lack as much of 2^63 - 1 as the last deposit brings.
	group, filling := errgroup.WithContext(ctx)
	group.SetLimit(demoOpening)
	for range whole {
		group.Go(func() error {
			_, err := c.Deposit(filling, client.MovementRequest{Account: d.full(), Amount: mostDeposit})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err := c.Deposit(ctx, client.MovementRequest{Account: d.full(), Amount: whole - 1})
	return err
}

// traffic are the transfers that are sent to servers until these are dead.
type traffic struct {
	*Demo

	sending sync.WaitGroup
	mu      sync.Mutex
	told    []*movement
	lost    []*movement // whose answers never came
	ready   int         // payers with enough answers
}

// begin lets each payer send one transfer after the other to its server.
func (t *traffic) begin(ctx context.Context, servers []*helper) {
	for _, mode := range t.modes() {
		for i := range demoPayers {
			t.sending.Go(func() {
				server := servers[len(servers)-1]
				if mode == "" {
					server = servers[i%len(servers)]
				}
				for k := 1; ctx.Err() == nil; k++ {
					m := &movement{Account: t.payer(mode, i), Mode: mode, Amount: demoAmount, key: "demo-" + uuid.NewString(), to: t.branchShop(mode, i)}
					if k%demoRefused == 1 {
						m.to = t.full()
					}
					err := insist(ctx, func() error { return t.send(ctx, server.api, m) })
					t.mu.Lock()
					if err != nil {
						t.lost = append(t.lost, m)
						t.mu.Unlock()
						return
					}
					t.told = append(t.told, m)
					if k == demoAnswered {
						t.ready++
					}
					t.mu.Unlock()
				}
			})
		}
	}
}

// underWay reports whether all payers have got enough answers.
func (t *traffic) underWay() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lost) > 0 {
		return false, errors.New("a transfer failed before the crash")
	}
	return t.ready == demoPayers*len(t.modes()), nil
}

// send asks for a transfer, and notes what it was told.
func (d *Demo) send(ctx context.Context, c *client.Client, m *movement) error {
	if m.Mode == "" {
		done, err := c.Transfer(ctx, client.TransferRequest{From: m.Account, To: d.shop(), Amount: m.Amount}, client.Key(m.key))
		if err == nil {
			m.ID, m.Status = done.ID, "completed"
		}
		return err
	}
	done, err := c.CrossTransfer(ctx, client.CrossTransferRequest{
		From: client.CrossEnd{Ledger: "local", Account: m.Account}, To: client.CrossEnd{Ledger: branchLedger, Account: m.to},
		Amount: m.Amount, Mode: client.CrossTransferRequestMode(m.Mode),
	}, client.Key(m.key))
	if err == nil {
		m.ID, m.Status = done.ID, string(done.Status)
	}
	return err
}

// settle asks the server that is left for every answer that was lost, under the same keys, and waits until all transfers have
// ended and nothing is in doubt.
func (t *traffic) settle(ctx context.Context, killed time.Time) error {
	step, done := t.screen.Progress("The money", len(t.told)+len(t.lost))
	group, settling := errgroup.WithContext(ctx)
	group.SetLimit(demoOpening)
	again := len(t.lost)
	all := slices.Concat(t.told, t.lost)
	for i, m := range all {
		group.Go(func() error {
			defer step()
			if i >= len(t.told) {
				if err := t.send(settling, t.api, m); err != nil { // The client repeats what fails meanwhile.
					return err
				}
			}
			return until(settling, func() (bool, error) {
				if m.Status != string(client.CrossTransferStatusPending) {
					return true, nil
				}
				now, err := t.api.GetCrossTransfer(settling, m.ID)
				if err == nil {
					m.Status = string(now.Status)
				}
				return false, err
			})
		})
	}
	err := group.Wait()
	if err == nil && t.databases.branch != "" {
		err = until(ctx, func() (bool, error) {
			doubts, err := t.api.InDoubt(ctx)
			return err == nil && len(doubts.Items) == 0 && len(doubts.Unreachable) == 0, err
		})
	}
	done()
	if err != nil {
		return err
	}
	c := &t.result.Crash
	c.Transfers, c.LostAnswers, c.SettledMS = len(all), again, inMilliseconds(time.Since(killed))
	t.movements = all
	ends := map[string]int{}
	for _, m := range all {
		ends[m.Status]++
	}
	t.screen.End("%d transfers: %d completed, %d undone, %d refused; %d lost answers asked again", len(all),
		ends["completed"], ends["compensated"], ends["failed"], again)
	return nil
}

// busy reports whether a server has answered that it can't do now what it was asked for, as when its database is silent.
func busy(err error) bool {
	p, ok := errors.AsType[*client.Problem](err)
	return ok && p.Retryable && p.Status >= http.StatusInternalServerError
}

// insist sends a command under its one key until a server that lives is not too busy for it.
func insist(ctx context.Context, send func() error) error {
	for {
		if err := send(); !busy(err) || !wait.For(ctx, busyPause) {
			return err
		}
	}
}

// until asks until the answer is yes.
func until(ctx context.Context, ask func() (bool, error)) error {
	const pause = 20 * time.Millisecond
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		if !wait.For(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}
