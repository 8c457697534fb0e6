package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Payloads that would run if a page took text for markup. Each sets a name that the tests look for.
const (
	payloadImage  = `<img src=x onerror="window.pwned=1">`
	payloadScript = `"><script>window.pwned=2</script>`
	payloadQuote  = `'-(window.pwned=3)-'`
	payloadLink   = `javascript:window.pwned=4`
)

// scene is a server with something of everything on it.
type scene struct {
	t    *testing.T
	url  string
	key  string
	node *fairlead.Server
	stop func() // ends the server, once

	drawn, onSale, huge, pending string // campaigns
	auction, ended               string
	failed, scheduled, draft     string // publications
	publishing                   string // another one
	automation, multidraw        string
	subscription                 string
	transfer, legs, saga         string
	refusing                     string // target
	adminID                      string // of the key
	made                         int
}

// startScene starts a server as fairlead serve does, in this process, on a private PostgreSQL.
func startScene(t *testing.T) *scene {
	t.Helper()
	return startSceneWith(t, func(*fairlead.Options) {})
}

// dataDir is a directory that PostgreSQL can get to where it runs as another user than this test, which t.TempDir's is not.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(pgtest.Base(), "fairlead-scene-") //nolint:usetesting // See above.
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	testwait.Must(t, err)
	t.Cleanup(func() {
		testwait.Check(t, os.RemoveAll(dir))
	})
	return dir
}

