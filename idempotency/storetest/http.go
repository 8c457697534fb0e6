package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// guard returns a middleware on a store of its own, as one more process would have it.
func (s *suite) guard(o idempotency.Options) *idempotency.Middleware {
	s.Helper()
	if o.Store == nil {
		o.Store = s.h.Open()
	}
	if o.Principal == nil {
		o.Principal = func(r *http.Request) string { return r.Header.Get("X-User") }
	}
	o.Lease = cmp.Or(o.Lease, long)
	m, err := idempotency.New(o)
	s.must(err)
	return m
}

// ask sends a request with a key; further arguments are names and values of header fields.
func ask(h http.Handler, method, target, key, body string, header ...string) *httptest.ResponseRecorder {
	return askWith(context.Background(), h, method, target, key, body, header...)
}

func askWith(ctx context.Context, h http.Handler, method, target, key, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if key != "" {
		r.Header.Set(idempotency.KeyHeader, key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// counter is a handler that counts its executions in its answers.
type counter struct{ n atomic.Int64 }

// ServeHTTP implements [http.Handler].
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Count", strconv.FormatInt(c.n.Add(1), 10))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(append([]byte(w.Header().Get("X-Count")+" "), body...)) //nolint:gosec // Nobody shows it to a browser.
}

// want fails unless an answer has the status and, among its bytes, the text.
func (s *suite) want(what string, w *httptest.ResponseRecorder, status int, text string) {
	s.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		s.Errorf("%s: %d %s; want %d %s", what, w.Code, w.Body, status, text)
	}
}

// problem fails unless an answer is a problem with a code.
func (s *suite) problem(what string, w *httptest.ResponseRecorder, status int, code string, retryable bool) {
	s.Helper()
	var p idempotency.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Status != status || p.Code != code || p.Retryable != retryable ||
		p.Title == "" || p.Type == "" || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get(idempotency.ReplayedHeader) != "" {
		s.Errorf("%s: %d %s %v; want %d %s", what, w.Code, w.Body, w.Header(), status, code)
	}
}

func (s *suite) keys() {
	c := &counter{}
	h := s.guard(idempotency.Options{}).Wrap(c)
	key := uuid.NewString()
	for _, bad := range []string{"", `""`, " ", `"a`, "a b", "é", strings.Repeat("k", 256)} {
		s.problem("key "+bad, ask(h, "POST", "/a", bad, "x"), 400, idempotency.CodeKeyRequired, false)
	}
	s.problem("two keys", ask(h, "POST", "/a", key, "x", idempotency.KeyHeader, key), 400, idempotency.CodeKeyRequired, false)
	if n := c.n.Load(); n != 0 {
		s.Errorf("%d refused requests were executed", n)
	}
	s.want("bare", ask(h, "POST", "/a", key, "x"), 201, "1 x")
	if w := ask(h, "POST", "/a", `"`+key+`"`, "x"); w.Body.String() != "1 x" || w.Header().Get(idempotency.ReplayedHeader) != "true" {
		s.Errorf("the key, quoted: %s %v", w.Body, w.Header())
	}
	s.want("the longest key", ask(h, "PATCH", "/a", strings.Repeat("k", 255-36)+key, "x"), 201, "2 x")
	for i, method := range []string{"GET", "PUT", "DELETE"} { // Idempotent by themselves.
		s.want(method, ask(h, method, "/a", "", "x"), 201, strconv.Itoa(3+i))
	}
	optional := s.guard(idempotency.Options{Optional: true}).Wrap(c)
	s.want("without a key", ask(optional, "POST", "/a", "", "x"), 201, "6 x")
	s.problem("malformed all the same", ask(optional, "POST", "/a", "a b", "x"), 400, idempotency.CodeKeyRequired, false)
	all := s.guard(idempotency.Options{Methods: []string{"PUT"}}).Wrap(c)
	s.problem("PUT", ask(all, "PUT", "/a", "", "x"), 400, idempotency.CodeKeyRequired, false)
	s.want("POST", ask(all, "POST", "/a", "", "x"), 201, "7 x")
}

func (s *suite) replay() {
	var seen sync.Map
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, ok := idempotency.FromContext(r.Context())
		if _, twice := seen.LoadOrStore(g.ID, true); twice || !ok || g.Fence < 1 {
			s.Errorf("executed twice, or without a grant: %+v", g)
		}
		w.Header()["X-Many"] = []string{"1", "2"}
		w.Header().Set("X-Latin", "caf\xe9")
		w.Header().Set("Location", "/a/1")
		w.WriteHeader(http.StatusPaymentRequired)
		w.Header().Set("X-Late", "not sent")
		_, _ = w.Write([]byte{0, 255})
		_, _ = io.WriteString(w, "\x01<html>")
	})
	outer := func(next http.Handler) http.Handler { // What is in front of the middleware has headers of its own.
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", uuid.NewString())
			next.ServeHTTP(w, r)
		})
	}
	one, two := outer(s.guard(idempotency.Options{}).Wrap(inner)), outer(s.guard(idempotency.Options{}).Wrap(inner))
	key := uuid.NewString()
	first := ask(one, "POST", "/a?b=1", key, "x")
	if first.Code != 402 || first.Header().Get(idempotency.ReplayedHeader) != "" || first.Header().Get("X-Late") != "" {
		s.Fatalf("%d %v", first.Code, first.Header())
	}
	for _, h := range []http.Handler{one, two} {
		w := ask(h, "POST", "/a?b=1", key, "x")
		if w.Code != first.Code || !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) || w.Header().Get(idempotency.ReplayedHeader) != "true" {
			s.Errorf("%d %q %v", w.Code, w.Body, w.Header())
		}
		if w.Header().Get("X-Request-Id") == first.Header().Get("X-Request-Id") {
			s.Error("the outer header was kept")
		}
		for _, h := range []http.Header{w.Header(), first.Header()} {
			h.Del("X-Request-Id")
			h.Del(idempotency.ReplayedHeader)
		}
		if !equal(idempotency.Response{Header: w.Header()}, idempotency.Response{Header: first.Header()}) {
			s.Errorf("header %v, first %v", w.Header(), first.Header())
		}
	}
	s.problem("another body", ask(two, "POST", "/a?b=1", key, "y"), 422, idempotency.CodeKeyReused, false)
	s.problem("another query", ask(two, "POST", "/a?b=2", key, "x"), 422, idempotency.CodeKeyReused, false)

	c := &counter{}
	loose := s.guard(idempotency.Options{
		DocsURL: "https://example.com/keys",
		Fingerprint: func(_ *http.Request, body []byte) ([]byte, error) {
			if len(body) == 0 {
				return nil, errors.New("empty")
			}
			return bytes.ToLower(body), nil
		},
	}).Wrap(c)
	key = uuid.NewString()
	s.want("canonical", ask(loose, "POST", "/c", key, "Body"), 201, "1 Body")
	s.want("spelt differently", ask(loose, "POST", "/c", key, "bODY"), 201, "1 Body")
	s.want("another", ask(loose, "POST", "/c", key, "other"), 422, "https://example.com/keys#idempotency_key_reused")
	s.problem("no fingerprint", ask(s.guard(idempotency.Options{
		Fingerprint: func(*http.Request, []byte) ([]byte, error) { return nil, errors.New("no") },
	}).Wrap(c), "POST", "/c", key, ""), 400, idempotency.CodeBadBody, false)
}

