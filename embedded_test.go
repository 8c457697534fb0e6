package fairlead

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestEmbedded uses a server in all the ways in which a program can: by its client, by a stream, by a listener of the
// program's own, and by Run. Then it opens another one, under which the keys of the client's calls still hold.
func TestEmbedded(t *testing.T) {
	ctx := t.Context()
	o := Options{DatabaseURL: pgtest.Server(t).URL(), Data: t.TempDir(), Listen: "127.0.0.1:0", AdminKey: strings.Repeat("k", 32)}
	s, err := Open(ctx, o)
	testwait.Must(t, err)
	c := s.Client()
	open := func(c *client.Client, id string) *client.Answer {
		t.Helper()
		var a client.Answer
		if _, err := c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: "EUR"}, client.Key("open-"+id), client.Into(&a)); err != nil {
			t.Fatal(err)
		}
		return &a
	}
	open(c, "seller")
	if _, err := c.GetAccount(ctx, "nobody"); client.CodeOf(err) != "not_found" {
		t.Errorf("an account that is not there: %v", err)
	}
	for _, err := range c.APIKeys(ctx) { // For administrators alone.
		if err != nil {
			t.Error(err)
		}
	}

	a, err := c.CreateAuction(ctx, client.CreateAuctionRequest{
		Title: "One round", Currency: "EUR", Seller: "seller", Rounds: []client.RoundRequest{{Winners: 1, Duration: "1h"}},
	})
	testwait.Must(t, err)
	reading, hangUp := context.WithCancel(ctx)
	defer hangUp()
	req, err := http.NewRequestWithContext(reading, http.MethodGet, "http://embedded/v1/events?topic=auction:"+a.ID, http.NoBody)
	testwait.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+o.AdminKey)
	stream, err := s.calls.Do(req)
	testwait.Must(t, err)
	defer func() { _ = stream.Body.Close() }()
	if _, err := c.StartAuction(ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stream.Body); lines.Scan() && lines.Text() != "event: auction.started"; {
		if lines.Err() != nil {
			t.Fatal(lines.Err())
		}
	}

	own := httptest.NewServer(s.Handler())
	defer own.Close()
	remote, err := client.New(own.URL, o.AdminKey, client.WithHTTPClient(own.Client()))
	testwait.Must(t, err)
	open(remote, "bidder")

	addr, err := s.Listen(ctx)
	testwait.Must(t, err)
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(serving) }()
	resp, err := own.Client().Get("http://" + addr.String() + "/readyz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", resp, err)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	own.Client().CloseIdleConnections()
	stop()
	// The open stream does not keep the server from ending.
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testwait.Patience):
		t.Fatal("the server does not end")
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}

	again, err := Open(ctx, o)
	testwait.Must(t, err)
	if a := open(again.Client(), "seller"); !a.Replayed {
		t.Error("the key of a call before the restart is not known any more")
	}
	if err := again.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestListenAndClose: a server that has listened, and was never run, gives its address back.
func TestListenAndClose(t *testing.T) {
	o := Options{DatabaseURL: pgtest.Server(t).URL(), Data: t.TempDir(), Listen: "127.0.0.1:0"}
	s, err := Open(t.Context(), o)
	testwait.Must(t, err)
	addr, err := s.Listen(t.Context())
	testwait.Must(t, err)
	testwait.Must(t, s.Close(t.Context()))
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr.String()); err == nil {
		_ = conn.Close()
		t.Error("a closed server takes connections")
	}
}

// running opens a server and runs it, until stop; ended is what Run returns.
func running(t *testing.T, o Options) (s *Server, url string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	s, err := Open(t.Context(), o)
	testwait.Must(t, err)
	addr, err := s.Listen(t.Context())
	testwait.Must(t, err)
	serving, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(serving) }()
	return s, "http://" + addr.String(), stop, over
}

// TestDrainDelay ends a server that is to go on serving for an hour first: /readyz says that it drains, it takes new connections and
// carries out commands, and what closes it need not wait.
func TestDrainDelay(t *testing.T) {
	o := Options{DatabaseURL: pgtest.Server(t).URL(), Data: t.TempDir(), Listen: "127.0.0.1:0", AdminKey: strings.Repeat("k", 32), DrainDelay: time.Hour}
	s, url, stop, ended := running(t, o)
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c, err := client.New(url, o.AdminKey, client.WithHTTPClient(direct))
	testwait.Must(t, err)
	if _, err := c.CreateAccount(t.Context(), client.CreateAccountRequest{ID: "before", Currency: "EUR"}); err != nil {
		t.Fatal(err)
	}
	stop()
	testwait.Eventually(t, testwait.Patience, "/readyz says that the server drains", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", http.NoBody)
		testwait.Must(t, err)
		resp, err := direct.Do(req)
		testwait.Must(t, err)
		said, err := io.ReadAll(resp.Body)
		testwait.Must(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(said), `"draining"`)
	})
	if _, err := c.CreateAccount(t.Context(), client.CreateAccountRequest{ID: "meanwhile", Currency: "EUR"}); err != nil {
		t.Errorf("while the server waits for balancers: %v", err)
	}
	testwait.Must(t, s.Close(t.Context()))
	testwait.Must(t, <-ended)
}
