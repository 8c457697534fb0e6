package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/auth"
)

// found is what a search gives, as kind and id.
func (e *env) found(q string) (things []string) {
	e.t.Helper()
	r := e.get("/v1/admin/search?q=" + url.QueryEscape(q)).want(http.StatusOK)
	for i := range r.items() {
		things = append(things, r.str(fmt.Sprintf("items.%d.kind", i))+" "+r.str(fmt.Sprintf("items.%d.id", i)))
	}
	return things
}

// TestSearch looks for one of everything by its id, and by its reference or name where it has one.
func TestSearch(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	e.account("alina", "EUR", 0)
	var changed int
	campaign := e.onSale(`"base_length":3`, "")
	e.sql(&changed, `UPDATE campaigns SET name = 'Midsummer REGATTA 50%' WHERE id = $1 RETURNING 1`, campaign)
	for range 3 {
		e.campaign(`"base_length":1`, "")
	}
	auction := e.auctioned(twoRounds, "")
	e.sql(&changed, `UPDATE auctions SET title = 'A brass sextant' WHERE id = $1 RETURNING 1`, auction)
	deposit := e.post("/v1/deposits", `{"account":"alice","amount":1000,"reference":"order-4711"}`).want(http.StatusCreated).str("id")
	hold := e.post("/v1/holds", `{"account":"alice","amount":5}`).want(http.StatusCreated).str("id")
	e.buy(campaign, "alice").want(http.StatusCreated)
	position := e.get("/v1/campaigns/" + campaign + "/positions").str("items.2.id")
	e.target("newsroom", "http://127.0.0.1:9/")
	target := e.get("/v1/targets").str("items.0.id")
	publication := strings.TrimPrefix(e.publication("newsroom", `,"payload":1`), "/v1/publications/")
	rule := e.post("/v1/automations", `{"name":"Weekly digest","target":"newsroom","weekdays":["mon"],"times":["09:00"]}`).want(http.StatusCreated).str("id")
	draws := e.post("/v1/multidraws", `{"lock_key":"daily wheel","count":1,"range":{"min":1,"max":6}}`).want(http.StatusCreated).str("id")
	lock := e.lock("captain", "24h", "", "berth").want(http.StatusCreated).str("id")
	moved := e.post("/v1/cross-transfers", crossBody("local", "alice", "local", "alina", 1, "saga")).want(http.StatusCreated).str("id")

	for q, want := range map[string][]string{
		campaign: {"campaign " + campaign}, auction: {"auction " + auction}, deposit: {"transfer " + deposit}, hold: {"hold alice"}, position: {"position " + campaign},
		target: {"target " + target}, publication: {"publication " + publication}, rule: {"automation " + rule}, draws: {"multidraw " + draws}, lock: {"lock " + lock},
		moved: {"saga " + moved}, e.adminID: {"key " + e.adminID}, "key:" + e.adminID: {"key " + e.adminID}, "auction:" + auction: {"auction " + auction},
		" order-4711 ": {"transfer " + deposit}, "ali": {"account alice", "account alina"}, "alice": {"account alice"}, "escrow/" + campaign: {"account escrow/" + campaign},
		"midsummer r": {"campaign " + campaign}, "regatta": {"campaign " + campaign}, "50%": {"campaign " + campaign}, "BRASS": {"auction " + auction}, "a brass": {"auction " + auction},
		"wheel": {"multidraw " + draws}, "news": {"target " + target}, "digest": {"automation " + rule},
		"": nil, "order-471": nil, "reg_tta": nil, newUUID(): nil, strings.Repeat("x", 500): nil,
	} {
		if got := e.found(q); !slices.Equal(got, want) {
			t.Errorf("%q finds %v, want %v", q, got, want)
		}
	}
	for _, bad := range []string{"search?q=a&q=b", "search?q=%00", "search?q=" + strings.Repeat("x", 501), "names?ids=a", "names?ids=" + campaign + "&ids=" + auction} {
		e.get("/v1/admin/"+bad).problem(http.StatusBadRequest, "bad_request")
	}
	names := e.get("/v1/admin/names?ids=" + strings.Join([]string{campaign, newUUID(), auction}, ",")).want(http.StatusOK)
	if got := fmt.Sprint(names.at("items")); !strings.Contains(got, "Midsummer REGATTA") || !strings.Contains(got, "brass") || len(names.items()) != 2 {
		t.Errorf("names: %s", got)
	}
}

