package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestForeignHosts sends to a loopback listener what a page sends whose own name was made to lead there.
func TestForeignHosts(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 2, Patience: patience, UnavailableAfter: patience})
	must(t, err)
	t.Cleanup(db.Close)
	s, err := New(Options{
		Ledger: e.ledger, Lottery: e.lottery, Auction: e.auction, Multidraw: e.multidraw, Publish: e.publish, Cross: e.cross, Locks: e.locks, Keys: e.keys,
		Operator: postgres.NewOperator(db), Sessions: postgres.NewOperator(db), PublicPages: true, Auth: e.server.Auth, Ready: db.Ready, CheckHosts: true, AllowedHosts: []string{"Shop.example", "proxy.example:8443"},
	})
	must(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	serving, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve(serving, listener, patience) }()
	t.Cleanup(func() {
		stop()
		testwait.Check(t, <-served)
	})
	port := listener.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // It listens on TCP.
	for host, want := range map[string]bool{
		"127.0.0.1": true, "localhost": true, "LOCALHOST": true, "localhost.": true, "[::1]": true, "::1": true, "127.0.0.2": true, "shop.example": true, "SHOP.example": true, "proxy.example": true, "": true,
		"evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "evil": false, "10.0.0.1": false, "[fe80::1]": false, "shop.example.evil": false, "0": false,
	} {
		for _, suffix := range []string{"", fmt.Sprintf(":%d", port), ":80"} {
			if host == "" && suffix != "" || host == "::1" && suffix != "" {
				continue
			}
			for _, path := range []string{"/healthz", "/metrics", "/console/", "/p/campaigns/" + newUUID() + "/state", "/v1/accounts/x", "/v1/deposits"} {
				method := http.MethodGet
				if path == "/v1/deposits" {
					method = http.MethodPost // It is served lean.
				}
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
				must(t, err)
				must(t, conn.SetDeadline(time.Now().Add(patience)))
				_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method, path, host, suffix)
				must(t, err)
				status := statusOn(t, conn)
				_ = conn.Close()
				if (status != http.StatusMisdirectedRequest) != want {
					t.Errorf("%s of Host %q: %d", path, host+suffix, status)
				}
			}
		}
	}
}

// TestHostsOfListeners says which listeners look at the Host header at all.
func TestHostsOfListeners(t *testing.T) {
	t.Parallel()
	for listen, named := range map[string]bool{"127.0.0.1": true, "::1": true, "0.0.0.0": false, "::": false, "192.0.2.1": false} {
		at := &net.TCPAddr{IP: net.ParseIP(listen), Port: 80}
		if got := hostsOf(at, nil) != nil; got != named {
			t.Errorf("%s: %v", listen, got)
		}
		if hostsOf(at, []string{anyHost}) != nil {
			t.Errorf("%s: * allows not all", listen)
		}
		h := hostsOf(at, []string{"a.example"})
		if h == nil || !h.answersTo("a.example:1") || h.answersTo("b.example") || !h.answersTo(net.JoinHostPort(listen, "80")) {
			t.Errorf("%s with a name: %+v", listen, h)
		}
	}
}

func FuzzHost(f *testing.F) {
	h := hostsOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, []string{"shop.example"})
	for _, seed := range []string{"", "localhost", "[::1]:80", "127.0.0.1:8080", "shop.example.", "evil.example", "[", "]:", "::", "a:b:c", "127.1", "0x7f.1", "[::ffff:127.0.0.1]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !h.answersTo(host) || host == "" {
			return
		}
		name := strings.ToLower(host)
		if !strings.Contains(name, "localhost") && !strings.Contains(name, "shop.example") && !strings.Contains(name, "127.") && !strings.Contains(name, ":") {
			t.Errorf("the server answers to %q", host)
		}
	})
}

// TestTwoLengths sends a body whose length is said twice, to lean routes and to others.
func TestTwoLengths(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	for _, path := range []string{"/v1/deposits", "/v1/accounts", "/healthz"} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(patience)))
		const body = `{"account":"alice","amount":5}`
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
			path, e.admin, newUUID(), len(body), body)
		must(t, err)
		if status := statusOn(t, conn); status != http.StatusBadRequest {
			t.Errorf("%s: %d", path, status)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s: the connection goes on", path)
		}
		_ = conn.Close()
	}
	e.balance("alice", 0, 0)
}

