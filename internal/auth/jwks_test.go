package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// issuer is a real HTTP server that publishes a key set.
type issuer struct {
	*httptest.Server
	fetches atomic.Int64

	mu     sync.Mutex
	status int
	body   string
	wait   chan struct{} // when set, answers wait for it to be closed
}

func newIssuer(tb testing.TB, keys ...map[string]any) *issuer {
	tb.Helper()
	i := &issuer{}
	i.publish(tb, keys...)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		i.mu.Lock()
		status, body, wait := i.status, i.body, i.wait
		i.mu.Unlock()
		if wait != nil {
			select {
			case <-wait:
			case <-r.Context().Done():
				return
			}
		}
		if status == http.StatusFound {
			http.Redirect(w, r, "/elsewhere", status)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	tb.Cleanup(i.Close)
	return i
}

func (i *issuer) publish(tb testing.TB, keys ...map[string]any) {
	tb.Helper()
	if keys == nil {
		keys = []map[string]any{}
	}
	body, err := json.Marshal(map[string]any{"keys": keys})
	testwait.Must(tb, err)
	i.answer(http.StatusOK, string(body))
}

func (i *issuer) answer(status int, body string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status, i.body = status, body
}

// jwkOf is a public key as a JWK, with more members.
func jwkOf(tb testing.TB, key crypto.Signer, kid string, more map[string]any) map[string]any {
	tb.Helper()
	enc := base64.RawURLEncoding.EncodeToString
	m := map[string]any{}
	if kid != "" {
		m["kid"] = kid
	}
	switch k := key.Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", enc(k.N.Bytes()), enc(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		testwait.Must(tb, err)
		half := (len(point) - 1) / 2
		m["kty"], m["crv"], m["x"], m["y"] = "EC", k.Curve.Params().Name, enc(point[1:1+half]), enc(point[1+half:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", enc(k)
	}
	maps.Copy(m, more)
	return m
}

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// setAuth is an Authenticator of an issuer's tokens, on a clock that the test
// moves.
func setAuth(tb testing.TB, i *issuer) (*Authenticator, *clock) {
	tb.Helper()
	c := newClock()
	return newAuth(tb, Options{Now: c.Now, JWT: JWTOptions{JWKSURL: i.URL}}), c
}

func tokenOf(tb testing.TB, method jwt.SigningMethod, key any, kid string) string {
	tb.Helper()
	header := map[string]any{}
	if kid != "" {
		header["kid"] = kid
	}
	return "Bearer " + signed(tb, method, key, header, claimsOf(map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()}))
}

func TestKeySetAlgorithms(t *testing.T) {
	t.Parallel()
	s := signers()
	i := newIssuer(t,
		jwkOf(t, s["rsa"], "r", nil), jwkOf(t, s["p256"], "e2", map[string]any{"use": "sig", "alg": "ES256"}),
		jwkOf(t, s["p384"], "e3", map[string]any{"key_ops": []string{"verify"}}), jwkOf(t, s["p521"], "e5", nil),
		jwkOf(t, s["ed25519"], "d", map[string]any{"alg": "Ed25519"}),
		// Keys that must be passed over, and must not take the others with them.
		map[string]any{"kty": "oct", "kid": "o", "k": base64.RawURLEncoding.EncodeToString(testSecret())},
		map[string]any{"kty": "RSA", "kid": "bad", "n": "!", "e": "AQAB"},
		map[string]any{"kty": 7}, map[string]any{},
	)
	a, _ := setAuth(t, i)
	for _, c := range []struct {
		method jwt.SigningMethod
		signer string
		kid    string
		want   bool
	}{
		{jwt.SigningMethodRS256, "rsa", "r", true},
		{jwt.SigningMethodPS512, "rsa", "r", true},
		{jwt.SigningMethodES256, "p256", "e2", true},
		{jwt.SigningMethodES384, "p384", "e3", true},
		{jwt.SigningMethodES512, "p521", "e5", true},
		{jwt.SigningMethodEdDSA, "ed25519", "d", true},
		{jwt.SigningMethodRS256, "rsa", "", true}, // the only one for it
		{jwt.SigningMethodRS256, "rsa", "e2", false},
		{jwt.SigningMethodES256, "p256", "r", false},
		{jwt.SigningMethodES256, "p256", "nobody", false},
	} {
		p, err := a.Authenticate(t.Context(), tokenOf(t, c.method, s[c.signer], c.kid))
		if c.want && (err != nil || p != ann()) {
			t.Errorf("%s by %q: %v", c.method.Alg(), c.kid, err)
		}
		if !c.want && !errors.Is(err, ErrBadCredential) {
			t.Errorf("%s by %q: %+v, %v", c.method.Alg(), c.kid, p, err)
		}
	}
	// Neither the published symmetric key nor the public one is an HMAC secret.
	for _, secret := range [][]byte{testSecret(), s["rsa"].Public().(*rsa.PublicKey).N.Bytes()} { //nolint:errcheck // Another type would be a bug of this test, and panics.
		for _, kid := range []string{"o", "r", ""} {
			if p, err := a.Authenticate(t.Context(), tokenOf(t, jwt.SigningMethodHS256, secret, kid)); !errors.Is(err, ErrBadCredential) {
				t.Errorf("HS256 by %q: %+v, %v", kid, p, err)
			}
		}
	}
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

// A key without a name is only guessed when there is nothing to guess.
func TestNoKidAndSeveralKeys(t *testing.T) {
	t.Parallel()
	s := signers()
	i := newIssuer(t, jwkOf(t, s["rsa"], "a", nil), jwkOf(t, s["rsa"], "b", nil))
	a, _ := setAuth(t, i)
	if p, err := a.Authenticate(t.Context(), tokenOf(t, jwt.SigningMethodRS256, s["rsa"], "")); !errors.Is(err, ErrBadCredential) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	s := signers()
	i := newIssuer(t, jwkOf(t, s["p256"], "old", nil))
	a, clock := setAuth(t, i)
	oldToken := tokenOf(t, jwt.SigningMethodES256, s["p256"], "old")
	newToken := tokenOf(t, jwt.SigningMethodEdDSA, s["ed25519"], "new")
	expect := func(what, token string, want error) {
		t.Helper()
		if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, want) {
			t.Fatalf("%s: %v, not %v", what, err, want)
		}
	}
	expect("old, at first", oldToken, nil)
	expect("new, before it is published", newToken, ErrBadCredential)

	i.publish(t, jwkOf(t, s["p256"], "old", nil), jwkOf(t, s["ed25519"], "new", nil))
	clock.advance(setFetchInterval)
	expect("new, at most the interval later", newToken, nil)
	expect("old, while it is published", oldToken, nil)

	i.publish(t, jwkOf(t, s["ed25519"], "new", nil))
	clock.advance(setFresh)
	expect("old, withdrawn", oldToken, ErrBadCredential)
	expect("new", newToken, nil)

	i.publish(t)
	clock.advance(setFresh)
	expect("new, when the issuer withdrew all", newToken, ErrBadCredential)
}

// A busy server renews the set in the background.
func TestKeySetRefreshAhead(t *testing.T) {
	t.Parallel()
	s := signers()
	i := newIssuer(t, jwkOf(t, s["p256"], "k", nil))
	a, clock := setAuth(t, i)
	token := tokenOf(t, jwt.SigningMethodES256, s["p256"], "k")
	testwait.Must(t, testwait.Err(a.Authenticate(t.Context(), token)))
	clock.advance(setRefreshAfter)
	testwait.Must(t, testwait.Err(a.Authenticate(t.Context(), token)))
	for deadline := time.Now().Add(testwait.Patience); i.fetches.Load() < 2; {
		if time.Now().After(deadline) {
			t.Fatal("the set is not renewed")
		}
		time.Sleep(time.Millisecond)
	}
}

// However many tokens name keys that nobody knows, the issuer is asked once in
// five seconds.
func TestUnknownKidFlood(t *testing.T) {
	t.Parallel()
	s := signers()
	i := newIssuer(t, jwkOf(t, s["p256"], "k", nil))
	a, clock := setAuth(t, i)
	for round := range 3 {
		var wg sync.WaitGroup
		for n := range 50 {
			wg.Go(func() {
				token := tokenOf(t, jwt.SigningMethodES256, s["p256"], fmt.Sprintf("%d-%d", round, n))
				if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, ErrBadCredential) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := i.fetches.Load(); n != int64(round+1) {
			t.Errorf("round %d: %d fetches", round, n)
		}
		clock.advance(setFetchInterval)
	}
}

func TestIssuerOutage(t *testing.T) {
	t.Parallel()
	s := signers()
	good := jwkOf(t, s["p256"], "k", nil)
	tooMany := make([]map[string]any, publicKeysMax+1)
	for n := range tooMany {
		tooMany[n] = good
	}
	tooManyBody, err := json.Marshal(map[string]any{"keys": tooMany})
	testwait.Must(t, err)
	for name, outage := range map[string]func(*issuer){
		"500":       func(i *issuer) { i.answer(500, "oops") },
		"redirect":  func(i *issuer) { i.answer(http.StatusFound, "") },
		"not json":  func(i *issuer) { i.answer(200, "<html>") },
		"no keys":   func(i *issuer) { i.answer(200, `{"jwks":[]}`) },
		"null":      func(i *issuer) { i.answer(200, `null`) },
		"too large": func(i *issuer) { i.answer(200, `{"keys":[]}`+strings.Repeat(" ", setMaxBytes)) },
		"too many":  func(i *issuer) { i.answer(200, string(tooManyBody)) },
		"gone":      func(i *issuer) { i.CloseClientConnections(); i.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t, good)
			a, clock := setAuth(t, i)
			token := tokenOf(t, jwt.SigningMethodES256, s["p256"], "k")
			testwait.Must(t, testwait.Err(a.Authenticate(t.Context(), token)))
			outage(i)
			clock.advance(setUsable - time.Second)
			if _, err := a.Authenticate(t.Context(), token); err != nil {
				t.Errorf("while the old set is usable: %v", err)
			}
			clock.advance(tokenFresh)
			if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, ErrUnavailable) {
				t.Errorf("after that: %v", err)
			}
			fetches := i.fetches.Load()
			if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, ErrUnavailable) || i.fetches.Load() != fetches {
				t.Errorf("at once again: %v, %d more fetches", err, i.fetches.Load()-fetches)
			}
			if name == "gone" {
				return
			}
			i.publish(t, good)
			clock.advance(setRetryInterval)
			if _, err := a.Authenticate(t.Context(), token); err != nil {
				t.Errorf("when the issuer is back: %v", err)
			}
		})
	}
}

