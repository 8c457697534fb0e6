package idempotency_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/memstore"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds what should be quick on an idle machine, and may run on a busy one.
const patience = testwait.Patience

// guard puts a middleware in front of a handler, with a store of its own unless the options have one.
func guard(t *testing.T, o idempotency.Options, next http.Handler) http.Handler {
	t.Helper()
	if o.Store == nil {
		o.Store = memstore.New()
	}
	o.Principal = func(r *http.Request) string { return r.Header.Get("X-User") }
	o.Lease = cmp.Or(o.Lease, 10*time.Minute)
	m, err := idempotency.New(o)
	testwait.Must(t, err)
	return m.Wrap(next)
}

// ask sends a request with a key; further arguments are names and values of header fields.
func ask(h http.Handler, method, target, key, body string, header ...string) *httptest.ResponseRecorder {
	return askWith(context.Background(), h, method, target, key, strings.NewReader(body), header...)
}

func askWith(ctx context.Context, h http.Handler, method, target, key string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, body)
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

// post sends a request of the key by POST to /a.
func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	return ask(h, "POST", "/a", key, body)
}

// counter is a handler that counts its executions in its answers.
type counter struct{ n atomic.Int64 }

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, strconv.FormatInt(c.n.Add(1), 10)+" "+string(body))
}

// want fails unless an answer has the status and, among its bytes, the text.
func want(t *testing.T, what string, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		t.Errorf("%s: %d %s; want %d %s", what, w.Code, w.Body, status, text)
	}
}

// wantReplay is want for the answer of an earlier execution.
func wantReplay(t *testing.T, what string, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	want(t, what, w, status, text)
	if w.Header().Get(idempotency.ReplayedHeader) != "true" {
		t.Errorf("%s: not marked as replayed: %v", what, w.Header())
	}
}

// problem fails unless an answer is a problem with a code.
func problem(t *testing.T, what string, w *httptest.ResponseRecorder, status int, code string, retryable bool) {
	t.Helper()
	var p idempotency.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Status != status || p.Code != code || p.Retryable != retryable ||
		p.Title == "" || p.Type == "" || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get(idempotency.ReplayedHeader) != "" {
		t.Errorf("%s: %d %s %v; want %d %s", what, w.Code, w.Body, w.Header(), status, code)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	c := &counter{}
	h := guard(t, idempotency.Options{}, c)
	for _, bad := range []string{"", `""`, " ", `"a`, "a b", "é", strings.Repeat("k", 256)} {
		problem(t, "key "+bad, post(h, bad, "x"), 400, idempotency.CodeKeyRequired, false)
	}
	problem(t, "two keys", ask(h, "POST", "/a", "k", "x", idempotency.KeyHeader, "k"), 400, idempotency.CodeKeyRequired, false)
	want(t, "bare", post(h, "k", "x"), 201, "1 x")
	wantReplay(t, "quoted", post(h, `"k"`, "x"), 201, "1 x")
	want(t, "the longest key", ask(h, "PATCH", "/a", strings.Repeat("k", 255), "x"), 201, "2 x")
	for i, method := range []string{"GET", "PUT", "DELETE"} { // Idempotent by themselves.
		want(t, method, ask(h, method, "/a", "", "x"), 201, strconv.Itoa(3+i))
	}
	optional := guard(t, idempotency.Options{Optional: true}, c)
	want(t, "without a key", post(optional, "", "x"), 201, "6 x")
	problem(t, "malformed all the same", post(optional, "a b", "x"), 400, idempotency.CodeKeyRequired, false)
	puts := guard(t, idempotency.Options{Methods: []string{"PUT"}}, c)
	problem(t, "PUT", ask(puts, "PUT", "/a", "", "x"), 400, idempotency.CodeKeyRequired, false)
	want(t, "POST", post(puts, "", "x"), 201, "7 x")
}

// TestReplay: two processes repeat an answer to the byte; what is in front of the middleware keeps its headers, and where both
// have values that add up, the client gets all.
func TestReplay(t *testing.T) {
	t.Parallel()
	executed := 0
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g, ok := idempotency.FromContext(r.Context()); !ok || g.Fence < 1 {
			t.Errorf("executed without a grant: %+v", g)
		}
		executed++
		maps.Copy(w.Header(), http.Header{
			"X-Many": {"1", "2"}, "X-Latin": {"caf\xe9"}, "Location": {"/a/1"}, "Cache-Control": {"private"},
			"Vary": {"Accept"}, "Set-Cookie": {"basket=1"}, "Link": {"</a>; rel=self"},
		})
		w.WriteHeader(http.StatusPaymentRequired)
		w.Header().Set("X-Late", "not sent")
		_, _ = w.Write([]byte{0, 255})
		_, _ = io.WriteString(w, "\x01<html>")
	})
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for name, value := range map[string]string{
				"Vary": "Origin", "Set-Cookie": "session=s", "Link": "</>; rel=home", "Cache-Control": "no-store", "X-Request-Id": r.Header.Get("X-Id"),
			} {
				w.Header().Set(name, value)
			}
			next.ServeHTTP(w, r)
		})
	}
	store := memstore.New()
	o := idempotency.Options{Store: store}
	one, two := outer(guard(t, o, inner)), outer(guard(t, o, inner))
	for i, h := range []http.Handler{one, one, two} {
		id := strconv.Itoa(i)
		w := ask(h, "POST", "/a?b=1", "k", "x", "X-Id", id)
		expected := http.Header{
			"X-Many": {"1", "2"}, "X-Latin": {"caf\xe9"}, "Location": {"/a/1"}, "Cache-Control": {"private"}, "X-Request-Id": {id},
			"Vary": {"Origin", "Accept"}, "Set-Cookie": {"session=s", "basket=1"}, "Link": {"</>; rel=home", "</a>; rel=self"},
			"Content-Type": {"application/octet-stream"}, "Content-Length": {"9"},
		}
		if i > 0 {
			expected.Set(idempotency.ReplayedHeader, "true")
		}
		if w.Code != 402 || w.Body.String() != "\x00\xff\x01<html>" || !maps.EqualFunc(w.Header(), expected, slices.Equal) || executed != 1 {
			t.Errorf("%d %q\n%v, want\n%v", w.Code, w.Body, w.Header(), expected)
		}
	}
	refused := ask(two, "POST", "/a?b=1", "k", "y")
	problem(t, "another body", refused, 422, idempotency.CodeKeyReused, false)
	if got := refused.Header(); !slices.Equal(got.Values("Vary"), []string{"Origin"}) || got.Get("Cache-Control") != "no-store" {
		t.Errorf("the refusal has %v", got)
	}
	problem(t, "another query", ask(two, "POST", "/a?b=2", "k", "x"), 422, idempotency.CodeKeyReused, false)
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	h := guard(t, idempotency.Options{
		DocsURL: "https://example.com/keys",
		Fingerprint: func(_ *http.Request, body []byte) ([]byte, error) {
			if len(body) == 0 {
				return nil, errors.New("empty")
			}
			return bytes.ToLower(body), nil
		},
	}, &counter{})
	want(t, "canonical", post(h, "k", "Body"), 201, "1 Body")
	wantReplay(t, "spelt differently", post(h, "k", "bODY"), 201, "1 Body")
	want(t, "another", post(h, "k", "other"), 422, "https://example.com/keys#idempotency_key_reused")
	problem(t, "no fingerprint", post(h, "l", ""), 400, idempotency.CodeBadBody, false)
}

