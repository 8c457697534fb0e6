package beacon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// Limits of a request.
const (
	// DefaultTimeout is how long one relay may take. A relay that waits for the next round answers within a period.
	DefaultTimeout = 5 * time.Second
	// maxAnswerBytes bounds an answer. A true one takes some 500 bytes.
	maxAnswerBytes = 16 << 10
	// maxRelays bounds the time that one call can take.
	maxRelays = 16
)

// Source gives rounds. [Client] is the one for production.
type Source interface {
	// Round returns a genuine round of the chain, or an error for which [Failure] has a name. Implementations are safe for
	// concurrent use.
	Round(ctx context.Context, chain fairdraw.Chain, number uint64) (fairdraw.Round, error)
}

var _ Source = (*Client)(nil)

// ClientOptions say whom to ask.
type ClientOptions struct {
	// Relays are base URLs, http or https, of which each speaks drand's HTTP API, version 2 or 1. At least one, at most 16.
	// They need not be trusted.
	Relays []string
	// Timeout is how long one relay may take; 0 means DefaultTimeout.
	Timeout time.Duration
	// HTTP sends the requests; nil means one of the client's own, which follows no redirects.
	HTTP *http.Client
}

// Client fetches rounds over HTTP. It asks the relays in turn, beginning with the one that last answered well, until one
// gives the round. It is safe for concurrent use.
type Client struct {
	relays  []string
	timeout time.Duration
	http    *http.Client
	best    atomic.Int64 // index of the relay that last answered well
}

// NewClient returns an error when a relay is not an HTTP URL, or when there are none or too many.
func NewClient(o ClientOptions) (*Client, error) {
	if len(o.Relays) == 0 || len(o.Relays) > maxRelays {
		return nil, fmt.Errorf("beacon: %d relays, not 1 to %d", len(o.Relays), maxRelays)
	}
	c := &Client{timeout: o.Timeout, http: o.HTTP}
	for _, relay := range o.Relays {
		u, err := url.Parse(relay)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("beacon: %q is not the base URL of a relay", relay)
		}
		c.relays = append(c.relays, strings.TrimRight(relay, "/"))
	}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	if c.http == nil {
		c.http = &http.Client{
			// A transport of its own, so that Close ends its connections and no others.
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, nil
}

// Close gives idle connections back. The client can be used afterwards.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Round implements [Source]. When no relay gives the round, the error joins a [*RelayError] of each; it is the context's
// when that ended.
func (c *Client) Round(ctx context.Context, chain fairdraw.Chain, number uint64) (fairdraw.Round, error) {
	if err := Check(chain); err != nil {
		return fairdraw.Round{}, err
	}
	first := int(c.best.Load())
	failed := make([]error, 0, len(c.relays))
	for i := range c.relays {
		at := (first + i) % len(c.relays)
		r, err := c.ask(ctx, c.relays[at], chain, number)
		if err == nil {
			c.best.Store(int64(at))
			return r, nil
		}
		if ctx.Err() != nil {
			return fairdraw.Round{}, ctx.Err()
		}
		failed = append(failed, &RelayError{Relay: c.relays[at], Err: err})
	}
	return fairdraw.Round{}, fmt.Errorf("round %d of %s: %w", number, chain.BeaconID, errors.Join(failed...))
}

// ask asks one relay: in the API's version 2, then, where it does not have that path, in version 1, which some relays speak
// alone. A relay that has neither is asked whether it serves the chain at all.
func (c *Client) ask(ctx context.Context, relay string, chain fairdraw.Chain, number uint64) (fairdraw.Round, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	hash := chain.Hash()
	for _, path := range []string{
		fmt.Sprintf("%s/v2/chains/%s/rounds/%d", relay, hash, number),
		fmt.Sprintf("%s/%s/public/%d", relay, hash, number),
	} {
		body, err := c.get(ctx, path)
		if errors.Is(err, ErrNotPublished) {
			continue
		}
		if err != nil {
			return fairdraw.Round{}, err
		}
		r, err := readRound(chain, body)
		if err != nil {
			return fairdraw.Round{}, err
		}
		if r.Number != number {
			return fairdraw.Round{}, fmt.Errorf("%w: %d instead of %d", ErrWrongRound, r.Number, number)
		}
		return r, Verify(chain, r)
	}
	if _, err := c.get(ctx, relay+"/"+hash+"/info"); errors.Is(err, ErrNotPublished) {
		return fairdraw.Round{}, ErrUnknownChain
	}
	return fairdraw.Round{}, ErrNotPublished
}

// get returns the body of a 200. What is not there, or not there yet, is ErrNotPublished.
func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(err)
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusTooEarly:
		return nil, ErrNotPublished
	default:
		return nil, fmt.Errorf("%w: status %d", ErrRefused, res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, transportError(err)
	}
	if len(body) > maxAnswerBytes {
		return nil, ErrTooLarge
	}
	return body, nil
}

// readRound reads a relay's answer. Fields that it does not need are ignored: the randomness, for one, is a hash of the
// signature.
func readRound(chain fairdraw.Chain, body []byte) (fairdraw.Round, error) {
	var answer struct {
		Round     uint64 `json:"round"`
		Signature string `json:"signature"`
		Previous  string `json:"previous_signature"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fairdraw.Round{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	r := fairdraw.Round{Number: answer.Round}
	var err error
	if r.Signature, err = hex.DecodeString(answer.Signature); err != nil || len(r.Signature) == 0 {
		return fairdraw.Round{}, fmt.Errorf("%w: no signature", ErrMalformed)
	}
	if chain.Scheme == SchemeChained {
		if r.Previous, err = hex.DecodeString(answer.Previous); err != nil || len(r.Previous) == 0 {
			return fairdraw.Round{}, fmt.Errorf("%w: no previous signature", ErrMalformed)
		}
	}
	return r, nil
}
