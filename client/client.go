package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/standby"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// requestTimeout bounds one attempt. The server answers commands in milliseconds; the proof of the largest campaign
	// takes longest, some 100 MB.
	requestTimeout = 2 * time.Minute
	// idleConnections are kept for the next calls. A program that races against itself would otherwise dial for nearly every call.
	idleConnections = 256
)

// Client calls one server. It is safe for concurrent use. Make it with [New].
type Client struct {
	base  string // the server's URL, without a slash at its end
	key   string
	http  *http.Client
	retry Retry

	doubts  *doubts
	seen    *positions
	batches *batches // nil: every command is a request of its own
}

// Option changes what [New] makes.
type Option func(*Client)

// WithHTTPClient makes calls go through a copy of c, whose Timeout then bounds an attempt. The default has connections enough
// for many concurrent calls, and two minutes. A redirect that would change the method is not followed, whatever c's CheckRedirect says.
func WithHTTPClient(c *http.Client) Option { return func(client *Client) { client.http = c } }

// WithRetry changes how long a call is tried; the zero Retry is the default.
func WithRetry(r Retry) Option { return func(c *Client) { c.retry = r.withDefaults() } }

// New makes a client of the server at baseURL, such as http://127.0.0.1:8080. key is an API key or a user's JWT; with
// an empty one only the routes that need none can be called. It returns an error when baseURL is not an absolute http
// or https URL.
func New(baseURL, key string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("client: base URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("client: base URL %q must be absolute, with http or https", baseURL)
	}
	u.RawQuery, u.Fragment = "", ""
	c := &Client{base: strings.TrimRight(u.String(), "/"), key: key, retry: Retry{}.withDefaults(), doubts: &doubts{}, seen: &positions{}}
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		if c.http, err = newHTTPClient(); err != nil {
			return nil, err
		}
	}
	c.http = withoutFalseRedirects(c.http)
	return c, nil
}

func newHTTPClient() (*http.Client, error) {
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("client: the program replaced http.DefaultTransport: give an HTTP client")
	}
	pool := standard.Clone()
	pool.MaxIdleConns, pool.MaxIdleConnsPerHost = 0, idleConnections
	return &http.Client{Transport: pool, Timeout: requestTimeout}, nil
}

// maxRedirects is how many redirects in a row are followed where the HTTP client has no CheckRedirect, as in net/http.
const maxRedirects = 10

// withoutFalseRedirects copies an HTTP client. The copy does not follow redirects that change the method: net/http makes a GET of a POST
// at 301, 302 and 303, and what answers that has not seen the command.
func withoutFalseRedirects(c *http.Client) *http.Client {
	own, asked := *c, c.CheckRedirect
	own.CheckRedirect = func(next *http.Request, before []*http.Request) error {
		switch {
		case next.Method != before[0].Method:
			return http.ErrUseLastResponse
		case asked != nil:
			return asked(next, before)
		case len(before) >= maxRedirects:
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &own
}

// The pauses between attempts where the server asks for none: long enough for a lane to drain or a process to start.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotent-Replayed"
	positionHeader = "Fairlead-After"
)

// errUnexpected is the failure of an attempt whose answer is no problem and not the document of a success: what answered was no Fairlead
// server, or the answer was cut.
var errUnexpected = errors.New("client: the answer is not what a Fairlead server sends")

// Retry bounds how long a call is tried. The zero value means the defaults.
type Retry struct {
	Attempts int // how often a request is sent at most; 0 means 6, 1 means that nothing is sent again
	// Limit is how long after its first attempt a call may begin its last one; 0 means 30 s. A longer Retry-After ends
	// the call at once, with the answer that asked for it.
	Limit time.Duration
}

func (r Retry) withDefaults() Retry {
	return Retry{Attempts: cmp.Or(r.Attempts, 6), Limit: cmp.Or(r.Limit, 30*time.Second)}
}

// CallOption changes one call.
type CallOption func(*request)

// request is what a call sends, at every attempt.
type request struct {
	method, url string
	path        string
	header      http.Header
	body        []byte
	answer      *Answer  // where to store the answer, or nil
	final       []string // codes that end the call although they are retryable
	seen        *positions
}

// Key gives a call the caller's own idempotency key, 1 to 255 visible ASCII characters, in place of a random one.
func Key(key string) CallOption { return Header(keyHeader, key) }

// Header gives a call's request a header, such as traceparent.
func Header(name, value string) CallOption {
	return func(r *request) { r.header.Set(name, value) }
}

// Answer is what really came, for callers who look closer: see [Into].
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the answer as it came, byte for byte
	// Replayed is set where the server repeated the answer to an earlier request with the same key.
	Replayed bool
	Key      string // the idempotency key that was sent; empty where none was
	// Attempts is how often the request was sent, but for what net/http repeats by itself when a connection that it kept
	// turns out to be dead.
	Attempts int
}