// startSceneWith starts one with other flags.
func startSceneWith(t *testing.T, change func(*fairlead.Options)) *scene {
	t.Helper()
	s := &scene{t: t}
	o := fairlead.Options{
		Listen: "127.0.0.1:0", Data: dataDir(t), DrainTimeout: testwait.Patience, UnavailableAfter: testwait.Patience, AllowPrivateTargets: true,
		AdminKeyMade: func(key string) { s.key = key },
	}
	change(&o)
	ctx, stop := context.WithCancel(context.Background())
	n, err := fairlead.Open(ctx, o)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	addr, err := n.Listen(ctx)
	if err != nil {
		stop()
		t.Fatal(errors.Join(err, n.Close(ctx)))
	}
	s.node, s.url = n, "http://"+addr.String()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// db opens the server's database beside it.
func (s *scene) db() *postgres.DB {
	s.t.Helper()
	db, err := postgres.Open(s.t.Context(), postgres.Options{URL: s.node.DatabaseURL(), MaxConns: 2, Patience: testwait.Patience})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(db.Close)
	return db
}

// call sends a request and returns the answer's document; it fails the test unless the answer is a success.
func (s *scene) call(method, path string, body any) map[string]any {
	s.t.Helper()
	doc, status := s.try(method, path, body)
	if status >= http.StatusBadRequest {
		s.t.Fatalf("%s %s: %d %v", method, path, status, doc)
	}
	return doc
}

func (s *scene) try(method, path string, body any) (map[string]any, int) {
	s.t.Helper()
	return s.keyed(method, path, uuid.NewString(), body)
}

// keyed sends a request under an idempotency key.
func (s *scene) keyed(method, path, key string, body any) (map[string]any, int) {
	s.t.Helper()
	content, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	if body == nil {
		content = nil
	}
	// A request that waits for ever fails the test, and names itself.
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	doc := map[string]any{}
	if len(answer) > 0 {
		if err := json.Unmarshal(answer, &doc); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
	return doc, resp.StatusCode
}

func (s *scene) id(method, path string, body any) string {
	s.t.Helper()
	id, _ := s.call(method, path, body)["id"].(string)
	return id
}

type obj = map[string]any

func (s *scene) account(id string, amount int) {
	s.t.Helper()
	s.call("POST", "/v1/accounts", obj{"id": id, "currency": "EUR"})
	if amount > 0 {
		s.call("POST", "/v1/deposits", obj{"account": id, "amount": amount, "memo": payloadImage})
	}
}

// newCampaign makes a campaign on a triangle, not yet on sale.
func (s *scene) newCampaign(name string, base int) string {
	s.t.Helper()
	return s.id("POST", "/v1/campaigns", obj{
		"name": name, "base_length": base, "price": 250, "currency": "EUR", "beneficiary": "shop",
		"prizes": []obj{{"name": "A weekend at sea " + payloadScript, "quantity": 1, "layer": 1}, {"name": "A pennant", "quantity": min(base, 3)}},
	})
}

func (s *scene) buy(campaign string, n int) {
	s.t.Helper()
	for range n {
		s.made++
		s.call("POST", "/v1/campaigns/"+campaign+"/purchases", obj{"account": fmt.Sprintf("buyer-%d", s.made%5)})
	}
}

func (s *scene) newAuction(title, duration string) string {
	s.t.Helper()
	return s.newSnipedAuction(title, duration, "5m")
}

// newSnipedAuction is one whose bids within the window extend the round.
func (s *scene) newSnipedAuction(title, duration, window string) string {
	s.t.Helper()
	return s.id("POST", "/v1/auctions", obj{
		"title": title, "currency": "EUR", "seller": "shop", "min_bid": 100, "min_increment": 50, "cooldown": "0s",
		"rounds":     []obj{{"winners": 2, "duration": duration}, {"winners": 1, "duration": "2h"}},
		"anti_snipe": obj{"window": window, "extension": "30s", "max_extensions": 3},
	})
}

func (s *scene) bid(auction string, n int) {
	s.t.Helper()
	for i := range n {
		s.made++
		s.try("POST", "/v1/auctions/"+auction+"/bids", obj{"account": fmt.Sprintf("buyer-%d", i%5), "amount": 1000 + 137*s.made})
	}
}

// fill puts something of everything on the server.
func (s *scene) fill() {
	s.t.Helper()
	keys, _ := s.call("GET", "/v1/keys", nil)["items"].([]any)
	first, _ := keys[0].(obj)
	s.adminID, _ = first["id"].(string)
	s.keyed("POST", "/v1/accounts", "known", obj{"id": "shop", "currency": "EUR"})
	for i := range 5 {
		s.account(fmt.Sprintf("buyer-%d", i), 1_000_000)
	}
	s.drawn = s.newCampaign("Harbour festival "+payloadImage, 14)
	s.call("POST", "/v1/campaigns/"+s.drawn+"/publish", nil)
	s.buy(s.drawn, 105)
	s.onSale = s.newCampaign("Midsummer regatta", 20)
	s.call("POST", "/v1/campaigns/"+s.onSale+"/publish", nil)
	s.buy(s.onSale, 77)
	s.huge = s.newCampaign("The thousand layers", 1000)
	s.call("POST", "/v1/campaigns/"+s.huge+"/publish", nil)
	s.buy(s.huge, 9)
	s.pending = s.newCampaign(strings.Repeat("A very long name that has to wrap somewhere ", 4), 5)

	s.auction = s.newSnipedAuction("The figurehead "+payloadScript, "2h", "3h")
	s.call("POST", "/v1/auctions/"+s.auction+"/start", nil)
	s.bid(s.auction, 60)
	s.ended = s.newAuction("A brass sextant", "10m")
	s.call("POST", "/v1/auctions/"+s.ended+"/start", nil)
	s.call("POST", "/v1/auctions/"+s.ended+"/cancel", nil)

	s.legs = s.id("POST", "/v1/transfers", obj{"legs": []obj{{"from": "buyer-0", "to": "shop", "amount": 300}, {"from": "shop", "to": "buyer-1", "amount": 10}}})
	s.transfer = s.id("POST", "/v1/transfers", obj{"from": "buyer-0", "to": "shop", "amount": 1999, "memo": payloadScript})
	s.try("POST", "/v1/transfers", obj{"from": "shop", "to": "buyer-0", "amount": 900_000_000})
	s.newHold()
	s.saga = s.id("POST", "/v1/cross-transfers", obj{"from": obj{"ledger": "local", "account": "buyer-2"}, "to": obj{"ledger": "local", "account": "shop"}, "amount": 500, "mode": "saga"})

	s.call("POST", "/v1/targets", obj{"name": "newsroom " + payloadQuote, "kind": "webhook", "url": "http://127.0.0.1:9/hook"})
	s.call("POST", "/v1/targets", obj{"name": "nowhere", "kind": "webhook", "url": "http://127.0.0.1:9/" + payloadLink})
	s.failed = s.newFailure()
	s.publishing = s.newAttempt()
	s.scheduled = s.newPublication("newsroom "+payloadQuote, true)
	s.draft = s.newPublication("newsroom "+payloadQuote, false)

	s.multidraw = s.id("POST", "/v1/multidraws", obj{"lock_key": "daily " + payloadImage, "count": 300, "range": obj{"min": 1, "max": 49}})
	s.call("POST", "/v1/multidraws", obj{"lock_key": "wheel", "count": 20, "prizes": []obj{{"id": "gold", "name": payloadImage, "weight": 1}, {"id": "tin", "name": "Tin", "weight": 9}}})
	s.newLock("ship " + payloadImage)
	s.newKey(payloadScript)
	s.subscription = s.newSubscription("Bids and sales "+payloadImage, "nowhere", "auction:*", "campaign:"+s.onSale)
	s.automation = s.id("POST", "/v1/automations", obj{"name": "Weekly digest " + payloadImage, "target": "nowhere", "weekdays": []string{"mon"}, "times": []string{"09:00"}})
}

// newSubscription delivers topics from their first events.
func (s *scene) newSubscription(name, target string, topics ...string) string {
	s.t.Helper()
	return s.id("POST", "/v1/subscriptions", obj{"name": name, "target": target, "topics": topics, "from": "start"})
}

func (s *scene) newHold() string {
	s.t.Helper()
	return s.id("POST", "/v1/holds", obj{"account": "buyer-1", "amount": 700})
}

func (s *scene) newPublication(target string, later bool) string {
	s.t.Helper()
	o := obj{"target": target, "payload": obj{"title": payloadScript, "body": payloadImage}}
	if later {
		o["publish_at"] = time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	}
	return s.id("POST", "/v1/publications", o)
}

// newFailure makes a publication that has failed: its target answers 404.
func (s *scene) newFailure() string {
	s.t.Helper()
	s.made++
	target := fmt.Sprintf("refuses-%d", s.made)
	s.refusing = s.id("POST", "/v1/targets", obj{"name": target, "kind": "webhook", "url": s.url + "/nothing-is-here"})
	id := s.newPublication(target, false)
	s.call("POST", "/v1/publications/"+id+"/publish", nil)
	s.eventually("the publication fails", func() bool { return s.call("GET", "/v1/publications/"+id, nil)["status"] == "failed" })
	return id
}

// newAttempt makes a publication whose target takes the connection, and never answers.
func (s *scene) newAttempt() string {
	s.t.Helper()
	silent, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = silent.Close() })
	s.call("POST", "/v1/targets", obj{"name": "silent", "kind": "webhook", "url": "http://" + silent.Addr().String(), "timeout": "15m"})
	id := s.newPublication("silent", false)
	s.call("POST", "/v1/publications/"+id+"/publish", nil)
	s.eventually("the attempt begins", func() bool { return s.call("GET", "/v1/publications/"+id, nil)["current_attempt"] != nil })
	return id
}

