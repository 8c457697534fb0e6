package server

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
)

// accessTable says who may use each route of the contract:
//
//	public   anybody, without a credential
//	staff    admin and service keys; readers too, if it is a GET
//	admin    admin keys; readers too, if it is a GET
//
// and users too:
//
//	open     what everybody sees; drafts are absent to users
//	stream   likewise, but the answer does not end
//	account  the user's own account; another one is refused, whether it exists or not
//	object   what the user's account is a party to; anything else is absent
//	act      a command from the user's own account
const accessTable = `
	public GET /docs | GET /docs/{asset} | GET /healthz | GET /metrics | GET /openapi.json | GET /readyz
	public GET /log/checkpoint | GET /log/key | GET /log/tile/{level}/{tile}
	public GET /p/check
	public GET /p/auctions/{id} | GET /p/auctions/{id}/state
	public GET /p/campaigns/{id} | GET /p/campaigns/{id}/positions/{position} | GET /p/campaigns/{id}/state

	open GET /v1/auctions | GET /v1/auctions/{id} | GET /v1/auctions/{id}/bids | GET /v1/auctions/{id}/leaderboard
	open GET /v1/auctions/{id}/min-winning-bid | GET /v1/auctions/{id}/winners | GET /v1/auctions/{id}/log | GET /v1/campaigns/{id}/log | GET /v1/campaigns/{id}/seal
	open GET /v1/campaigns | GET /v1/campaigns/{id} | GET /v1/campaigns/{id}/draw | GET /v1/campaigns/{id}/positions | GET /v1/campaigns/{id}/proof
	open GET /v1/campaigns/{id}/proof/positions/{position} | GET /v1/campaigns/{id}/purchases | GET /v1/campaigns/{id}/statistics
	stream GET /v1/events | GET /v1/live
	account GET /v1/accounts/{id} | GET /v1/accounts/{id}/aliases | GET /v1/accounts/{id}/bids | GET /v1/accounts/{id}/entries | GET /v1/accounts/{id}/holds
	account GET /v1/accounts/{id}/purchases | GET /v1/accounts/{id}/proof
	open GET /v1/transfers | POST /v1/commands
	object GET /v1/cross-transfers/{id} | GET /v1/holds/{id} | GET /v1/transfers/{id}
	act POST /v1/auctions/{id}/bids | POST /v1/campaigns/{id}/purchases | POST /v1/cross-transfers | POST /v1/transfers

	staff POST /v1/accounts | POST /v1/deposits | POST /v1/withdrawals | GET /v1/integrity
	staff POST /v1/holds | POST /v1/holds/{id}/capture | POST /v1/holds/{id}/release
	staff POST /v1/auctions | POST /v1/auctions/{id}/cancel | POST /v1/auctions/{id}/start
	staff POST /v1/campaigns | POST /v1/campaigns/{id}/cancel | POST /v1/campaigns/{id}/draw | POST /v1/campaigns/{id}/publish
	staff GET /v1/multidraws | POST /v1/multidraws | GET /v1/multidraws/{id} | GET /v1/multidraws/{id}/proof | GET /v1/multidraws/{id}/results | GET /v1/multidraws/{id}/log
	staff POST /v1/multidraws/{id}/resume | POST /v1/multidraws/{id}/rollback
	staff GET /v1/cross-transfers | POST /v1/cross-transfers/{id}/compensate | POST /v1/cross-transfers/{id}/retry | POST /v1/cross-legs
	staff GET /v1/sagas | GET /v1/sagas/{id} | POST /v1/sagas/{id}/compensate | POST /v1/sagas/{id}/retry | GET /v1/in-doubt
	staff GET /v1/publications | POST /v1/publications | GET /v1/publications/{id} | GET /v1/publications/{id}/attempts
	staff POST /v1/publications/{id}/cancel | POST /v1/publications/{id}/publish | POST /v1/publications/{id}/retry | POST /v1/publications/{id}/schedule
	staff GET /v1/automations | POST /v1/automations | GET /v1/automations/{id} | GET /v1/automations/{id}/firings
	staff POST /v1/automations/{id}/cancel | POST /v1/automations/{id}/pause | POST /v1/automations/{id}/resume
	staff GET /v1/subscriptions | POST /v1/subscriptions | GET /v1/subscriptions/{id} | GET /v1/subscriptions/{id}/topics | DELETE /v1/subscriptions/{id}
	staff POST /v1/subscriptions/{id}/pause | POST /v1/subscriptions/{id}/resume | POST /v1/subscriptions/{id}/replay
	staff GET /v1/targets | POST /v1/targets | GET /v1/targets/{id} | POST /v1/targets/{id}/credentials
	staff POST /v1/targets/{id}/pause | POST /v1/targets/{id}/resume | POST /v1/targets/{id}/secret
	staff POST /v1/locks | DELETE /v1/locks/{id} | POST /v1/locks/{id}/renew

	admin GET /v1/admin/accounts | GET /v1/admin/accounts/{id}/entries | GET /v1/admin/accounts/{id}/holds | GET /v1/admin/transfers
	admin GET /v1/admin/auctions | GET /v1/admin/auctions/{id}/bids | GET /v1/admin/auctions/{id}/chart
	admin GET /v1/admin/campaigns | GET /v1/admin/campaigns/{id}/map | GET /v1/admin/audit | GET /v1/admin/idempotency | GET /v1/admin/overview
	admin GET /v1/admin/keys | GET /v1/admin/sagas | GET /v1/admin/targets | GET /v1/admin/automations
	admin GET /v1/admin/automations/{id}/firings | GET /v1/admin/publications/{id}/attempts
	admin GET /v1/admin/search | GET /v1/admin/names | GET /v1/admin/publications | GET /v1/admin/multidraws | GET /v1/admin/campaigns/{id}/purchases
	admin GET /v1/admin/measurements | GET /v1/admin/deadlocks | GET /v1/admin/accounts/{id}/balances | GET /v1/admin/campaigns/{id}/sales
	admin GET /v1/admin/database-waits | GET /v1/locks | POST /v1/in-doubt/adopt
	admin GET /v1/keys | POST /v1/keys | DELETE /v1/keys/{id}`

