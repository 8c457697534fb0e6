package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
)

// outbid hears the notice that an account was outbid.
func (c *wsClient) outbid(auction string, amount, rank, least, event int64) {
	c.t.Helper()
	h := c.hear()
	got := fmt.Sprint(h.Topic, " ", h.Type, " ", h.Data)
	want := fmt.Sprint("account:ann bid.outbid ", map[string]any{
		"auction": auction, "round": 1.0, "amount": float64(amount), "rank": float64(rank), "min_winning_bid": float64(least), "event": float64(event),
	})
	if got != want || h.Seq != nil || h.Op != "" {
		c.t.Fatalf("heard %s, %+v; want %s", got, h.Seq, want)
	}
	if at, err := time.Parse(time.RFC3339, h.At); err != nil || time.Since(at) > time.Hour {
		c.t.Errorf("at %q", h.At)
	}
}

// TestOutbidOnTwoServers follows an account on two servers, neither of which commits a bid: each finds the auctions by itself.
func TestOutbidOnTwoServers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"ann", "bob"} {
		e.account(id, "EUR", 100_000)
	}
	first := e.started(oneRound, `"cooldown":"0s"`)
	e.bid(first, "ann", 100).want(http.StatusCreated)
	e.bid(first, "bob", 110).want(http.StatusCreated) // Before anybody listens.
	here, there := newLiveEnv(t, e, live.Options{}, nil), newLiveEnv(t, e, live.Options{}, nil)
	user := *here
	user.env = e.by(e.user("ann"))
	clients := []*wsClient{user.connect(), there.connect(), here.connect()}
	for _, c := range clients {
		if head := c.subscribe("account:ann", ""); head != 0 {
			t.Errorf("head %d", head)
		}
	}
	e.bid(first, "ann", 120).want(http.StatusCreated)
	e.bid(first, "bob", 130).want(http.StatusCreated) // Number 6.
	for _, c := range clients {
		c.outbid(first, 120, 2, 131, 6)
	}
	// Two auctions more, in which ann bids only now, and is outbid at once; one of them has two places and equal amounts.
	second := e.started(oneRound, `"cooldown":"0s"`)
	third := e.started(`[{"winners":2,"duration":"1h"}]`, `"cooldown":"0s","unique_amounts":false`)
	e.bid(second, "ann", 100).want(http.StatusCreated)
	e.bid(second, "bob", 111).want(http.StatusCreated)
	for _, c := range clients {
		c.outbid(second, 100, 2, 112, 4)
	}
	e.account("cyd", "EUR", 100_000)
	e.bid(third, "ann", 100).want(http.StatusCreated)
	e.bid(third, "bob", 100).want(http.StatusCreated)
	e.bid(third, "cyd", 105).want(http.StatusCreated) // Pushes bob out, who has bid after ann.
	e.bid(third, "bob", 106).want(http.StatusCreated)
	for _, c := range clients {
		c.outbid(third, 100, 3, 106, 6)
	}

	// A cut: what is missed is in the list of standing bids, and the next notice comes over the new connection.
	must(t, clients[0].ws.CloseNow())
	e.bid(first, "ann", 200).want(http.StatusCreated)
	e.bid(first, "bob", 210).want(http.StatusCreated)
	for _, c := range clients[1:] { // On both servers, or a late notice would reach who comes back.
		c.outbid(first, 200, 2, 211, 8)
	}
	again := user.connect()
	again.subscribe("account:ann", `,"since":0`)
	e.get("/v1/accounts/ann/bids").want(http.StatusOK).equal(`{"next":null}`)
	if bids := e.get("/v1/accounts/ann/bids").want(http.StatusOK); bids.num("items.0.amount") != 200 || bids.num("items.0.rank") != 2 || bids.at("items.0.winning") != false {
		t.Errorf("%s", bids.body)
	}
	e.bid(first, "ann", 220).want(http.StatusCreated)
	e.bid(first, "bob", 230).want(http.StatusCreated)
	for _, c := range append(clients[1:], again) {
		c.outbid(first, 220, 2, 231, 10)
	}
	e.audited()
}

