package auth

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"golang.org/x/sync/singleflight"
)

// When a key set is fetched, and what may come of it.
const (
	setRefreshAfter  = 4 * time.Minute        // the age from which the set is fetched again in the background
	setFresh         = 5 * time.Minute        // the age up to which it is used without asking, a withdrawn key too
	setUsable        = 1 * time.Hour          // the age up to which it is used although the issuer can't be reached
	setFetchInterval = 5 * time.Second        // the least time between two fetches, whatever the tokens name as their key
	setRetryInterval = 1 * time.Second        // the same after a fetch that failed
	setFetchWait     = 500 * time.Millisecond // how long a request waits for the issuer before it uses an older set
	setFetchTimeout  = 5 * time.Second        // ends a fetch
	setMaxBytes      = 256 << 10              // bounds the answer
)

// keySet is the issuer's published keys, as last fetched. It is our own, and not keyfunc: that reads answers of any size, keeps
// old keys for ever while the issuer is away, and loses a whole set to one malformed key. It is safe for concurrent use.
type keySet struct {
	url        string
	client     *http.Client
	now        func() time.Time
	background context.Context
	flight     singleflight.Group

	mu          sync.Mutex
	keys        []publicKey
	fetchedAt   time.Time // zero: never
	attemptedAt time.Time // zero: never
	lastErr     error     // of the last attempt
}

// ValidSetURL refuses the URL of a key set that can't be read, or whose answer anybody could forge.
func ValidSetURL(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return fmt.Errorf("%w: JWKS URL: %w", ErrInvalidOptions, err)
	}
	if u.Host == "" || (u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname()))) {
		return fmt.Errorf("%w: the JWKS URL must be https, or http to a loopback address", ErrInvalidOptions)
	}
	return nil
}

