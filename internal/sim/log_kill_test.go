//go:build unix

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// publicLoad makes public facts until it is ended, and keeps what was acknowledged.
type publicLoad struct {
	client  *sim.Client
	history *sim.History
	stop    chan struct{}
	group   sync.WaitGroup

	mu     sync.Mutex
	bids   map[string]map[int64]int64 // amounts by auction and number
	ends   map[string][]string        // types of a campaign's facts
	failed []error
}

// startPublicLoad has bidders at some auctions, whose rounds are short, buyers of small campaigns, some of which are cancelled, and deposits.
func startPublicLoad(t *testing.T, s *logSite) *publicLoad {
	t.Helper()
	l := &publicLoad{stop: make(chan struct{}), bids: map[string]map[int64]int64{}, ends: map[string][]string{}}
	l.client, l.history = newClient(t, s.servers...)
	l.client.LimitAttempts(time.Second)
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, 2*patience), l.client, append(names("bidder", 12), "house"), 1_000_000_000))
	ctx, cancel := context.WithCancel(t.Context())
	for lane := range 3 {
		l.goes(ctx, func() error { return l.auction(ctx, lane) })
	}
	l.goes(ctx, func() error { return l.campaign(ctx) })
	l.goes(ctx, func() error {
		_, err := l.client.Expect(ctx, sim.NewDeposit(uuid.NewString(), "bidder-0", 1), http.StatusCreated)
		return err
	})
	t.Cleanup(func() {
		cancel()
		l.group.Wait()
	})
	return l
}

// goes repeats a step.
func (l *publicLoad) goes(ctx context.Context, step func() error) {
	l.group.Go(func() {
		for sim.GoesOn(ctx, l.stop) {
			l.rest(ctx)
			if err := step(); err != nil && ctx.Err() == nil {
				l.mu.Lock()
				l.failed = append(l.failed, err)
				l.mu.Unlock()
				return
			}
		}
	})
}

// rest is that of a bidder.
func (l *publicLoad) rest(ctx context.Context) {
	if !testwait.Torture() {
		wait.For(ctx, 2*bidderRest)
	}
}

// finish ends the load, and waits until all it sent is settled.
func (l *publicLoad) finish(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.group.Wait()
	complain(t, errors.Join(l.failed...))
}

// command settles a command that must succeed.
func (l *publicLoad) command(ctx context.Context, path string, body any) (m made, err error) {
	answer, err := l.client.Settle(ctx, sim.NewOp("", path, uuid.NewString(), body))
	if err == nil && answer.Status >= 300 {
		err = fmt.Errorf("POST %s: %v", path, answer)
	}
	if err != nil {
		return m, err
	}
	return m, answer.JSON(&m)
}

// auction makes an auction, and bids until its end, or cancels it at the end of the load.
func (l *publicLoad) auction(ctx context.Context, lane int) error {
	m, err := l.command(ctx, "/v1/auctions", map[string]any{
		"title": "lot", "currency": "SIM", "seller": "house", "cooldown": "0s", "unique_amounts": false,
		"rounds": []any{map[string]any{"winners": 1, "duration": "3s"}, map[string]any{"winners": 2, "duration": "2s"}},
	})
	if err == nil {
		_, err = l.command(ctx, "/v1/auctions/"+m.ID+"/start", nil)
	}
	if err != nil {
		return err
	}
	acknowledged := map[int64]int64{}
	l.mu.Lock()
	l.bids[m.ID] = acknowledged
	l.mu.Unlock()
	var bidding sync.WaitGroup
	failures := make([]error, 4)
	for w := range failures {
		bidding.Go(func() {
			account := fmt.Sprintf("bidder-%d", 4*lane+w)
			for amount := int64(1); sim.GoesOn(ctx, l.stop); amount++ {
				l.rest(ctx)
				answer, err := l.client.Settle(ctx, sim.NewBid(uuid.NewString(), m.ID, account, amount))
				if err != nil {
					failures[w] = err
					return
				}
				if answer.Status != http.StatusCreated {
					if answer.Code() != "not_active" {
						failures[w] = fmt.Errorf("bid: %v", answer)
						return
					}
					var now struct{ Status string }
					if failures[w] = l.client.GetJSON(ctx, "/v1/auctions/"+m.ID, &now); failures[w] != nil || now.Status == "completed" {
						return
					}
					wait.For(ctx, 10*time.Millisecond) // The moment between a round's end and its close.
					continue
				}
				var bid made
				if failures[w] = answer.JSON(&bid); failures[w] != nil {
					return
				}
				l.mu.Lock()
				acknowledged[bid.Seq] = amount
				l.mu.Unlock()
			}
		})
	}
	bidding.Wait()
	if err := errors.Join(failures...); err != nil || sim.GoesOn(ctx, l.stop) {
		return err
	}
	// Else its rounds would go on to close.
	answer, err := l.client.Settle(ctx, sim.NewOp("", "/v1/auctions/"+m.ID+"/cancel", uuid.NewString(), nil))
	if err == nil && answer.Status != http.StatusOK && answer.Code() != "bad_transition" {
		err = fmt.Errorf("cancel: %v", answer)
	}
	return err
}

