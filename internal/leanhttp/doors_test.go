package leanhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// newDoor is a server that tells of each request whether it is ambiguous, and of refused connections.
func newDoor(t *testing.T, change func(*Server)) (r *rig, told chan int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	told = make(chan int, 64)
	r = &rig{T: t, addr: l.Addr().String(), served: make(chan error, 1)}
	r.server = &Server{
		HTTP: &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			_, _ = fmt.Fprintf(w, "%v %s", Ambiguous(q.Context()), body)
		})},
		Hot:     func(path string) bool { return strings.HasPrefix(path, "/hot") },
		Full:    []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull"),
		Refused: func(n int, _ error) { told <- n },
	}
	change(r.server)
	go func() { r.served <- r.server.Serve(l) }()
	t.Cleanup(func() {
		_ = r.server.Close()
		if err := <-r.served; err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r, told
}

// TestTwoLengthsAreTold sends requests that say the length of their body twice, to hot and to other paths, alone and behind others.
func TestTwoLengthsAreTold(t *testing.T) {
	t.Parallel()
	r, _ := newDoor(t, func(*Server) {})
	const chunked = "3\r\nabc\r\n0\r\n\r\n"
	for _, path := range []string{"/hot", "/cold"} {
		for _, before := range []string{"", "GET /cold HTTP/1.1\r\nHost: h\r\n\r\n", post("/hot", "xyz"), post("/cold", "xyz")} {
			for head, want := range map[string]bool{
				"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n":          true,
				"transfer-encoding: chunked\r\nX: y\r\ncontent-length: 13\r\n": true,
				"TRANSFER-ENCODING:chunked\nCONTENT-LENGTH:3\n":                true,
				"Transfer-Encoding: chunked\r\n":                               false,
				"Transfer-Encoding: chunked\r\nX-Content-Length: 3\r\n":        false,
			} {
				p := r.dial()
				if before != "" {
					p.send(before)
					p.answer()
				}
				whole := "POST " + path + " HTTP/1.1\r\nHost: h\r\n" + head + "\r\n" + chunked
				p.send(whole[:len(whole)/2])
				p.send(whole[len(whole)/2:])
				if _, body := p.answer(); body != fmt.Sprint(want, " abc") {
					t.Errorf("%s after %q, %q: %q", path, before, head, body)
				}
				_ = p.Close()
			}
		}
	}
}

// FuzzFraming compares with net/http's own reading which heads have both headers.
func FuzzFraming(f *testing.F) {
	for _, seed := range []string{
		"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "content-length:3\ntransfer-encoding:chunked\n", "X: a\r\n Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\n \r\nContent-Length: 3\r\n", "Transfer-Encoding: chunked\r\n\r\r\nContent-Length: 3\r\n", strings.Repeat("X: y\r\n", 100) + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
	} {
		f.Add([]byte(seed), 5)
	}
	f.Fuzz(func(t *testing.T, head []byte, at int) {
		whole := append(append([]byte("POST / HTTP/1.1\r\nHost: h\r\n"), head...), "\r\n"...)
		if _, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(whole))); err != nil {
			return
		}
		lines := textproto.NewReader(bufio.NewReader(bytes.NewReader(whole)))
		if _, err := lines.ReadLine(); err != nil {
			return
		}
		header, _ := lines.ReadMIMEHeader() // It was read above.
		both := header["Content-Length"] != nil && header["Transfer-Encoding"] != nil
		var seen framing
		at = max(0, min(at, len(whole)))
		seen.see(whole[:at])
		seen.see(whole[at:])
		if both && !seen.twice.Load() {
			t.Errorf("%q, cut at %d, has both", whole, at)
		}
	})
}

// TestConnectionsHaveALimit opens more than there may be, of all kinds, and again when some are closed.
func TestConnectionsHaveALimit(t *testing.T) {
	t.Parallel()
	const most, more = 5, 20
	r, told := newDoor(t, func(s *Server) { s.MaxConns = most })
	for range 3 {
		open := make([]*peer, most)
		for i := range open {
			open[i] = r.dial()
			path := "/hot"
			if i%2 == 1 {
				path = "/cold"
			}
			open[i].send(post(path, "x"))
			if a, _ := open[i].answer(); a.StatusCode != http.StatusOK {
				t.Errorf("connection %d: %d", i, a.StatusCode)
			}
		}
		start := time.Now()
		for range more {
			p := r.dial()
			if a, body := p.answer(); a.StatusCode != http.StatusServiceUnavailable || body != "full" {
				t.Errorf("one too many: %d %s", a.StatusCode, body)
			}
			p.closed()
		}
		times := len(told)
		if limit := 1 + int(time.Since(start)/time.Second) + 1; times > limit {
			t.Errorf("told %d times of %d connections in %s", times, more, time.Since(start))
		}
		for range times {
			<-told
		}
		for _, p := range open {
			_ = p.Close()
		}
		deadline := time.Now().Add(testwait.Patience)
		for r.server.open.Load() > 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond) // Nothing tells when the server has seen the ends.
		}
		if n := r.server.open.Load(); n != 0 {
			t.Fatalf("%d connections are counted that are closed", n)
		}
	}
}
