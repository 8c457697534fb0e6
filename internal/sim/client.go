package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Limits of the client.
const (
	// attemptLimit bounds one attempt, so that a stopped server does not keep its clients for ever.
	attemptLimit = 10 * time.Second
	// retryPause is the first pause between two attempts at one command; it doubles up to retryPauseMax.
	retryPause    = 5 * time.Millisecond
	retryPauseMax = 200 * time.Millisecond
)

// ErrUnsettled is returned when an operation had no final answer before its context ended.
var ErrUnsettled = errors.New("operation is unsettled")

// ErrProtocol is returned when an answer breaks the contract of the interface: a 5xx that is not to be retried, an
// answer of another content or without its replay mark.
var ErrProtocol = errors.New("answer breaks the contract")

// Answer is what came back for one attempt: a whole HTTP answer, or the error that took its place.
type Answer struct {
	client.Answer

	Err error
}

// Problem reads the body of an answer of 4xx or 5xx.
func (a Answer) Problem() client.Problem {
	var p client.Problem
	if a.Status < 400 || json.Unmarshal(a.Body, &p) != nil {
		return client.Problem{}
	}
	return p
}

// Code is the stable code of a problem, empty for a success.
func (a Answer) Code() string { return a.Problem().Code }

// JSON decodes the body into v.
func (a Answer) JSON(v any) error {
	if a.Err != nil {
		return a.Err
	}
	if err := json.Unmarshal(a.Body, v); err != nil {
		return fmt.Errorf("%w: %d with body %.200q: %w", ErrProtocol, a.Status, a.Body, err)
	}
	return nil
}

// Final says whether the answer settles its operation: it arrived, and it is not one to be tried again.
func (a Answer) Final() bool {
	return a.Err == nil && (a.Status < 400 || !a.Problem().Retryable)
}

// Stored says whether the server has to have stored a final answer under its key: what was decided is, what never
// reached a decision is not.
func (a Answer) Stored() bool {
	switch a.Status {
	case http.StatusPaymentRequired, http.StatusConflict, http.StatusUnprocessableEntity:
		return a.Final()
	default:
		return a.Final() && a.Status < 300
	}
}

// String tells an answer in one line.
func (a Answer) String() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return fmt.Sprintf("%d replayed=%t %.300s", a.Status, a.Replayed, a.Body)
}

// Target is where a client finds a server now; a [Server] is one.
type Target interface {
	// URL is the server's base URL of http, which may change between two attempts.
	URL() string
}

// Client sends commands to one or more servers. It is safe for concurrent use.
type Client struct {
	key     string
	http    http.RoundTripper
	once    *client.Client // tries once
	batched *client.Batcher
	history *History
	next    atomic.Uint64
	// attempts counts those at operations.
	attempts atomic.Uint64
	targets  []Target
	limit    time.Duration
}

// NewClient makes a client with a key that spreads its attempts over the servers in turn, wherever they are by then, and records
// its commands in history. Close it when done.
func NewClient(history *History, key string, targets ...Target) *Client {
	return NewClientOver(&http.Transport{
		DialContext:         (&net.Dialer{Timeout: attemptLimit}).DialContext,
		MaxIdleConns:        0, // no limit over all hosts; a restarted server is another host
		MaxIdleConnsPerHost: 2048,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}, history, key, targets...)
}

// NewClientOver is [NewClient] whose attempts go by a transport of the caller's.
func NewClientOver(transport http.RoundTripper, history *History, key string, targets ...Target) *Client {
	c := &Client{key: key, history: history, targets: targets, limit: attemptLimit, http: transport}
	c.once = c.API(client.Retry{Attempts: 1})
	c.batched = client.NewBatcher(c.once)
	return c
}

// URLs are the servers' addresses now.
func (c *Client) URLs() (urls []string) {
	for _, target := range c.targets {
		urls = append(urls, target.URL())
	}
	return urls
}

