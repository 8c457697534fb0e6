package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// The size of the story.
const (
	demoBuyers     = 500
	demoBaseLength = 20
	demoPositions  = demoBaseLength * (demoBaseLength + 1) / 2
	demoPrice      = 250   // minor units
	demoDeposit    = 1_000 // minor units a buyer
	demoCurrency   = "EUR"
	// demoTwins is how many buyers send their request twice at the same moment, demoRetriers how many send it again
	// after its answer. Both use their one key, as a nervous user's browser or a retrying proxy would.
	demoTwins    = 20
	demoRetriers = 20
	// demoOpening is how many accounts are opened at a time.
	demoOpening = 64
)

// patient repeats what a server on a slow machine could not decide in time: the story goes on to its end.
var patient = client.WithRetry(client.Retry{Attempts: 100, Limit: 3 * time.Minute}) //nolint:gochecknoglobals // Never changed.

// Race is what the buyers saw.
type Race struct {
	Buyers      int     `json:"buyers"`
	Requests    int     `json:"requests"`
	Bought      int     `json:"bought"`
	SoldOut     int     `json:"sold_out"`
	Other       int     `json:"other"`
	Repeated    int     `json:"repeated"`
	Replayed    int     `json:"replayed"`
	DifferentIn int     `json:"different_replays"`
	TotalMS     float64 `json:"total_ms"`
	P50MS       float64 `json:"p50_ms"`
	P99MS       float64 `json:"p99_ms"`
	MaxMS       float64 `json:"max_ms"`
}

// answer is what one buyer got, to be compared with the database.
type answer struct {
	ID       string `json:"key"` // under which the database keeps the request, in hex
	Buyer    string `json:"buyer"`
	Status   int    `json:"status"`
	Body     []byte `json:"body"`
	key      string
	purchase *client.Purchase // nil when refused
	code     string           // of a refusal
	latency  time.Duration
	repeated int // requests beyond the first
	replayed int // of which the server said that it repeated an answer
	differed int // whose bytes were others
}

func (d *Demo) openAccounts(ctx context.Context) error {
	if _, err := d.api.CreateAccount(ctx, client.CreateAccountRequest{ID: d.beneficiary(), Currency: demoCurrency}); err != nil {
		return err
	}
	for i := range demoBuyers {
		d.buyers = append(d.buyers, fmt.Sprintf("buyer%s-%03d", d.tag, i+1))
	}
	return d.fund(ctx, d.buyers, demoDeposit)
}

// fund opens accounts and fills them.
func (d *Demo) fund(ctx context.Context, accounts []string, amount int64) error {
	step, done := d.screen.Progress(fmt.Sprintf("Opening %d accounts with deposits", len(accounts)), len(accounts))
	group, opening := errgroup.WithContext(ctx)
	group.SetLimit(demoOpening)
	for _, account := range accounts {
		group.Go(func() error {
			if _, err := d.api.CreateAccount(opening, client.CreateAccountRequest{ID: account, Currency: demoCurrency}); err != nil {
				return err
			}
			_, err := d.api.Deposit(opening, client.MovementRequest{Account: account, Amount: amount})
			step()
			return err
		})
	}
	err := group.Wait()
	done()
	if err == nil {
		d.screen.End("%d × %s", len(accounts), money(amount))
	}
	return err
}

func (d *Demo) beneficiary() string { return "organiser" + d.tag }

func money(minor int64) string { return fmt.Sprintf("%d.%02d %s", minor/100, minor%100, demoCurrency) }

func (d *Demo) makeCampaign(ctx context.Context) error {
	c, err := d.api.CreateCampaign(ctx, client.CreateCampaignRequest{
		Name: "Demo", BaseLength: demoBaseLength, Price: demoPrice, Currency: demoCurrency,
		Beneficiary: d.beneficiary(), PurchaseLimit: 1,
		Prizes: []client.PrizeRequest{
			{Name: "Car", Quantity: 1}, {Name: "Bicycle", Quantity: 3}, {Name: "Base-row extra", Layer: demoBaseLength, Quantity: 2},
		},
	})
	if err != nil {
		return err
	}
	if _, err := d.api.PublishCampaign(ctx, c.ID); err != nil {
		return err
	}
	d.result.Campaign, d.result.Commitment = c.ID, c.Commitment
	d.screen.Fact("Campaign published", "%d layers, %d positions, %s each", len(c.Layers), c.TotalPositions, money(demoPrice))
	d.screen.Fact("Commitment to the secret seed", "%s…", c.Commitment[:32])
	return nil
}