// TestEntriesHaveBalances reads the entries of an account page by page: each has the balance that its own order gives, its kind and the
// other account, and what happens meanwhile changes no later page.
func TestEntriesHaveBalances(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 0)
	for i := range 6 {
		e.post("/v1/transfers", fmt.Sprintf(`{"from":"alice","to":"bob","amount":%d}`, i+1)).want(http.StatusCreated)
	}
	e.post("/v1/transfers", `{"from":"bob","to":"alice","amount":4}`).want(http.StatusCreated)
	e.post("/v1/holds", `{"account":"alice","amount":100}`).want(http.StatusCreated) // It moves nothing.
	want := []string{"transfer bob 4 983", "transfer bob -6 979", "transfer bob -5 985", "transfer bob -4 990", "transfer bob -3 994", "transfer bob -2 997", "transfer bob -1 999", "deposit outside/EUR 1000 1000"}
	for _, limit := range []int{1, 3, 200} {
		var got []string
		for after := ""; ; {
			r := e.get(fmt.Sprintf("/v1/admin/accounts/alice/entries?limit=%d%s", limit, after)).want(http.StatusOK)
			for i := range r.items() {
				at := fmt.Sprintf("items.%d.", i)
				got = append(got, fmt.Sprintf("%s %s %d %d", r.str(at+"kind"), r.str(at+"counterparty"), r.num(at+"amount"), r.num(at+"balance")))
			}
			if r.at("next") == nil {
				break
			}
			after = "&after=" + url.QueryEscape(r.str("next"))
			e.post("/v1/deposits", `{"account":"alice","amount":7}`).want(http.StatusCreated)
		}
		if n := len(got) - len(want); n < 0 || !slices.Equal(got[n:], want) {
			t.Errorf("by %d: %v, want at the end %v", limit, got, want)
		}
	}
	// All entries of the outside have the same version, and it has no balance.
	if got := len(e.pages("/v1/admin/accounts/outside%2FEUR/entries?", "id", 2)); got != e.count("entries WHERE account = 'outside/EUR'") {
		t.Errorf("%d entries of the outside", got)
	}
	if r := e.get("/v1/admin/accounts/outside%2FEUR/entries?limit=1"); r.at("items.0.balance") != nil {
		t.Errorf("the outside has a balance: %s", r.body)
	}
}

// TestNewestPublications narrows the list in each way.
func TestNewestPublications(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.target("one", "http://127.0.0.1:9/")
	e.target("two", "http://127.0.0.1:9/")
	var changed int
	var ids []string // newest first: of two, of one, of two, …
	for i := range 6 {
		ids = append([]string{strings.TrimPrefix(e.publication([]string{"one", "two"}[i%2], `,"payload":1`), "/v1/publications/")}, ids...)
	}
	e.sql(&changed, `UPDATE publications SET status = 'failed', last_error = 'the target answered 404' WHERE id = ANY($1) RETURNING 1`, []string{ids[0], ids[1], ids[2]})
	e.sql(&changed, `UPDATE publications SET status = 'failed', last_error = $2 WHERE id = $1 RETURNING 1`, ids[3], strings.Repeat("é", 150)+"1")
	e.sql(&changed, `UPDATE publications SET status = 'failed', last_error = $2 WHERE id = $1 RETURNING 1`, ids[4], strings.Repeat("é", 150)+"2")
	e.sql(&changed, `UPDATE publications SET last_cause = CASE WHEN id = $1 THEN 'dns' ELSE 'status' END WHERE status <> 'draft' AND id <> $2 RETURNING 1`, ids[1], ids[4])
	const same = "error=the+target+answered+404"
	for filter, want := range map[string][]string{
		"": ids, "status=draft": ids[5:], "target=one": {ids[1], ids[3], ids[5]}, "target=two": {ids[0], ids[2], ids[4]}, "target=three": nil,
		"target=one&status=failed": {ids[1], ids[3]}, "status=failed": ids[:5], same: ids[:3], same + "&status=failed": ids[:3], same + "&target=two": {ids[0], ids[2]},
		"error=" + url.QueryEscape(strings.Repeat("é", 150)+"1"): {ids[3]}, "error=the+target": nil,
		"cause=status": {ids[0], ids[2], ids[3]}, "cause=dns": {ids[1]}, "cause=dns&status=failed": {ids[1]}, "cause=tls": nil, "cause=status&target=two": {ids[0], ids[2]},
	} {
		for _, limit := range []int{1, 2, 200} {
			if got := e.pages("/v1/admin/publications?"+filter+"&", "id", limit); !slices.Equal(got, want) {
				t.Errorf("%s by %d: %v, want %v", filter, limit, got, want)
			}
		}
	}
	e.get("/v1/admin/publications?status=nothing").problem(http.StatusBadRequest, "bad_request")
	for _, wrong := range []string{"cause=nothing", "cause=dns&status=draft", "cause=dns&" + same} {
		e.get("/v1/admin/publications?"+wrong).problem(http.StatusBadRequest, "bad_request")
	}
	e.get("/v1/admin/publications?status=draft&"+same).problem(http.StatusBadRequest, "bad_request")
	next := e.get("/v1/admin/publications?target=one&limit=1").str("next")
	e.get("/v1/admin/publications?target=two&after="+next).problem(http.StatusBadRequest, "bad_request")
}