// TestUnreadableRequests sends what no handler sees, as the first request of a connection and behind another one.
func TestUnreadableRequests(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const head = "Host: h\r\nConnection: keep-alive\r\n"
	// net/http reads so many bytes beyond the limit. The test sends no more, because unread bytes would reset the connection.
	const slop = 4096
	large := "GET /healthz HTTP/1.1\r\n" + head + "X: " + strings.Repeat("x", maxHeaderBytes+slop)
	for _, before := range []string{"", "GET /healthz HTTP/1.1\r\n" + head + "\r\n"} {
		for _, c := range []struct {
			request, code string
			status        int
		}{
			{"nonsense\r\n\r\n", "bad_request", http.StatusBadRequest},
			{"GET /healthz HTTP/1.1\r\n\r\n", "bad_request", http.StatusBadRequest},
			{"GET /healthz HTTP/1.1\r\n" + head + "A header: x\r\n\r\n", "bad_request", http.StatusBadRequest},
			{"POST /v1/deposits HTTP/1.1\r\n" + head + "Content-Length: many\r\n\r\n", "bad_request", http.StatusBadRequest},
			{large[:maxHeaderBytes+slop], "headers_too_large", http.StatusRequestHeaderFieldsTooLarge},
			{"POST /v1/deposits HTTP/1.1\r\n" + head + "Transfer-Encoding: gzip\r\n\r\n", "bad_request", http.StatusBadRequest},
			{"GET /healthz HTTP/4.0\r\n" + head + "\r\n", "bad_request", http.StatusBadRequest},
			{"GET /healthz HTTP/1.1\r\n" + head + "Expect: tea\r\n\r\n", "bad_request", http.StatusBadRequest},
			{"POST /v1/deposits HTTP/1.1\r\n" + head + "Content-Length: 2\r\nExpect: tea\r\n\r\n{}", "bad_request", http.StatusBadRequest},
		} {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
			must(t, err)
			must(t, conn.SetDeadline(time.Now().Add(patience)))
			answers := bufio.NewReader(conn)
			if before != "" && c.code != "headers_too_large" { // Of a second request net/http reads some without counting.
				_, err = conn.Write([]byte(before))
				must(t, err)
				first, err := http.ReadResponse(answers, nil)
				must(t, err)
				_, err = io.Copy(io.Discard, first.Body)
				must(t, errors.Join(err, first.Body.Close()))
			}
			_, err = conn.Write([]byte(c.request))
			must(t, err)
			response, err := http.ReadResponse(answers, nil)
			must(t, err)
			a := e.received("", c.request[:min(len(c.request), 60)], "", response)
			a.problem(c.status, c.code)
			if !response.Close {
				t.Errorf("%q: the answer does not say that the connection ends", a.body)
			}
			must(t, errors.Join(response.Body.Close(), conn.Close()))
		}
	}
}

// TestStreamsOfOnePrincipal opens as many sockets and streams as a principal may have, and one more.
func TestStreamsOfOnePrincipal(t *testing.T) {
	t.Parallel()
	const most = 3
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, func(o *LiveOptions) { o.MaxPerPrincipal = most })
	id := e.started(oneRound, "")
	ann, bob := *l, *l
	ann.env, bob.env = l.by(l.user("ann")), l.by(l.user("bob"))
	for _, who := range []*liveEnv{&ann, &bob, l} {
		first := who.connect()
		for range most - 1 {
			who.connect()
		}
		_, response, err := who.dial(nil)
		if err == nil || response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
			t.Errorf("one socket too many: %v, %v", response, err)
		}
		request, err := who.request(t.Context(), send{method: http.MethodGet, path: "/v1/events?topic=auction:" + id})
		must(t, err)
		request.URL.Host = strings.TrimPrefix(l.url, "http://")
		stream, err := l.http.Do(request)
		must(t, err)
		if stream.StatusCode != http.StatusTooManyRequests {
			t.Errorf("one stream too many: %d", stream.StatusCode)
		}
		_ = stream.Body.Close()
		_ = first.ws.CloseNow()
		eventually(t, patience, "there is room again", func() bool {
			ws, _, err := who.dial(nil)
			if err == nil {
				t.Cleanup(func() { _ = ws.CloseNow() })
			}
			return err == nil
		})
	}
}

// TestEveryOperationOfASocketCounts sends each kind of message until the rate is used up.
func TestEveryOperationOfASocketCounts(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]string{
		"malformed": `{`, "unknown": `{"op":"dance"}`, "subscribe": `{"op":"subscribe","topic":"auction:x"}`, "unsubscribe": `{"op":"unsubscribe","topic":"auction:x"}`,
		"bid": `{"op":"bid","id":7,"auction":"x","account":"ann","amount":1,"key":"k"}`, "binary": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const quota = 5
			e := newEnvWith(t, setup{limiter: &auth.LimiterOptions{Quota: quota, Window: time.Hour}})
			l := newLiveEnv(t, e, live.Options{}, nil)
			ann := *l
			ann.env = l.by(l.user("ann"))
			c, staff := ann.connect(), l.connect() // The handshake is the first of the quota.
			for i := range quota + 2 {
				kind := websocket.MessageText
				if name == "binary" {
					kind = websocket.MessageBinary
				}
				must(t, c.ws.Write(t.Context(), kind, []byte(message)))
				h := c.hear()
				if limited := h.Problem != nil && h.Problem.Code == "rate_limited"; limited != (i >= quota-1) {
					t.Errorf("message %d: %+v %+v", i+1, h, h.Problem)
				}
				if name == "bid" && (h.Op != "bid" || h.ID != 7.0) {
					t.Errorf("a refused bid's answer: %+v", h)
				}
				must(t, staff.ws.Write(t.Context(), kind, []byte(message)))
				if h := staff.hear(); h.Problem == nil || h.Problem.Code == "rate_limited" {
					t.Errorf("a key is limited: %+v", h)
				}
			}
		})
	}
}

func statusOn(t *testing.T, conn net.Conn) int {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}