func TestScopesAndHosts(t *testing.T) {
	t.Parallel()
	c, store := &counter{}, memstore.New()
	perRoute := guard(t, idempotency.Options{Store: store}, c)
	perPrincipal := guard(t, idempotency.Options{Store: store, Scope: idempotency.PerPrincipal}, c)
	send := func(h http.Handler, method, path, user string) *httptest.ResponseRecorder {
		return ask(h, method, path, "k", "x", "X-User", user)
	}
	for i, in := range []struct{ method, path, user string }{{"POST", "/a", "ann"}, {"POST", "/a", "bob"}, {"PATCH", "/a", "ann"}, {"POST", "/b", "ann"}} {
		for range 2 {
			want(t, "per route", send(perRoute, in.method, in.path, in.user), 201, strconv.Itoa(i+1)+" x")
		}
	}
	for range 2 {
		want(t, "per principal", send(perPrincipal, "POST", "/a", "ann"), 201, "5 x")
	}
	problem(t, "another path", send(perPrincipal, "POST", "/b", "ann"), 422, idempotency.CodeKeyReused, false)
	problem(t, "another method", send(perPrincipal, "PATCH", "/a", "ann"), 422, idempotency.CodeKeyReused, false)
	want(t, "another principal", send(perPrincipal, "POST", "/b", "bob"), 201, "6 x")
	for _, scope := range []idempotency.Scope{idempotency.PerRoute, idempotency.PerPrincipal} {
		h := guard(t, idempotency.Options{Scope: scope}, &counter{})
		for i, host := range []string{"a.example", "b.example", "[::1]:80"} {
			for _, same := range []string{host, strings.ToUpper(host)} {
				want(t, host, ask(h, "POST", "http://"+same+"/a", "k", "x"), 201, strconv.Itoa(i+1)+" x")
			}
		}
		// A port is none of the host: the replicas of one service may listen on several.
		want(t, "another port", ask(h, "POST", "http://a.example:8080/a", "k", "x"), 201, "1 x")
	}
}