// race lets all buyers go at one signal. Each has a connection of its own, open before the signal.
func (d *Demo) race(ctx context.Context) error {
	d.screen.Heading(fmt.Sprintf("The race: %d buyers, %d positions, one moment", demoBuyers, demoPositions))
	step, done := d.screen.Progress("Connecting", len(d.buyers))
	d.answers = make([]answer, len(d.buyers))
	start, line := make(chan struct{}), sync.WaitGroup{}
	line.Add(len(d.buyers))
	group, racing := errgroup.WithContext(ctx)
	for i, buyer := range d.buyers {
		group.Go(func() error {
			pool := &http.Transport{MaxIdleConnsPerHost: 2}
			defer pool.CloseIdleConnections()
			c, err := client.New(d.result.URL, d.key, client.WithHTTPClient(&http.Client{Transport: pool}), patient)
			if err == nil {
				_, err = c.GetCampaign(racing, d.result.Campaign)
			}
			step()
			line.Done()
			if err != nil {
				return err
			}
			select {
			case <-start:
			case <-racing.Done():
				return racing.Err()
			}
			d.answers[i], err = d.buy(racing, c, i, buyer)
			return err
		})
	}
	line.Wait()
	done()
	d.screen.End("%d connections open", len(d.buyers))
	began := time.Now()
	close(start)
	err := group.Wait()
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("the race needs some %d open files, for both ends of each connection: raise the limit (ulimit -n): %w", 3*demoBuyers, err)
	}
	if err == nil {
		d.sumUp(time.Since(began))
	}
	return err
}

// buy is what one buyer does at the signal. Some of them send their request more than once.
func (d *Demo) buy(ctx context.Context, c *client.Client, i int, buyer string) (answer, error) {
	a := answer{Buyer: buyer, key: "demo-" + uuid.NewString()}
	send := func(into *client.Answer) (*client.Purchase, string, error) {
		p, err := c.Buy(ctx, d.result.Campaign, client.PurchaseRequest{Account: buyer}, client.Key(a.key), client.Into(into))
		code := client.CodeOf(err)
		if code != "" {
			err = nil
		}
		return p, code, err
	}
	var first, second client.Answer
	var twin errgroup.Group
	twins, retries := i%(demoBuyers/demoTwins) == 0, i%(demoBuyers/demoRetriers) == 1
	if twins {
		twin.Go(func() error { _, _, err := send(&second); return err })
	}
	began := time.Now()
	var err error
	a.purchase, a.code, err = send(&first)
	a.latency = time.Since(began)
	if twinErr := twin.Wait(); err == nil {
		err = twinErr
	}
	if err == nil && retries {
		_, _, err = send(&second)
	}
	if err != nil {
		return a, err
	}
	a.Status, a.Body = first.Status, first.Body
	if twins || retries {
		a.repeated = 1
		if first.Replayed != second.Replayed {
			a.replayed = 1
		}
		if !bytes.Equal(first.Body, second.Body) || first.Status != second.Status {
			a.differed = 1
		}
	}
	return a, nil
}

func (d *Demo) sumUp(total time.Duration) {
	r := Race{Buyers: len(d.answers), TotalMS: inMilliseconds(total)}
	latencies := make([]time.Duration, 0, len(d.answers))
	for _, a := range d.answers {
		switch {
		case a.purchase != nil:
			r.Bought++
		case a.code == "sold_out":
			r.SoldOut++
		default:
			r.Other++
		}
		r.Requests += 1 + a.repeated
		r.Repeated += a.repeated
		r.Replayed += a.replayed
		r.DifferentIn += a.differed
		latencies = append(latencies, a.latency)
	}
	r.P50MS, r.P99MS, r.MaxMS = quantiles(latencies)
	d.result.Race = r
	d.screen.Fact("Bought", "%d", r.Bought)
	d.screen.Fact("Refused: sold out", "%d", r.SoldOut)
	if r.Other > 0 {
		d.screen.Fact("Anything else", "%d", r.Other)
	}
	d.screen.Fact("Sent twice with one key", "%d buyers: %d replays, %d with other bytes", r.Repeated, r.Replayed, r.DifferentIn)
	d.screen.Fact("All settled in", "%s", screen.Milliseconds(r.TotalMS))
	d.screen.Fact("Each buyer waited", "p50 %s, p99 %s, max %s", screen.Milliseconds(r.P50MS), screen.Milliseconds(r.P99MS), screen.Milliseconds(r.MaxMS))
}

// quantiles are the latencies that are shown.
func quantiles(latencies []time.Duration) (p50, p99, most float64) {
	slices.Sort(latencies)
	n := len(latencies)
	return inMilliseconds(latencies[n/2]), inMilliseconds(latencies[n*99/100]), inMilliseconds(latencies[n-1])
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
