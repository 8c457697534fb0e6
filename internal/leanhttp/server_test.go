package leanhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// rig is a server on a socket, whose handler tells what it was asked.
type rig struct {
	*testing.T

	server *Server
	addr   string
	served chan error
	log    testwait.Buffer
	hold   chan struct{} // what /hot/wait waits for
	began  chan struct{} // told when it waits
}

func newRig(t *testing.T, change func(*http.Server)) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	r := &rig{T: t, addr: l.Addr().String(), served: make(chan error, 1), hold: make(chan struct{}), began: make(chan struct{}, 16)}
	r.server = &Server{
		HTTP: &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.NewTextHandler(&r.log, nil), slog.LevelError)},
		Hot:  func(path string) bool { return strings.HasPrefix(path, "/hot") },
	}
	if change != nil {
		change(r.server.HTTP)
	}
	go func() { r.served <- r.server.Serve(l) }()
	t.Cleanup(func() {
		_ = r.server.Close()
		if err := <-r.served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return r
}

func (r *rig) serve(w http.ResponseWriter, q *http.Request) {
	_, lean := w.(*response)
	switch q.URL.Path {
	case "/hot/wait":
		r.began <- struct{}{}
		<-r.hold
		if err := q.Context().Err(); err != nil {
			r.Errorf("the context of a lean request has ended: %v", err)
		}
	case "/hot/abort":
		panic(http.ErrAbortHandler)
	case "/hot/panic":
		panic("something is wrong")
	case "/hot/none":
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			r.Errorf("a body went into an answer without one: %v", err)
		}
		return
	case "/hot/quiet":
		return
	case "/hot/last":
		w.Header().Set("Connection", "close")
	case "/hot/inject":
		w.Header().Set("X-Said", "one\r\nX-Injected: two")
		w.Header()["X Bad"] = []string{"three"}
	case "/hot/large":
		w.WriteHeader(http.StatusEarlyHints)
		for range 1000 {
			_, _ = w.Write(bytes.Repeat([]byte("large "), 20))
		}
		return
	}
	body, err := io.ReadAll(q.Body)
	w.Header()["X-Lean"] = []string{fmt.Sprint(lean)}
	w.Header().Add("X-Many", "1")
	w.Header().Add("X-Many", "2")
	w.WriteHeader(http.StatusCreated)
	w.WriteHeader(http.StatusTeapot) // Which is too late.
	_, _ = fmt.Fprintf(w, "%s %s %s %v %d %q %v", q.Method, q.RequestURI, q.Host, q.Header["Idempotency-Key"], q.ContentLength, body, err)
}

// peer is a raw connection to the server.
type peer struct {
	net.Conn

	t    *testing.T
	read *bufio.Reader
}

func (r *rig) dial() *peer {
	r.Helper()
	c, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.addr)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testwait.Patience))
	return &peer{Conn: c, t: r.T, read: bufio.NewReader(c)}
}

// remembers waits until the server has taken n connections.
func (r *rig) remembers(n int) {
	r.Helper()
	testwait.Eventually(r.T, testwait.Patience, fmt.Sprint(n, " connections"), func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.conns) == n
	})
}

func (p *peer) send(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p, s); err != nil {
		p.t.Fatal(err)
	}
}

// sentAll says that nothing more will be sent.
func (p *peer) sentAll() {
	p.t.Helper()
	if tcp, ok := p.Conn.(*net.TCPConn); !ok || tcp.CloseWrite() != nil {
		p.t.Log("the server was faster to close") // It has refused what came first.
	}
}

