package webhook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds what should not take long.
const patience = testwait.Patience

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func delivery(url string) *publish.Delivery {
	return &publish.Delivery{
		Publication: uuid.MustParse("0198c9f0-0000-7000-8000-000000000001"), Version: 3, At: time.Now(), Secret: []byte("0123456789abcdef0123456789abcdef"),
		Target: &publish.Target{URL: url, Timeout: patience}, Payload: []byte(`{"a":1}`),
	}
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func sender(t *testing.T, o outbound.Options) *Sender {
	t.Helper()
	s := New(o)
	t.Cleanup(s.Close)
	return s
}

// TestRefusedAtOnce posts to addresses of this machine in many spellings: nothing arrives, and nothing is tried again.
func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	_, port, err := net.SplitHostPort(strings.TrimPrefix(serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) }), "http://"))
	testwait.Must(t, err)
	s := sender(t, outbound.Options{})
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "127.1",
		"0.0.0.0", "[::]", "169.254.169.254", "10.0.0.1", "[fe80::1%25lo]",
	} {
		got := s.Send(t.Context(), delivery("http://"+host+":"+port+"/"))
		if got.Class != publish.Permanent || got.StatusCode != 0 || !strings.Contains(got.Error, "refused") {
			t.Errorf("%s: %+v", host, got)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	if got := sender(t, outbound.Options{AllowPrivate: true}).Send(t.Context(), delivery("http://localhost:"+port)); got.Class != publish.Delivered || hits.Load() != 1 {
		t.Errorf("when allowed: %+v", got)
	}
}

// TestNameThatChanges resolves a public name to an address of this machine, as the second lookup of a name that changes would.
// The sender must refuse the address when it dials.
func TestNameThatChanges(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	names, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	testwait.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := names.ReadFrom(buf)
			if err != nil {
				return
			}
			asked.Add(1)
			_, _ = names.WriteTo(answerWith(buf[:n], [4]byte{127, 0, 0, 1}), from)
		}
	}()
	defer func() { _ = names.Close(); <-done }()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", names.LocalAddr().String())
	}}
	got := sender(t, outbound.Options{Resolver: resolver}).Send(t.Context(), delivery("http://rebound.example.com:9/"))
	if got.Class != publish.Permanent || !strings.Contains(got.Error, "refused") || asked.Load() == 0 {
		t.Errorf("%+v after %d lookups", got, asked.Load())
	}
}

// answerWith makes a DNS answer: an A record, or none where another type is asked for.
func answerWith(question []byte, ip [4]byte) []byte {
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5
	out := append([]byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question[12:end]...)
	if question[end-4] == 0 && question[end-3] == 1 {
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ip[0], ip[1], ip[2], ip[3])
	}
	return out
}

func TestSignature(t *testing.T) {
	t.Parallel()
	var header http.Header
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { header = r.Header.Clone() })
	d := delivery(url)
	if got := sender(t, outbound.Options{AllowPrivate: true}).Send(t.Context(), d); got.Class != publish.Delivered {
		t.Fatalf("%+v", got)
	}
	if header.Get("webhook-id") != d.Publication.String() || header.Get(VersionHeader) != "3" || header.Get("Idempotency-Key") != "" {
		t.Errorf("%v", header)
	}
	verifier, err := standardwebhooks.NewWebhookRaw(d.Secret)
	testwait.Must(t, err)
	testwait.Check(t, verifier.Verify(d.Payload, header))
	if err := verifier.Verify([]byte(`{"a":2}`), header); err == nil {
		t.Error("another body has the same signature")
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := sender(t, outbound.Options{AllowPrivate: true})
	for code, want := range map[int]publish.Class{
		200: publish.Delivered, 201: publish.Delivered, 202: publish.Delivered, 204: publish.Delivered, 299: publish.Delivered,
		300: publish.Permanent, 301: publish.Permanent, 302: publish.Permanent, 304: publish.Permanent, 307: publish.Permanent, 308: publish.Permanent,
		400: publish.Permanent, 401: publish.Permanent, 403: publish.Permanent, 404: publish.Permanent, 408: publish.Permanent, 410: publish.Permanent, 422: publish.Permanent,
		429: publish.Transient, 500: publish.Transient, 502: publish.Transient, 503: publish.Transient, 504: publish.Transient, 599: publish.Transient,
	} {
		var followed atomic.Bool
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			followed.Store(r.URL.Path != "/hook")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		})
		got := s.Send(t.Context(), delivery(url+"/hook"))
		if got.Class != want || got.StatusCode != code || got.Throttled != (code == 429) || (got.Error == "") != (want == publish.Delivered) || followed.Load() {
			t.Errorf("%d: %+v, followed %v", code, got, followed.Load())
		}
	}
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "1.5": 0, "99999999999": 365 * 24 * time.Hour,
		"Thu, 01 Jan 2026 00:01:30 GMT": 90 * time.Second, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
			w.Header().Set("Retry-After", value)
			w.WriteHeader(503)
		})
		if got := s.Send(t.Context(), delivery(url)); got.RetryAfter != want {
			t.Errorf("Retry-After %q: %v", value, got.RetryAfter)
		}
	}
}

