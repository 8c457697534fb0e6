package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// auctioned makes an auction and returns its id; more are further members. The account "seller" is made when it is not there.
func (e *env) auctioned(rounds, more string) string {
	e.t.Helper()
	if e.by(e.admin).get("/v1/accounts/seller").status == http.StatusNotFound {
		e.account("seller", "EUR", 0)
	}
	body := `{"title":"lot","currency":"EUR","seller":"seller","rounds":` + rounds
	if more != "" {
		body += "," + more
	}
	return e.by(e.admin).post("/v1/auctions", body+`}`).want(http.StatusCreated).str("id")
}

// started makes and starts an auction.
func (e *env) started(rounds, more string) string {
	e.t.Helper()
	id := e.auctioned(rounds, more)
	e.auctionPost(id, "start").want(http.StatusOK).equal(`{"status":"active","current_round":1}`)
	return id
}

func (e *env) auctionPost(id, verb string) *reply {
	e.t.Helper()
	return e.by(e.admin).post("/v1/auctions/"+id+"/"+verb, ``)
}

func (e *env) bid(id, account string, amount int64) *reply {
	e.t.Helper()
	return e.post("/v1/auctions/"+id+"/bids", fmt.Sprintf(`{"account":%q,"amount":%d}`, account, amount))
}

// overdue moves all of an auction's past further back, so far that its open round ends now. To this server it is what another
// one did.
func (e *env) overdue(id string) {
	e.t.Helper()
	var n int
	e.sql(&n, `WITH open AS (SELECT ends_at - clock_timestamp() AS by FROM auction_rounds WHERE auction = $1 AND status = 'active'),
		rounds AS (UPDATE auction_rounds SET started_at = started_at - by, ends_at = ends_at - by, ended_at = ended_at - by FROM open WHERE auction = $1),
		bids AS (UPDATE auction_bids SET at = at - by, began_at = began_at - by FROM open WHERE auction = $1),
		standing AS (UPDATE auction_standing SET at = at - by FROM open WHERE auction = $1),
		events AS (UPDATE auction_events SET at = at - by FROM open WHERE auction = $1),
		told AS (UPDATE auctions SET created_at = created_at - by, started_at = started_at - by, revision = gen_random_uuid(), version = version + 1
			FROM open WHERE id = $1 RETURNING 1)
		SELECT count(*) FROM told`, id)
	if n != 1 {
		e.t.Fatalf("the open rounds of %d auctions were moved", n)
	}
}

// audited fails unless everything in the database is sound, as one who shares no code with the services sees it.
func (e *env) audited() {
	e.t.Helper()
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	if err := audit.Audit(e.t.Context(), conn); err != nil {
		e.t.Error(err)
	}
}

// closeRound settles the open round as a leader would.
func (e *env) closeRound(id string, round int) *auction.Auction {
	e.t.Helper()
	e.overdue(id)
	a, err := e.auction.Execute(e.t.Context(), uuid.MustParse(id), command.Command[auction.Op]{Op: auction.CloseRound{Round: round, Term: 1}})
	must(e.t, err)
	must(e.t, a.Err)
	closed, _ := a.Result.(*auction.Auction)
	if closed == nil {
		e.t.Fatalf("round %d of %s was not closed", round, id)
	}
	return closed
}

func (e *env) bidders(n int, amount int64) []string {
	e.t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("bidder-%03d", i)
		e.account(names[i], "EUR", amount)
	}
	return names
}

const twoRounds = `[{"winners":1,"duration":"1h"},{"winners":2,"duration":"30m"}]`