func newKeySet(background context.Context, rawURL string, now func() time.Time) (*keySet, error) {
	if err := ValidSetURL(rawURL); err != nil {
		return nil, err
	}
	// A connection would idle for minutes between two fetches.
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: setFetchTimeout, MaxResponseHeaderBytes: 64 << 10,
	}
	return &keySet{
		url: rawURL, now: now, background: background,
		client: &http.Client{
			Transport: transport,
			// Whoever can redirect the fetch could name any key.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// loopback reports whether host is this machine, by address or by name.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// find returns the keys of that kid which verify alg: as a rule one. Without a kid it returns the only key that verifies
// alg, if there is only one. It returns [ErrBadCredential] when the issuer has no such key, and [ErrUnavailable] when it
// can't be asked.
func (s *keySet) find(ctx context.Context, kid, alg string) ([]publicKey, error) {
	s.mu.Lock()
	keys, fetchedAt := s.keys, s.fetchedAt
	s.mu.Unlock()

	var stale []publicKey
	wait := setFetchTimeout
	if age := s.now().Sub(fetchedAt); !fetchedAt.IsZero() && age < setUsable {
		found := match(keys, kid, alg)
		if len(found) > 0 && age < setFresh {
			if age >= setRefreshAfter {
				_ = s.startFetch() //nolint:contextcheck // It outlives the request on purpose.
			}
			return found, nil
		}
		if len(found) > 0 {
			stale, wait = found, setFetchWait
		}
	}
	// The set is old, or the issuer has a key that we don't know yet.
	keys, err := await[[]publicKey](ctx, wait, s.startFetch(), "the issuer") //nolint:contextcheck // As above.
	switch {
	case err != nil && len(stale) > 0 && ctx.Err() == nil:
		return stale, nil
	case err != nil:
		return nil, err
	}
	if found := match(keys, kid, alg); len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("%w: the issuer has no key for it", ErrBadCredential)
}

// match picks the keys for kid and alg.
func match(keys []publicKey, kid, alg string) []publicKey {
	var found []publicKey
	for _, k := range keys {
		if (kid == "" || k.id == kid) && slices.Contains(k.algs, alg) {
			found = append(found, k)
		}
	}
	if kid == "" && len(found) > 1 || len(found) > candidatesMax {
		return nil
	}
	return found
}

// startFetch fetches the set, together with whoever else wants it, unless that has been done too lately. The result is the
// []publicKey that holds now, or [ErrUnavailable].
func (s *keySet) startFetch() <-chan singleflight.Result {
	return s.flight.DoChan("", func() (any, error) {
		now := s.now()
		s.mu.Lock()
		interval := setFetchInterval
		if s.lastErr != nil {
			interval = setRetryInterval
		}
		if !s.attemptedAt.IsZero() && now.Sub(s.attemptedAt) < interval {
			defer s.mu.Unlock()
			return s.keys, s.lastErr
		}
		s.attemptedAt = now
		s.mu.Unlock()

		keys, err := s.fetch()

		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.lastErr = fmt.Errorf("%w: JWKS: %w", ErrUnavailable, err)
			return nil, s.lastErr
		}
		s.keys, s.fetchedAt, s.lastErr = keys, now, nil
		return keys, nil
	})
}

func (s *keySet) fetch() ([]publicKey, error) {
	ctx, cancel := context.WithTimeout(s.background, setFetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	req.Header.Set("User-Agent", "fairlead")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the issuer answers %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, setMaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > setMaxBytes {
		return nil, fmt.Errorf("the answer is over %d bytes", setMaxBytes)
	}
	return parseKeySet(data)
}

// parseKeySet reads a JSON Web Key Set. Keys that are for something else, of an unknown kind or malformed are passed over,
// as RFC 7517 section 5 asks, so that one of them doesn't take the others with it. A set without keys is a set: its issuer
// wants no token accepted.
func parseKeySet(data []byte) ([]publicKey, error) {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("the answer is no key set: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New("the answer is no key set: it has no keys member")
	}
	if len(*set.Keys) > publicKeysMax {
		return nil, fmt.Errorf("the key set has %d keys, of at most %d", len(*set.Keys), publicKeysMax)
	}
	keys := make([]publicKey, 0, len(*set.Keys))
	for _, raw := range *set.Keys {
		var k jwkset.JWKMarshal
		if err := json.Unmarshal(raw, &k); err != nil {
			continue
		}
		if key, err := usable(k); err == nil {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// usable returns the key and what it may verify. It returns an error for a key that may verify nothing here; symmetric keys are
// among those.
func usable(k jwkset.JWKMarshal) (publicKey, error) {
	const exponentMax = len("AQABAA==") // 4 bytes
	if k.USE != "" && k.USE != jwkset.UseSig {
		return publicKey{}, fmt.Errorf("it is for %q", k.USE)
	}
	if len(k.KEYOPS) > 0 && !slices.Contains(k.KEYOPS, jwkset.KeyOpsVerify) {
		return publicKey{}, errors.New("it doesn't verify")
	}
	k.X5C = nil // Certificates are not looked at.
	parsed, err := jwkset.NewJWKFromMarshal(k, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{SkipAll: true})
	if err != nil {
		return publicKey{}, err
	}
	if r, ok := parsed.Key().(*rsa.PublicKey); ok && (len(k.E) > exponentMax || r.E < 3 || r.E > 1<<31-1 || r.E%2 == 0) {
		return publicKey{}, errors.New("its e is no exponent")
	}
	algs, err := algorithms(parsed.Key())
	if err != nil {
		return publicKey{}, err
	}
	if alg := k.ALG.String(); alg != "" {
		if alg == "Ed25519" { // RFC 9864's name for the same.
			alg = "EdDSA"
		}
		if !slices.Contains(algs, alg) {
			return publicKey{}, fmt.Errorf("it can't be for %q", k.ALG)
		}
		algs = []string{alg}
	}
	return publicKey{id: k.KID, key: parsed.Key(), algs: algs}, nil
}