func TestDecided(t *testing.T) {
	t.Parallel()
	n, status := 0, 0
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { n++; w.WriteHeader(status) })
	h := guard(t, idempotency.Options{}, inner)
	own := guard(t, idempotency.Options{Decided: func(_ *http.Request, status int) bool { return status < 400 }}, inner)
	for _, c := range []struct {
		h        http.Handler
		statuses []int
		bodies   []string
		times    int
	}{
		{h, []int{400, 401, 403, 404, 405, 413, 429, 503}, []string{"x", "x", "corrected"}, 3},
		{h, []int{200, 302, 402, 409, 410, 422, 500, 502}, []string{"x", "x", "x"}, 1},
		{own, []int{402, 500}, []string{"x", "x"}, 2},
		{own, []int{200}, []string{"x", "x"}, 1},
	} {
		for _, status = range c.statuses {
			n = 0
			key := uuid.NewString()
			for i, body := range c.bodies {
				if w := post(c.h, key, body); w.Code != status || (w.Header().Get(idempotency.ReplayedHeader) != "") != (i > 0 && c.times == 1) {
					t.Errorf("status %d: %d %v", status, w.Code, w.Header())
				}
			}
			if n != c.times {
				t.Errorf("status %d: executed %d times, want %d", status, n, c.times)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	const limit = 1000
	var answer, header int
	h := guard(t, idempotency.Options{MaxBody: limit, MaxResponse: limit, MaxHeader: limit}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
			t.Errorf("read %d of %d: %v", n, r.ContentLength, err)
		}
		w.Header().Set("X-Long", strings.Repeat("h", header))
		for range answer {
			if _, err := w.Write([]byte{'b'}); err != nil {
				if !errors.Is(err, idempotency.ErrResponseTooLarge) {
					t.Error(err)
				}
				return
			}
		}
	}))
	body := strings.Repeat("x", limit)
	problem(t, "body over the limit", post(h, "k", body+"x"), 413, idempotency.CodePayloadTooLarge, false)
	answer, header = limit, limit/2
	want(t, "all at the limit", post(h, "k", body), 200, strings.Repeat("b", limit))
	for key, over := range map[string]struct{ answer, header int }{"answer": {limit + 1, 0}, "header": {0, limit}} {
		answer, header = over.answer, over.header
		problem(t, key+" over the limit", post(h, key, "x"), 500, idempotency.CodeResponseTooLarge, false)
		answer, header = 1, 1 // It was executed, and is not executed again.
		wantReplay(t, "the repeat", post(h, key, "x"), 500, "")
	}
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-goOn
		_, _ = io.WriteString(w, "done")
	})
	store := memstore.New()
	with := func(wait time.Duration) http.Handler {
		return guard(t, idempotency.Options{Store: store, Wait: wait}, inner)
	}
	refusing, waiting := with(0), []http.Handler{with(patience), with(patience)}
	var wg sync.WaitGroup
	wg.Go(func() { want(t, "the first", post(waiting[0], "k", "x"), 200, "done") })
	<-begun
	refused := post(refusing, "k", "x")
	problem(t, "in flight", refused, 409, idempotency.CodeInFlight, true)
	if refused.Header().Get("Retry-After") == "" {
		t.Error("409 says no time to come back")
	}
	problem(t, "reused in flight", post(waiting[1], "k", "y"), 422, idempotency.CodeKeyReused, false)
	problem(t, "waited in vain", post(with(50*time.Millisecond), "k", "x"), 409, idempotency.CodeInFlight, true)
	for i := range 6 { // In the executing process and in another.
		wg.Go(func() { wantReplay(t, "one that has waited", post(waiting[i%2], "k", "x"), 200, "done") })
	}
	close(goOn)
	wg.Wait()
	wantReplay(t, "afterwards", post(refusing, "k", "x"), 200, "done")
}

// TestClientGoesAway: the handler runs on when its client goes away, and the retry gets its answer.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	h := guard(t, idempotency.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave()
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context has ended: %v", err)
		}
		_, _ = io.WriteString(w, "done")
	}))
	_ = askWith(ctx, h, "POST", "/a", "k", strings.NewReader("x"))
	wantReplay(t, "the retry", post(h, "k", "x"), 200, "done")
}

