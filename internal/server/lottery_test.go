package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// campaign makes a campaign and returns its id. shape is base_length or layers; more are further members. The
// beneficiary "house" is made when it is not there.
func (e *env) campaign(shape, more string) string {
	e.t.Helper()
	if e.by(e.admin).get("/v1/accounts/house").status == http.StatusNotFound {
		e.account("house", "EUR", 0)
	}
	if !strings.Contains(more, `"prizes"`) {
		more += `,"prizes":[{"name":"grand","quantity":1}]`
	}
	body := `{"name":"summer","currency":"EUR","beneficiary":"house","price":100,` + shape + `,` + strings.TrimPrefix(more, ",") + `}`
	return e.by(e.admin).post("/v1/campaigns", body).want(http.StatusCreated).str("id")
}

// onSale makes and publishes a campaign.
func (e *env) onSale(shape, more string) string {
	e.t.Helper()
	id := e.campaign(shape, more)
	e.campaignPost(id, "publish", ``).want(http.StatusOK)
	return id
}

func (e *env) campaignPost(id, verb, body string) *reply {
	e.t.Helper()
	return e.by(e.admin).post("/v1/campaigns/"+id+"/"+verb, body)
}

func (e *env) buy(id, account string) *reply {
	e.t.Helper()
	return e.by(e.admin).post("/v1/campaigns/"+id+"/purchases", fmt.Sprintf(`{"account":%q}`, account))
}

func (e *env) buyIn(id, account string, layer int) *reply {
	e.t.Helper()
	return e.by(e.admin).post("/v1/campaigns/"+id+"/purchases", fmt.Sprintf(`{"account":%q,"layer":%d}`, account, layer))
}

func TestCampaigns(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("house", "EUR", 0)
	made := e.post("/v1/campaigns", `{"name":"Sommer ☀","base_length":3,"price":250,"currency":"EUR","beneficiary":"house",
		"prizes":[{"name":"car","layer":1,"quantity":1},{"name":"mug","quantity":4}],"purchase_limit":2,"draw":"instant"}`).want(http.StatusCreated)
	made.exactly(made.decoded, "id", "name", "status", "draw", "base_length", "currency", "price", "beneficiary", "purchase_limit",
		"total_positions", "sold_positions", "layers", "prizes", "commitment", "witnesses", "version", "created_at", "published_at", "completed_at", "cancelled_at")
	made.equal(`{"name":"Sommer ☀","status":"pending","draw":"instant","base_length":3,"currency":"EUR","price":250,"beneficiary":"house",
		"purchase_limit":2,"total_positions":6,"sold_positions":0,
		"layers":[{"layer":1,"positions":1,"sold":0,"price":250},{"layer":2,"positions":2,"sold":0,"price":250},{"layer":3,"positions":3,"sold":0,"price":250}],
		"prizes":[{"name":"car","layer":1,"quantity":1},{"name":"mug","layer":null,"quantity":4}],
		"published_at":null,"completed_at":null,"cancelled_at":null}`).uuids("id").times("created_at")
	if len(made.str("commitment")) != 64 || strings.Trim(made.str("commitment"), "0123456789abcdef") != "" {
		t.Errorf("commitment %q", made.str("commitment"))
	}
	if read := e.get("/v1/campaigns/" + made.str("id")).want(http.StatusOK); string(read.body) != string(made.body) {
		t.Errorf("read %s, made %s", read.body, made.body)
	}

	layered := e.post("/v1/campaigns", `{"name":"x","layers":[{"positions":2,"price":500},{"positions":5}],"price":100,"currency":"EUR","beneficiary":"house",
		"prizes":[{"name":"a","quantity":1}],"base_length":null,"purchase_limit":null,"draw":null}`).want(http.StatusCreated)
	layered.equal(`{"base_length":null,"purchase_limit":null,"total_positions":7,"draw":"instant",
		"layers":[{"layer":1,"positions":2,"sold":0,"price":500},{"layer":2,"positions":5,"sold":0,"price":100}]}`)
	own := e.post("/v1/campaigns", `{"name":"x","layers":[{"positions":1,"price":7}],"currency":"EUR","beneficiary":"house","prizes":[{"name":"a","quantity":1}]}`)
	own.want(http.StatusCreated).equal(`{"price":null}`)
	if layered.str("commitment") == own.str("commitment") {
		t.Error("two campaigns share a commitment")
	}

	list := e.get("/v1/campaigns").want(http.StatusOK)
	for i, id := range []string{made.str("id"), layered.str("id"), own.str("id")} {
		if list.str(fmt.Sprintf("items.%d.id", i)) != id {
			t.Errorf("campaign %d of the list is not the one made then", i)
		}
		list.exactly(list.at("items."+strconv.Itoa(i)), "id", "name", "status", "currency", "total_positions", "sold_positions", "created_at")
	}
	for _, path := range []string{"", "/positions", "/purchases", "/draw", "/proof", "/statistics", "/proof/positions/" + newUUID()} {
		e.get("/v1/campaigns/"+newUUID()+path).problem(http.StatusNotFound, "not_found")
	}
	for _, verb := range []string{"publish", "cancel", "draw"} {
		e.campaignPost(newUUID(), verb, ``).problem(http.StatusNotFound, "not_found")
		e.campaignPost("00000000-0000-0000-0000-000000000000", verb, ``).problem(http.StatusNotFound, "not_found")
	}
	e.buy(newUUID(), "house").problem(http.StatusNotFound, "not_found")
}