// TestNewestFirst compares each list of the console with the contract's, which is the same the other way round.
func TestNewestFirst(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 10_000)
	e.account("shop", "EUR", 0)
	var rule, publication string
	for i := range 4 {
		name := fmt.Sprintf("t%d", i)
		e.target(name, "http://127.0.0.1:9/")
		rule = e.post("/v1/automations", fmt.Sprintf(`{"name":%q,"target":%q,"weekdays":["mon"],"times":["09:00"]}`, name, name)).want(http.StatusCreated).str("id")
		publication = e.publication(name, `,"payload":1`)
		e.makeKey(auth.RoleService, name)
		e.post("/v1/cross-transfers", crossBody("local", "alice", "local", "shop", 1, "saga")).want(http.StatusCreated)
	}
	var n int
	e.sql(&n, `WITH made AS (INSERT INTO automation_firings (automation, scheduled_for, fired_at, outcome, skipped)
		SELECT $1, now() - i * interval '1 second', now(), 'no_draft', 0 FROM generate_series(1, 4) AS i RETURNING 1) SELECT count(*) FROM made`, rule)
	e.sql(&n, `WITH made AS (INSERT INTO publication_attempts (publication, version, lock_id, started_at, ended_at, result)
		SELECT $1, i, gen_random_uuid(), now(), now(), 'failed' FROM generate_series(1, 4) AS i RETURNING 1) SELECT count(*) FROM made`, strings.TrimPrefix(publication, "/v1/publications/"))
	for path, member := range map[string]string{
		"targets": "id", "automations": "id", "keys": "id", "sagas": "id", "sagas?status=completed": "id", "sagas?name=cross-transfer": "id",
		"automations/" + rule + "/firings": "scheduled_for", strings.TrimPrefix(publication, "/v1/") + "/attempts": "lock_id",
	} {
		query := path + "?"
		if strings.Contains(path, "?") {
			query = path + "&"
		}
		want := e.pages("/v1/"+query, member, 200)
		if len(want) < 4 {
			t.Errorf("%s has %d items", path, len(want))
		}
		slices.Reverse(want)
		for _, limit := range []int{1, 2, 200} {
			if got := e.pages("/v1/admin/"+query, member, limit); !slices.Equal(got, want) {
				t.Errorf("%s by %d: %v, want %v", path, limit, got, want)
			}
		}
	}
	e.get("/v1/admin/automations/"+newUUID()+"/firings").problem(http.StatusNotFound, "not_found")
	e.get("/v1/admin/publications/"+newUUID()+"/attempts").problem(http.StatusNotFound, "not_found")
}

// TestReadersSignIn has a reader's session read everything, and change nothing.
func TestReadersSignIn(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	_, secret := e.makeKey(auth.RoleReader, "watches")
	as := []string{"Cookie", sessionCookie + "=" + e.signIn(secret), "Sec-Fetch-Site", "same-origin"}
	for _, path := range []string{"/v1/keys", "/v1/admin/overview", "/v1/admin/search?q=a", "/v1/campaigns"} {
		if r := e.browse(http.MethodGet, path, "", as...); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	before := e.count("accounts")
	if r := e.browse(http.MethodPost, "/v1/accounts", `{"id":"bob","currency":"EUR"}`, append(as, "Idempotency-Key", "k")...); r.StatusCode != http.StatusForbidden || e.count("accounts") != before {
		t.Errorf("an action: %d", r.StatusCode)
	}
	if n := e.count("audit_log WHERE action = 'session.begin'"); n != 1 {
		t.Errorf("%d sign-ins are audited", n)
	}
}
