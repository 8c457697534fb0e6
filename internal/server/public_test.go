package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// mark is in the name of every account of [TestPublicAnswersNameNobody], and in nothing else.
const mark = "xyzzy"

// marked is a house whose accounts have marked names: they buy, win, bid, outbid, sell and fail.
type marked struct {
	campaigns, auctions []string
	positions           map[string][]string // by campaign
	accounts            []string
}

func (e *env) marked() *marked {
	e.t.Helper()
	m := &marked{positions: map[string][]string{}}
	for i := range 6 {
		name := fmt.Sprintf("%s-%d@example.com", mark, i)
		m.accounts = append(m.accounts, name)
		e.account(name, "EUR", 10_000)
	}
	seller, buyers := m.accounts[0], m.accounts[1:]
	campaign := func(more string) string {
		id := e.post("/v1/campaigns", `{"name":"n","price":100,"currency":"EUR","beneficiary":"`+seller+`","prizes":[{"name":"p","quantity":2}],`+more+`}`).want(http.StatusCreated).str("id")
		e.campaignPost(id, "publish", "").want(http.StatusOK)
		m.campaigns = append(m.campaigns, id)
		return id
	}
	auction := func(more string) string {
		id := e.post("/v1/auctions", `{"title":"t","currency":"EUR","seller":"`+seller+`","cooldown":"0s",`+more+`}`).want(http.StatusCreated).str("id")
		e.post("/v1/auctions/"+id+"/start", ``).want(http.StatusOK)
		m.auctions = append(m.auctions, id)
		return id
	}
	drawn, half, cancelled := campaign(`"base_length":3`), campaign(`"base_length":4`), campaign(`"base_length":2`)
	for i := range 6 {
		e.buy(drawn, buyers[i%len(buyers)]).want(http.StatusCreated)
	}
	e.buy(drawn, buyers[0]).problem(http.StatusConflict, "sold_out")
	e.get("/v1/campaigns/" + drawn + "/draw").want(http.StatusOK)
	for _, b := range buyers {
		e.buy(half, b).want(http.StatusCreated)
	}
	e.buy(cancelled, buyers[0]).want(http.StatusCreated)
	e.campaignPost(cancelled, "cancel", "").want(http.StatusOK)
	for _, id := range m.campaigns {
		for _, item := range e.items("/v1/campaigns/" + id + "/positions?limit=200") {
			m.positions[id] = append(m.positions[id], item.(map[string]any)["id"].(string)) //nolint:errcheck,forcetypeassert // The contract's.
		}
	}
	running, over := auction(`"rounds":[{"winners":2,"duration":"1h"},{"winners":1,"duration":"1h"}]`), auction(`"rounds":[{"winners":2,"duration":"1h"}]`)
	for i, b := range buyers {
		e.bid(running, b, int64(500+i)).want(http.StatusCreated)
		e.bid(over, b, int64(500+i)).want(http.StatusCreated)
	}
	e.closeRound(running, 1)
	e.closeRound(over, 1)
	e.bid(running, buyers[4], 600).want(http.StatusCreated)
	e.post("/v1/transfers", `{"from":"`+seller+`","to":"`+buyers[0]+`","amount":1000000}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post("/v1/holds", `{"account":"`+seller+`","amount":5}`).want(http.StatusCreated)
	e.lock(seller, "1h", "", seller).want(http.StatusCreated)
	return m
}

// targets are all paths of a route, with everything that there is in place of its parameters.
func (m *marked) targets(pattern string) []string {
	ids := append(append([]string{newUUID(), "nonsense"}, m.campaigns...), m.auctions...)
	switch {
	case !strings.Contains(pattern, "{"):
		return []string{pattern, pattern + "?limit=0", pattern + "?after=x"}
	case strings.Contains(pattern, "{position}"):
		var all []string
		for _, id := range ids {
			for _, position := range append([]string{newUUID(), "nonsense"}, m.positions[id]...) {
				all = append(all, strings.NewReplacer("{id}", id, "{position}", position).Replace(pattern))
			}
		}
		return all
	}
	var all []string
	for _, id := range ids {
		all = append(all, pathParameter.ReplaceAllLiteralString(pattern, id))
	}
	return all
}

// TestPublicAnswersNameNobody asks everything that can be asked without a credential, and searches the answers for the names
// of accounts, and for what a guess of a name could be checked with.
func TestPublicAnswersNameNobody(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	m := e.marked()
	telling := []string{mark} // what an answer must not have
	for _, id := range m.campaigns {
		for _, account := range m.accounts {
			telling = append(telling, guessed(id, account)...)
		}
	}
	for _, id := range m.auctions {
		for _, account := range m.accounts {
			telling = append(telling, guessed(id, account)...)
		}
	}
	// What the proof of one position has of others is a hash of each one's account.
	for _, position := range m.positions[m.campaigns[0]] {
		proof := e.get("/v1/campaigns/" + m.campaigns[0] + "/proof/positions/" + position).want(http.StatusOK)
		telling = append(telling, proof.str("siblings.0"))
	}
	l := newLiveEnv(t, e, live.Options{}, nil) // Its routes serve what the other server has no hub for.
	asked := 0
	search := func(method, url string, header http.Header) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		must(t, err)
		request.Header = header
		response, err := e.http.Do(request)
		must(t, err)
		answer := (&env{t: t}).dumped(response)
		for _, name := range telling {
			if _, after, found := strings.Cut(answer, name); found {
				t.Errorf("%s %s has %q before %s", method, strings.TrimPrefix(url, e.url), name, clip(after))
				break
			}
		}
		asked++
	}
	for _, rt := range e.server.routes() {
		for _, target := range m.targets(rt.path) {
			for _, method := range []string{rt.method, http.MethodHead, http.MethodOptions} {
				search(method, e.url+target, http.Header{"Idempotency-Key": {"k"}})
			}
		}
	}
	for _, path := range []string{"/", "/console/", "/console/session", "/p/", "/p/campaigns", "/p/auctions/", "/debug/pprof/", "/log/checkpoint", "/nothing"} {
		search(http.MethodGet, e.url+path, nil)
		search(http.MethodPost, e.url+path, nil)
	}
	for _, topic := range append(m.topics(), "account:"+m.accounts[1], "nonsense") {
		for _, header := range []http.Header{
			{},
			{"Last-Event-Id": {"0"}},
			{"Authorization": {"Bearer x"}},
			{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}},
		} {
			topic = strings.Replace(topic, mark, "guest", 1) // What was asked for may be said again.
			search(http.MethodGet, l.url+"/v1/events?since=0&topic="+topic, header)
			search(http.MethodGet, l.url+"/v1/live?topic="+topic, header)
		}
	}
	t.Logf("%d answers", asked)
}

func (m *marked) topics() (all []string) {
	for _, id := range m.campaigns {
		all = append(all, "campaign:"+id)
	}
	for _, id := range m.auctions {
		all = append(all, "auction:"+id)
	}
	return all
}

// guessed is what somebody who guesses a name can compute without knowing a secret: an alias must be none of it.
func guessed(id, account string) (all []string) {
	for _, text := range []string{account, id + account, account + id, id + "\n" + account, "fairlead alias\n" + id + "\n" + account, "fairlead alias\n" + account} {
		sum := sha256.Sum256([]byte(text))
		all = append(all, hex.EncodeToString(sum[:])[:32])
	}
	return all
}

// dumped is an answer with its headers.
func (e *env) dumped(response *http.Response) string {
	e.t.Helper()
	defer func() { _ = response.Body.Close() }()
	var all strings.Builder
	fmt.Fprintln(&all, response.Status, response.Header)
	buffer := make([]byte, 32<<10)
	for {
		n, err := response.Body.Read(buffer)
		all.Write(buffer[:n])
		if err != nil {
			return all.String()
		}
	}
}

// TestAliases lets entrants find themselves on public pages with their own credential, and nobody else.
func TestAliases(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	m := e.marked()
	public := e.by("")
	ask := func(account, topic string) *reply {
		t.Helper()
		return e.by(e.user(account)).get("/v1/accounts/" + account + "/aliases?topic=" + topic)
	}
	of := func(topic string) map[string]string {
		t.Helper()
		aliases := map[string]string{}
		for _, account := range m.accounts {
			r := ask(account, topic).want(http.StatusOK)
			sum := sha256.Sum256([]byte("fairlead alias\n" + topic + "\n" + account + "\n" + r.str("salt")))
			if r.str("alias") != hex.EncodeToString(sum[:])[:32] {
				t.Errorf("the salt does not prove the alias: %s", r.body)
			}
			aliases[r.str("alias")] = account
		}
		if len(aliases) != len(m.accounts) {
			t.Errorf("%d accounts have %d aliases", len(m.accounts), len(aliases))
		}
		return aliases
	}
	drawn, running := m.campaigns[0], m.auctions[0]
	inCampaign, inAuction := of("campaign:"+drawn), of("auction:"+running)
	for alias, account := range inCampaign {
		if inAuction[alias] == account {
			t.Errorf("the alias %s can be followed from one page to another", alias)
		}
	}
	state := public.get("/p/campaigns/" + drawn + "/state").want(http.StatusOK)
	for i := range 2 {
		account := e.get("/v1/campaigns/" + drawn + "/draw").str(fmt.Sprintf("winners.%d.account", i))
		if got := inCampaign[state.str(fmt.Sprintf("winners.%d.alias", i))]; got != account {
			t.Errorf("winner %d is %s, whose alias is that of %q", i, account, got)
		}
	}
	if got := inAuction[public.get("/p/auctions/"+running+"/state").str("leaderboard.0.alias")]; got != m.accounts[5] {
		t.Errorf("the leader's alias is that of %q", got)
	}
	sold := e.get("/v1/campaigns/" + drawn + "/purchases").want(http.StatusOK)
	shown := public.get("/p/campaigns/" + drawn + "/positions/" + sold.str("items.0.position.id")).want(http.StatusOK)
	if inCampaign[shown.str("position.alias")] != sold.str("items.0.account") || shown.str("root") != state.str("root") || strings.Contains(string(shown.body), "siblings") {
		t.Errorf("the position of %s: %s", sold.str("items.0.account"), shown.body)
	}
	public.get("/p/campaigns/"+m.campaigns[1]+"/positions/"+m.positions[m.campaigns[1]][0]).problem(http.StatusNotFound, "not_drawn")

	e.by(e.user(m.accounts[1])).get("/v1/accounts/"+m.accounts[2]+"/aliases?topic=campaign:"+drawn).problem(http.StatusForbidden, "forbidden")
	ask("nobody", "campaign:"+drawn).problem(http.StatusNotFound, "not_found")
	ask(m.accounts[1], "campaign:"+newUUID()).problem(http.StatusNotFound, "not_found")
	ask(m.accounts[1], "campaign:"+running).problem(http.StatusNotFound, "not_found")
	for _, topic := range []string{"", "x", "campaign:", "campaign:x", "multidraw:" + newUUID(), strings.ToUpper(drawn), "campaign:{" + drawn + "}", "campaign:" + strings.ToUpper(drawn)} {
		ask(m.accounts[1], topic).problem(http.StatusBadRequest, "bad_request")
	}
	// Every server on the database gives the same ones.
	db, err := postgres.Open(t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 2, Patience: patience, UnavailableAfter: patience})
	must(t, err)
	t.Cleanup(db.Close)
	other := &Server{Options: Options{Operator: postgres.NewOperator(db)}}
	name, err := other.aliasesIn(t.Context(), "campaign:"+drawn)
	must(t, err)
	if inCampaign[name(m.accounts[1]).Alias] != m.accounts[1] {
		t.Error("two servers call an account by two names")
	}
}
