package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mcpWrite is a write of an agent's, and how to see that it happened once.
type mcpWrite struct {
	tool string
	// arrange makes what it is about, under a name of its own, and returns its arguments.
	arrange func(s *scene, name string) obj
	// seen describes the state on which it acts; it is compared before and after.
	seen func(s *scene, name string, args obj) string
	want string // of seen afterwards
}

// status is what a thing's document says of it.
func (s *scene) status(path string, id any) string {
	s.t.Helper()
	return fmt.Sprint(s.call("GET", fmt.Sprintf("%s/%v", path, id), nil)["status"])
}

// named counts the items of a list whose member has a value.
func (s *scene) named(path, member, value string) string {
	s.t.Helper()
	n := 0
	for page := "?limit=200"; ; {
		doc := s.call("GET", path+page, nil)
		items, _ := doc["items"].([]any)
		for _, item := range items {
			if one, _ := item.(obj); fmt.Sprint(one[member]) == value {
				n++
			}
		}
		next, more := doc["next"].(string)
		if !more {
			return fmt.Sprint(n)
		}
		page = "?limit=200&after=" + next
	}
}

func mcpWrites() []mcpWrite {
	both := func(s *scene, name string, _ obj) string {
		return s.available(name+"-a") + " " + s.available(name+"-b")
	}
	pair := func(s *scene, name string) {
		s.account(name+"-a", 1000)
		s.account(name+"-b", 0)
	}
	auction := func(s *scene, name string) string {
		return s.id("POST", "/v1/auctions", obj{"title": name, "currency": "EUR", "seller": name + "-b", "rounds": []obj{{"winners": 1, "duration": "1h"}}})
	}
	campaign := func(s *scene, name string) string {
		return s.id("POST", "/v1/campaigns", obj{"name": name, "currency": "EUR", "base_length": 3, "price": 250, "beneficiary": name + "-b", "prizes": []obj{{"name": "One", "quantity": 1}}})
	}
	return []mcpWrite{
		{
			tool:    "prepare_account",
			arrange: func(_ *scene, name string) obj { return obj{"account": name, "currency": "EUR"} },
			seen: func(s *scene, name string, _ obj) string {
				doc, _ := s.try("GET", "/v1/accounts/"+name, nil)
				return fmt.Sprint(doc["version"])
			},
			want: "1",
		},
		{
			tool: "prepare_transfer", want: "750+0 250+0", seen: both,
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"from": name + "-a", "to": name + "-b", "amount": 250, "memo": "<1 & 2>", "reference": nil}
			},
		},
		{
			tool: "prepare_transfer", want: "800+0 200+0", seen: both,
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"legs": []obj{{"from": name + "-a", "to": name + "-b", "amount": 300}, {"from": name + "-b", "to": name + "-a", "amount": 100}}}
			},
		},
		{
			tool: "prepare_deposit", want: "1000+0 40+0", seen: both,
			arrange: func(s *scene, name string) obj { pair(s, name); return obj{"account": name + "-b", "amount": 40} },
		},
		{
			tool: "prepare_withdrawal", want: "960+0 0+0", seen: both,
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"account": name + "-a", "amount": 40, "reference": "bank " + name}
			},
		},
		{
			tool: "prepare_hold", want: "990+10 0+0", seen: both,
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"account": name + "-a", "amount": 10, "expires_in": "1h"}
			},
		},
		{
			tool: "prepare_capture", want: "970+0 30+0", seen: both,
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"hold": s.id("POST", "/v1/holds", obj{"account": name + "-a", "amount": 100}), "to": name + "-b", "amount": 30}
			},
		},
		{
			tool: "prepare_release", want: "1000+0 0+0", seen: both,
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"hold": s.id("POST", "/v1/holds", obj{"account": name + "-a", "amount": 100})}
			},
		},
		{
			tool: "prepare_campaign", want: "1",
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"name": name, "currency": "EUR", "beneficiary": name + "-b", "layers": []obj{{"positions": 2, "price": 5}, {"positions": 3, "price": 7}}, "prizes": []obj{{"name": "One", "quantity": 1}}, "purchase_limit": 2}
			},
			seen: func(s *scene, name string, _ obj) string { return s.named("/v1/campaigns", "name", name) },
		},
		{
			tool: "prepare_campaign_step", want: "active",
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"campaign": campaign(s, name), "step": "publish"}
			},
			seen: func(s *scene, _ string, args obj) string { return s.status("/v1/campaigns", args["campaign"]) },
		},
		{
			tool: "prepare_campaign_step", want: "cancelled 1000+0 0+0",
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				id := campaign(s, name)
				s.call("POST", "/v1/campaigns/"+id+"/publish", nil)
				s.call("POST", "/v1/campaigns/"+id+"/purchases", obj{"account": name + "-a"})
				return obj{"campaign": id, "step": "cancel"}
			},
			seen: func(s *scene, name string, args obj) string {
				return s.status("/v1/campaigns", args["campaign"]) + " " + both(s, name, nil)
			},
		},
		{
			tool: "prepare_purchase", want: "1 750+0 0+0",
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				id := campaign(s, name)
				s.call("POST", "/v1/campaigns/"+id+"/publish", nil)
				return obj{"campaign": id, "account": name + "-a", "layer": 2}
			},
			seen: func(s *scene, name string, args obj) string {
				return fmt.Sprint(s.call("GET", fmt.Sprintf("/v1/campaigns/%v", args["campaign"]), nil)["sold_positions"]) + " " + both(s, name, nil)
			},
		},
		{
			tool: "prepare_auction", want: "1",
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"title": name, "currency": "EUR", "seller": name + "-b", "rounds": []obj{{"winners": 1, "duration": "1h"}}, "cooldown": "0s", "unique_amounts": false, "anti_snipe": obj{"window": "1s", "extension": "1s", "max_extensions": 1}}
			},
			seen: func(s *scene, name string, _ obj) string { return s.named("/v1/auctions", "title", name) },
		},
		{
			tool: "prepare_auction_step", want: "active",
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				return obj{"auction": auction(s, name), "step": "start"}
			},
			seen: func(s *scene, _ string, args obj) string { return s.status("/v1/auctions", args["auction"]) },
		},
		{
			tool: "prepare_bid", want: "1 850+150 0+0",
			arrange: func(s *scene, name string) obj {
				pair(s, name)
				id := auction(s, name)
				s.call("POST", "/v1/auctions/"+id+"/start", nil)
				return obj{"auction": id, "account": name + "-a", "amount": 150}
			},
			seen: func(s *scene, name string, args obj) string {
				return fmt.Sprint(s.call("GET", fmt.Sprintf("/v1/auctions/%v", args["auction"]), nil)["total_bids"]) + " " + both(s, name, nil)
			},
		},
		{
			tool: "prepare_publication", want: "1",
			arrange: func(s *scene, name string) obj {
				s.call("POST", "/v1/targets", obj{"name": name, "kind": "webhook", "url": "http://127.0.0.1:9/hook"})
				return obj{"target": name, "payload": []any{name, nil, 1.5}, "publish_at": time.Now().Add(24 * time.Hour).Format(time.RFC3339)}
			},
			seen: func(s *scene, name string, _ obj) string { return s.named("/v1/publications", "target", name) },
		},
		{
			tool: "prepare_publication_step", want: "scheduled",
			arrange: func(s *scene, name string) obj {
				s.call("POST", "/v1/targets", obj{"name": name, "kind": "webhook", "url": "http://127.0.0.1:9/hook"})
				return obj{"publication": s.newPublication(name, false), "step": "schedule", "publish_at": time.Now().Add(24 * time.Hour).Format(time.RFC3339), "jitter": "1m"}
			},
			seen: func(s *scene, _ string, args obj) string {
				return s.status("/v1/publications", args["publication"])
			},
		},
	}
}