// answer reads the next one.
func (p *peer) answer() (*http.Response, string) {
	p.t.Helper()
	a, err := http.ReadResponse(p.read, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return a, string(body)
}

// closed wants the end of the connection.
func (p *peer) closed() {
	p.t.Helper()
	if b, err := p.read.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Errorf("the connection is still there: %q, %v", b, err)
	}
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func TestHotPathsAreServedLean(t *testing.T) {
	t.Parallel()
	p := newRig(t, nil).dial()
	for i := range 3 {
		p.send(post("/hot", fmt.Sprint("body ", i)))
		a, body := p.answer()
		if want := fmt.Sprintf(`POST /hot h [k] 6 "body %d" <nil>`, i); body != want || a.StatusCode != http.StatusCreated || a.Header.Get("X-Lean") != "true" || a.Close {
			t.Errorf("%s, %+v", body, a)
		}
		if at, err := http.ParseTime(a.Header.Get("Date")); err != nil || time.Since(at) > time.Minute {
			t.Errorf("%v, %v", at, err)
		}
	}
	// Several at once are answered in order, and what comes behind them that is not plain, too.
	p.send(post("/hot/1", "1") + post("/hot/2", "22") + "GET /cold HTTP/1.1\r\nHost: h\r\n\r\n" + post("/hot/3", ""))
	for _, want := range []string{`/hot/1 h [k] 1 "1" <nil> true`, `/hot/2 h [k] 2 "22" <nil> true`, `/cold h [] 0 "" <nil> false`, `/hot/3 h [k] 0 "" <nil> false`} {
		if a, body := p.answer(); !strings.HasSuffix(body+" "+a.Header.Get("X-Lean"), want) {
			t.Errorf("%s, wanted %s", body, want)
		}
	}
}

// TestAnswersAsNetHTTP asks a lean server and one of net/http the same, byte for byte, and wants the same answers: where it is
// split between two packets, too, and where it is what nobody should send.
func TestAnswersAsNetHTTP(t *testing.T) {
	t.Parallel()
	lean, other := newRig(t, nil), newRig(t, nil)
	other.server.Hot = func(string) bool { return false }
	inputs := map[string]string{
		"plain": post("/hot", "body"), "no body": post("/hot", ""), "no content": post("/hot/none", ""), "nothing said": post("/hot/quiet", ""), "last": post("/hot/last", ""),
		"cold": post("/cold", "body"), "large": post("/hot", strings.Repeat("x", 5000)), "just too large": post("/hot", strings.Repeat("x", bufferSize)),
		"a large answer": post("/hot/large", ""), "abort": post("/hot/abort", ""), "panic": post("/hot/panic", ""), "inject": post("/hot/inject", ""),
		"query": post("/hot?a=b", "body"), "escaped": post("/%68ot", "body"), "get": "GET /hot HTTP/1.1\r\nHost: h\r\n\r\n", "head": "HEAD /hot HTTP/1.1\r\nHost: h\r\n\r\n",
		"expect":   "POST /hot HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab",
		"chunks":   "POST /hot HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"smuggled": "POST /hot HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
		"two keys": "POST /hot HTTP/1.1\r\nHost: h\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: 0\r\n\r\n",
	}
	for name, in := range unsure {
		if in != "" && strings.HasSuffix(in, "\r\n\r\n") {
			inputs[name] = in
		}
	}
	for name, in := range inputs {
		for _, split := range []int{0, 1, 20, len(in) - 1} {
			var answers [2]string
			for i, r := range []*rig{lean, other} {
				p := r.dial()
				if split > 0 {
					p.send(in[:split])
					time.Sleep(time.Millisecond) // So that it is a packet of its own; nothing tells when one has been read.
				}
				p.send(in[split:])
				p.sentAll()
				a, err := http.ReadResponse(p.read, &http.Request{Method: strings.Fields(in)[0]})
				if err != nil {
					answers[i] = "no answer"
					continue
				}
				for a.StatusCode == http.StatusContinue || a.StatusCode == http.StatusEarlyHints {
					a, err = http.ReadResponse(p.read, nil)
					if err != nil {
						t.Fatalf("%s, split at %d: %v", name, split, err)
					}
				}
				// Behind a refusal the connection may be reset, as not all that was sent has been read.
				body, _ := io.ReadAll(a.Body)
				a.Header.Del("Date")
				a.Header.Del("X-Lean")
				// net/http finds out for itself what a body is that nobody named, and ends connections whose body it didn't read.
				a.Header.Del("Content-Type")
				a.Header.Del("Content-Length")
				answers[i] = fmt.Sprint(a.Status, a.Proto, a.Header, string(body))
			}
			if answers[0] != answers[1] {
				t.Errorf("%s, split at %d:\n%s\n%s", name, split, answers[0], answers[1])
			}
		}
	}
	if s := lean.log.String(); !strings.Contains(s, "something is wrong") {
		t.Errorf("a panic was not logged: %s", s)
	}
	if strings.Contains(lean.log.String(), "abort") {
		t.Error("an aborted answer was logged")
	}
}

func TestShutdownWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	idle, busy, cold := r.dial(), r.dial(), r.dial()
	for _, p := range []*peer{idle, busy} {
		p.send(post("/hot", ""))
		p.answer()
	}
	cold.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	cold.answer()
	busy.send(post("/hot/wait", ""))
	<-r.began
	down := make(chan error, 1)
	go func() { down <- r.server.Shutdown(t.Context()) }()
	idle.closed()
	cold.closed()
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr); err == nil {
		t.Error("a connection was taken")
	}
	select {
	case err := <-down:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(r.hold)
	if a, _ := busy.answer(); a.StatusCode != http.StatusCreated || !a.Close {
		t.Errorf("%+v", a)
	}
	busy.closed()
	testwait.Check(t, <-down)
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// TestClientGoesAway has a client leave while its request is served: the request is served all the same.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.dial()
	p.send(post("/hot/wait", ""))
	<-r.began
	testwait.Must(t, p.Close())
	close(r.hold)
	testwait.Check(t, r.server.Shutdown(t.Context()))
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	busy, unborn := r.dial(), r.dial()
	busy.send(post("/hot/wait", ""))
	<-r.began
	r.remembers(2) // Else the second one may still wait to be accepted, and nobody would.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	// Who has connected may still ask, as with net/http: it has not been told that nobody listens.
	unborn.send(post("/hot", ""))
	if a, _ := unborn.answer(); !a.Close {
		t.Errorf("%+v", a)
	}
	testwait.Check(t, r.server.Close())
	busy.closed()
	close(r.hold)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *http.Server) { s.IdleTimeout, s.ReadHeaderTimeout = 6*time.Second, time.Second })
	start := time.Now()
	asked := r.dial()
	for range 6 { // For longer than the limit in all.
		asked.send(post("/hot", ""))
		asked.answer()
		time.Sleep(1500 * time.Millisecond) // The time that passes is what is tested.
	}
	asked.closed()
	// The last request came after 7.5 s, and from then on the limit is kept but for a quarter.
	if took := time.Since(start); took < 12*time.Second {
		t.Errorf("closed after %v", took)
	}
	silent, slow := r.dial(), r.dial()
	slow.send("POST /hot HTTP/1.1\r\nHost: h\r\n") // net/http waits for the rest, and not for ever.
	slow.closed()
	silent.closed()
}