func (s *suite) scopes() {
	c := &counter{}
	store := s.h.Open()
	perRoute := s.guard(idempotency.Options{Store: store}).Wrap(c)
	perPrincipal := s.guard(idempotency.Options{Store: store, Scope: idempotency.PerPrincipal}).Wrap(c)
	key := uuid.NewString()
	for i, in := range []struct{ method, path, user string }{{"POST", "/a", "ann"}, {"POST", "/a", "bob"}, {"PATCH", "/a", "ann"}, {"POST", "/b", "ann"}} {
		for range 2 {
			s.want("per route", ask(perRoute, in.method, in.path, key, "x", "X-User", in.user), 201, strconv.Itoa(i+1)+" x")
		}
	}
	s.want("per principal", ask(perPrincipal, "POST", "/a", key, "x", "X-User", "ann"), 201, "5 x")
	s.want("again", ask(perPrincipal, "POST", "/a", key, "x", "X-User", "ann"), 201, "5 x")
	s.problem("another path", ask(perPrincipal, "POST", "/b", key, "x", "X-User", "ann"), 422, idempotency.CodeKeyReused, false)
	s.problem("another method", ask(perPrincipal, "PATCH", "/a", key, "x", "X-User", "ann"), 422, idempotency.CodeKeyReused, false)
	s.want("another principal", ask(perPrincipal, "POST", "/b", key, "x", "X-User", "bob"), 201, "6 x")
}