// TestWhoMayFollowAnAccount tries every credential on both protocols.
func TestWhoMayFollowAnAccount(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("ann", "EUR", 100)
	e.account("bob", "EUR", 100)
	l := newLiveEnv(t, e, live.Options{}, nil)
	_, reader := e.makeKey(auth.RoleReader, "reads")
	for _, test := range []struct {
		credential, topic, code string
		status                  int
	}{
		{e.user("ann"), "account:ann", "", 200},
		{e.service, "account:ann", "", 200},
		{e.admin, "account:ann", "", 200},
		{e.user("bob"), "account:ann", "forbidden", 403},
		{e.user("bob"), "account:nobody", "forbidden", 403},
		{e.user("nobody"), "account:nobody", "not_found", 404},
		{e.service, "account:nobody", "not_found", 404},
		{reader, "account:ann", "forbidden", 403},
		{reader, "account:nobody", "forbidden", 403},
		{e.admin, "account:", "not_found", 404},
		{e.admin, "account:a b", "not_found", 404},
	} {
		l := *l
		l.env = e.by(test.credential)
		c := l.connect()
		c.say(`{"op":"subscribe","topic":%q}`, test.topic)
		if h := c.hear(); test.code == "" && h.Op != "subscribed" || test.code != "" && (h.Problem == nil || h.Problem.Code != test.code || h.Problem.Status != test.status) {
			t.Errorf("%s by %.20s…: %+v %+v", test.topic, test.credential, h, h.Problem)
		}
		_ = c.ws.CloseNow()
		r := l.stream(t, "/v1/events?topic="+strings.ReplaceAll(test.topic, " ", "%20"), http.Header{})
		if r.StatusCode != test.status {
			t.Errorf("%s by %.20s…: %s", test.topic, test.credential, r.Status)
		}
		_ = r.Body.Close()
	}
	c := l.connect()
	c.say(`{"op":"subscribe","topic":"account:ann","since":1}`)
	if h := c.hear(); h.Problem == nil || h.Problem.Code != "unknown_seq" {
		t.Errorf("since 1: %+v %+v", h, h.Problem)
	}
}

// TestASlowFollowerOfAnAccountIsDropped has a client that reads nothing, while its account is outbid again and again.
func TestASlowFollowerOfAnAccountIsDropped(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("ann", "EUR", 100)
	e.account("bob", "EUR", 100)
	l := newLiveEnv(t, e, live.Options{Buffer: 50}, func(o *LiveOptions) { o.Times.Write, o.Times.Linger = time.Second, patience })
	id := e.started(oneRound, `"cooldown":"0s"`)
	e.bid(id, "ann", 10).want(http.StatusCreated)
	slow := l.connect()
	slow.subscribe("account:ann", "")
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	eventually(t, 3*patience, "it is dropped", func() bool { // The kernels take some MB before.
		_, err := conn.Exec(t.Context(), `WITH a AS (UPDATE auctions SET seq = seq + 5000, version = version + 1, revision = gen_random_uuid() WHERE id = $1 RETURNING seq)
			INSERT INTO auction_bids (auction, seq, account, amount, previous_amount, round, rank, at, hold, outbid, floor)
			SELECT $1, a.seq - 5000 + i, 'bob', 20, 0, 1, 1, clock_timestamp(), gen_random_uuid(), 3, 21 FROM a, generate_series(1, 5000) AS i`, id)
		must(t, err)
		return l.hub.Stats().Dropped == 1
	})
	code, last := slow.ended()
	if code != websocket.StatusTryAgainLater || last.Op != "dropped" || last.Topic != "account:ann" || last.LastSeq == nil || *last.LastSeq != 0 {
		t.Errorf("closed with %d after %+v", code, last)
	}
}
