//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// TestSubscribersDropped has many clients subscribe to a busy auction and read nothing, again and again.
func TestSubscribersDropped(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	server := newServer(t, database)
	const bidders = 24
	server.accounts(t, "seller")
	free := make(chan string, bidders)
	for i := range bidders {
		name := fmt.Sprintf("bidder-%d", i)
		server.accounts(t, name)
		free <- name
	}
	var auction thing
	server.posts(t, "/v1/auctions", `{"title":"busy","currency":"SIM","seller":"seller","rounds":[{"winners":1,"duration":"1h"}],"cooldown":"0s","unique_amounts":false}`, &auction)
	server.posts(t, "/v1/auctions/"+auction.ID+"/start", ``, nil)
	s := newStage(t, database, server)
	s.breaks()
	var amount atomic.Int64
	stopBids := load(t, bidders, func(ctx context.Context) {
		name := <-free
		defer func() { free <- name }()
		_, _ = server.tries(ctx, http.MethodPost, "/v1/auctions/"+auction.ID+"/bids", fmt.Sprintf(`{"account":%q,"amount":%d}`, name, amount.Add(1)))
	})
	// They come one after the other, and so they are dropped.
	const clients = 100
	first := make(chan time.Duration, clients)
	for i := range clients {
		first <- time.Duration(i) * stalled / clients
	}
	stop := load(t, clients, func(ctx context.Context) {
		select {
		case d := <-first:
			wait.For(ctx, d)
		default:
		}
		stall(ctx, server, "auction:"+auction.ID)
	})
	s.fires("FairleadSubscribersDropped")
	section := sectionOf(t, "FairleadSubscribersDropped")
	section.says(t, "stop it at the proxy")
	stop()
	s.ends("FairleadSubscribersDropped", "the clients that read nothing were stopped")
	stopBids()
}

// stalled is for how long a client reads nothing before it tries again: longer than a server waits for one.
const stalled = 14 * time.Second

// stall subscribes and reads nothing.
func stall(ctx context.Context, s *server, topic string) {
	ctx, cancel := context.WithTimeout(ctx, stalled)
	defer cancel()
	dialer := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if failed := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048) }); failed != nil {
			return failed
		}
		return err
	}}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}
	conn, response, err := websocket.Dial(ctx, s.URL()+"/v1/live", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: http.Header{"Authorization": {"Bearer " + sim.AdminKey}},
	})
	if err != nil {
		wait.For(ctx, 100*time.Millisecond)
		return
	}
	if response.Body != nil {
		defer func() { _ = response.Body.Close() }()
	}
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"op":"subscribe","topic":%q}`, topic)); err != nil {
		return
	}
	<-ctx.Done()
}

// TestRoundLate ends a round whose seller can't be paid, since the account is full.
func TestRoundLate(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	server := newServer(t, database)
	server.accounts(t, "bidder")
	server.posts(t, "/v1/accounts", `{"id":"seller","currency":"SIM"}`, nil)
	const most = 1<<53 - 1 // of one deposit; an account holds 1,023 more than as many
	var deposits []string
	for i := range 1024 {
		deposits = append(deposits, fmt.Sprintf(`{"key":"deposit-%d","path":"/v1/deposits","body":{"account":"seller","amount":%d}}`, i, int64(most)))
	}
	server.posts(t, "/v1/commands", `{"commands":[`+strings.Join(deposits, ",")+`]}`, nil)
	var auction thing
	server.posts(t, "/v1/auctions", `{"title":"late","currency":"SIM","seller":"seller","rounds":[{"winners":1,"duration":"3s"}]}`, &auction)
	server.posts(t, "/v1/auctions/"+auction.ID+"/start", ``, nil)
	server.posts(t, "/v1/auctions/"+auction.ID+"/bids", `{"account":"bidder","amount":5000}`, nil)
	s := newStage(t, database, server)
	s.breaks()
	s.fires("FairleadRoundLate")
	section := sectionOf(t, "FairleadRoundLate")
	section.says(t, "take money from the seller's account")
	s.operator.runs(t, section, "curl", "SELLER", "seller", "AMOUNT", "5000")
	s.ends("FairleadRoundLate", "there was room for the price on the seller's account")
	if server.does(t, http.MethodGet, "/v1/auctions/"+auction.ID, "", &auction); auction.Status != "completed" {
		t.Errorf("the auction is %s", auction.Status)
	}
}