func (s *suite) undecided() {
	var n atomic.Int32
	status := http.StatusBadRequest
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { n.Add(1); w.WriteHeader(status) })
	h := s.guard(idempotency.Options{}).Wrap(inner)
	for _, status = range []int{400, 401, 403, 404, 405, 413, 429, 503} {
		n.Store(0)
		key := uuid.NewString()
		for _, body := range []string{"x", "x", "corrected"} {
			if w := ask(h, "POST", "/a", key, body); w.Code != status || w.Header().Get(idempotency.ReplayedHeader) != "" {
				s.Errorf("%d %v", w.Code, w.Header())
			}
		}
		if n.Load() != 3 {
			s.Errorf("status %d: %d of 3 were executed", status, n.Load())
		}
	}
	for _, status = range []int{200, 302, 402, 409, 410, 422, 500, 502} {
		n.Store(0)
		key := uuid.NewString()
		for range 3 {
			if w := ask(h, "POST", "/a", key, "x"); w.Code != status {
				s.Errorf("%d", w.Code)
			}
		}
		if n.Load() != 1 {
			s.Errorf("status %d: executed %d times", status, n.Load())
		}
	}
	own := s.guard(idempotency.Options{Decided: func(_ *http.Request, status int) bool { return status < 400 }}).Wrap(inner)
	n.Store(0)
	key := uuid.NewString()
	for _, status = range []int{500, 402, 200, 500} {
		_ = ask(own, "POST", "/a", key, "x")
	}
	if n.Load() != 3 {
		s.Errorf("executed %d times", n.Load())
	}
}

func (s *suite) caps() {
	const limit = 1000
	var answer, header int
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
			s.Errorf("read %d of %d: %v", n, r.ContentLength, err)
		}
		w.Header().Set("X-Long", strings.Repeat("h", header))
		for range answer {
			if _, err := w.Write([]byte{'b'}); err != nil {
				if !errors.Is(err, idempotency.ErrResponseTooLarge) {
					s.Error(err)
				}
				return
			}
		}
	})
	h := s.guard(idempotency.Options{MaxBody: limit, MaxResponse: limit, MaxHeader: limit}).Wrap(inner)
	body := strings.Repeat("x", limit)
	key := uuid.NewString()
	s.problem("body over the limit", ask(h, "POST", "/a", key, body+"x"), 413, idempotency.CodePayloadTooLarge, false)
	answer, header = limit, limit/2
	s.want("all at the limit", ask(h, "POST", "/a", key, body), 200, strings.Repeat("b", limit))
	for _, over := range []struct{ answer, header int }{{limit + 1, 0}, {0, limit}} {
		answer, header = over.answer, over.header
		key = uuid.NewString()
		s.problem("answer over the limit", ask(h, "POST", "/a", key, "x"), 500, idempotency.CodeResponseTooLarge, false)
		answer, header = 1, 1 // It was executed, and is not executed again.
		if w := ask(h, "POST", "/a", key, "x"); w.Code != 500 || w.Header().Get(idempotency.ReplayedHeader) != "true" {
			s.Errorf("the repeat: %d %s", w.Code, w.Body)
		}
	}
}

func (s *suite) inFlight() {
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-goOn
		_, _ = io.WriteString(w, "done")
	})
	refusing := s.guard(idempotency.Options{}).Wrap(inner)
	waiting := []http.Handler{s.guard(idempotency.Options{Wait: patience}).Wrap(inner), s.guard(idempotency.Options{Wait: patience}).Wrap(inner)}
	key := uuid.NewString()
	var wg sync.WaitGroup
	wg.Go(func() { s.want("the first", ask(waiting[0], "POST", "/a", key, "x"), 200, "done") })
	<-begun
	s.problem("in flight", ask(refusing, "POST", "/a", key, "x"), 409, idempotency.CodeInFlight, true)
	if w := ask(refusing, "POST", "/a", key, "x"); w.Header().Get("Retry-After") == "" {
		s.Error("409 says no time to come back")
	}
	s.problem("reused in flight", ask(waiting[1], "POST", "/a", key, "y"), 422, idempotency.CodeKeyReused, false)
	brief := s.guard(idempotency.Options{Wait: 50 * time.Millisecond}).Wrap(inner)
	s.problem("waited in vain", ask(brief, "POST", "/a", key, "x"), 409, idempotency.CodeInFlight, true)
	for i := range 6 { // In the executing process and in another.
		wg.Go(func() {
			if w := ask(waiting[i%2], "POST", "/a", key, "x"); w.Code != 200 || w.Body.String() != "done" || w.Header().Get(idempotency.ReplayedHeader) != "true" {
				s.Errorf("one that has waited: %d %s %v", w.Code, w.Body, w.Header())
			}
		})
	}
	close(goOn)
	wg.Wait()
	s.want("afterwards", ask(refusing, "POST", "/a", key, "x"), 200, "done")
}