func TestCampaignLimitsAndRefusals(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("house", "EUR", 0)
	create := func(members string) *reply {
		t.Helper()
		body := `{"name":"n","currency":"EUR","beneficiary":"house",` + members + `}`
		if strings.Contains(members, `"beneficiary"`) {
			body = `{"name":"n","currency":"EUR",` + members + `}`
		}
		return e.post("/v1/campaigns", body)
	}
	prize := `"prizes":[{"name":"a","quantity":1}]`
	for _, ok := range []string{
		`"base_length":1,"price":1,` + prize,
		`"base_length":1,"price":9007199254740991,"purchase_limit":2147483647,` + prize,
		`"layers":[{"positions":1000000}],"price":1,` + prize,
		`"layers":[` + strings.Repeat(`{"positions":1},`, 999) + `{"positions":1}],"price":1,` + prize,
		`"base_length":3,"price":1,"prizes":[{"name":"a","quantity":6},{"name":"b","layer":3,"quantity":3},{"name":"` + strings.Repeat("ß", 200) + `","quantity":1}]`,
	} {
		create(ok).want(http.StatusCreated)
	}
	before := e.snapshot()
	for _, bad := range []string{
		prize, `"base_length":3,"layers":[{"positions":1}],"price":1,` + prize, `"base_length":3,` + prize,
		`"layers":[{"positions":1,"price":5},{"positions":1}],` + prize, `"layers":[],"price":1,` + prize,
		`"layers":[{"positions":1000001}],"price":1,` + prize, `"layers":[{"positions":1000000},{"positions":1}],"price":1,` + prize,
		`"layers":[` + strings.Repeat(`{"positions":1},`, 1000) + `{"positions":1}],"price":1,` + prize,
		`"base_length":1001,"price":1,` + prize, `"base_length":3,"price":1,"prizes":[]`, `"base_length":3,"price":1`,
		`"base_length":3,"price":1,"prizes":[{"name":"a","quantity":1},{"name":"a","quantity":1}]`,
		`"base_length":3,"price":1,"prizes":[{"name":"a","quantity":1},{"name":"a","layer":1,"quantity":1}]`,
		`"base_length":1000,"price":9007199254740991,` + prize, // the total of all prices is no 64-bit integer
		`"layers":[{"positions":1000000,"price":9007199254740991},{"positions":1}],"price":1,` + prize,
		`"base_length":3,"price":1,"draw":"manual",` + prize,
	} {
		create(bad).problem(http.StatusBadRequest, "bad_request")
	}
	// Absent things are not found, and that is no decision.
	create(`"base_length":3,"price":1,"prizes":[{"name":"a","layer":4,"quantity":1}]`).problem(http.StatusNotFound, "not_found")
	create(`"base_length":3,"price":1,"beneficiary":"nobody",`+prize).problem(http.StatusNotFound, "not_found")
	e.unchanged(before)

	for _, many := range []string{
		`"base_length":3,"price":1,"prizes":[{"name":"a","quantity":7}]`,
		`"base_length":3,"price":1,"prizes":[{"name":"a","quantity":1},{"name":"b","layer":2,"quantity":3}]`,
		`"layers":[{"positions":1000000}],"price":1,"prizes":[{"name":"a","quantity":1000000}]`,
		`"base_length":3,"price":1,"prizes":[{"name":"a","quantity":2147483647}]`,
	} {
		create(many).problem(http.StatusUnprocessableEntity, "too_many_prizes")
	}
	e.account("dollars", "USD", 0)
	create(`"base_length":3,"price":1,"beneficiary":"dollars",`+prize).problem(http.StatusUnprocessableEntity, "currency_mismatch")
	if n := e.count("campaigns"); n != 5 {
		t.Errorf("%d campaigns, want the 5 that were made", n)
	}
	if n := e.count("accounts WHERE id LIKE 'escrow/%'"); n != 5 {
		t.Errorf("%d escrow accounts for 5 campaigns", n)
	}
}