// Into stores the last answer to the call in a, whether the call succeeds or not. The Answer belongs to that call until it returns.
func Into(a *Answer) CallOption {
	return func(r *request) { r.answer = a }
}

// Call sends a request and decodes the answer into an Out. The methods use it; a program needs it for operations that a
// newer server has and this package does not. The path begins with a slash, and its ids are escaped. in is the request's
// document, or nil; a POST without one sends an empty object.
func Call[Out any](ctx context.Context, c *Client, method, path string, in any, opts ...CallOption) (*Out, error) {
	var out *Out
	_, err := c.do(ctx, method, path, in, func(a *Answer) error {
		out = new(Out)
		return json.Unmarshal(a.Body, out)
	}, opts)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// document gets a JSON document as it is, byte for byte.
func (c *Client) document(ctx context.Context, path string, opts []CallOption) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil, func(a *Answer) error {
		return json.Unmarshal(a.Body, &json.RawMessage{})
	}, opts)
}

func get[Out any](ctx context.Context, c *Client, path string, opts []CallOption) (*Out, error) {
	return Call[Out](ctx, c, http.MethodGet, path, nil, opts...)
}

func post[Out any](ctx context.Context, c *Client, path string, in any, opts []CallOption) (*Out, error) {
	return Call[Out](ctx, c, http.MethodPost, path, in, opts...)
}

// Open sends a GET and returns the answer unread. It is for what is not a JSON document: server-sent events (/v1/events),
// metrics, pages. With the headers of an upgrade it also opens the WebSocket (/v1/live), and the body is then the connection.
// The request is sent once. The context ends it; the HTTP client's Timeout does not apply. The caller closes the body. Open
// returns a redirect that is not followed, and an answer of 400 or above, as a *[Problem].
func (c *Client) Open(ctx context.Context, path string, opts ...CallOption) (*http.Response, error) {
	r, err := c.request(http.MethodGet, path, nil, opts)
	if err != nil {
		return nil, err
	}
	untimed := *c.http
	untimed.Timeout = 0
	resp, err := r.send(ctx, &untimed)
	if err != nil {
		return nil, &UnansweredError{Attempts: 1, Err: err}
	}
	if resp.StatusCode < http.StatusBadRequest && !isRedirect(resp.StatusCode) {
		return resp, nil
	}
	answer, err := read(resp)
	if err != nil {
		return nil, &UnansweredError{Attempts: 1, Err: err}
	}
	return nil, problemOf(answer)
}

// at fills a path's gaps with ids.
func at(format string, ids ...string) string {
	escaped := make([]any, len(ids))
	for i, id := range ids {
		escaped[i] = url.PathEscape(id)
	}
	return fmt.Sprintf(format, escaped...)
}

// with appends a query to a path: pairs of a name and its value, without those whose value is empty.
func with(path string, pairs ...string) string {
	query := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			query.Set(pair[0], pair[1])
		}
	}
	return path + "?" + query.Encode()
}

// largestPage is the most items that a page can have, but for draws.
const largestPage = 200

// pages reads a list page by page. The filters are pairs, as for [with]. The sequence ends with the first error.
func pages[T any](ctx context.Context, c *Client, opts []CallOption, path string, filters ...string) iter.Seq2[T, error] {
	return pagesOf[T](ctx, c, opts, largestPage, path, filters...)
}

func pagesOf[T any](ctx context.Context, c *Client, opts []CallOption, limit int, path string, filters ...string) iter.Seq2[T, error] {
	type page struct {
		Items []T    `json:"items"`
		Next  string `json:"next"`
	}
	return func(yield func(T, error) bool) {
		for after := ""; ; {
			p, err := get[page](ctx, c, with(path, append([]string{"limit", strconv.Itoa(limit), "after", after}, filters...)...), opts)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, item := range p.Items {
				if !yield(item, nil) {
					return
				}
			}
			if after = p.Next; after == "" {
				return
			}
		}
	}
}