// who returns the word of the table for a route, empty where it has none.
func who(route string) string {
	for line := range strings.Lines(accessTable) {
		word, routes, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(strings.Split(routes, " | "), route) {
			return word
		}
	}
	return ""
}

// accessScene is what the routes are asked about.
type accessScene struct {
	*env
	// things are the ids for a path that begins so: alice's own or public, bob's or a draft, and one that is absent.
	things   map[string][3]string
	position string
	reader   string // credential of a reader's key
}

func newAccessScene(t *testing.T) *accessScene {
	t.Helper()
	e := newEnv(t)
	for _, account := range []string{"alice", "bob", "shop"} {
		e.account(account, "EUR", 10_000)
	}
	id := func(path, body string) string { return e.post(path, body).want(http.StatusCreated).str("id") }
	both := func(path, body string) [3]string {
		return [3]string{id(path, fmt.Sprintf(body, "alice")), id(path, fmt.Sprintf(body, "bob")), newUUID()}
	}
	drawn := e.onSale(`"base_length":1`, "")
	e.buy(drawn, "alice").want(http.StatusCreated)
	draws := id("/v1/multidraws", `{"lock_key":"one","count":1,"range":{"min":1,"max":6}}`)
	onStage := e.started(twoRounds, "")
	_, reader := e.makeKey(auth.RoleReader, "reads")
	e.keepLog()
	return &accessScene{env: e, reader: reader, position: e.get("/v1/campaigns/" + drawn + "/positions").str("items.0.id"), things: map[string][3]string{
		"/v1/accounts/{id}":                 {"alice", "bob", "nobody"},
		"/v1/admin/accounts/{id}":           {"alice", "bob", "nobody"},
		"/v1/transfers/{id}":                both("/v1/transfers", `{"from":%q,"to":"shop","amount":5}`),
		"/v1/cross-transfers/{id}":          both("/v1/cross-transfers", `{"from":{"ledger":"local","account":"shop"},"to":{"ledger":"local","account":%q},"amount":5,"mode":"saga"}`),
		"/v1/holds/{id}":                    both("/v1/holds", `{"account":%q,"amount":5}`),
		"/v1/campaigns/{id}":                {drawn, e.campaign(`"base_length":2`, ""), newUUID()},
		"/v1/admin/campaigns/{id}":          {drawn, drawn, newUUID()},
		"/v1/campaigns/{id}/purchases POST": {e.onSale(`"base_length":3`, ""), e.campaign(`"base_length":2`, ""), newUUID()},
		"/v1/auctions/{id}":                 {onStage, e.auctioned(twoRounds, ""), newUUID()},
		"/v1/admin/auctions/{id}":           {onStage, onStage, newUUID()},
		"/p/campaigns/{id}":                 {drawn, drawn, drawn},
		"/p/auctions/{id}":                  {onStage, onStage, onStage},
		"/v1/multidraws/{id}":               {draws, draws, newUUID()},
	}}
}

