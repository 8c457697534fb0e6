package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Limits of an exchange.
const (
	MaxReply       = 64 << 10               // how much of an answer's body is read when nothing hangs on it, in bytes
	drainTime      = 200 * time.Millisecond // how long that may take: a new connection costs about as much
	maxReplyHeader = 64 << 10
	dialTimeout    = 5 * time.Second
	idleTimeout    = 30 * time.Second
	maxIdlePerHost = publish.DefaultPerTarget
)

// Options make a client.
type Options struct {
	// AllowPrivate lets any address be dialled. It is for development, and for networks in which every caller may reach
	// everything.
	AllowPrivate bool
	UserAgent    string // "Fairlead" when empty
	// Resolver resolves names; nil: the system's.
	Resolver *net.Resolver
}

// Client sends requests to servers whose names come from callers. It is safe for concurrent use.
type Client struct {
	client       *http.Client
	transport    *http.Transport
	guard        *guard
	allowPrivate bool
	userAgent    string
}

// New returns a client. Close it after use.
func New(o Options) *Client {
	c := &Client{guard: newGuard(), allowPrivate: o.AllowPrivate, userAgent: cmp.Or(o.UserAgent, "Fairlead")}
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: o.Resolver}
	if !o.AllowPrivate {
		dialer.Control = c.guard.control
	}
	c.transport = &http.Transport{
		Proxy:                  nil, // A proxy would dial for us, unchecked.
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // What a small answer unpacks to is not ours to find out.
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxReplyHeader,
		WriteBufferSize:        16 << 10,
	}
	c.client = &http.Client{
		Transport:     c.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes idle connections. Requests under way are not disturbed.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do sends a request, with the client's User-Agent. It follows no redirect. It returns [ErrRefusedAddress] when the host is, or
// resolves to, an address that must not be dialled; what other errors mean [Failure] says.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	if !c.allowPrivate {
		if err := c.guard.checkHost(r.URL.Hostname()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
	r.Header.Set("User-Agent", c.userAgent)
	return c.client.Do(r)
}

// retryAfter reads the header of that name: seconds, or a date, which is taken against the answer's own where it has one, so
// that the two clocks need not agree. What is malformed or past is 0.
func retryAfter(r *http.Response) time.Duration {
	const most = 365 * 24 * 3600
	text := strings.TrimSpace(r.Header.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(n, most)) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), most*time.Second)
}

// Judge says what an answer means by its status: 2xx is delivered; 429 and 5xx are transient, and Retry-After is honoured; all
// others are permanent.
func Judge(r *http.Response) publish.Result {
	result := publish.Result{Class: publish.Permanent, StatusCode: r.StatusCode, Error: fmt.Sprintf("the target answered %d", r.StatusCode)}
	switch {
	case r.StatusCode >= 200 && r.StatusCode < 300:
		result.Class, result.Error = publish.Delivered, ""
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= 500:
		result.Class, result.RetryAfter = publish.Transient, retryAfter(r)
		result.Throttled = r.StatusCode == http.StatusTooManyRequests
	case r.StatusCode >= 300 && r.StatusCode < 400:
		result.Error += ", and redirects are not followed"
	}
	return result
}

// Failure says what it means that there was no answer. The words of the network's errors are not for publications: they name
// addresses of ours.
func Failure(ctx context.Context, err error) publish.Result {
	result := publish.Result{Class: publish.Transient}
	var (
		dns    *net.DNSError
		verify *tls.CertificateVerificationError
		alert  tls.AlertError
		plain  tls.RecordHeaderError
		op     *net.OpError
		wait   interface{ Timeout() bool }
	)
	switch {
	case errors.Is(err, ErrRefusedAddress):
		return publish.Result{Class: publish.Permanent, Cause: publish.CauseAddress, Error: "refused: " + ErrRefusedAddress.Error()}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		result.Cause, result.Error = publish.CauseTimeout, "no answer in time"
	case errors.As(err, &dns):
		result.Cause, result.Error = publish.CauseDNS, "the target's name could not be resolved"
	case errors.As(err, &verify):
		result.Cause, result.Error = publish.CauseTLS, "the target's certificate is not valid"
	case errors.As(err, &alert), errors.As(err, &plain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		result.Cause, result.Error = publish.CauseTLS, "no secure connection could be made with the target"
	case errors.Is(err, syscall.ECONNREFUSED):
		result.Cause, result.Error = publish.CauseRefused, "the target could not be reached: it refuses connections"
	case errors.As(err, &wait) && wait.Timeout():
		result.Cause, result.Error = publish.CauseTimeout, "the target could not be reached in time"
	case errors.As(err, &op) && op.Op == "dial":
		result.Cause, result.Error = publish.CauseNetwork, "the target could not be reached"
	default:
		result.Cause, result.Error = publish.CauseNetwork, "the connection failed before an answer came"
	}
	return result
}

// Drain reads what is left of a body, so that its connection can be used again, unless there is too much of it or it takes
// too long.
func Drain(body io.ReadCloser, cancel context.CancelFunc) {
	timer := time.AfterFunc(drainTime, cancel)
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, MaxReply+1) // The status line has decided; nothing hangs on this.
	_ = body.Close()
}
