package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// requestTimeout bounds one attempt. The server answers commands in milliseconds; the proof of the largest campaign
// takes longest, some 100 MB.
const requestTimeout = 2 * time.Minute

// idleConnections is how many connections are kept for the next calls. A program that races against itself would
// otherwise dial anew for nearly every call.
const idleConnections = 256

// Client calls one server. It is safe for concurrent use. Make it with [New].
type Client struct {
	base  string // the server's URL, without a slash at its end
	key   string
	http  *http.Client
	retry Retry
}

// Option changes what [New] makes.
type Option func(*Client)

// WithHTTPClient makes calls go through c, whose Timeout then bounds an attempt. The default has connections enough
// for many concurrent calls, and two minutes.
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
	c := &Client{base: strings.TrimRight(u.String(), "/"), key: key, retry: Retry{}.withDefaults()}
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		if c.http, err = newHTTPClient(); err != nil {
			return nil, err
		}
	}
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