func (s *accessScene) ask(credential, method, path, body string, which int) *reply {
	s.t.Helper()
	return s.by(credential).send(s.about(method, path, body, which))
}

// about is a request about the which-th of the things that the route may be about.
func (s *accessScene) about(method, path, body string, which int) send {
	longest, id := "", newUUID()
	for of, ids := range s.things {
		prefix, only, _ := strings.Cut(of, " ")
		if strings.HasPrefix(path, prefix) && len(of) > len(longest) && (only == "" || only == method) {
			longest, id = of, ids[which]
		}
	}
	filled := strings.NewReplacer("{id}", id, "{position}", s.position, "{asset}", "docs.js", "{level}", "0", "{tile}", "000.p/1").Replace(path)
	if strings.HasSuffix(path, "/aliases") {
		filled += "?topic=campaign:" + s.things["/v1/campaigns/{id}"][0]
	}
	if method == http.MethodGet && path == "/v1/transfers" {
		filled += "?reference=none"
	}
	to := send{method: method, path: filled, header: http.Header{"X-Request-Id": {"same"}}}
	if method != http.MethodGet {
		to.body, to.key = body, newUUID()
	}
	return to
}

// TestAccess asks every route of the contract's document with every kind of credential.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := newAccessScene(t)
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	must(t, json.Unmarshal(s.by("").get("/openapi.json").body, &document))
	asked := 0
	for path, methods := range document.Paths {
		for method := range methods {
			method = strings.ToUpper(method)
			rule := who(method + " " + path)
			switch rule {
			case "":
				t.Errorf("nothing says who may use %s %s", method, path)
				continue
			case "public":
				for _, credential := range []string{"", "wrong"} {
					got, err := s.by(credential).trySend(s.about(method, path, "", 0)) // It need not be JSON.
					must(t, err)
					must(t, got.Body.Close())
					if got.StatusCode != http.StatusOK {
						t.Errorf("%s with credential %q: %d", path, credential, got.StatusCode)
					}
				}
				continue
			}
			asked++
			for which := range 3 {
				s.ask("", method, path, "{", which).problem(http.StatusUnauthorized, "unauthorized")
				s.ask("wrong", method, path, "{", which).problem(http.StatusUnauthorized, "unauthorized")
			}
			s.byKeys(t, rule, method, path)
			s.byUsers(t, rule, method, path)
		}
	}
	if asked < 80 {
		t.Errorf("only %d routes were asked", asked)
	}
}

// byKeys asks a route with keys of each role.
func (s *accessScene) byKeys(t *testing.T, rule, method, path string) {
	t.Helper()
	get := method == http.MethodGet
	for role, c := range map[auth.Role]struct {
		credential string
		may        bool
	}{auth.RoleAdmin: {s.admin, true}, auth.RoleService: {s.service, rule != "admin"}, auth.RoleReader: {s.reader, get}} {
		// What a command asks for is absent, so that it changes nothing.
		which := 2
		if get {
			which = 0
		}
		got := s.ask(c.credential, method, path, `{}`, which)
		switch {
		case !c.may:
			got.problem(http.StatusForbidden, "forbidden")
		case got.status == http.StatusForbidden || got.status == http.StatusUnauthorized:
			t.Errorf("%s may not use %s %s: %s", role, method, path, got.body)
		case get && rule != "stream" && got.status != http.StatusOK && path != "/v1/admin/idempotency" && s.known(path) && !got.lacksSeal():
			t.Errorf("%s asks %s and gets %d: %s", role, got.what, got.status, got.body)
		}
	}
}