// campaign sells a campaign out, or cancels it.
func (l *publicLoad) campaign(ctx context.Context) error {
	m, err := sim.Launch(ctx, l.client, uuid.NewString(), client.CreateCampaignRequest{
		Name: "raffle", Layers: []client.LayerRequest{{Positions: 2}}, Price: 1, Currency: "SIM", Beneficiary: "house",
		Prizes: []client.PrizeRequest{{Name: "grand", Quantity: 1}},
	})
	if err != nil {
		return err
	}
	sold := 2 - len(l.ends)%3/2 // Only this goroutine writes it.
	for range sold {
		if _, err := l.client.Expect(ctx, sim.NewPurchase(uuid.NewString(), m.ID, "bidder-1", 0), http.StatusCreated); err != nil {
			return err
		}
	}
	ends := []string{"campaign.created", "campaign.published", "campaign.sealed", "campaign.drawn"}
	if sold < 2 {
		if _, err := l.client.Expect(ctx, sim.NewCancel(uuid.NewString(), m.ID), http.StatusOK); err != nil {
			return err
		}
		ends = []string{"campaign.created", "campaign.published", "campaign.cancelled"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[m.ID] = ends
	return nil
}

// isIn wants all that was acknowledged to be in the log.
func (l *publicLoad) isIn(t *testing.T, whole *wholeLog) (bids int) {
	t.Helper()
	for id, acknowledged := range l.bids {
		leaves := whole.topics["auction:"+id]
		for seq, amount := range acknowledged {
			bids++
			if seq >= int64(len(leaves)) || leaves[seq].Type != "bid.placed" || amountOf(t, leaves[seq]) != amount {
				t.Errorf("bid %d of auction %s, of %d, is not in the log's %d leaves of it", seq, id, amount, len(leaves))
			}
		}
	}
	for id, want := range l.ends {
		var types []string
		for _, leaf := range whole.topics["campaign:"+id] {
			types = append(types, leaf.Type)
		}
		if !slices.Equal(types, want) {
			t.Errorf("campaign %s has the leaves %v, and was told %v", id, types, want)
		}
	}
	return bids
}

// grows waits until more is published than there was in the log.
func (s *logSite) grows(t *testing.T) {
	t.Helper()
	from := int64(-1)
	testwait.Eventually(t, 2*patience, "more leaves under a checkpoint", func() bool {
		for _, server := range s.servers {
			if status, body := fetch(t.Context(), server.URL()+"/log/checkpoint", ""); status == http.StatusOK {
				h, err := openHead(string(body), s.vkey)
				testwait.Must(t, err)
				if from < 0 {
					from = h.size
				}
				if h.size > from {
					return true
				}
			}
		}
		return false
	})
}

// logFaults are what happens to a log that is kept.
type logFaults struct {
	*logSite

	pg     *localpg.Instance
	load   *publicLoad
	rng    *rand.Rand
	counts map[string]int
}

// answers waits until some more commands are answered.
func (f *logFaults) answers(t *testing.T, most int) {
	t.Helper()
	select {
	case <-f.load.history.After(1 + f.rng.IntN(most)):
	case <-testwait.Context(t, 2*patience).Done():
		f.load.mu.Lock()
		defer f.load.mu.Unlock()
		t.Fatalf("no answers: %v", errors.Join(f.load.failed...))
	}
}

// keeps is the server that keeps the log now, or any.
func (f *logFaults) keeps(t *testing.T) (keeper, other *sim.Server) {
	t.Helper()
	for i, server := range f.servers {
		if keepsLog(t.Context(), server, sim.AdminKey) {
			return server, f.servers[1-i]
		}
	}
	i := f.rng.IntN(2)
	return f.servers[i], f.servers[1-i]
}

// one lets one thing die, or sleep, and come back.
func (f *logFaults) one(t *testing.T, kind string) {
	t.Helper()
	f.counts[kind]++
	ctx := testwait.Context(t, 2*patience)
	restart := func(server *sim.Server) {
		t.Helper()
		testwait.Must(t, server.Kill(ctx))
		f.answers(t, 20)
		_, err := server.Start(ctx)
		testwait.Must(t, err)
	}
	switch kind {
	case "keeper":
		keeper, _ := f.keeps(t)
		restart(keeper)
	case "server":
		restart(f.servers[f.rng.IntN(2)])
	case "witness", "witnesses":
		victims := f.witnesses
		if kind == "witness" {
			i := f.rng.IntN(len(victims))
			victims = victims[i : i+1]
		}
		for _, w := range victims {
			testwait.Must(t, w.end(syscall.SIGKILL))
		}
		f.answers(t, 40)
		for _, w := range victims {
			testwait.Must(t, w.start(ctx, f.vkey))
		}
	case "database":
		pgtest.Restart(t, f.pg)
	case "sleep":
		keeper, other := f.keeps(t)
		testwait.Must(t, keeper.Signal(syscall.SIGSTOP))
		testwait.Eventually(t, 2*patience, "the other server keeps the log", func() bool { return keepsLog(t.Context(), other, sim.AdminKey) })
		f.answers(t, 40)
		testwait.Must(t, keeper.Signal(syscall.SIGCONT))
	}
	f.answers(t, 40)
}

// TestLogOutlastsKills kills, under load, the servers that keep the public log, its witnesses and its database, and stops the keeper until
// another one has the log, again and again. In the end each fact is a leaf once, and whatever was signed meanwhile is one history.
func TestLogOutlastsKills(t *testing.T) {
	beside(t)
	sessions(t, 10, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		pg := pgtest.Server(t)
		site := newLogSite(t, pg.URL(), 2, 2, 1)
		collected := site.watchCheckpoints(t)
		f := &logFaults{site, pg, startPublicLoad(t, site), rng, map[string]int{}}
		kinds := []string{"keeper", "witness", "server", "database", "sleep", "witnesses"}
		kills := testwait.Count(len(kinds), 100)
		if testwait.Torture() { // The rest may come more often.
			kinds = append(kinds, "keeper", "keeper", "witness", "server")
		}
		f.keeper(t)
		for kill := range kills {
			if kill%len(kinds) == 0 {
				rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
			}
			kind := kinds[kill%len(kinds)]
			f.one(t, kind)
			if rng.IntN(4) == 0 {
				f.grows(t)
			}
			if refused := f.stateOf(t).Refused; refused != "" || t.Failed() {
				t.Fatalf("after kill %d, of %s: %s", kill, kind, refused)
			}
		}
		f.load.finish(t)
		f.keeper(t)
		heads := collected() // Before the log is read: the books go on to be closed.
		whole, count := f.whole(t)
		whole.oneHistory(t, heads)
		bids := f.load.isIn(t, whole)
		for _, server := range f.servers {
			if log := server.Log(); strings.Contains(log, "no checkpoint of the log is signed any more") {
				t.Error("a server has refused to sign")
			}
		}
		auditNow(t, f.database)
		t.Logf("seed %d: %d kills %v; %d facts, %d bids and %d campaigns of them acknowledged; %d leaves; %d different checkpoints",
			seed, kills, f.counts, count, bids, len(f.load.ends), whole.head.size, len(heads))
		t.Logf("late: %s", f.late(t))
	})
}

// late tells how old the oldest fact of each batch was when it became a leaf, as the servers that run now have counted.
func (s *logSite) late(t *testing.T) string {
	t.Helper()
	sums := map[string]float64{}
	for _, server := range s.servers {
		for line := range strings.Lines(string(metricsOf(t, server))) {
			var value float64
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			if of, ok := strings.CutPrefix(name, "fairlead_log_late_seconds"); ok {
				_, err := fmt.Sscan(text, &value)
				testwait.Must(t, err)
				sums[of] += value
			}
		}
	}
	return fmt.Sprintf("%.0f batches, %.2f s on average; %.0f by up to 0.5 s, %.0f by up to 1 s, %.0f by up to 2.5 s",
		sums["_count"], sums["_sum"]/max(sums["_count"], 1), sums[`_bucket{le="0.5"}`], sums[`_bucket{le="1"}`], sums[`_bucket{le="2.5"}`])
}
