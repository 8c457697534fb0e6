package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// fault is what happens to the next requests of a path.
type fault struct {
	Do      string            `json:"do"` // lose, drop, cut, answer or add
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Times   int               `json:"times"`
	Bytes   int               `json:"bytes"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Text    string            `json:"text"`
}

// seen is a request that came to the proxy.
type seen struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Key    string `json:"key"`
	After  string `json:"after"`
}

// proxy stands between a runner and the server, and breaks what the runner asks for.
type proxy struct {
	forward *httputil.ReverseProxy

	mu       sync.Mutex
	faults   []*fault
	requests []seen
	live     map[net.Conn]struct{} // the connections of streams under way
	cuts     int
}

type connKey struct{}

// startProxy starts a proxy before the server at target, and its controls.
func startProxy(t *testing.T, target string) (p *proxy, front, control string) {
	t.Helper()
	to, err := url.Parse(target)
	testwait.Must(t, err)
	transport := &http.Transport{}
	p = &proxy{live: map[net.Conn]struct{}{}, forward: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1, // Events are passed on as they come.
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		// A server that can't be reached is no fault that anybody asked for: the connection breaks, and the scenario says so.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.SetKeepAlivesEnabled(false)
	s.Start()
	controls := http.NewServeMux()
	controls.HandleFunc("POST /faults", p.arm)
	controls.HandleFunc("POST /cut", p.cut)
	controls.HandleFunc("POST /requests", p.tell)
	c := httptest.NewServer(controls)
	t.Cleanup(func() {
		c.Close()
		p.cutLive()
		s.Close()
		transport.CloseIdleConnections()
	})
	return p, s.URL, c.URL
}

// unused lists the faults that nothing has met.
func (p *proxy) unused() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		list = append(list, fmt.Sprintf("%s %s %s, %d times", f.Do, f.Method, f.Path, f.Times))
	}
	return list
}

func (p *proxy) arm(w http.ResponseWriter, r *http.Request) {
	f := &fault{}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(f)
	if err == nil && !slices.Contains([]string{"lose", "drop", "cut", "answer", "add"}, f.Do) {
		err = fmt.Errorf("there is no fault %q", f.Do)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.Times = max(f.Times, 1)
	p.mu.Lock()
	p.faults = append(p.faults, f)
	p.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (p *proxy) cut(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	p.cuts++
	p.mu.Unlock()
	p.cutLive()
	w.WriteHeader(http.StatusNoContent)
}

func (p *proxy) cutLive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.live {
		_ = conn.Close()
	}
	clear(p.live)
}

func (p *proxy) tell(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	list := append([]seen{}, p.requests...)
	p.requests = nil
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"requests": list})
}

// meet notes a request and gives the fault that it meets, or nil.
func (p *proxy) meet(r *http.Request) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, seen{
		Method: r.Method, Path: r.URL.Path, Key: r.Header.Get("Idempotency-Key"), After: r.Header.Get("Fairlead-After"),
	})
	i := slices.IndexFunc(p.faults, func(f *fault) bool { return f.Method == r.Method && f.Path == r.URL.Path })
	if i < 0 {
		return nil
	}
	f := p.faults[i]
	if f.Times--; f.Times == 0 {
		p.faults = slices.Delete(p.faults, i, i+1)
	}
	return f
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request) {
	if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok && (r.URL.Path == "/v1/events" || r.URL.Path == "/v1/live") {
		p.mu.Lock()
		p.live[conn] = struct{}{}
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			delete(p.live, conn)
			p.mu.Unlock()
		}()
	}
	f := p.meet(r)
	if f == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	switch f.Do {
	case "lose":
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case "drop":
		// What was not read would make the kernel reset the connection before the client has sent all of it.
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	case "cut":
		p.forward.ServeHTTP(&cutWriter{ResponseWriter: w, left: f.Bytes}, r)
		panic(http.ErrAbortHandler) // An answer shorter than that breaks off as well.
	case "answer":
		_, _ = io.Copy(io.Discard, r.Body)
		for name, value := range f.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(f.Status)
		body := []byte(f.Text)
		if f.Body != nil {
			body = f.Body
		}
		_, _ = w.Write(body)
	case "add":
		p.forward.ServeHTTP(&addWriter{ResponseWriter: w, headers: f.Headers}, r)
	}
}

// cutWriter breaks the connection off after some bytes of the body.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b[:min(len(b), w.left)])
	if w.left -= n; err == nil && w.left == 0 {
		err = http.NewResponseController(w.ResponseWriter).Flush()
		if err == nil {
			panic(http.ErrAbortHandler)
		}
	}
	return n, err
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// addWriter puts headers in place of those of the answer.
type addWriter struct {
	http.ResponseWriter
	headers map[string]string
}

func (w *addWriter) WriteHeader(status int) {
	for name, value := range w.headers {
		w.Header().Set(name, value)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *addWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