// TestPanic: a handler that panics has answered as any other 500: nobody can say that it had no effect.
func TestPanic(t *testing.T) {
	t.Parallel()
	for _, policy := range []idempotency.CrashPolicy{idempotency.FreeAfterLease, idempotency.ParkAsUnknown} {
		for _, kept := range []bool{true, false} {
			n := 0
			decided := func(_ *http.Request, status int) bool { return kept || status < 500 }
			h := guard(t, idempotency.Options{OnCrash: policy, Decided: decided}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "half an ans")
				if n++; n == 1 {
					panic(http.ErrAbortHandler)
				}
			}))
			func() {
				defer func() {
					if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // As it was thrown.
						t.Errorf("recovered %v", p)
					}
				}()
				_ = post(h, "k", "x")
			}()
			w := post(h, "k", "x")
			if !kept {
				want(t, "after a panic", w, 200, "half an ans")
				continue
			}
			wantReplay(t, "after a panic", w, 500, `"outcome":"unknown"`)
			if n != 1 {
				t.Errorf("executed %d times", n)
			}
		}
	}
}

// TestNoStreaming: a handler can't stream. It reaches its connection for what doesn't write to it.
func TestNoStreaming(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(guard(t, idempotency.Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex()); err != nil {
			t.Errorf("not reached: %v", err)
		}
		_, _, hijack := c.Hijack()
		if flush := c.Flush(); !errors.Is(flush, http.ErrNotSupported) || !errors.Is(hijack, http.ErrNotSupported) {
			t.Errorf("flush: %v, hijack: %v", flush, hijack)
		}
		for _, status := range []int{http.StatusEarlyHints, http.StatusNoContent, http.StatusOK} {
			w.WriteHeader(status)
		}
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("a body of a 204: %v", err)
		}
	})))
	defer server.Close()
	for range 2 {
		if status := sendTo(t, server, "k", "text/plain", strings.NewReader("x")); status != http.StatusNoContent {
			t.Errorf("answered with %d", status)
		}
	}
}

// sendTo sends a request to a real server and returns the status of its answer.
func sendTo(t *testing.T, server *httptest.Server, key, contentType string, body io.Reader) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
	testwait.Must(t, err)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set(idempotency.KeyHeader, key)
	answer, err := server.Client().Do(r)
	testwait.Must(t, err)
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode
}

// TestNoBody: a request that was made by hand without a body has an empty one.
func TestNoBody(t *testing.T) {
	t.Parallel()
	h := guard(t, idempotency.Options{}, &counter{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/a", nil)
	testwait.Must(t, err)
	r.Header.Set(idempotency.KeyHeader, "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	want(t, "without a body", w, 201, "1 ")
	wantReplay(t, "with an empty body", post(h, "k", ""), 201, "1 ")
}

// TestConsumedBody: a body that somebody in front of the middleware has read is not taken for an empty one.
func TestConsumedBody(t *testing.T) {
	t.Parallel()
	const (
		form, parts = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
		multipart   = "--b\r\nContent-Disposition: form-data; name=\"item\"\r\n\r\n%\r\n--b--\r\n"
	)
	value := func(r *http.Request) { _ = r.FormValue("item") }
	multi := func(r *http.Request) { _ = r.ParseMultipartForm(1 << 10) }
	parse := func(r *http.Request) { _ = r.ParseForm() }
	for name, c := range map[string]struct {
		contentType, body string
		chunked           bool
		outer             func(*http.Request)
		status            int
	}{
		"form":                 {form, "item=%", false, parse, 500},
		"form in chunks":       {form, "item=%", true, value, 500},
		"parts":                {parts, multipart, false, multi, 500},
		"parts in chunks":      {parts, multipart, true, multi, 500},
		"read":                 {"text/plain", "%", false, func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, 500},
		"read in part":         {"text/plain", "%%", false, func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 1)) }, 500},
		"asked for a form":     {"application/json", "%", false, value, 200},
		"form without a value": {form, "", false, parse, 200},
		"untouched":            {form, "item=%", false, func(*http.Request) {}, 200},
	} {
		var executed atomic.Int64
		h := guard(t, idempotency.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			executed.Add(1)
			_, _ = io.Copy(w, r.Body)
		}))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.outer(r)
			h.ServeHTTP(w, r)
		}))
		for _, item := range []string{"a", "b"} {
			var body io.Reader = strings.NewReader(strings.ReplaceAll(c.body, "%", item))
			if c.chunked {
				body = io.MultiReader(body) // Whose length the client doesn't know.
			}
			expected := c.status
			if item == "b" && expected == 200 && c.body != "" {
				expected = 422
			}
			if status := sendTo(t, server, "k", c.contentType, body); status != expected {
				t.Errorf("%s: item %s is answered with %d, want %d", name, item, status, expected)
			}
		}
		server.Close()
		if n := executed.Load(); n != map[int]int64{500: 0, 200: 1}[c.status] {
			t.Errorf("%s: executed %d times", name, n)
		}
	}
}