// API is the Go client on the same servers, each attempt at the next of them. What it sends is not recorded.
func (c *Client) API(retry client.Retry) *client.Client {
	api, err := client.New("http://sim", c.key, client.WithRetry(retry), client.WithHTTPClient(&http.Client{Transport: inTurn{c}}))
	if err != nil {
		panic("sim: " + err.Error()) // The URL is one.
	}
	return api
}

// inTurn sends each request to the next server.
type inTurn struct{ *Client }

// RoundTrip implements [http.RoundTripper].
func (c inTurn) RoundTrip(req *http.Request) (*http.Response, error) {
	target, err := url.Parse(c.targets[c.next.Add(1)%uint64(len(c.targets))].URL())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = target.Host, ""
	// The transport repeats a request with an idempotency key by itself when the connection broke, unless it can't
	// get the body again. Each attempt must be seen here.
	req.GetBody = nil
	return c.http.RoundTrip(req)
}

// LimitAttempts bounds one attempt by d instead of ten seconds. It must be called before the first one.
func (c *Client) LimitAttempts(d time.Duration) { c.limit = d }

// Close drops the idle connections.
func (c *Client) Close() { (&http.Client{Transport: c.http}).CloseIdleConnections() }

// Get reads a path from the next server.
func (c *Client) Get(ctx context.Context, path string) Answer {
	return c.send(ctx, c.once, http.MethodGet, path, nil)
}

// GetJSON reads a path from the next server into v, with attempts until an answer of 200 came or ctx ended. It is for
// looking at things after a fault, when the first attempt may still meet it.
func (c *Client) GetJSON(ctx context.Context, path string, v any) error {
	for pause := retryPause; ; pause = min(2*pause, retryPauseMax) {
		answer := c.Get(ctx, path)
		if answer.Err == nil && answer.Status == http.StatusOK {
			return answer.JSON(v)
		}
		if answer.Final() {
			return fmt.Errorf("%w: GET %s: %v", ErrProtocol, path, answer)
		}
		if !wait.For(ctx, pause) {
			return fmt.Errorf("GET %s: %w: last answer: %v", path, context.Cause(ctx), answer)
		}
	}
}

// Once makes a single attempt at an operation, which must be new, and records the answer. Every other attempt is made in a batch, where
// the operation can be in one: how it was sent makes no difference to an answer.
func (c *Client) Once(ctx context.Context, op *Op) Answer {
	by := c.once
	if c.attempts.Add(1)%2 == 0 {
		by = c.batched.Client
	}
	began := time.Now()
	answer := c.send(ctx, by, op.Method, op.Path, op.Body, client.Key(op.Key))
	c.history.record(op, began, answer)
	return answer
}

// Settle attempts an operation until it has a final answer, with the same key and body each time, and records every
// answer. It returns the final answer; ErrUnsettled when ctx ended before one came; and ErrProtocol when an answer is
// neither final nor one to be tried again.
func (c *Client) Settle(ctx context.Context, op *Op) (Answer, error) {
	for pause := retryPause; ; pause = min(2*pause, retryPauseMax) {
		answer := c.Once(ctx, op)
		if answer.Final() {
			if answer.Status >= 500 {
				return answer, fmt.Errorf("%w: %s: %v", ErrProtocol, op, answer)
			}
			return answer, nil
		}
		if !wait.For(ctx, pause) {
			return answer, fmt.Errorf("%w: %s: last answer: %v", ErrUnsettled, op, answer)
		}
	}
}

func (c *Client) send(ctx context.Context, by *client.Client, method, path string, body json.RawMessage, opts ...client.CallOption) (a Answer) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	var in any
	if len(body) > 0 {
		in = body
	}
	_, err := client.Call[json.RawMessage](ctx, by, method, path, in, append(opts, client.Into(&a.Answer))...)
	if a.Status == 0 {
		a.Err = err
	}
	return a
}