func TestAuctions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("seller", "EUR", 0)
	made := e.post("/v1/auctions", `{"title":"Bilder ☀","currency":"EUR","seller":"seller","rounds":`+twoRounds+`,"min_bid":100,"min_increment":5,
		"anti_snipe":{"window":"30s","extension":"1m","max_extensions":3},"cooldown":"1.5s","unique_amounts":false}`).want(http.StatusCreated)
	made.exactly(made.decoded, "id", "title", "status", "currency", "seller", "current_round", "rounds", "min_bid", "min_increment", "anti_snipe",
		"cooldown", "unique_amounts", "total_bids", "seq", "created_at", "started_at", "ended_at")
	made.equal(`{"title":"Bilder ☀","status":"pending","currency":"EUR","seller":"seller","current_round":0,"min_bid":100,"min_increment":5,
		"anti_snipe":{"window":"30s","extension":"1m0s","max_extensions":3},"cooldown":"1.5s","unique_amounts":false,"total_bids":0,"seq":0,
		"rounds":[{"round":1,"winners":1,"duration":"1h0m0s","status":"pending","started_at":null,"ends_at":null,"extensions":0,"cancelled":false},
			{"round":2,"winners":2,"duration":"30m0s","status":"pending","started_at":null,"ends_at":null,"extensions":0,"cancelled":false}],
		"started_at":null,"ended_at":null}`).uuids("id").times("created_at")
	if read := e.get("/v1/auctions/" + made.str("id")).want(http.StatusOK); string(read.body) != string(made.body) {
		t.Errorf("read %s, made %s", read.body, made.body)
	}

	plain := e.post("/v1/auctions", `{"title":"x","currency":"EUR","seller":"seller","rounds":[{"winners":1,"duration":"1ms"}],"min_bid":null,
		"min_increment":null,"anti_snipe":null,"cooldown":null,"unique_amounts":null}`).want(http.StatusCreated)
	plain.equal(`{"min_bid":1,"min_increment":1,"anti_snipe":{"window":"0s","extension":"0s","max_extensions":0},"cooldown":"1s","unique_amounts":true}`)

	list := e.get("/v1/auctions").want(http.StatusOK)
	for i, id := range []string{made.str("id"), plain.str("id")} {
		if list.str(fmt.Sprintf("items.%d.id", i)) != id {
			t.Errorf("auction %d of the list is not the one made then", i)
		}
		list.exactly(list.at("items."+strconv.Itoa(i)), "id", "title", "status", "currency", "seller", "current_round", "total_bids", "created_at")
	}
	for _, path := range []string{"", "/leaderboard", "/winners", "/bids", "/min-winning-bid"} {
		e.get("/v1/auctions/"+newUUID()+path).problem(http.StatusNotFound, "not_found")
	}
	for _, id := range []string{newUUID(), uuid.Nil.String()} {
		e.auctionPost(id, "start").problem(http.StatusNotFound, "not_found")
		e.auctionPost(id, "cancel").problem(http.StatusNotFound, "not_found")
		e.bid(id, "seller", 5).problem(http.StatusNotFound, "not_found")
	}
	if n := e.count(`audit_log WHERE action = 'auction.create'`); n != 2 {
		t.Errorf("%d creations in the audit log, want 2", n)
	}
}

func TestAuctionLimits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("seller", "EUR", 0)
	one := `"rounds":[{"winners":1,"duration":"1h"}]`
	create := func(members string) *reply {
		t.Helper()
		return e.post("/v1/auctions", `{"title":"t","currency":"EUR","seller":"seller",`+members+`}`)
	}
	rounds := func(n int) string {
		return `"rounds":[` + strings.TrimSuffix(strings.Repeat(`{"winners":1,"duration":"1h"},`, n), ",") + `]`
	}
	snipe := func(window, extension, most string) string {
		return fmt.Sprintf(`%s,"anti_snipe":{"window":%q,"extension":%q,"max_extensions":%s}`, one, window, extension, most)
	}
	round := func(winners, duration string) string {
		return fmt.Sprintf(`"rounds":[{"winners":%s,"duration":%q}]`, winners, duration)
	}
	for _, good := range []string{
		rounds(1), rounds(1000), round("10000", "1ms"), round("1", "8784h"), round("1", "1.000001s"), round("1", "1001µs"),
		one + `,"min_bid":9007199254740991`, one + `,"min_increment":9007199254740991`, one + `,"cooldown":"0s"`, one + `,"cooldown":"0"`, one + `,"cooldown":"8784h"`, one + `,"cooldown":"1us"`,
		snipe("0s", "0s", "0"), snipe("0s", "1s", "5"), snipe("8784h", "8784h", "1000000"),
	} {
		create(good).want(http.StatusCreated)
	}
	for _, title := range []string{"t", strings.Repeat("ß", 500)} {
		e.post("/v1/auctions", fmt.Sprintf(`{"title":%q,"currency":"EUR","seller":"seller",%s}`, title, one)).want(http.StatusCreated).equal(fmt.Sprintf(`{"title":%q}`, title))
	}
	before := e.snapshot()
	for _, bad := range []string{
		rounds(0), rounds(1001), round("0", "1h"), round("10001", "1h"), round("1", "999.999µs"), round("1", "0s"), round("1", "-1h"), round("1", "8784h0m0.000001s"), round("1", ""),
		round("1", "1.0000001s"), round("1", "1000000001ns"), `"rounds":[{"winners":1}]`, `"rounds":[{"duration":"1h"}]`, `"rounds":[{"winners":1,"duration":"1h"},null]`,
		`"rounds":null`, one + `,"min_bid":0`, one + `,"min_bid":9007199254740992`, one + `,"min_increment":0`, one + `,"min_increment":9007199254740992`,
		one + `,"cooldown":"-1s"`, one + `,"cooldown":"1ns"`, one + `,"cooldown":"1"`, one + `,"cooldown":"8784h0m0.000001s"`, one + `,"cooldown":""`,
		snipe("-1s", "1s", "1"), snipe("1s", "-1s", "1"), snipe("1s", "1s", "-1"), snipe("1s", "1s", "1000001"), snipe("1ns", "1s", "1"), snipe("1s", "1ns", "1"), snipe("1s", "8785h", "1"),
		snipe("8785h", "1s", "1"), snipe("1s", "1s", "null"), one + `,"anti_snipe":{}`, one + `,"anti_snipe":{"window":"1s","extension":"1s"}`, one + `,"anti_snipe":{"extension":"1s","max_extensions":1}`,
		one + `,"anti_snipe":{"window":"1s","max_extensions":1}`, one + `,"anti_snipe":[]`, one + `,"unique_amounts":1`, one + `,"unique_amounts":"true"`,
	} {
		create(bad).problem(http.StatusBadRequest, "bad_request")
	}
	if r := create(round("1", "1000000001ns")); !strings.Contains(r.str("detail"), "microseconds") {
		t.Errorf("a duration too fine is refused with %s", r.body)
	}
	e.post("/v1/auctions", `{"title":"t","currency":"EUR","seller":"nobody",`+one+`}`).problem(http.StatusNotFound, "not_found")
	e.unchanged(before)
	e.post("/v1/auctions", `{"title":"t","currency":"USD","seller":"seller",`+one+`}`).problem(http.StatusUnprocessableEntity, "currency_mismatch")
}

