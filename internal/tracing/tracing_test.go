package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/tracing"
	"github.com/fairlead-dev/fairlead/saga"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:4318":              "http://127.0.0.1:4318/v1/traces",
		"https://collector/":                 "https://collector/v1/traces",
		"https://collector/tenant":           "https://collector/tenant/v1/traces",
		"https://collector/tenant/v1/traces": "https://collector/tenant/v1/traces",
		"collector:4318":                     "",
		"grpc://collector:4317":              "",
		"http://":                            "",
		"http://user:secret@collector":       "",
		"http://collector?key=secret":        "",
		"http://collector:port":              "",
		"":                                   "",
	} {
		got, err := tracing.ParseEndpoint(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", endpoint, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats it: %v", endpoint, err)
		}
	}
}

// heard is an observer of lanes that counts.
type heard struct{ calls atomic.Int64 }

func (h *heard) Made(func() groupcommit.Load)      {}
func (h *heard) Taken(int, int, time.Duration)     { h.calls.Add(1) }
func (h *heard) Flushed(int, time.Duration, error) { h.calls.Add(1) }
func (h *heard) Bisected(int)                      { h.calls.Add(1) }
func (h *heard) Refused()                          { h.calls.Add(1) }
func (h *heard) Panicked(*groupcommit.PanicError)  { h.calls.Add(1) }

// TestOff holds that without an endpoint there is nothing in anybody's way: no hook, and the observers themselves.
func TestOff(t *testing.T) {
	t.Parallel()
	off, err := tracing.Start(t.Context(), tracing.Options{})
	if off != nil || err != nil {
		t.Fatalf("without an endpoint: %v, %v", off, err)
	}
	own := &heard{}
	if off.Requests() != nil || off.Deliveries() != nil || off.Steps() != nil || off.Lanes("ledger", own) != groupcommit.Observer(own) {
		t.Error("something is traced")
	}
	testwait.Check(t, off.Close(t.Context()))
	if _, err := tracing.Start(t.Context(), tracing.Options{Endpoint: "collector:4318"}); err == nil {
		t.Error("what is no URL is taken")
	}
}

// collector keeps what is posted to it. Texts are plain in protobuf, so that they can be looked for without decoding.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	got    bytes.Buffer
	posts  int
	status atomic.Int64
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.status.Store(http.StatusOK)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		testwait.Check(t, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.posts++
		c.got.Write(body)
		w.WriteHeader(int(c.status.Load()))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) has(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.got.Bytes(), []byte(text))
}

func start(t *testing.T, endpoint string, logs io.Writer) *tracing.Tracing {
	t.Helper()
	tr, err := tracing.Start(t.Context(), tracing.Options{Endpoint: endpoint, Version: "v0.0.0-test", Logger: slog.New(slog.NewTextHandler(logs, nil))})
	testwait.Must(t, err)
	return tr
}

// TestSpans makes one span of each kind, of those that failed above all, and reads them at the collector.
func TestSpans(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "the-shop")
	c := newCollector(t)
	var logs bytes.Buffer
	tr := start(t, c.URL, &logs)
	own := &heard{}
	lanes := tr.Lanes("ledger", own)
	lanes.Taken(3, 4, time.Second)
	lanes.Flushed(3, time.Second, errors.New("disk full"))
	lanes.Bisected(3)
	lanes.Refused()
	lanes.Panicked(nil)
	if n := own.calls.Load(); n != 5 {
		t.Errorf("of 5 reports the observer heard %d", n)
	}
	_, end := tr.Requests()(httptest.NewRequest("BREW", "/v1/coffee", nil))
	end("", http.StatusServiceUnavailable, "overloaded", "request-1", true)
	_, end = tr.Requests()(httptest.NewRequest(http.MethodGet, "/gone", nil))
	end("/gone", 0, "", "", false)
	publication := uuid.Must(uuid.NewV7())
	_, delivered := tr.Deliveries()(t.Context(), "webhook", uuid.Must(uuid.NewV7()), publication, 2, 0)
	delivered(http.StatusBadGateway, errors.New("the target answered 502"))
	call := saga.Call{Saga: uuid.Must(uuid.NewV7()), Step: "credit"}
	_, refused := tr.Steps()(t.Context(), saga.PhaseDo, call)
	refused(saga.Refuse("account_closed"), nil)
	_, failed := tr.Steps()(t.Context(), saga.PhaseUndo, call)
	failed(saga.Outcome{}, errors.New("connection reset"))
	testwait.Check(t, tr.Close(t.Context()))
	for _, text := range []string{
		"commit ledger", "disk full", "_OTHER", "/v1/coffee", "overloaded", "request-1", "fairlead.replayed", "GET /gone", "broken off", "deliver webhook", publication.String(),
		"answered 502", "do credit", call.Saga.String(), "account_closed", "undo credit", "connection reset", "the-shop", "v0.0.0-test",
	} {
		if !c.has(text) {
			t.Errorf("the collector got no %q", text)
		}
	}
	if c.has("BREW") {
		t.Error("a client can invent names")
	}
	if logs.Len() > 0 {
		t.Errorf("logged: %s", logs.String())
	}
}

// TestSampler holds that the SDK's environment counts.
func TestSampler(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	c := newCollector(t)
	tr := start(t, c.URL, io.Discard)
	ctx, end := tr.Requests()(httptest.NewRequest(http.MethodGet, "/", nil))
	end("", http.StatusOK, "", "", false)
	if ctx == nil || tr.Close(t.Context()) != nil || c.posts != 0 {
		t.Errorf("%d posts", c.posts)
	}
}

// TestCollectorAway drives many more spans than the queue holds at a collector that refuses, is silent, or is not there: nobody
// who makes spans waits, the end is soon, and the log is told once.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-silent:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(silent) })
	refusing := newCollector(t)
	refusing.status.Store(http.StatusForbidden)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, endpoint := range map[string]string{"hanging": hanging.URL, "refusing": refusing.URL, "gone": gone.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logs testwait.Buffer
			tr := start(t, endpoint, &logs)
			lanes := tr.Lanes("ledger", &heard{})
			for range 20_000 {
				lanes.Flushed(1, time.Millisecond, nil)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := tr.Close(ctx); err != nil {
				t.Errorf("it is an error of the process: %v", err)
			}
			if n := strings.Count(logs.String(), "traces are lost"); n > 1 || !strings.Contains(logs.String(), "lost") {
				t.Errorf("logged %d times: %s", n, logs.String())
			}
		})
	}
}

// TestReports holds that a turn of luck is logged, and only that.
func TestReports(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1") // milliseconds
	c := newCollector(t)
	c.status.Store(http.StatusForbidden)
	var logs testwait.Buffer
	tr := start(t, c.URL, &logs)
	lanes := tr.Lanes("ledger", &heard{})
	for _, step := range []struct {
		status int
		says   string
	}{{http.StatusForbidden, "traces are lost"}, {http.StatusOK, "takes traces again"}, {http.StatusForbidden, "traces are lost"}} {
		c.status.Store(int64(step.status))
		before := strings.Count(logs.String(), step.says)
		for deadline := time.Now().Add(testwait.Patience); strings.Count(logs.String(), step.says) == before; {
			if time.Now().After(deadline) {
				t.Fatalf("no %q in %s", step.says, logs.String())
			}
			lanes.Flushed(1, time.Millisecond, nil)
			time.Sleep(time.Millisecond)
		}
	}
	testwait.Check(t, tr.Close(t.Context()))
	if lines := strings.Count(logs.String(), "\n"); lines != 3 {
		t.Errorf("%d lines: %s", lines, logs.String())
	}
}