// lacksSeal reports whether somebody was told that a campaign's draw is instant, so that no witness saw its seal before: the scene's all are.
func (r *reply) lacksSeal() bool {
	return r.status == http.StatusNotFound && strings.HasSuffix(r.what, "/seal ") && r.str("code") == "not_sealed"
}

// known reports whether the scene has things for a path.
func (s *accessScene) known(path string) bool {
	for of := range s.things {
		if strings.HasPrefix(path, of) {
			return true
		}
	}
	return !strings.Contains(path, "{")
}

// byUsers asks a route as alice, about what is hers or public, what is bob's or a draft, and what is absent.
func (s *accessScene) byUsers(t *testing.T, rule, method, path string) {
	t.Helper()
	alice := s.user("alice")
	bodies := [3]string{`{}`, `{}`, `{}`}
	for i, account := range []string{"alice", "bob", "nobody"} {
		switch path {
		case batchPath: // TestBatchRefusals looks at what users may do in it.
			bodies[i] = batchOf(listed("/v1/transfers", fmt.Sprintf(`{"from":%q,"to":"shop","amount":1}`, account)))
		case "/v1/transfers":
			bodies[i] = fmt.Sprintf(`{"from":%q,"to":"shop","amount":1}`, account)
		case "/v1/cross-transfers":
			bodies[i] = crossBody("local", account, "local", "shop", 1, "saga")
		case "/v1/campaigns/{id}/purchases":
			bodies[i] = fmt.Sprintf(`{"account":%q}`, account)
		case "/v1/auctions/{id}/bids":
			bodies[i] = fmt.Sprintf(`{"account":%q,"amount":50}`, account)
		}
	}
	var got [3]*reply
	for i := range got {
		got[i] = s.ask(alice, method, path, bodies[i], i)
	}
	fine := func(r *reply) {
		t.Helper()
		if r.status != http.StatusOK && r.status != http.StatusCreated && !r.lacksSeal() {
			t.Errorf("a user gets %d from %s: %s", r.status, r.what, r.body)
		}
	}
	switch rule {
	case "open":
		if fine(got[0]); strings.Contains(path, "{id}") {
			got[1].problem(http.StatusNotFound, "not_found")
			got[2].problem(http.StatusNotFound, "not_found")
		}
		return
	case "stream":
		if got[0].status == http.StatusForbidden {
			t.Errorf("users may not use %s", path)
		}
		return
	case "account", "act":
		fine(got[0])
		got[1].problem(http.StatusForbidden, "forbidden")
	case "object":
		fine(got[0])
		got[1].problem(http.StatusNotFound, "not_found")
	default:
		got[0].problem(http.StatusForbidden, "forbidden")
		if string(got[0].body) != string(got[1].body) {
			t.Errorf("%s %s answers %s about one thing and %s about another", method, path, got[0].body, got[1].body)
		}
	}
	// Nobody learns what exists: the same bytes for what is another's, and for what is absent.
	if got[1].status != got[2].status || string(got[1].body) != string(got[2].body) {
		t.Errorf("%s %s tells what exists:\n%s\n%s", method, path, got[1].body, got[2].body)
	}
}