func TestPublishAndCancel(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 1000)
	id := e.campaign(`"layers":[{"positions":3,"price":300},{"positions":3}]`, "")
	e.buy(id, "alice").problem(http.StatusConflict, "not_active")
	e.campaignPost(id, "publish", ``).want(http.StatusOK).equal(`{"status":"active","sold_positions":0}`).times("published_at")
	e.campaignPost(id, "publish", ``).problem(http.StatusConflict, "bad_transition")

	e.buyIn(id, "alice", 1).want(http.StatusCreated)
	e.buyIn(id, "alice", 2).want(http.StatusCreated)
	e.buyIn(id, "bob", 1).want(http.StatusCreated)
	e.balance("alice", 600, 0)
	e.balance("bob", 700, 0)
	var escrow int64
	e.sql(&escrow, `SELECT available FROM accounts WHERE id = 'escrow/' || $1`, id)
	if escrow != 700 {
		t.Errorf("escrow has %d, want 700", escrow)
	}

	e.campaignPost(id, "cancel", ``).want(http.StatusOK).equal(`{"status":"cancelled","sold_positions":3,"completed_at":null}`).times("cancelled_at")
	e.balance("alice", 1000, 0)
	e.balance("bob", 1000, 0)
	e.balance("house", 0, 0)
	e.campaignPost(id, "cancel", ``).problem(http.StatusConflict, "bad_transition")
	e.campaignPost(id, "publish", ``).problem(http.StatusConflict, "bad_transition")
	e.buy(id, "alice").problem(http.StatusConflict, "not_active")
	e.campaignPost(id, "draw", ``).problem(http.StatusConflict, "not_sold_out")
	e.get("/v1/campaigns/"+id+"/draw").problem(http.StatusNotFound, "not_drawn")
	if n := e.count("transfers WHERE kind = 'refund'"); n != 3 {
		t.Errorf("%d refunds of 3 purchases", n)
	}
	// A pending one has nothing to refund.
	e.campaignPost(e.campaign(`"base_length":2`, ""), "cancel", `{}`).want(http.StatusOK).equal(`{"status":"cancelled","published_at":null}`)
}

// TestOrderOfPurchaseChecks gives each refusal a request that every later check would refuse as well.
func TestOrderOfPurchaseChecks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("poor", "EUR", 0)
	e.account("rich", "EUR", 10_000)
	e.account("once", "EUR", 100)
	limited := `,"purchase_limit":1,"prizes":[{"name":"grand","quantity":1}]`
	id := e.campaign(`"layers":[{"positions":1},{"positions":2}]`, limited)
	e.buy(id, "poor").problem(http.StatusConflict, "not_active")
	e.campaignPost(id, "publish", ``).want(http.StatusOK)
	e.buy(id, "nobody").problem(http.StatusNotFound, "not_found")
	e.buyIn(id, "rich", 3).problem(http.StatusNotFound, "not_found")
	e.buy(id, "poor").problem(http.StatusPaymentRequired, "insufficient_funds")
	e.buyIn(id, "once", 1).want(http.StatusCreated)
	// The layer is sold out, the limit reached and the account empty.
	e.buyIn(id, "once", 1).problem(http.StatusConflict, "sold_out")
	e.buyIn(id, "rich", 1).problem(http.StatusConflict, "sold_out")
	// The limit is reached and the account empty.
	e.buy(id, "once").problem(http.StatusConflict, "purchase_limit")
	e.buyIn(id, "once", 2).problem(http.StatusConflict, "purchase_limit")
	e.buyIn(id, "rich", 2).want(http.StatusCreated)
	e.account("last", "EUR", 100)
	e.buy(id, "last").want(http.StatusCreated)
	for _, account := range []string{"once", "poor", "rich", "last"} {
		e.buy(id, account).problem(http.StatusConflict, "sold_out")
	}
	e.account("dollars", "USD", 1000)
	other := e.onSale(`"base_length":2`, "")
	e.buy(other, "dollars").problem(http.StatusUnprocessableEntity, "currency_mismatch")
	e.get("/v1/campaigns/" + other).want(http.StatusOK).equal(`{"sold_positions":0}`)
}