// clientGone: the handler runs on when its client goes away, and the retry gets its answer.
func (s *suite) clientGone() {
	ctx, leave := context.WithCancel(s.ctx())
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave()
		if err := r.Context().Err(); err != nil {
			s.Errorf("the handler's context has ended: %v", err)
		}
		_, _ = io.WriteString(w, "done")
	})
	h := s.guard(idempotency.Options{}).Wrap(inner)
	key := uuid.NewString()
	_ = askWith(ctx, h, "POST", "/a", key, "x")
	if w := ask(h, "POST", "/a", key, "x"); w.Body.String() != "done" || w.Header().Get(idempotency.ReplayedHeader) != "true" {
		s.Errorf("%d %s", w.Code, w.Body)
	}
}

// panics: a handler that panics has answered as any other 500: nobody can say that it had no effect.
func (s *suite) panics() {
	for _, policy := range []idempotency.CrashPolicy{idempotency.FreeAfterLease, idempotency.ParkAsUnknown} {
		for _, kept := range []bool{true, false} {
			n := 0
			o := idempotency.Options{OnCrash: policy}
			if !kept {
				o.Decided = func(_ *http.Request, status int) bool { return status < 500 }
			}
			h := s.guard(o).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "half an ans")
				if n++; n == 1 {
					panic(http.ErrAbortHandler)
				}
			}))
			key := uuid.NewString()
			func() {
				defer func() {
					if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // As it was thrown.
						s.Errorf("recovered %v", p)
					}
				}()
				_ = ask(h, "POST", "/a", key, "x")
			}()
			w := ask(h, "POST", "/a", key, "x")
			if !kept {
				s.want("after a panic", w, 200, "half an ans")
				continue
			}
			s.want("after a panic", w, 500, `"outcome":"unknown"`)
			if n != 1 || w.Header().Get(idempotency.ReplayedHeader) != "true" {
				s.Errorf("executed %d times; %v", n, w.Header())
			}
		}
	}
}

func (s *suite) noStreaming() {
	h := s.guard(idempotency.Options{}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		_, _, hijack := c.Hijack()
		if flush := c.Flush(); !errors.Is(flush, http.ErrNotSupported) || !errors.Is(hijack, http.ErrNotSupported) {
			s.Errorf("flush: %v, hijack: %v", flush, hijack)
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
		w.WriteHeader(http.StatusOK)
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			s.Errorf("a body of a 204: %v", err)
		}
	}))
	for range 2 {
		s.want("no content", ask(h, "POST", "/a", "k-"+s.Name(), "x"), 204, "")
	}
}

// away: nothing is executed while the store can't be asked, and no success is told that was not kept.
func (s *suite) away() {
	store := newMortal(s.h.Open(), "")
	c := &counter{}
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r)
		store.dead.Store(true)
	})
	store.dead.Store(true)
	key := uuid.NewString()
	hasty := s.guard(idempotency.Options{Store: store, StoreTimeout: 50 * time.Millisecond}).Wrap(inner)
	s.problem("the store is away", ask(hasty, "POST", "/a", key, "x"), 503, idempotency.CodeUnavailable, true)
	if n := c.n.Load(); n != 0 {
		s.Errorf("executed %d times without a store", n)
	}
	store.dead.Store(false)
	h := s.guard(idempotency.Options{Store: store, StoreTimeout: patience, Lease: 200 * time.Millisecond}).Wrap(inner)
	s.problem("the store goes away", ask(h, "POST", "/a", key, "x"), 503, idempotency.CodeOutcomeUnknown, true)
	if n := c.n.Load(); n != 1 {
		s.Errorf("executed %d times", n)
	}
}

func bytesContain(w *httptest.ResponseRecorder, text string) bool {
	return bytes.Contains(w.Body.Bytes(), []byte(text))
}