// An issuer that doesn't answer holds up no one whose key is known.
func TestIssuerHangs(t *testing.T) {
	t.Parallel()
	s := signers()
	i := newIssuer(t, jwkOf(t, s["p256"], "k", nil))
	a, clock := setAuth(t, i)
	token := tokenOf(t, jwt.SigningMethodES256, s["p256"], "k")
	testwait.Must(t, testwait.Err(a.Authenticate(t.Context(), token)))
	release := make(chan struct{})
	i.mu.Lock()
	i.wait = release
	i.mu.Unlock()
	defer close(release)
	const most = 4 * time.Second
	waited := 2 * most
	for try := 0; try < 3 && waited > most; try++ { // The machine may stall.
		clock.advance(setFresh)
		start := time.Now()
		testwait.Check(t, testwait.Err(a.Authenticate(t.Context(), token)))
		waited = time.Since(start)
	}
	if waited > most {
		t.Errorf("waited %s", waited)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stranger := tokenOf(t, jwt.SigningMethodES256, s["p256"], "new")
	if _, err := a.Authenticate(ctx, stranger); !errors.Is(err, ErrUnavailable) {
		t.Errorf("who hung up: %v", err)
	}
}

func TestJWK(t *testing.T) {
	t.Parallel()
	s := signers()
	ec := func(more map[string]any) map[string]any { return jwkOf(t, s["p256"], "k", more) }
	rs := func(more map[string]any) map[string]any { return jwkOf(t, s["rsa"], "k", more) }
	for _, c := range []struct {
		name string
		jwk  map[string]any
		want bool
	}{
		{"ec", ec(nil), true},
		{"ec padded", ec(map[string]any{"x": ec(nil)["x"].(string) + "="}), true}, //nolint:errcheck // Another type would be a bug of this test, and panics.
		{"ec for another algorithm", ec(map[string]any{"alg": "ES384"}), false},
		{"ec for hmac", ec(map[string]any{"alg": "HS256"}), false},
		{"ec to encrypt", ec(map[string]any{"use": "enc"}), false},
		{"ec to sign only", ec(map[string]any{"key_ops": []string{"sign"}}), false},
		{"ec off the curve", ec(map[string]any{"x": ec(nil)["y"]}), false},
		{"ec short", ec(map[string]any{"x": "AAAA"}), false},
		{"ec of another curve", ec(map[string]any{"crv": "P-384"}), false},
		{"ec of a strange curve", ec(map[string]any{"crv": "secp256k1"}), false},
		{"rsa", rs(nil), true},
		{"rsa for one algorithm", rs(map[string]any{"alg": "PS256"}), true},
		{"rsa to encrypt", rs(map[string]any{"alg": "RSA-OAEP"}), false},
		{"rsa, e 1", rs(map[string]any{"e": "AQ"}), false},
		{"rsa, e 3", rs(map[string]any{"e": "Aw"}), true},
		{"rsa, e even", rs(map[string]any{"e": "BA"}), false},
		{"rsa, e long", rs(map[string]any{"e": "AQAAAAE"}), false},
		{"rsa, e none", rs(map[string]any{"e": ""}), false},
		{"rsa, n short", rs(map[string]any{"n": base64.RawURLEncoding.EncodeToString(make([]byte, 128))}), false},
		{"rsa, n long", rs(map[string]any{"n": base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 2048)))}), false},
		{"ed25519", jwkOf(t, s["ed25519"], "k", nil), true},
		{"ed25519 short", jwkOf(t, s["ed25519"], "k", map[string]any{"x": "AAAA"}), false},
		{"x25519", jwkOf(t, s["ed25519"], "k", map[string]any{"crv": "X25519"}), false},
		{"oct", map[string]any{"kty": "oct", "k": "AAAA"}, false},
	} {
		data, err := json.Marshal(map[string]any{"keys": []any{c.jwk}})
		testwait.Must(t, err)
		keys, err := parseKeySet(data)
		if err != nil || (len(keys) == 1) != c.want {
			t.Errorf("%s: %d keys, %v", c.name, len(keys), err)
		}
	}
}

func FuzzKeySet(f *testing.F) {
	for _, name := range []string{"rsa", "p256", "ed25519"} {
		data, err := json.Marshal(map[string]any{"keys": []any{jwkOf(f, signers()[name], "k", nil)}})
		testwait.Must(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"keys":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeySet(data)
		if err != nil && keys != nil {
			t.Fatal("keys and an error")
		}
		for _, k := range keys {
			algs, err := algorithms(k.key)
			if err != nil || len(k.algs) == 0 || len(k.algs) > len(algs) {
				t.Fatalf("%+v, %v", k, err)
			}
			if ec, ok := k.key.(*ecdsa.PublicKey); ok {
				if _, err := ec.Bytes(); err != nil {
					t.Fatalf("a point off the curve: %v", err)
				}
			}
		}
	})
}
