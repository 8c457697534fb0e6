package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDoctorsGrantMendsTheServer takes every privilege from the role of a server. Commands get a retryable 503, /readyz says read_only, and the doctor advises a
// GRANT and nothing else. After that very SQL, every kind of command works.
func TestDoctorsGrantMendsTheServer(t *testing.T) {
	admin := pgtest.Connect(t, startScene(t).node.DatabaseURL())
	do := func(statements ...string) {
		t.Helper()
		for _, sql := range statements {
			testwait.Must(t, testwait.Err(admin.Exec(t.Context(), sql)))
		}
	}
	do(`CREATE ROLE app LOGIN`, `CREATE DATABASE app OWNER app`)
	address, err := url.Parse(admin.Config().ConnString())
	testwait.Must(t, err)
	address.Path = "/app"
	admin = pgtest.Connect(t, address.String())
	address.User = url.User("app")
	s := startSceneWith(t, func(o *fairlead.Options) { o.DatabaseURL = address.String() })
	t.Setenv(keyVariable, s.key)
	ready := func() string {
		t.Helper()
		doc, _ := s.try("GET", "/readyz", nil)
		reason, _ := doc["reason"].(string)
		return reason
	}
	s.call("POST", "/v1/accounts", obj{"id": "before", "currency": "EUR"})

	do(`REVOKE ALL ON ALL TABLES IN SCHEMA public, fairlead_elections FROM app`, `REVOKE ALL ON SCHEMA fairlead_elections FROM app`)
	if doc, status := s.try("POST", "/v1/deposits", obj{"account": "before", "amount": 5}); status != 503 || doc["code"] != "unavailable" || doc["retryable"] != true {
		t.Errorf("a command without privileges: %d %v", status, doc)
	}
	s.eventually("/readyz says it", func() bool { return ready() == "read_only" })
	for _, args := range [][]string{{"--url", s.url}, {"--database-url", address.String()}} {
		out, err := execute(t, append([]string{"doctor"}, args...)...)
		if err == nil || strings.Contains(out, "start PostgreSQL") || strings.Contains(out, keyVariable) || strings.Contains(out, "turn default_transaction") {
			t.Errorf("doctor %s: %v\n%s", args[0], err, out)
		}
	}
	out, err := execute(t, "doctor", "--database-url", address.String(), "--json")
	var found diagnosis
	if err == nil || json.Unmarshal([]byte(out), &found) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range found.Findings {
		if f.Check == "privileges" {
			do(f.Remedy)
		}
	}

	s.eventually("/readyz is content", func() bool { return ready() == "" })
	s.fill()
	s.call("POST", "/v1/holds/"+s.newHold()+"/capture", obj{"to": "shop"})
	s.call("POST", "/v1/holds/"+s.newHold()+"/release", nil)
	s.call("POST", "/v1/withdrawals", obj{"account": "buyer-1", "amount": 5, "reference": "r1"})
	s.call("POST", "/v1/transfers", obj{"legs": []obj{{"from": "buyer-1", "to": "buyer-2", "amount": 5}, {"from": "buyer-2", "to": "shop", "amount": 5}}})
	s.call("POST", "/v1/cross-transfers", obj{"from": obj{"ledger": "local", "account": "buyer-1"}, "to": obj{"ledger": "local", "account": "buyer-2"}, "amount": 5, "mode": "saga"})
	campaign := s.newCampaign("Soon sold", 2)
	s.call("POST", "/v1/campaigns/"+campaign+"/publish", nil)
	s.buy(campaign, 3)
	s.call("GET", "/v1/campaigns/"+campaign+"/proof", nil)
	s.call("POST", "/v1/campaigns/"+s.newCampaign("Not sold", 2)+"/cancel", nil)
	auction := s.newAuction("Soon over", "1h")
	s.call("POST", "/v1/auctions/"+auction+"/start", nil)
	s.bid(auction, 3)
	s.call("POST", "/v1/auctions/"+auction+"/cancel", nil)
	draws := s.id("POST", "/v1/multidraws", obj{"lock_key": "more", "count": 2000, "range": obj{"min": 1, "max": 6}})
	s.call("POST", "/v1/multidraws/"+s.id("POST", "/v1/multidraws", obj{"lock_key": "back", "count": 10, "range": obj{"min": 1, "max": 6}})+"/rollback", nil)
	s.call("DELETE", "/v1/locks/"+s.newLock("a short one"), nil)
	s.newFailure()
	for _, topic := range []string{"campaigns/" + campaign, "auctions/" + auction, "multidraws/" + draws} {
		s.eventually("the public log has "+topic, func() bool {
			items, _ := s.call("GET", "/v1/"+topic+"/log", nil)["items"].([]any)
			return len(items) > 0
		})
	}
	if out, err := execute(t, "keys", "create", "--role", "reader", "--name", "new", "--url", s.url); err != nil {
		t.Errorf("keys create: %v\n%s", err, out)
	}
	if link, signsIn := s.node.ConsoleLink(t.Context(), false); !signsIn {
		t.Errorf("the link %s does not sign in", link)
	}
	if out, err := execute(t, "doctor", "--database-url", address.String()); err != nil || !strings.Contains(out, "ok: privileges: ") {
		t.Errorf("in the end the doctor says: %v\n%s", err, out)
	}
}