// request makes a call's request, with the credential, and with a key if it changes something.
func (c *Client) request(method, path string, in any, opts []CallOption) (*request, error) {
	r := &request{method: method, url: c.base + path, path: path, header: http.Header{}, seen: c.seen}
	if c.key != "" {
		r.header.Set("Authorization", "Bearer "+c.key)
	}
	if in == nil && method == http.MethodPost {
		in = struct{}{}
	}
	if in != nil {
		var err error
		if r.body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("client: encode the request: %w", err)
		}
		r.header.Set("Content-Type", "application/json")
	}
	for _, o := range opts {
		o(r)
	}
	if key := r.header.Get(keyHeader); key != "" {
		if _, err := idempotency.ParseKey(key); err != nil {
			return nil, fmt.Errorf("client: the key %q: %w", key, err)
		}
	} else if method != http.MethodGet {
		r.header.Set(keyHeader, uuid.NewString())
	}
	return r, nil
}

// do sends a request until it is settled. A redirect, or an answer of 400 or above, is returned as an error, a *Problem. Of the others
// only a 2xx that accept takes is a success. The rest count as no answer, as does a connection that fails halfway.
func (c *Client) do(ctx context.Context, method, path string, in any, accept func(*Answer) error, opts []CallOption) ([]byte, error) {
	r, err := c.request(method, path, in, opts)
	if err != nil {
		return nil, err
	}
	key := r.header.Get(keyHeader)
	command := method + " " + path + " " + key
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstPause, maxPause
	began := time.Now()
	for attempt := 1; ; attempt++ {
		answer, sent, err := c.attempt(ctx, r)
		if err == nil {
			answer.Key, answer.Attempts = key, attempt
			if r.answer != nil {
				*r.answer = *answer
			}
			err = answer.check(accept)
		}
		if key != "" && (err != nil || sent > 1) {
			c.doubts.unanswered(command)
		}
		pause := pauses.NextBackOff()
		switch {
		case err != nil:
			err = &UnansweredError{Key: key, Attempts: attempt, Err: err}
		case isSuccess(answer.Status):
			if key != "" {
				c.doubts.settled(command)
			}
			return answer.Body, nil
		default:
			p := problemOf(answer)
			if key != "" {
				p.Outcome = c.doubts.refused(command, p)
			}
			if !p.Retryable || slices.Contains(r.final, p.Code) {
				return nil, p
			}
			// The pause is added so that callers refused together do not come back together.
			pause, err = p.RetryAfter+pause, p
		}
		if attempt >= c.retry.Attempts || time.Since(began)+pause > c.retry.Limit || !wait.For(ctx, pause) {
			return nil, err
		}
	}
}

// attempt sends a request, alone or in a batch, and returns how often it was written: net/http repeats a request by itself when a kept
// connection breaks.
func (c *Client) attempt(ctx context.Context, r *request) (*Answer, int32, error) {
	if c.batches != nil && r.batchable() {
		answer, err := c.batches.do(ctx, r)
		if !errors.Is(err, errSendAlone) {
			return answer, 1, err
		}
	}
	var written atomic.Int32
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { written.Add(1) }}
	resp, err := r.send(httptrace.WithClientTrace(ctx, trace), c.http)
	if err != nil {
		return nil, written.Load(), err
	}
	answer, err := read(resp)
	return answer, written.Load(), err
}

func (r *request) send(ctx context.Context, c *http.Client) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, body)
	if err != nil {
		return nil, err
	}
	req.Header = r.header.Clone()
	if at := r.seen.last(); at != 0 && r.method == http.MethodGet && req.Header.Get(positionHeader) == "" {
		req.Header.Set(positionHeader, at.String())
	}
	resp, err := c.Do(req)
	if err == nil {
		r.seen.note(resp.Header.Get(positionHeader))
	}
	return resp, err
}

// positions remembers the last place in the database's log that an answer has told. With it a read sees what this client has written, also
// where a standby answers.
type positions struct{ at atomic.Uint64 }

func (p *positions) last() standby.Position { return standby.Position(p.at.Load()) }

func (p *positions) note(text string) {
	at, err := standby.Parse(text)
	for err == nil {
		if last := p.at.Load(); uint64(at) <= last || p.at.CompareAndSwap(last, uint64(at)) {
			return
		}
	}
}

// read reads an answer to its end.
func read(resp *http.Response) (*Answer, error) {
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	return &Answer{Status: resp.StatusCode, Header: resp.Header, Body: body, Replayed: resp.Header.Get(replayedHeader) == "true"}, nil
}