func TestPurchases(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 10_000)
	id := e.onSale(`"layers":[{"positions":2,"price":500},{"positions":3}]`, "")
	one := e.buyIn(id, "alice", 2).want(http.StatusCreated)
	one.exactly(one.decoded, "id", "campaign", "account", "position", "price", "at")
	one.exactly(one.at("position"), "id", "layer", "number")
	one.equal(fmt.Sprintf(`{"campaign":%q,"account":"alice","price":100}`, id)).uuids("id", "position.id").times("at")
	if one.num("position.layer") != 2 || one.num("position.number") < 1 || one.num("position.number") > 3 {
		t.Errorf("position %s", one.body)
	}
	two := e.post("/v1/campaigns/"+id+"/purchases", `{"account":"alice","layer":null}`).want(http.StatusCreated)
	e.buyIn(id, "alice", 1).want(http.StatusCreated)

	list := e.get("/v1/campaigns/" + id + "/purchases").want(http.StatusOK)
	for i, bought := range []*reply{one, two} {
		if got := mustMarshal(list.at("items." + strconv.Itoa(i))); string(got) != string(mustMarshal(bought.decoded)) {
			t.Errorf("purchase %d is %s in the list, was answered %s", i, got, bought.body)
		}
	}
	positions := e.get("/v1/campaigns/" + id + "/positions").want(http.StatusOK)
	sold, places := 0, []string{}
	for i, item := range positions.items() {
		positions.exactly(item, "id", "layer", "number", "status", "account")
		at := fmt.Sprintf("items.%d.", i)
		places = append(places, fmt.Sprintf("%d/%d", positions.num(at+"layer"), positions.num(at+"number")))
		switch positions.str(at + "status") {
		case "sold":
			sold++
			if positions.str(at+"account") != "alice" {
				t.Errorf("sold to %q", positions.str(at+"account"))
			}
		case "available":
			if positions.at(at+"account") != nil {
				t.Errorf("a free position has the account %v", positions.at(at+"account"))
			}
		default:
			t.Errorf("status %q", positions.str(at+"status"))
		}
		if positions.str(at+"id") == one.str("position.id") && positions.str(at+"status") != "sold" {
			t.Error("the position that was bought is free")
		}
	}
	if want := []string{"1/1", "1/2", "2/1", "2/2", "2/3"}; sold != 3 || !slices.Equal(places, want) {
		t.Errorf("%d sold of %v, want 3 of %v", sold, places, want)
	}

	stats := e.get("/v1/campaigns/" + id + "/statistics").want(http.StatusOK)
	stats.exactly(stats.decoded, "campaign", "status", "total_positions", "sold_positions", "sold_share", "buyers", "largest_buyer",
		"revenue", "first_sale_at", "last_sale_at", "layers")
	stats.equal(fmt.Sprintf(`{"campaign":%q,"status":"active","total_positions":5,"sold_positions":3,"sold_share":0.6,"buyers":1,"largest_buyer":3}`, id))
	stats.times("first_sale_at", "last_sale_at")
	spent := 10_000 - e.get("/v1/accounts/alice").want(http.StatusOK).num("available")
	if stats.num("revenue") != spent || stats.str("first_sale_at") != one.str("at") {
		t.Errorf("statistics %s, spent %d, first sale %s", stats.body, spent, one.str("at"))
	}
	empty := e.get("/v1/campaigns/" + e.campaign(`"base_length":1`, "") + "/statistics").want(http.StatusOK)
	empty.equal(`{"sold_positions":0,"sold_share":0,"buyers":0,"largest_buyer":0,"revenue":0,"first_sale_at":null,"last_sale_at":null}`)
}

// TestPositionsAreRandom would fail by chance once in 10^12 runs.
func TestPositionsAreRandom(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100_000)
	id := e.onSale(`"layers":[{"positions":1000}]`, "")
	ordered := 0
	for n := range 8 {
		if int(e.buy(id, "alice").want(http.StatusCreated).num("position.number")) == n+1 {
			ordered++
		}
	}
	if ordered >= 5 {
		t.Errorf("%d of 8 sales came in order", ordered)
	}
}
