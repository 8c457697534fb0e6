package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlead-dev/fairlead/publish"
)

// Limits of a delivery.
const (
	// MaxReply is how much of an answer's body is read, in bytes.
	MaxReply = 64 << 10
	// drainTime is how long that may take: a new connection costs about as much.
	drainTime      = 200 * time.Millisecond
	maxReplyHeader = 64 << 10
	dialTimeout    = 5 * time.Second
	idleTimeout    = 30 * time.Second
	maxIdlePerHost = publish.DefaultPerTarget
)

// VersionHeader carries the attempt's version.
const VersionHeader = "fairlead-execution-version"

// Options make a sender.
type Options struct {
	// AllowPrivate lets any address be dialled. It is for development, and for networks in which every caller may reach
	// everything.
	AllowPrivate bool
	UserAgent    string // "Fairlead" when empty
	// Resolver resolves names; nil: the system's.
	Resolver *net.Resolver
}

// Sender posts publications. It is safe for concurrent use.
type Sender struct {
	client       *http.Client
	transport    *http.Transport
	guard        *guard
	allowPrivate bool
	userAgent    string
}

var _ publish.Sender = (*Sender)(nil)

// New returns a sender. Close it after use.
func New(o Options) *Sender {
	s := &Sender{guard: newGuard(), allowPrivate: o.AllowPrivate, userAgent: o.UserAgent}
	if s.userAgent == "" {
		s.userAgent = "Fairlead"
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: o.Resolver}
	if !o.AllowPrivate {
		dialer.Control = s.guard.control
	}
	s.transport = &http.Transport{
		Proxy:                  nil, // A proxy would dial for us, unchecked.
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxReplyHeader,
		WriteBufferSize:        16 << 10,
	}
	s.client = &http.Client{
		Transport:     s.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// Close closes idle connections. Attempts under way are not disturbed.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// CheckURL returns why a URL can't be a target's, or nil: it must be absolute, http or https, with a host, without user
// information and fragment. Whether its host may be dialled is not looked at, because that is known only when it is.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case len(raw) > publish.MaxURL:
		return fmt.Errorf("it must have at most %d bytes", publish.MaxURL)
	case err != nil:
		return errors.New("it is malformed")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it must begin with http:// or https://")
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("it must have a host")
	case u.User != nil:
		return errors.New("it must not have user information")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return errors.New("it must not have a fragment")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return errors.New("its port must be from 1 to 65535")
		}
	}
	return nil
}

// Send implements [publish.Sender].
func (s *Sender) Send(ctx context.Context, d *publish.Delivery) publish.Result {
	ctx, cancel := context.WithTimeout(ctx, d.Target.Timeout)
	defer cancel()
	request, err := s.request(ctx, d)
	if err != nil {
		return permanent(err.Error())
	}
	if !s.allowPrivate {
		if err := s.guard.checkHost(request.URL.Hostname()); err != nil {
			return permanent("refused: " + err.Error())
		}
	}
	response, err := s.client.Do(request) //nolint:bodyclose // drain closes it.
	if err != nil {
		return failure(ctx, err, d.Target.Timeout)
	}
	defer drain(response.Body, cancel)
	return judge(response)
}

func permanent(why string) publish.Result {
	return publish.Result{Class: publish.Permanent, Error: why}
}

func (s *Sender) request(ctx context.Context, d *publish.Delivery) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Target.URL, bytes.NewReader(d.Payload))
	if err != nil {
		return nil, errors.New("the target's URL is malformed")
	}
	signer, err := standardwebhooks.NewWebhookRaw(d.Secret)
	if err != nil {
		return nil, errors.New("the target's secret is malformed")
	}
	id, at := d.Publication.String(), d.At
	signature, err := signer.Sign(id, at, d.Payload)
	if err != nil {
		return nil, errors.New("the payload could not be signed")
	}
	for name, value := range map[string]string{
		standardwebhooks.HeaderWebhookID:        id,
		standardwebhooks.HeaderWebhookTimestamp: strconv.FormatInt(at.Unix(), 10),
		standardwebhooks.HeaderWebhookSignature: signature,
		VersionHeader:                           strconv.FormatInt(d.Version, 10),
		"Content-Type":                          "application/json",
		"User-Agent":                            s.userAgent,
	} {
		request.Header.Set(name, value)
	}
	// It bears no idempotency key of the transport's: that would be a repeat under the same version.
	return request, nil
}

// judge says what an answer means.
func judge(r *http.Response) publish.Result {
	result := publish.Result{StatusCode: r.StatusCode, Error: fmt.Sprintf("the target answered %d", r.StatusCode)}
	switch {
	case r.StatusCode >= 200 && r.StatusCode < 300:
		result.Class, result.Error = publish.Delivered, ""
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= 500:
		result.Class, result.RetryAfter = publish.Transient, retryAfter(r)
		result.Throttled = r.StatusCode == http.StatusTooManyRequests
	case r.StatusCode >= 300 && r.StatusCode < 400:
		result.Class, result.Error = publish.Permanent, result.Error+", and redirects are not followed"
	default:
		result.Class = publish.Permanent
	}
	return result
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

// failure says what it means that there was no answer. The words of the network's errors are not for publications: they name
// addresses of ours.
func failure(ctx context.Context, err error, timeout time.Duration) publish.Result {
	result := publish.Result{Class: publish.Transient}
	var (
		dns    *net.DNSError
		verify *tls.CertificateVerificationError
		op     *net.OpError
	)
	switch {
	case errors.Is(err, ErrRefusedAddress):
		return permanent("refused: " + ErrRefusedAddress.Error())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		result.Error = fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &dns):
		result.Error = "the target's name could not be resolved"
	case errors.As(err, &verify):
		result.Error = "the target's certificate is not valid"
	case errors.As(err, &op) && op.Op == "dial":
		result.Error = "the target could not be reached"
	default:
		result.Error = "the connection failed before an answer came"
	}
	return result
}

// drain reads what is left of a body, so that its connection can be used again, unless there is too much of it or it takes
// too long.
func drain(body io.ReadCloser, cancel context.CancelFunc) {
	timer := time.AfterFunc(drainTime, cancel)
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, MaxReply+1) // The status line has decided; nothing hangs on this.
	_ = body.Close()
}