// TestMCPWritesActOnce: whatever an agent commits ten times is done once: in a row, at once by two processes, and by processes that
// were started after the one that had prepared it, and the one that had committed it, were killed.
func TestMCPWritesActOnce(t *testing.T) { //nolint:tparallel // Its parts use one server, in order.
	t.Parallel()
	s := startScene(t)
	ways := []struct {
		name string
		run  func(t *testing.T, a *agent, prepared []obj, again func() *agent)
	}{{"in a row", commitInARow}, {"at once", commitAtOnce}, {"over a kill", commitOverAKill}}
	for name, start := range map[string]func(*testing.T, string, ...string) *agent{"stdio": newAgent, "http": newWebAgent} {
		for _, way := range ways {
			t.Run(name+" "+way.name, func(t *testing.T) {
				s := *s // Failures are this test's.
				s.t = t
				again := func() *agent { return start(t, s.key, "--url", s.url, "--allow-writes") }
				a := again()
				writes := mcpWrites()
				prepared, args, before := make([]obj, len(writes)), make([]obj, len(writes)), make([]string, len(writes))
				unique := func(i int) string { return fmt.Sprintf("%s-%s-%d", name, strings.ReplaceAll(way.name, " ", "-"), i) }
				for i, w := range writes {
					args[i] = w.arrange(&s, unique(i))
					before[i] = w.seen(&s, unique(i), args[i])
					prepared[i] = a.call(w.tool, args[i])
					if unchanged := w.seen(&s, unique(i), args[i]); unchanged != before[i] {
						t.Errorf("%s: prepare changed %s to %s", w.tool, before[i], unchanged)
					}
					if refused, _ := prepared[i]["refused_now"].([]any); len(refused) > 0 || prepared[i]["summary"] == "" {
						t.Errorf("%s: %v", w.tool, prepared[i])
					}
				}
				way.run(t, a, prepared, again)
				for i, w := range writes {
					if after := w.seen(&s, unique(i), args[i]); after != w.want || after == before[i] {
						t.Errorf("%s %v: %s, want %s, before %s", w.tool, args[i], after, w.want, before[i])
					}
				}
			})
		}
	}
	out, err := s.integrity()
	if err != nil || out != "true" {
		t.Errorf("the books: %s, %v", out, err)
	}
}