// TestAuctionRounds follows an auction of two rounds from its making to its end.
func TestAuctionRounds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(4, 1000)
	a, b, c, d := "bidder-000", "bidder-001", "bidder-002", "bidder-003"
	id := e.auctioned(twoRounds, `"cooldown":"0s","min_bid":10,"min_increment":5`)
	path := "/v1/auctions/" + id
	least := func(amount int64) {
		t.Helper()
		r := e.get(path + "/min-winning-bid").want(http.StatusOK)
		r.exactly(r.decoded, "amount", "free_amount")
		if r.num("amount") != amount || r.num("free_amount") != amount {
			t.Errorf("the least winning bid is %s, want %d, which nobody has", r.body, amount)
		}
	}
	board := func(round int, want string) {
		t.Helper()
		r := e.get(path + "/leaderboard").want(http.StatusOK)
		r.exactly(r.decoded, "items", "round", "next")
		got := ""
		for i, item := range r.items() {
			r.exactly(item, "rank", "account", "amount", "winning")
			at := fmt.Sprintf("items.%d.", i)
			got += fmt.Sprintf(" %d:%s:%d:%v", r.num(at+"rank"), r.str(at + "account")[9:], r.num(at+"amount"), r.at(at+"winning"))
		}
		if strings.TrimSpace(got) != want || r.num("round") != int64(round) {
			t.Errorf("leaderboard of round %d: %s; want of %d: %s", r.num("round"), got, round, want)
		}
	}
	least(10)
	board(0, "")
	e.bid(id, a, 50).problem(http.StatusConflict, "not_active")

	started := e.auctionPost(id, "start").want(http.StatusOK)
	started.equal(`{"status":"active","current_round":1,"seq":2,"ended_at":null}`).times("started_at", "rounds.0.started_at", "rounds.0.ends_at")
	e.auctionPost(id, "start").problem(http.StatusConflict, "bad_transition")
	least(10)
	first := e.bid(id, a, 50).want(http.StatusCreated)
	first.exactly(first.decoded, "auction", "account", "amount", "previous_amount", "round", "round_ends_at", "rank", "seq")
	first.equal(fmt.Sprintf(`{"auction":%q,"account":%q,"amount":50,"previous_amount":0,"round":1,"rank":1,"seq":3,"round_ends_at":%q}`, id, a, started.str("rounds.0.ends_at")))
	e.balance(a, 950, 50)
	e.bid(id, b, 60).want(http.StatusCreated).equal(`{"rank":1,"seq":4}`)
	e.bid(id, c, 40).want(http.StatusCreated).equal(`{"rank":3,"seq":5}`)
	e.bid(id, a, 55).want(http.StatusCreated).equal(`{"previous_amount":50,"rank":2,"seq":6}`)
	e.balance(a, 945, 55)
	least(61)
	board(1, "1:1:60:true 2:0:55:false 3:2:40:false")

	closed := e.closeRound(id, 1)
	if closed.CurrentRound != 2 || closed.Rounds[0].Status != auction.RoundCompleted || closed.Rounds[1].Status != auction.RoundActive {
		t.Errorf("after the first close: %+v", closed)
	}
	e.balance(b, 940, 0)
	e.balance("seller", 60, 0)
	e.balance(a, 945, 55)
	board(2, "1:0:55:true 2:2:40:true")
	least(41)
	e.bid(id, b, 45).want(http.StatusCreated).equal(`{"previous_amount":0,"round":2,"rank":2}`) // A winner bids anew.
	e.bid(id, d, 100).want(http.StatusCreated)
	board(2, "1:3:100:true 2:0:55:true 3:1:45:false 4:2:40:false")
	least(56)

	e.closeRound(id, 2)
	for account, available := range map[string]int64{a: 945, b: 940, c: 1000, d: 900, "seller": 215} {
		e.balance(account, available, 0)
	}
	board(2, "1:3:100:true 2:0:55:true 3:1:45:false 4:2:40:false")
	e.get(path+"/min-winning-bid").problem(http.StatusConflict, "not_active")
	e.bid(id, c, 500).problem(http.StatusConflict, "not_active")
	e.auctionPost(id, "cancel").problem(http.StatusConflict, "bad_transition")
	e.get(path).want(http.StatusOK).equal(`{"status":"completed","current_round":2,"total_bids":6}`).times("ended_at")

	winners := e.get(path + "/winners").want(http.StatusOK)
	won := ""
	for i, item := range winners.items() {
		winners.exactly(item, "round", "rank", "account", "amount")
		at := fmt.Sprintf("items.%d.", i)
		won += fmt.Sprintf(" %d/%d:%s:%d", winners.num(at+"round"), winners.num(at+"rank"), winners.str(at + "account")[9:], winners.num(at+"amount"))
	}
	if won != " 1/1:1:60 2/1:3:100 2/2:0:55" {
		t.Errorf("winners%s", won)
	}
	bids := e.get(path + "/bids").want(http.StatusOK)
	if len(bids.items()) != 6 {
		t.Errorf("%d bids in the history", len(bids.items()))
	}
	bids.exactly(bids.at("items.3"), "account", "amount", "previous_amount", "round", "seq", "at")
	bids.times("items.3.at")
	if raise := mustMarshal(bids.at("items.3")); !strings.HasPrefix(string(raise), fmt.Sprintf(`{"account":%q,"amount":55,"at":`, a)) || bids.num("items.3.previous_amount") != 50 || bids.num("items.3.seq") != 6 {
		t.Errorf("the raise is %s in the history", raise)
	}
	if n := e.count(`transfers WHERE kind = 'capture' AND destination = 'seller' AND status = 'completed'`); n != 3 {
		t.Errorf("%d payments for 3 winners", n)
	}
	for _, list := range []struct {
		path, member string
		items        int
	}{{"/winners", "amount", 3}, {"/bids", "seq", 6}, {"/leaderboard", "rank", 4}} {
		e.pagesOf(path+list.path, list.member, list.items)
	}
	e.audited()
}