// TestUsersReadTheirOwn looks at what users see of lists that others are in, too, and at objects of each kind of party.
func TestUsersReadTheirOwn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, account := range []string{"alice", "bob", "carol"} {
		e.account(account, "EUR", 10_000)
	}
	alice, bob, carol := e.by(e.user("alice")), e.by(e.user("bob")), e.by(e.user("carol"))

	// Both sides of a transfer read it, whether it was done or refused.
	for _, amount := range []int{5, 50_000} {
		made := alice.post("/v1/transfers", fmt.Sprintf(`{"from":"alice","to":"bob","amount":%d}`, amount))
		member := "id"
		if made.status == http.StatusPaymentRequired {
			member = "transfer"
		}
		id := made.str(member)
		for _, party := range []*env{alice, bob} {
			party.get("/v1/transfers/" + id).want(http.StatusOK).equal(`{"from":"alice","to":"bob"}`)
		}
		carol.get("/v1/transfers/"+id).problem(http.StatusNotFound, "not_found")
	}

	// A campaign's purchases: each buyer's own, in pages, however many others there are between them.
	sale := e.onSale(`"base_length":6`, "")
	mine := map[string][]string{}
	for i := range 20 {
		account := []string{"alice", "bob", "bob"}[i%3]
		mine[account] = append(mine[account], e.buy(sale, account).want(http.StatusCreated).str("id"))
	}
	list := "/v1/campaigns/" + sale + "/purchases"
	for account, want := range mine {
		for _, limit := range []int{1, 3, 7, 200} {
			if got := e.by(e.user(account)).walk(list, "id", limit); !slices.Equal(got, want) {
				t.Errorf("%s sees %v by %d, not %v", account, got, limit, want)
			}
		}
	}
	if got := carol.get(list).want(http.StatusOK); len(got.items()) != 0 || got.at("next") != nil {
		t.Errorf("carol, who bought nothing, sees %s", got.body)
	}
	if got := e.by(e.service).walk(list, "id", 7); len(got) != 20 {
		t.Errorf("a service sees %d of 20 purchases", len(got))
	}

	// Holds: those that a service placed, and that of a bid, until they are closed.
	hold := e.post("/v1/holds", `{"account":"alice","amount":7}`).want(http.StatusCreated).str("id")
	e.post("/v1/holds", `{"account":"bob","amount":8}`).want(http.StatusCreated)
	auction := e.started(twoRounds, "")
	alice.bid(auction, "alice", 40).want(http.StatusCreated)
	held := alice.get("/v1/accounts/alice/holds").want(http.StatusOK)
	if len(held.items()) != 2 {
		t.Fatalf("alice has the holds %s", held.body)
	}
	for i, want := range []string{`{"amount":40,"status":"open","owner":"auction:` + auction + `"}`, `{"id":"` + hold + `","amount":7,"owner":""}`} {
		var members map[string]any
		must(t, json.Unmarshal([]byte(want), &members, json.WithUnmarshalers(exactNumbers())))
		for member, value := range members {
			if got := held.at(fmt.Sprintf("items.%d.%s", i, member)); !reflect.DeepEqual(got, value) {
				t.Errorf("hold %d has the %s %v, not %v", i, member, got, value)
			}
		}
	}
	alice.get("/v1/holds/" + held.str("items.0.id")).want(http.StatusOK).equal(`{"account":"alice","amount":40,"status":"open"}`)
	bob.get("/v1/holds/"+hold).problem(http.StatusNotFound, "not_found")
	e.post("/v1/holds/"+hold+"/release", ``).want(http.StatusOK)
	alice.get("/v1/holds/" + hold).want(http.StatusOK).equal(`{"status":"released"}`)
	if left := alice.get("/v1/accounts/alice/holds").want(http.StatusOK); len(left.items()) != 1 {
		t.Errorf("after a release alice has the holds %s", left.body)
	}
	e.by(e.user("newcomer")).get("/v1/accounts/newcomer/holds").problem(http.StatusNotFound, "not_found")
}

// TestAReaderDoesNotBidOverASocket: the socket is opened by a GET, which readers may send.
func TestAReaderDoesNotBidOverASocket(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	e.account("ann", "EUR", 100)
	id := e.started(oneRound, "")
	_, secret := e.makeKey(auth.RoleReader, "reads")
	before := e.snapshot()
	l.env = e.by(secret)
	c := l.connect()
	c.subscribe("auction:"+id, "")
	c.say(`{"op":"bid","id":1,"auction":%q,"account":"ann","amount":5,"key":"k"}`, id)
	if h := c.hear(); h.Status != http.StatusForbidden || h.Problem == nil || h.Problem.Code != "forbidden" {
		t.Errorf("a reader's bid: %+v %+v", h, h.Problem)
	}
	e.unchanged(before)
}