func (s *scene) newLock(owner string) string {
	s.t.Helper()
	s.made++
	return s.id("POST", "/v1/locks", obj{"keys": []string{fmt.Sprintf("berth-%d", s.made), "crane " + owner}, "owner": owner, "ttl": "2h"})
}

func (s *scene) newKey(name string) string {
	s.t.Helper()
	s.made++
	return s.id("POST", "/v1/keys", obj{"role": "service", "name": name, "hash": fmt.Sprintf("%064x", s.made)})
}

// queue makes three owners wait for each other in a row until the test ends.
func (s *scene) queue() {
	s.t.Helper()
	s.call("POST", "/v1/locks", obj{"keys": []string{"dock-a"}, "owner": "captain " + payloadImage, "ttl": "2h"})
	s.call("POST", "/v1/locks", obj{"keys": []string{"dock-b"}, "owner": "pilot", "ttl": "2h"})
	s.wait([][2]string{{"pilot", "dock-a"}, {"harbourmaster", "dock-b"}, {"tug", "dock-a"}})
}

// wait lets owners, first of each pair, wait for keys until the test ends.
func (s *scene) wait(waits [][2]string) {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	for _, w := range waits {
		waiting.Go(func() {
			body := fmt.Sprintf(`{"keys":[%q],"owner":%q,"ttl":"1m","wait":"10m"}`, w[1], w[0])
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/locks", strings.NewReader(body))
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer "+s.key)
			req.Header.Set("Idempotency-Key", uuid.NewString())
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	s.t.Cleanup(func() {
		stop()
		waiting.Wait()
	})
	// Others may wait already, so each of these is looked for.
	s.eventually("they wait", func() bool {
		waiters, _ := s.call("GET", "/v1/locks", nil)["waiters"].([]any)
		for _, w := range waits {
			if !slices.ContainsFunc(waiters, func(x any) bool {
				o, _ := x.(obj)
				keys, _ := o["keys"].([]any)
				return o["owner"] == w[0] && slices.Contains(keys, any(w[1]))
			}) {
				return false
			}
		}
		return true
	})
}

// eventually polls until ok holds.
func (s *scene) eventually(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(stepTimeout)
	for !ok() {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not within %v", what, stepTimeout)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.t.Context().Done():
			s.t.Fatal(s.t.Context().Err())
		}
	}
}