// pagesOf reads a list in pages of every size and compares.
func (e *env) pagesOf(path, member string, items int) {
	e.t.Helper()
	read := func(limit int) (all []int64) {
		after := ""
		for {
			r := e.get(fmt.Sprintf("%s?limit=%d%s", path, limit, after)).want(http.StatusOK)
			for i := range r.items() {
				all = append(all, r.num(fmt.Sprintf("items.%d.%s", i, member)))
			}
			if r.at("next") == nil {
				return all
			}
			if len(r.items()) != limit || len(all) > items {
				e.t.Fatalf("%s: a page of %d has %d items and a next", path, limit, len(r.items()))
			}
			after = "&after=" + r.str("next")
		}
	}
	whole := read(200)
	if len(whole) != items {
		e.t.Errorf("%s: %d items, want %d", path, len(whole), items)
	}
	for limit := 1; limit <= items+1; limit++ {
		if got := read(limit); fmt.Sprint(got) != fmt.Sprint(whole) {
			e.t.Errorf("%s in pages of %d: %v, want %v", path, limit, got, whole)
		}
	}
	e.badPages(path)
}

func TestCancelAuction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(3, 1000)
	id := e.started(twoRounds, `"cooldown":"0s"`)
	for i, account := range []string{"bidder-000", "bidder-001", "bidder-002"} {
		e.bid(id, account, int64(100+i)).want(http.StatusCreated)
	}
	var hold string
	e.sql(&hold, `SELECT hold::text FROM auction_standing WHERE account = 'bidder-000'`)
	e.post("/v1/holds/"+hold+"/release", ``).problem(http.StatusConflict, "hold_owned")
	e.post("/v1/holds/"+hold+"/capture", `{"to":"bidder-001"}`).problem(http.StatusConflict, "hold_owned")
	e.balance("bidder-000", 900, 100)
	e.closeRound(id, 1)
	e.auctionPost(id, "cancel").want(http.StatusOK).equal(`{"status":"cancelled","current_round":2,"total_bids":3}`).times("ended_at")
	e.roundsCancelled(id, "completed false", "completed true")
	for account, available := range map[string]int64{"bidder-000": 1000, "bidder-001": 1000, "bidder-002": 898, "seller": 102} {
		e.balance(account, available, 0)
	}
	e.auctionPost(id, "cancel").problem(http.StatusConflict, "bad_transition")
	e.auctionPost(id, "start").problem(http.StatusConflict, "bad_transition")
	e.bid(id, "bidder-000", 500).problem(http.StatusConflict, "not_active")
	if n := len(e.get("/v1/auctions/" + id + "/winners").want(http.StatusOK).items()); n != 1 {
		t.Errorf("%d winners of the round that was closed", n)
	}
	never := e.auctioned(twoRounds, ``)
	e.roundsCancelled(never, "pending false", "pending false")
	e.auctionPost(never, "cancel").want(http.StatusOK).equal(`{"status":"cancelled","started_at":null,"current_round":0}`)
	e.roundsCancelled(never, "pending true", "pending true")
	first := e.started(twoRounds, ``)
	e.roundsCancelled(first, "active false", "pending false")
	e.auctionPost(first, "cancel").want(http.StatusOK)
	e.roundsCancelled(first, "completed true", "pending true")
	e.audited()
}

