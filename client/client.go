package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/client/api"
)

// requestTimeout bounds one attempt. The server answers commands in milliseconds; the proof of the largest campaign
// takes longest, some 100 MB.
const requestTimeout = 2 * time.Minute

// idleConnections is how many connections are kept for the next calls. A program that races against itself would
// otherwise dial anew for nearly every call.
const idleConnections = 256

// Client calls one server. It is safe for concurrent use. Make it with [New].
type Client struct {
	api *api.ClientWithResponses
}

// Option changes what [New] makes.
type Option func(*transport)

// WithHTTPClient makes calls go through c, whose Timeout then bounds an attempt. The default has connections enough
// for many concurrent calls, and two minutes.
func WithHTTPClient(c *http.Client) Option { return func(t *transport) { t.http = c } }

// WithRetry changes how long a call is tried; the zero Retry is the default.
func WithRetry(r Retry) Option { return func(t *transport) { t.retry = r.withDefaults() } }

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
	t := &transport{key: key, retry: Retry{}.withDefaults()}
	for _, o := range opts {
		o(t)
	}
	if t.http == nil {
		if t.http, err = newHTTPClient(); err != nil {
			return nil, err
		}
	}
	generated, err := api.NewClientWithResponses(baseURL, api.WithHTTPClient(t))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{api: generated}, nil
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

// API returns the generated client under this one. Its calls have the same credential, keys and retries, and their
// errors are those of this package: an answer of 400 or above comes as a *[Problem] and not as a response.
func (c *Client) API() *api.ClientWithResponses { return c.api }