func commitInARow(t *testing.T, a *agent, prepared []obj, _ func() *agent) {
	t.Helper()
	for _, in := range prepared {
		for i := range 10 {
			if got := a.call("commit", obj{"id": in["id"]}); (got["repeated"] == true) != (i > 0) {
				t.Errorf("commit %d: %v", i, got)
			}
		}
	}
}

func commitAtOnce(t *testing.T, a *agent, prepared []obj, again func() *agent) {
	t.Helper()
	processes := []*agent{a, again()}
	for _, in := range prepared {
		var firsts atomic.Int64
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				got, failed := processes[i%2].try("commit", obj{"id": in["id"], "command": in["command"]})
				switch {
				case failed:
					t.Errorf("%v", got)
				case got["repeated"] == false:
					firsts.Add(1)
				}
			})
		}
		calls.Wait()
		if firsts.Load() != 1 {
			t.Errorf("%v: %d of ten say that they were the first", in["summary"], firsts.Load())
		}
	}
}

func commitOverAKill(t *testing.T, a *agent, prepared []obj, again func() *agent) {
	t.Helper()
	a.kill()
	b := again()
	firsts := make([]obj, len(prepared))
	for i, in := range prepared {
		b.refused("prepared_unknown", "unknown", "commit", obj{"id": in["id"]})
		firsts[i] = b.call("commit", obj{"id": in["id"], "command": in["command"]})
	}
	b.kill() // It may as well have died before its answers came.
	c := again()
	for i, in := range prepared {
		for range 9 {
			got := c.call("commit", obj{"id": in["id"], "command": in["command"]})
			if got["repeated"] != true || fmt.Sprint(got["answer"]) != fmt.Sprint(firsts[i]["answer"]) {
				t.Errorf("%v after %v", got, firsts[i])
			}
		}
	}
}

func (s *scene) integrity() (string, error) {
	doc, status := s.try("GET", "/v1/integrity", nil)
	if status != http.StatusOK {
		return "", errors.New("no answer")
	}
	return fmt.Sprint(doc["valid"]), nil
}