// roundsCancelled looks at the rounds of an auction: the status of each, and whether it was cancelled.
func (e *env) roundsCancelled(id string, want ...string) {
	e.t.Helper()
	r, got := e.get("/v1/auctions/"+id).want(http.StatusOK), []string{}
	for i := range want {
		round := fmt.Sprintf("rounds.%d.", i)
		got = append(got, fmt.Sprint(r.str(round+"status"), " ", r.at(round+"cancelled")))
	}
	if !slices.Equal(got, want) {
		e.t.Errorf("rounds %q, want %q", got, want)
	}
}

// TestBidAfterTheEnd bids when the time is over and no leader has come yet.
func TestBidAfterTheEnd(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(2, 1000)
	id := e.started(twoRounds, `"cooldown":"0s"`)
	e.bid(id, "bidder-000", 10).want(http.StatusCreated)
	e.overdue(id)
	e.bid(id, "bidder-001", 20).problem(http.StatusConflict, "not_active")
	e.bid(id, "bidder-000", 20).problem(http.StatusConflict, "not_active")
	e.balance("bidder-000", 990, 10)
	e.get("/v1/auctions/" + id).equal(`{"status":"active","current_round":1,"total_bids":1}`)
}

func TestAntiSnipe(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(1, 1000)
	id := e.started(`[{"winners":1,"duration":"10m"}]`, `"cooldown":"0s","anti_snipe":{"window":"20m","extension":"1m","max_extensions":2}`)
	end, err := time.Parse(time.RFC3339, e.get("/v1/auctions/"+id).str("rounds.0.ends_at"))
	must(t, err)
	for i, minutes := range []int{1, 2, 2} {
		want := end.Add(time.Duration(minutes) * time.Minute).Format(timestampLayout)
		r := e.bid(id, "bidder-000", int64(10+i)).want(http.StatusCreated)
		if got := r.str("round_ends_at"); got != want {
			t.Errorf("bid %d: the round ends at %s, want %s", i, got, want)
		}
		if got := e.get("/v1/auctions/" + id); got.str("rounds.0.ends_at") != want || got.num("rounds.0.extensions") != int64(minutes) {
			t.Errorf("bid %d: the auction says %s", i, got.body)
		}
	}
	e.closeRound(id, 1)
	e.audited()
}

