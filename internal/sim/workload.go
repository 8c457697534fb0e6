package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Sizes of the drawn commands: prices and amounts are such that accounts run dry now and then, campaigns such that one
// sells out every few dozen purchases and a draw is never far.
const (
	firstDeposit  = 200
	maxAmount     = 60
	maxPrice      = 20
	minBaseLength = 3
	maxBaseLength = 5
	// settleLimit is how long a worker may take over one command, all faults and restarts included.
	settleLimit = 2 * time.Minute
)

// Mix has the weight of each kind of command. A kind of weight 0 is never drawn.
type Mix struct {
	Transfers, Legs, Holds, Deposits, Withdrawals, Purchases, Cancels int
}

// DefaultMix is mostly purchases, and some of everything.
func DefaultMix() Mix {
	return Mix{Transfers: 20, Legs: 5, Holds: 15, Deposits: 5, Withdrawals: 5, Purchases: 48, Cancels: 2}
}

// WorkloadOptions say what is drawn.
type WorkloadOptions struct {
	// Seed decides everything that is drawn.
	Seed uint64
	// Prefix keeps the names and keys of several workloads on one database apart.
	Prefix string
	// Accounts and Workers are how many there are; at least 2 and 1.
	Accounts, Workers int
	Mix               Mix
	// Rest is how long a worker rests after each command, on average.
	Rest time.Duration
}

// Workload draws commands from a seed and sends them. Each worker has a stream of its own, so that what it draws does
// not depend on the others; campaigns are shared, since contention on them is the point.
type Workload struct {
	opts     WorkloadOptions
	accounts []string

	mu       sync.Mutex
	current  offer
	launched int
}

// offer is the campaign on sale.
type offer struct {
	id     string
	layers int64
}

// NewWorkload prepares a workload.
func NewWorkload(opts WorkloadOptions) *Workload {
	w := &Workload{opts: opts}
	for i := range opts.Accounts {
		w.accounts = append(w.accounts, fmt.Sprintf("%s-account-%d", opts.Prefix, i))
	}
	return w
}

// Accounts are the names of the workload's accounts; the last is the beneficiary of all campaigns.
func (w *Workload) Accounts() []string { return w.accounts }

// Setup opens the accounts, fills them and launches the first campaign.
func (w *Workload) Setup(ctx context.Context, c *Client) error {
	if err := OpenAccounts(ctx, c, w.accounts, firstDeposit); err != nil {
		return err
	}
	if w.opts.Mix.Purchases == 0 {
		return nil
	}
	_, err := w.offer(ctx, c, "")
	return err
}

// OpenAccounts opens accounts in SIM and puts the same amount on each, none if it is 0.
func OpenAccounts(ctx context.Context, c *Client, accounts []string, amount int64) error {
	return each(16, accounts, func(name string) error {
		_, err := c.Expect(ctx, NewAccount("open-"+name, name, "SIM"), http.StatusCreated)
		if err == nil && amount > 0 {
			_, err = c.Expect(ctx, NewDeposit("fill-"+name, name, amount), http.StatusCreated)
		}
		return err
	})
}

// each calls do for all items, with so many at a time, and joins the errors.
func each[T any](workers int, items []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(workers)
	failures := make([]error, len(items))
	for i, item := range items {
		group.Go(func() error {
			failures[i] = do(item)
			return nil
		})
	}
	err := group.Wait() // before the failures are read
	return errors.Join(err, errors.Join(failures...))
}

// Run draws and settles commands until stop is closed, settles what is under way, and returns. The error tells every
// answer that no server should give to these commands, and every command that could not be settled.
func (w *Workload) Run(ctx context.Context, c *Client, stop <-chan struct{}) error {
	workers := make([]*worker, w.opts.Workers)
	for i := range workers {
		workers[i] = &worker{w: w, c: c, id: i, rng: rand.New(rand.NewPCG(w.opts.Seed, uint64(i)))}
	}
	return each(len(workers), workers, func(k *worker) error { return k.run(ctx, stop) })
}

