package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder is a server that remembers the keys and bodies of what it answered.
type recorder struct {
	mu     sync.Mutex
	keys   map[string]int
	bodies map[string]int
	delay  func()
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.mu.Lock()
	r.keys[req.Header.Get("Idempotency-Key")]++
	r.bodies[string(body)]++
	r.mu.Unlock()
	if r.delay != nil {
		r.delay()
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "%s %s", req.Header.Get("Authorization"), body) //nolint:gosec // No browser reads it.
}

func serve(t *testing.T, connections int, delay func()) (*recorder, *Engine) {
	t.Helper()
	r := &recorder{keys: map[string]int{}, bodies: map[string]int{}, delay: delay}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	e, err := Dial(connections, strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return r, e
}

func (r *recorder) requireKeysOnce(t *testing.T, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) != n {
		t.Fatalf("%d keys arrived, want %d", len(r.keys), n)
	}
	for key, times := range r.keys {
		if times != 1 || len(key) != keyDigits {
			t.Fatalf("key %q arrived %d times", key, times)
		}
	}
}

func wantEcho(status int, body []byte) error {
	if status != http.StatusCreated || !strings.HasPrefix(string(body), "Bearer secret {") {
		return fmt.Errorf("answer %d %q", status, body)
	}
	return nil
}

// numbered gives n requests whose bodies are all different.
func numbered(n int) func() []byte {
	const layout = `{"n":00000}`
	template := NewTemplate("/x", "secret", layout)
	at := template.BodyOffset(layout) + len(`{"n":`)
	sent := 0
	return func() []byte {
		if sent == n {
			return nil
		}
		request := template.Next()
		PutDecimal(request[at:at+5], sent)
		sent++
		return request
	}
}

func TestRaceAnswersEveryRequestOnce(t *testing.T) {
	t.Parallel()
	const n = 100
	arrived := make(chan struct{}, n)
	release := make(chan struct{})
	recorded, e := serve(t, n, func() { arrived <- struct{}{}; <-release })
	go func() {
		// Every request is on its way before any is answered, or this is not a race.
		for range n {
			<-arrived
		}
		close(release)
	}()
	next, requests := numbered(n), make([][]byte, n)
	for i := range requests {
		requests[i] = append([]byte(nil), next()...)
	}
	r, err := e.Race(requests, wantEcho)
	if err != nil {
		t.Fatal(err)
	}
	recorded.requireKeysOnce(t, n)
	if r.Answers != n || r.Latencies.TotalCount() != n || r.Elapsed <= 0 {
		t.Fatalf("%d answers, %d latencies in %s", r.Answers, r.Latencies.TotalCount(), r.Elapsed)
	}
	if slowest := time.Duration(r.Latencies.Max()); slowest > r.Elapsed+r.Elapsed/100 {
		t.Fatalf("the slowest answer took %s of %s", slowest, r.Elapsed)
	}
}

func TestClosedSendsAllOfABoundedSource(t *testing.T) {
	t.Parallel()
	const n = 1000
	recorded, e := serve(t, 8, nil)
	if _, err := e.Closed(Phases{Measure: time.Hour}, numbered(n), wantEcho); err != nil {
		t.Fatal(err)
	}
	recorded.requireKeysOnce(t, n)
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	if len(recorded.bodies) != n {
		t.Fatalf("%d different bodies arrived, want %d", len(recorded.bodies), n)
	}
}

func TestClosedMeasuresBetweenItsBorders(t *testing.T) {
	t.Parallel()
	recorded, e := serve(t, 4, nil)
	var begun, ended int
	phases := Phases{
		Warmup: 50 * time.Millisecond, Measure: 100 * time.Millisecond,
		Begin: func() { begun++ }, End: func() { ended++ },
	}
	r, err := e.Closed(phases, numbered(1<<30), wantEcho)
	if err != nil {
		t.Fatal(err)
	}
	if begun != 1 || ended != 1 {
		t.Fatalf("begun %d times, ended %d times", begun, ended)
	}
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	if r.Answers == 0 || r.Answers >= int64(len(recorded.keys)) {
		t.Fatalf("%d of %d answers were measured", r.Answers, len(recorded.keys))
	}
	if r.Elapsed < 50*time.Millisecond {
		t.Fatalf("measured for %s", r.Elapsed)
	}
}

func TestOpenCountsWaitingForAConnection(t *testing.T) {
	t.Parallel()
	// One connection and a server that holds its first answer until ten further requests are due: their waiting must
	// show, although each is answered at once when it is sent at last.
	const rate, due = 1000, 10
	held := make(chan struct{})
	first := sync.OnceFunc(func() { <-held })
	_, e := serve(t, 1, first)
	time.AfterFunc(due*time.Second/rate, func() { close(held) })
	r, err := e.Open(rate, 0, 2*due*time.Second/rate, numbered(1<<30), wantEcho)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers != 2*due {
		t.Fatalf("%d answers, want %d", r.Answers, 2*due)
	}
	waited := int64(0)
	for _, bar := range r.Latencies.Distribution() {
		if bar.From >= int64(due*time.Second/rate/4) {
			waited += bar.Count
		}
	}
	if waited < due/2 {
		t.Fatalf("%d requests waited a quarter of the hold or longer, want at least %d", waited, due/2)
	}
}

func TestCheckFailureEndsTheRun(t *testing.T) {
	t.Parallel()
	_, e := serve(t, 2, nil)
	wrong := errors.New("wrong answer")
	_, err := e.Closed(Phases{Measure: time.Hour}, numbered(10), func(int, []byte) error { return wrong })
	if !errors.Is(err, wrong) {
		t.Fatalf("error %v", err)
	}
}

func TestClosedConnectionIsAFailure(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // Loopback, in a test.
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 4096))
		_ = c.Close()
	}()
	e, err := Dial(1, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Race([][]byte{numbered(1)()}, wantEcho); err == nil {
		t.Fatal("an unanswered request went unnoticed")
	}
	<-done
	_ = listener.Close()
}

func TestDialRefused(t *testing.T) {
	t.Parallel()
	if _, err := Dial(1, "127.0.0.1:1"); err == nil {
		t.Fatal("connected to nobody")
	}
	if _, err := Dial(1, "localhost"); err == nil {
		t.Fatal("an address without port was taken")
	}
}

// TestLargeBodiesAreWrittenInParts sends and receives far more than a socket has room for, to a server that reads only once all
// connections have filled theirs.
func TestLargeBodiesAreWrittenInParts(t *testing.T) {
	t.Parallel()
	const n, size = 4, 8 << 20
	body := `{"n":"` + strings.Repeat("x", size) + `"}`
	began := make(chan struct{}, 3*n)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-release
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != body {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write(got) //nolint:gosec // No browser reads it.
	}))
	t.Cleanup(server.Close)
	e, err := Dial(n, strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	go func() {
		for range n {
			<-began
		}
		close(release)
	}()
	template, sent, checked := NewTemplate("/x", "secret", body), 0, 0
	next := func() []byte {
		if sent == 3*n {
			return nil
		}
		sent++
		return template.Next()
	}
	_, err = e.Closed(Phases{Measure: time.Hour}, next, func(status int, got []byte) error {
		checked++
		if status != http.StatusOK || string(got) != body {
			return fmt.Errorf("answer %d of %d bytes", status, len(got))
		}
		return nil
	})
	if err != nil || checked != 3*n {
		t.Fatalf("%d answers: %v", checked, err)
	}
}