// TestOrderOfBidChecks gives each refusal a request that every later check would refuse as well.
func TestOrderOfBidChecks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(2, 1000)
	a, b := "bidder-000", "bidder-001"
	e.account("dollars", "USD", 1000)
	e.account("poor", "EUR", 5)
	id := e.auctioned(twoRounds, `"min_bid":10,"min_increment":5,"cooldown":"1h"`)
	e.bid(id, "nobody", 1).problem(http.StatusNotFound, "not_found")
	e.bid(id, "seller", 1).problem(http.StatusConflict, "not_active")
	e.auctionPost(id, "start").want(http.StatusOK)
	e.bid(id, "seller", 1).problem(http.StatusConflict, "own_auction")
	e.bid(id, b, 20).want(http.StatusCreated)
	e.bid(id, b, 9007199254740991).problem(http.StatusTooManyRequests, "cooldown") // too dear as well
	e.bid(id, b, 1).problem(http.StatusTooManyRequests, "cooldown")                // too low as well
	e.bid(id, b, 20).problem(http.StatusTooManyRequests, "cooldown")               // taken as well, by itself
	low := e.bid(id, "dollars", 9).problem(http.StatusUnprocessableEntity, "bid_too_low")
	if !strings.Contains(low.str("detail"), "10") {
		t.Errorf("what would be enough is not said: %s", low.body)
	}
	e.bid(id, "poor", 20).problem(http.StatusConflict, "amount_taken")
	e.bid(id, "dollars", 20).problem(http.StatusConflict, "amount_taken")
	e.bid(id, "dollars", 5000).problem(http.StatusUnprocessableEntity, "currency_mismatch")
	e.bid(id, "poor", 10).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.bid(id, a, 10).want(http.StatusCreated)

	same := e.started(twoRounds, `"cooldown":"0s","unique_amounts":false,"min_increment":5`)
	e.bid(same, a, 30).want(http.StatusCreated).equal(`{"rank":1}`)
	e.bid(same, b, 30).want(http.StatusCreated).equal(`{"rank":2}`) // The earlier one is before it.
	e.bid(same, a, 34).problem(http.StatusUnprocessableEntity, "bid_too_low")
	e.bid(same, a, 2000).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.bid(same, a, 35).want(http.StatusCreated)
	e.balance(a, 955, 45)
	e.audited()
}

// TestFreeAmount: another bid may have the least amount that would win. The server accepts a bid of the free amount, and it wins.
func TestFreeAmount(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	accounts := e.bidders(5, 1<<53-1)
	const most = 1<<53 - 1
	for name, c := range map[string]struct {
		options     string
		bids        []int64
		least, free string
	}{
		"places are free":            {`"min_bid":5`, []int64{7}, "5", "5"},
		"the least is taken":         {`"min_bid":5`, []int64{5}, "5", "6"},
		"the next is taken":          {`"min_bid":5`, []int64{5, 6}, "6", "7"},
		"there is a gap":             {`"min_bid":5`, []int64{5, 7}, "6", "6"},
		"so are more below":          {`"min_bid":5`, []int64{8, 9, 7, 6}, "9", "10"},
		"amounts are not unique":     {`"min_bid":5,"unique_amounts":false`, []int64{5, 6}, "6", "6"},
		"the largest amount":         {`"min_bid":5`, []int64{most - 1, most}, "9007199254740991", "null"},
		"more than any bid may have": {`"min_bid":5,"unique_amounts":false`, []int64{most, most}, "9007199254740992", "null"},
	} {
		id := e.started(`[{"winners":2,"duration":"1h"}]`, c.options)
		for i, amount := range c.bids {
			e.bid(id, accounts[i], amount).want(http.StatusCreated)
		}
		if r := e.get("/v1/auctions/" + id + "/min-winning-bid").want(http.StatusOK); string(r.body) != `{"amount":`+c.least+`,"free_amount":`+c.free+"}" {
			t.Errorf("%s: %s, want %s and %s", name, r.body, c.least, c.free)
		}
		if free, err := strconv.ParseInt(c.free, 10, 64); err == nil {
			if r := e.bid(id, accounts[4], free).want(http.StatusCreated); r.num("rank") > 2 {
				t.Errorf("%s: it does not win: %s", name, r.body)
			}
		}
		e.auctionPost(id, "cancel").want(http.StatusOK) // The bidders have their money again.
	}
}