// offer returns the campaign on sale; if that is still the one called spent, it launches the next one first. Those who
// find the same campaign spent wait for the one who launches.
func (w *Workload) offer(ctx context.Context, c *Client, spent string) (offer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current.id != spent {
		return w.current, nil
	}
	spec := w.campaign(w.launched)
	name := fmt.Sprintf("%s-campaign-%d", w.opts.Prefix, w.launched)
	w.launched++
	made, err := Launch(ctx, c, name, spec)
	if err != nil {
		return offer{}, err
	}
	w.current = offer{made.ID, max(spec.BaseLength, int64(len(spec.Layers)))}
	return w.current, nil
}

// campaign draws the n-th campaign: triangles and explicit layers, with and without limits and layered prizes.
func (w *Workload) campaign(n int) client.CreateCampaignRequest {
	rng := rand.New(rand.NewPCG(w.opts.Seed, 1<<32+uint64(n))) //nolint:gosec // It is not negative.
	spec := client.CreateCampaignRequest{
		Name: fmt.Sprintf("campaign %d", n), Price: 1 + rng.Int64N(maxPrice), Currency: "SIM",
		Beneficiary: w.accounts[len(w.accounts)-1],
		Prizes:      []client.PrizeRequest{{Name: "grand", Quantity: 1}, {Name: "consolation", Quantity: 3}},
	}
	if rng.IntN(3) > 0 {
		spec.BaseLength = minBaseLength + rng.Int64N(maxBaseLength-minBaseLength+1)
		spec.Prizes = append(spec.Prizes, client.PrizeRequest{Name: "of a layer", Layer: spec.BaseLength, Quantity: 2})
	} else {
		spec.Layers = []client.LayerRequest{{Positions: 4}, {Positions: 2 + rng.Int64N(5), Price: 1 + rng.Int64N(maxPrice)}}
	}
	if rng.IntN(4) == 0 {
		spec.PurchaseLimit = 5
	}
	return spec
}

// Launch creates and publishes a campaign, under keys made of name, and returns it as it was created.
func Launch(ctx context.Context, c *Client, name string, spec client.CreateCampaignRequest) (made client.Campaign, err error) {
	answer, err := c.Expect(ctx, NewOp(KindCampaign, "/v1/campaigns", name+"-create", spec), http.StatusCreated)
	if err != nil {
		return made, err
	}
	if err := answer.JSON(&made); err != nil {
		return made, err
	}
	_, err = c.Expect(ctx, NewOp(KindPublish, "/v1/campaigns/"+made.ID+"/publish", name+"-publish", nil), http.StatusOK)
	return made, err
}

// Expect settles a command whose answer is known beforehand.
func (c *Client) Expect(ctx context.Context, op *Op, status int) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	answer, err := c.Settle(ctx, op)
	if err == nil && answer.Status != status {
		err = fmt.Errorf("%w: %s: want %d: %v", ErrProtocol, op, status, answer)
	}
	return answer, err
}

// GoesOn reports whether neither the test nor its load has been ended.
func GoesOn(ctx context.Context, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	case <-ctx.Done():
		return false
	default:
		return true
	}
}

// worker is one source of commands.
type worker struct {
	w     *Workload
	c     *Client
	id    int
	rng   *rand.Rand
	sent  int
	holds []string // open, own
}

func (k *worker) run(ctx context.Context, stop <-chan struct{}) error {
	for GoesOn(ctx, stop) {
		if err := k.step(ctx); err != nil {
			return fmt.Errorf("worker %d, command %d: %w", k.id, k.sent, err)
		}
		Rest(ctx, k.rng, k.w.opts.Rest)
	}
	return nil
}

// Rest pauses for this long on average; 0: not at all.
func Rest(ctx context.Context, rng *rand.Rand, mean time.Duration) {
	if mean > 0 {
		wait.For(ctx, time.Duration(rng.Int64N(int64(2*mean))))
	}
}

