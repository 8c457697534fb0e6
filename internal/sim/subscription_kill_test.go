//go:build unix

package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// subscriptionArgs are those of servers that deliver to a receiver on this machine, and are soon replaced.
func subscriptionArgs() []string {
	return []string{"--allow-private-targets", "--retry-backoff", "20ms", "--leader-ttl", "1s"}
}

type made struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	Seq    int64  `json:"seq"`
	Items  []struct {
		Topic     string          `json:"topic"`
		State     string          `json:"state"`
		Seq       int64           `json:"seq"`
		Head      int64           `json:"head"`
		LastError json.RawMessage `json:"last_error"`
	} `json:"items"`
	Next *string `json:"next"`
}

// post settles a command with any of the servers.
func post(t *testing.T, c *sim.Client, path, body string) (m made) {
	t.Helper()
	answer := settle(t, c, path, uuid.NewString(), body)
	if answer.Status >= 300 {
		t.Fatalf("%s %s: %v", path, body, answer)
	}
	testwait.Must(t, answer.JSON(&m))
	return m
}

// subscribe makes a target at the mailbox and a subscription that delivers to it.
func (m *mailbox) subscribe(t *testing.T, c *sim.Client, name, rest string) (id string) {
	t.Helper()
	target := post(t, c, "/v1/targets", fmt.Sprintf(`{"name":%q,"kind":"webhook","url":"http://%s/%s","config":{"timeout":"500ms"}}`, name, m.addr, name))
	m.mu.Lock()
	m.secrets["/"+name] = target.Secret
	m.mu.Unlock()
	return post(t, c, "/v1/subscriptions", fmt.Sprintf(`{"name":%q,"target":%q,%s}`, name, name, rest)).ID
}

// TestEventsOutlastKills has two servers deliver the events of auctions and of a campaign while they are killed again and again, and
// the receiver fails, stalls, cuts connections and is restarted. Each event arrives, for the first time in order within its topic, and
// repeats have the id and the body of the first.
func TestEventsOutlastKills(t *testing.T) {
	beside(t)
	rng, seed := testwait.Rand(t)
	const bidders = 20
	auctions, bids := testwait.Count(6, 100), testwait.Count(60, 1000) // of each auction
	kills, restarts := testwait.Count(4, 60), testwait.Count(3, 40)

	database := newDatabase(t)
	servers := []*sim.Server{newServer(t, database, subscriptionArgs()...), newServer(t, database, subscriptionArgs()...)}
	c, _ := newClient(t, servers...)
	accounts := []string{"seller"}
	for i := range bidders {
		accounts = append(accounts, fmt.Sprint("bidder-", i))
	}
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, 2*patience), c, accounts, 1_000_000_000))
	m := newMailbox(t, rng)
	everything := m.subscribe(t, c, "plain", `"topics":["auction:*"],"from":"start"`)
	campaign := post(t, c, "/v1/campaigns", `{"name":"raffle","layers":[{"positions":40}],"price":1,"currency":"SIM","beneficiary":"seller","prizes":[{"name":"grand","quantity":1}]}`).ID
	post(t, c, "/v1/campaigns/"+campaign+"/publish", `{}`)
	sales := m.subscribe(t, c, "clouds", fmt.Sprintf(`"topics":["campaign:%s"],"envelope":"cloudevents"`, campaign))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	total := auctions*(bids+1) + 41
	var faults sync.WaitGroup
	var killed, restarted atomic.Int64
	faults.Go(func() { // Kills are spread over the deliveries.
		for i := range kills {
			if !signalled(ctx, m.after((i+1)*total/(kills+1))) {
				return
			}
			server := servers[i%2]
			testwait.Check(t, server.Kill(t.Context())) // What was begun is waited for, also where all has come meanwhile.
			killed.Add(1)
			if _, err := server.Start(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	faults.Go(func() {
		for i := range restarts {
			if !signalled(ctx, m.after((2*i+1)*total/(2*restarts))) {
				return
			}
			m.restart(t)
			restarted.Add(1)
		}
	})

	wanted := map[string]int64{}
	var topics sync.Mutex
	var making sync.WaitGroup
	for worker := range min(auctions, 16) {
		making.Go(func() {
			for i := worker; i < auctions; i += 16 {
				id := post(t, c, "/v1/auctions", `{"title":"lot","currency":"SIM","seller":"seller","cooldown":"0s","unique_amounts":false,"rounds":[{"winners":3,"duration":"24h"}]}`).ID
				post(t, c, "/v1/auctions/"+id+"/start", `{}`)
				var last int64
				for n := range bids {
					last = post(t, c, "/v1/auctions/"+id+"/bids", fmt.Sprintf(`{"account":"bidder-%d","amount":%d}`, n%bidders, n+1)).Seq
				}
				topics.Lock()
				wanted["/plain auction:"+id] = last
				topics.Unlock()
			}
		})
	}
	making.Go(func() {
		for n := range 40 {
			post(t, c, "/v1/campaigns/"+campaign+"/purchases", fmt.Sprintf(`{"account":"bidder-%d"}`, n%bidders))
		}
	})
	making.Wait()
	wanted["/clouds campaign:"+campaign] = 41 // with the draw
	select {
	case <-m.all(wanted):
	case <-testwait.Context(t, time.Duration(testwait.Count(3, 60))*patience).Done():
		m.check(t)
		t.Fatalf("seed %d: the last events did not come: %v", seed, m.last)
	}
	cancel()
	faults.Wait()
	for _, server := range servers {
		if !server.Running() {
			start(t, server)
		}
	}
	m.check(t)
	for _, id := range []string{everything, sales} {
		testwait.Eventually(t, patience, "all places are those of the last events", func() bool {
			var found made
			testwait.Must(t, c.GetJSON(testwait.Context(t, patience), "/v1/subscriptions/"+id+"/topics?limit=200", &found))
			for _, item := range found.Items {
				if item.State != "current" || item.Seq != item.Head {
					return false
				}
			}
			return len(found.Items) > 0
		})
	}
	auditNow(t, database)
	t.Logf("seed %d: %d events, %d repeats, %d kills, %d restarts of the receiver", seed, m.events, m.repeats, killed.Load(), restarted.Load())
	if m.repeats == 0 {
		t.Error("nothing was repeated")
	}
}