func TestOtherConnectionsGoToNetHTTP(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	testwait.Must(t, err)
	s := &Server{HTTP: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, reflect.TypeOf(w).String()) }), ReadHeaderTimeout: time.Second}, Hot: func(string) bool { return true }}
	served := make(chan error, 1)
	go func() { served <- s.Serve(&stumbling{Listener: l, times: 3}) }()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", l.Addr().String())
	testwait.Must(t, err)
	p := &peer{Conn: c, t: t, read: bufio.NewReader(c)}
	p.send(post("/hot", ""))
	if _, body := p.answer(); body != "*http.response" {
		t.Error(body)
	}
	_ = c.Close()
	testwait.Check(t, s.Shutdown(t.Context()))
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("served once more: %v", err)
	}
}

// stumbling is a listener that is short of descriptors the first times.
type stumbling struct {
	net.Listener

	times int
}

func (l *stumbling) Accept() (net.Conn, error) {
	if l.times--; l.times >= 0 {
		return nil, &net.OpError{Op: "accept", Err: temporary{}}
	}
	return l.Listener.Accept()
}

type temporary struct{}

func (temporary) Error() string   { return "too many open files" }
func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }

// TestServeEndsWithItsListener has accepting fail for good.
func TestServeEndsWithItsListener(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	s := &Server{HTTP: &http.Server{ReadHeaderTimeout: time.Second}, Hot: func(string) bool { return true }}
	testwait.Must(t, l.Close())
	if err := s.Serve(l); err == nil || errors.Is(err, http.ErrServerClosed) {
		t.Errorf("%v", err)
	}
}

// TestManyConnections has clients of net/http ask hot and cold paths at the same time, under the race detector's eyes.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 50 {
				path, body := []string{"/hot", "/cold"}[(i+n)/10%2], strings.Repeat("x", n)
				q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				q.Header.Set("Idempotency-Key", fmt.Sprint(i, ".", n))
				a, err := client.Do(q)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(a.Body)
				_ = a.Body.Close()
				if want := fmt.Sprintf("POST %s %s [%d.%d] %d %q <nil>", path, r.addr, i, n, n, body); err != nil || string(got) != want {
					t.Errorf("%s, wanted %s: %v", got, want, err)
				}
			}
		})
	}
	wg.Wait()
}