// step draws one command and settles it.
func (k *worker) step(ctx context.Context) error {
	mix := k.w.opts.Mix
	weights := []int{mix.Transfers, mix.Legs, mix.Holds, mix.Deposits, mix.Withdrawals, mix.Purchases, mix.Cancels}
	total := 0
	for _, weight := range weights {
		total += weight
	}
	at, kind := k.rng.IntN(total), 0
	for at >= weights[kind] {
		at -= weights[kind]
		kind++
	}
	var err error
	switch kind {
	case 0:
		from, to := k.twoAccounts()
		_, err = k.settle(ctx, NewTransfer(k.key(), from, to, k.amount()))
	case 1:
		legs := make([]client.LegRequest, 1+k.rng.IntN(4))
		for i := range legs {
			legs[i].From, legs[i].To = k.twoAccounts()
			legs[i].Amount = k.amount()
		}
		_, err = k.settle(ctx, NewLegs(k.key(), legs...))
	case 2:
		err = k.hold(ctx)
	case 3:
		_, err = k.settle(ctx, NewDeposit(k.key(), k.anyAccount(), k.amount()))
	case 4:
		q := client.MovementRequest{Account: k.anyAccount(), Amount: k.amount()}
		_, err = k.settle(ctx, NewOp(KindWithdrawal, "/v1/withdrawals", k.key(), q))
	case 5:
		err = k.buy(ctx)
	default:
		err = k.cancel(ctx)
	}
	return err
}

func (k *worker) key() string {
	k.sent++
	return fmt.Sprintf("%s-%d-%d", k.w.opts.Prefix, k.id, k.sent)
}

// twoAccounts are two that differ.
func (k *worker) twoAccounts() (from, to string) {
	n := k.rng.IntN(len(k.w.accounts))
	return k.w.accounts[n], k.w.accounts[(n+1+k.rng.IntN(len(k.w.accounts)-1))%len(k.w.accounts)]
}

func (k *worker) anyAccount() string { return k.w.accounts[k.rng.IntN(len(k.w.accounts))] }

func (k *worker) amount() int64 { return 1 + k.rng.Int64N(maxAmount) }

// settle settles a drawn command, which may succeed, be refused for want of money (402) or by the state of what it
// names (409), and nothing else.
func (k *worker) settle(ctx context.Context, op *Op) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	answer, err := k.c.Settle(ctx, op)
	if err == nil && answer.Status >= 300 && answer.Status != http.StatusPaymentRequired && answer.Status != http.StatusConflict {
		err = fmt.Errorf("%w: %s: %v", ErrProtocol, op, answer)
	}
	return answer, err
}

// hold sets money aside, or closes an own hold, one way or the other.
func (k *worker) hold(ctx context.Context) error {
	if len(k.holds) == 0 || k.rng.IntN(2) == 0 {
		// Never the beneficiary's: captures go to it, and nobody can pay themselves.
		owner := k.w.accounts[k.rng.IntN(len(k.w.accounts)-1)]
		answer, err := k.settle(ctx, NewHold(k.key(), owner, k.amount()))
		if err != nil || answer.Status >= 300 {
			return err
		}
		var h client.Hold
		if err := answer.JSON(&h); err != nil {
			return err
		}
		k.holds = append(k.holds, h.ID)
		return nil
	}
	id := k.holds[0]
	k.holds = k.holds[1:]
	capture := client.CaptureRequest{To: k.w.accounts[len(k.w.accounts)-1]}
	var op *Op
	switch k.rng.IntN(3) {
	case 0:
		op = NewOp(KindCapture, "/v1/holds/"+id+"/capture", k.key(), capture)
	case 1:
		capture.Amount = new(int64(1))
		op = NewOp(KindCapture, "/v1/holds/"+id+"/capture", k.key(), capture)
	default:
		op = NewOp(KindRelease, "/v1/holds/"+id+"/release", k.key(), nil)
	}
	_, err := k.settle(ctx, op)
	return err
}

func (k *worker) buy(ctx context.Context) error {
	on, err := k.w.offer(ctx, k.c, "none")
	if err != nil {
		return err
	}
	layer := int64(0)
	if k.rng.IntN(3) == 0 {
		layer = 1 + k.rng.Int64N(on.layers)
	}
	answer, err := k.settle(ctx, NewPurchase(k.key(), on.id, k.anyAccount(), layer))
	if err != nil {
		return err
	}
	// A layer may be sold out before its campaign is.
	if code := answer.Code(); code == "not_active" || code == "sold_out" && layer == 0 {
		_, err = k.w.offer(ctx, k.c, on.id)
	}
	return err
}

func (k *worker) cancel(ctx context.Context) error {
	on, err := k.w.offer(ctx, k.c, "none")
	if err != nil {
		return err
	}
	if _, err := k.settle(ctx, NewCancel(k.key(), on.id)); err != nil {
		return err
	}
	_, err = k.w.offer(ctx, k.c, on.id)
	return err
}