// TestSlowReceivers bounds what receivers can cost.
func TestSlowReceivers(t *testing.T) {
	t.Parallel()
	s := sender(t, outbound.Options{AllowPrivate: true})
	wait := func(r *http.Request, d time.Duration) {
		_, _ = io.Copy(io.Discard, r.Body) // Only then does a server notice that its client has gone.
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want publish.Class
	}{
		"stalls": {func(_ http.ResponseWriter, r *http.Request) { wait(r, 10*patience) }, publish.Transient},
		"drips": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				wait(r, 20*time.Millisecond)
			}
		}, publish.Delivered},
		"large":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10<<20)) }, publish.Delivered},
		"header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, publish.Transient},
		"hangs up": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, publish.Transient},
	} {
		began := time.Now()
		d := delivery(serve(t, c.h))
		if name == "stalls" || name == "drips" {
			d.Target.Timeout = 2 * time.Second // It is waited for.
		}
		got := publish.Deliver(t.Context(), s, d)
		for name == "drips" && got.Class != c.want && d.Target.Timeout < patience/8 { // On a slow machine, not even its status came in time.
			d.Target.Timeout *= 2
			got = publish.Deliver(t.Context(), s, d)
		}
		if took := time.Since(began); got.Class != c.want || took > patience {
			t.Errorf("%s: %+v after %v", name, got, took)
		}
	}
	// A server that takes connections and never says anything: the handshake, too, is part of the attempt's time.
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, scheme := range []string{"http", "https"} {
		d := delivery(scheme + "://" + silent.Addr().String())
		d.Target.Timeout = time.Second
		if got := publish.Deliver(t.Context(), s, d); got.Class != publish.Transient || got.Error != "the attempt took longer than the target's timeout of 1s" {
			t.Errorf("%s, silent: %+v", scheme, got)
		}
	}
	dead := serve(t, nil)
	for _, url := range []string{"http://127.0.0.1:1/", "http://nobody.invalid/", strings.Replace(dead, "http:", "https:", 1)} {
		got := s.Send(t.Context(), delivery(url))
		if got.Class != publish.Transient || got.Error == "" || strings.Contains(got.Error, "127.0.0.1") {
			t.Errorf("%s: %+v", url, got)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := s.Send(ended, delivery(dead)); got.Class != publish.Transient {
		t.Errorf("after its end: %+v", got)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"http://a", "https://example.com:8443/x?y=z", "http://[::1]:80/", "HTTPS://EXAMPLE.com", "http://127.0.0.1/"} {
		if err := CheckURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "x", "//a", "http:a", "http://", "ftp://a", "http://u@a", "http://a/#", "http://a:0", "http://a:65536", "http://a\n", "javascript:1", "http://" + strings.Repeat("a", 2000)} {
		if CheckURL(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func ExampleSender() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("webhook-id"), r.Header.Get(VersionHeader))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer receiver.Close()
	s := New(outbound.Options{AllowPrivate: true})
	defer s.Close()
	result := s.Send(context.Background(), delivery(receiver.URL))
	fmt.Println(result.Class == publish.Transient, result.Error)
	// Output:
	// 0198c9f0-0000-7000-8000-000000000001 3
	// true the target answered 503
}

// verifies reports whether a receiver that has the secret takes the delivery.
func verifies(t *testing.T, secret, body []byte, header http.Header) bool {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhookRaw(secret)
	testwait.Must(t, err)
	return verifier.Verify(body, header) == nil
}
