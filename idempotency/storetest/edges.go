package storetest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// outerHeaders: what is in front of the middleware keeps its headers; where both have values that add up, the client gets all.
func (s *suite) outerHeaders() {
	n := 0
	h := s.guard(idempotency.Options{}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Set-Cookie", "basket=1")
		w.Header().Add("Link", "</a>; rel=self")
		w.Header().Set("Content-Language", "de")
		w.Header().Set("Cache-Control", "private")
		w.WriteHeader(http.StatusCreated)
	}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Add("Vary", "Origin")
		w.Header().Add("Set-Cookie", "session=s")
		w.Header().Add("Link", "</>; rel=home")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Frame-Options", "DENY")
		h.ServeHTTP(w, r)
	})
	key := uuid.NewString()
	for range 3 {
		w := ask(outer, "POST", "/a", key, "x")
		for name, want := range map[string][]string{
			"Vary": {"Origin", "Accept"}, "Set-Cookie": {"session=s", "basket=1"}, "Link": {"</>; rel=home", "</a>; rel=self"},
			"Content-Language": {"de"}, "Cache-Control": {"private"}, "X-Frame-Options": {"DENY"},
		} {
			if got := w.Header().Values(name); !slices.Equal(got, want) {
				s.Errorf("answer %d has %s %q, want %q", n, name, got, want)
			}
		}
	}
	w := ask(outer, "POST", "/a", key, "y")
	s.problem("refused", w, 422, idempotency.CodeKeyReused, false)
	if got := w.Header().Values("Vary"); !slices.Equal(got, []string{"Origin"}) || w.Header().Get("Cache-Control") != "no-store" {
		s.Errorf("the refusal has %v", w.Header())
	}
}

// consumed: a body that somebody in front of the middleware has read is not taken for an empty one.
func (s *suite) consumed() {
	var executed atomic.Int64
	h := s.guard(idempotency.Options{}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		executed.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))
	const multipart = "--b\r\nContent-Disposition: form-data; name=\"item\"\r\n\r\n%\r\n--b--\r\n"
	form, parts := "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	for name, c := range map[string]struct {
		contentType, body string
		chunked           bool
		outer             func(*http.Request)
		status            int
	}{
		"form":                 {form, "item=%", false, func(r *http.Request) { _ = r.ParseForm() }, 500},
		"form in chunks":       {form, "item=%", true, func(r *http.Request) { _ = r.FormValue("item") }, 500},
		"parts":                {parts, multipart, false, func(r *http.Request) { _ = r.ParseMultipartForm(1 << 10) }, 500}, //nolint:gosec // The middleware bounds it.
		"parts in chunks":      {parts, multipart, true, func(r *http.Request) { _ = r.ParseMultipartForm(1 << 10) }, 500},  //nolint:gosec // The middleware bounds it.
		"read":                 {"text/plain", "%", false, func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, 500},
		"read in part":         {"text/plain", "%%", false, func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 1)) }, 500},
		"asked for a form":     {"application/json", "%", false, func(r *http.Request) { _ = r.FormValue("item") }, 200},
		"form without a value": {form, "", false, func(r *http.Request) { _ = r.ParseForm() }, 200},
		"untouched":            {form, "item=%", false, func(*http.Request) {}, 200},
	} {
		executed.Store(0)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.outer(r)
			h.ServeHTTP(w, r)
		}))
		key := uuid.NewString()
		for _, item := range []string{"a", "b"} {
			var body io.Reader = strings.NewReader(strings.ReplaceAll(c.body, "%", item))
			if c.chunked {
				body = io.MultiReader(body) // Whose length the client doesn't know.
			}
			r, err := http.NewRequestWithContext(s.ctx(), http.MethodPost, server.URL, body)
			s.must(err)
			r.Header.Set("Content-Type", c.contentType)
			r.Header.Set(idempotency.KeyHeader, key)
			answer, err := server.Client().Do(r)
			s.must(err)
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			want := c.status
			if item == "b" && want == 200 && c.body != "" {
				want = 422
			}
			if answer.StatusCode != want {
				s.Errorf("%s: item %s is answered with %d, want %d", name, item, answer.StatusCode, want)
			}
		}
		server.Close()
		if n := executed.Load(); n != map[int]int64{500: 0, 200: 1}[c.status] {
			s.Errorf("%s: executed %d times", name, n)
		}
	}
}

// hosts: of one middleware in front of several hosts, each has its own keys.
func (s *suite) hosts() {
	for _, scope := range []idempotency.Scope{idempotency.PerRoute, idempotency.PerPrincipal} {
		c := &counter{}
		h := s.guard(idempotency.Options{Scope: scope}).Wrap(c)
		key := uuid.NewString()
		for i, host := range []string{"a.example", "b.example", "[::1]:80"} {
			for _, same := range []string{host, strings.ToUpper(host)} {
				s.want(host, ask(h, "POST", "http://"+same+"/a", key, "x"), 201, []string{"1 x", "2 x", "3 x"}[i])
			}
		}
		// A port is none of the host: the replicas of one service may listen on several.
		s.want("another port", ask(h, "POST", "http://a.example:8080/a", key, "x"), 201, "1 x")
	}
}

// controlled: a handler reaches its connection for what doesn't write to it.
func (s *suite) controlled() {
	h := s.guard(idempotency.Options{}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex()); err != nil {
			s.Errorf("not reached: %v", err)
		}
		_, _, hijack := c.Hijack()
		if flush := c.Flush(); !errors.Is(flush, http.ErrNotSupported) || !errors.Is(hijack, http.ErrNotSupported) {
			s.Errorf("flush: %v, hijack: %v", flush, hijack)
		}
		_, _ = io.WriteString(w, "done")
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequestWithContext(s.ctx(), http.MethodPost, server.URL, strings.NewReader("x"))
	s.must(err)
	r.Header.Set(idempotency.KeyHeader, uuid.NewString())
	answer, err := server.Client().Do(r)
	s.must(err)
	defer func() { _ = answer.Body.Close() }()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "done" || answer.StatusCode != http.StatusOK {
		s.Errorf("%d %s, %v", answer.StatusCode, body, err)
	}
}
