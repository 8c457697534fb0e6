package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestCauses causes each failure for real, and demands its cause.
func TestCauses(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	t.Cleanup(secure.Close)
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	testwait.Must(t, closed.Close())
	breaking := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(breaking.Close)

	nameless := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no name server")
	}}
	open, guarded := New(Options{AllowPrivate: true, Resolver: nameless}), New(Options{})
	t.Cleanup(open.Close)
	t.Cleanup(guarded.Close)
	for _, c := range []struct {
		name, url string
		client    *Client
		limit     time.Duration
		want      publish.Cause
	}{
		{"a name", "http://nowhere.example/", open, time.Minute, publish.CauseDNS},
		{"a closed port", "http://" + closed.Addr().String(), open, time.Minute, publish.CauseRefused},
		{"a certificate of nobody", secure.URL, open, time.Minute, publish.CauseTLS},
		{"no TLS at all", strings.Replace(plain.URL, "http:", "https:", 1), open, time.Minute, publish.CauseTLS},
		{"silence", "http://" + silent.Addr().String(), open, 50 * time.Millisecond, publish.CauseTimeout},
		{"a connection that breaks", breaking.URL, open, time.Minute, publish.CauseNetwork},
		{"a private address", plain.URL, guarded, time.Minute, publish.CauseAddress},
		{"an answer", plain.URL, open, time.Minute, publish.CauseStatus},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, http.NoBody)
			testwait.Must(t, err)
			var result publish.Result
			if response, err := c.client.Do(r); err != nil {
				result = Failure(ctx, err)
			} else {
				Drain(response.Body, cancel)
				result = Judge(response)
			}
			if got := result.FailedFor(); got != c.want || result.Error == "" {
				t.Errorf("%s: %q, want %s", got, result.Error, c.want)
			}
		})
	}
}
