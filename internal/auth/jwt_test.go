package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func testSecret() []byte { return []byte("0123456789abcdef0123456789abcdef") }

// signers are one private key of each kind; making RSA keys takes a while, so
// that the tests share them.
//
// Computed once and never changed.
var signers = sync.OnceValue(func() map[string]crypto.Signer {
	must := func(s crypto.Signer, err error) crypto.Signer {
		if err != nil {
			panic(err)
		}
		return s
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	m := map[string]crypto.Signer{"rsa": must(rsaKey, err)}
	for name, curve := range map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384(), "p521": elliptic.P521(), "p224": elliptic.P224()} {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		m[name] = must(k, err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	m["ed25519"] = must(ed, err)
	return m
})

// signed returns a token that key signed with method.
func signed(tb testing.TB, method jwt.SigningMethod, key any, header map[string]any, claims map[string]any) string {
	tb.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims(claims))
	maps.Copy(token.Header, header)
	s, err := token.SignedString(key)
	testwait.Must(tb, err)
	return s
}

// claimsOf are those of a good token, with changes; a nil value takes a claim away.
func claimsOf(changes map[string]any) map[string]any {
	claims := map[string]any{"sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range changes {
		if v == nil {
			delete(claims, k)
			continue
		}
		claims[k] = v
	}
	return claims
}

func publicPEM(tb testing.TB, keys ...crypto.Signer) []byte {
	tb.Helper()
	var out []byte
	for _, k := range keys {
		der, err := x509.MarshalPKIXPublicKey(k.Public())
		testwait.Must(tb, err)
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return out
}

// ann is the principal of a good token.
func ann() Principal { return Principal{Role: RoleUser, ID: "user:ann", Account: "ann", Name: "ann"} }

// Every key verifies the algorithms that are its own, and no other.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	pss := map[string][]jwt.SigningMethod{
		"hmac": {jwt.SigningMethodHS256, jwt.SigningMethodHS384, jwt.SigningMethodHS512},
		"rsa": {
			jwt.SigningMethodRS256, jwt.SigningMethodRS384, jwt.SigningMethodRS512,
			jwt.SigningMethodPS256, jwt.SigningMethodPS384, jwt.SigningMethodPS512,
		},
		"p256": {jwt.SigningMethodES256}, "p384": {jwt.SigningMethodES384}, "p521": {jwt.SigningMethodES512},
		"ed25519": {jwt.SigningMethodEdDSA},
	}
	for configured := range pss {
		opts := JWTOptions{Secret: testSecret()}
		if configured != "hmac" {
			opts = JWTOptions{PublicKeysPEM: publicPEM(t, signers()[configured])}
		}
		a := newAuth(t, Options{JWT: opts})
		for signer, methods := range pss {
			for _, method := range methods {
				var key any = testSecret()
				if signer != "hmac" {
					key = signers()[signer]
				}
				token := signed(t, method, key, nil, claimsOf(nil))
				p, err := a.Authenticate(t.Context(), "Bearer "+token)
				if signer == configured && (err != nil || p != ann()) {
					t.Errorf("%s refuses its own %s: %v", configured, method.Alg(), err)
				}
				if signer != configured && !errors.Is(err, ErrBadCredential) {
					t.Errorf("%s accepts %s: %+v, %v", configured, method.Alg(), p, err)
				}
			}
		}
	}
}

// handmade signs by hand what the library would refuse to.
func handmade(header, claims string, sign func(text string) []byte) string {
	enc := base64.RawURLEncoding.EncodeToString
	text := enc([]byte(header)) + "." + enc([]byte(claims))
	return text + "." + enc(sign(text))
}

func withHMAC(key []byte) func(string) []byte {
	return func(text string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
}

func TestAlgorithmConfusion(t *testing.T) {
	t.Parallel()
	good, err := json.Marshal(claimsOf(nil))
	testwait.Must(t, err)
	claims := string(good)
	keyPEM := publicPEM(t, signers()["rsa"])
	der, _ := pem.Decode(keyPEM)
	none := func(string) []byte { return nil }

	// An ES256 signature by a P-384 key: the library alone doesn't compare the
	// curve with the algorithm.
	crossed := func(text string) []byte {
		digest := sha256.Sum256([]byte(text))
		r, s, err := ecdsa.Sign(rand.Reader, signers()["p384"].(*ecdsa.PrivateKey), digest[:]) //nolint:errcheck // Another type would be a bug of this test, and panics.
		testwait.Must(t, err)
		sig := make([]byte, 64)
		if r.BitLen() > 256 || s.BitLen() > 256 {
			return sig // As it nearly always is; then the length refuses it.
		}
		r.FillBytes(sig[:32])
		s.FillBytes(sig[32:])
		return sig
	}

	configs := map[string]JWTOptions{
		"hmac": {Secret: testSecret()},
		"rsa":  {PublicKeysPEM: keyPEM},
		"both": {Secret: testSecret(), PublicKeysPEM: keyPEM},
		"p384": {PublicKeysPEM: publicPEM(t, signers()["p384"])},
	}
	tokens := map[string]string{
		"none":              handmade(`{"alg":"none"}`, claims, none),
		"None":              handmade(`{"alg":"None"}`, claims, none),
		"no alg":            handmade(`{"typ":"JWT"}`, claims, none),
		"empty alg":         handmade(`{"alg":""}`, claims, none),
		"alg is a list":     handmade(`{"alg":["HS256"]}`, claims, withHMAC(testSecret())),
		"lower-case alg":    handmade(`{"alg":"hs256"}`, claims, withHMAC(testSecret())),
		"hmac of pem":       handmade(`{"alg":"HS256"}`, claims, withHMAC(keyPEM)),
		"hmac of der":       handmade(`{"alg":"HS256"}`, claims, withHMAC(der.Bytes)),
		"hmac of nothing":   handmade(`{"alg":"HS256"}`, claims, withHMAC(nil)),
		"rs256 with hmac":   handmade(`{"alg":"RS256"}`, claims, withHMAC(testSecret())),
		"es256 of p384":     handmade(`{"alg":"ES256"}`, claims, crossed),
		"empty signature":   handmade(`{"alg":"HS256"}`, claims, none),
		"crit":              handmade(`{"alg":"HS256","crit":["b64"],"b64":false}`, claims, withHMAC(testSecret())),
		"embedded jwk":      handmade(`{"alg":"HS256","jwk":{"kty":"oct","k":"AA"}}`, claims, withHMAC([]byte{0})),
		"null header":       handmade(`null`, claims, withHMAC(testSecret())),
		"null claims":       handmade(`{"alg":"HS256"}`, `null`, withHMAC(testSecret())),
		"claims not object": handmade(`{"alg":"HS256"}`, `"sub"`, withHMAC(testSecret())),
		"kid not a string":  handmade(`{"alg":"RS256","kid":7}`, claims, withHMAC(testSecret())),
	}
	for configName, opts := range configs {
		a := newAuth(t, Options{JWT: opts})
		for tokenName, token := range tokens {
			if p, err := a.Authenticate(t.Context(), "Bearer "+token); !errors.Is(err, ErrBadCredential) {
				t.Errorf("%s accepts %s: %+v, %v", configName, tokenName, p, err)
			}
		}
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	now := time.Now()
	in := func(d time.Duration) int64 { return now.Add(d).Unix() }
	a := newAuth(t, Options{
		Now: func() time.Time { return now },
		JWT: JWTOptions{Secret: testSecret(), Issuer: "https://issuer", Audience: "fairlead"},
	})
	base := map[string]any{"iss": "https://issuer", "aud": "fairlead"}
	for _, c := range []struct {
		name    string
		changes map[string]any
		want    bool
	}{
		{"good", nil, true},
		{"among audiences", map[string]any{"aud": []string{"x", "fairlead"}}, true},
		{"claims we don't know", map[string]any{"SUB": "bob", "role": "admin", "Exp": 1}, true},
		{"other audience", map[string]any{"aud": "x"}, false},
		{"no audience", map[string]any{"aud": nil}, false},
		{"other issuer", map[string]any{"iss": "https://issuer/"}, false},
		{"no issuer", map[string]any{"iss": nil}, false},
		{"no exp", map[string]any{"exp": nil}, false},
		{"exp zero", map[string]any{"exp": 0}, false},
		{"exp not a number", map[string]any{"exp": "tomorrow"}, false},
		{"exp a digit string", map[string]any{"exp": fmt.Sprint(in(time.Hour))}, false},
		{"exp now", map[string]any{"exp": in(0)}, false},
		{"just expired", map[string]any{"exp": in(-time.Second)}, false},
		{"long expired", map[string]any{"exp": in(-time.Hour)}, false},
		{"nbf soon", map[string]any{"nbf": in(59 * time.Second)}, true},
		{"nbf later", map[string]any{"nbf": in(62 * time.Second)}, false},
		{"nbf not a number", map[string]any{"nbf": true}, false},
		{"iat soon", map[string]any{"iat": in(59 * time.Second)}, true},
		{"iat later", map[string]any{"iat": in(62 * time.Second)}, false},
		{"no sub", map[string]any{"sub": nil}, false},
		{"empty sub", map[string]any{"sub": ""}, false},
		{"sub a number", map[string]any{"sub": 7}, false},
		{"sub a dot", map[string]any{"sub": "."}, false},
		{"sub two dots", map[string]any{"sub": ".."}, false},
		{"sub a path", map[string]any{"sub": "a/b"}, false},
		{"sub too long", map[string]any{"sub": strings.Repeat("a", 65)}, false},
		{"sub unicode", map[string]any{"sub": "änn"}, false},
		{"sub with nul", map[string]any{"sub": "ann\x00"}, false},
	} {
		claims := claimsOf(base)
		for k, v := range c.changes {
			if v == nil {
				delete(claims, k)
				continue
			}
			claims[k] = v
		}
		p, err := a.Authenticate(t.Context(), "Bearer "+signed(t, jwt.SigningMethodHS256, testSecret(), nil, claims))
		if c.want && (err != nil || p != ann()) {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
		if !c.want && !errors.Is(err, ErrBadCredential) {
			t.Errorf("%s is accepted: %+v, %v", c.name, p, err)
		}
	}
}

func TestAlteredTokens(t *testing.T) {
	t.Parallel()
	a := newAuth(t, Options{JWT: JWTOptions{Secret: testSecret(), PublicKeysPEM: publicPEM(t, signers()["ed25519"])}})
	for _, token := range []string{
		signed(t, jwt.SigningMethodHS256, testSecret(), nil, claimsOf(nil)),
		signed(t, jwt.SigningMethodEdDSA, signers()["ed25519"], nil, claimsOf(nil)),
	} {
		for i := range len(token) {
			c := byte('A')
			if token[i] == c {
				c = 'B'
			}
			altered := token[:i] + string(c) + token[i+1:]
			if p, err := a.Authenticate(t.Context(), "Bearer "+altered); !errors.Is(err, ErrBadCredential) {
				t.Fatalf("altered at %d: %+v, %v", i, p, err)
			}
		}
		for _, bad := range []string{token + ".", token + ".x", "." + token, strings.Replace(token, ".", "..", 1), token + "=", token[:len(token)-1]} {
			if p, err := a.Authenticate(t.Context(), "Bearer "+bad); !errors.Is(err, ErrBadCredential) {
				t.Fatalf("%q: %+v, %v", bad, p, err)
			}
		}
	}
}

// Of the last character of a signature only some bits count. The others must be
// zero, or one token would have several spellings.
func TestOneSpelling(t *testing.T) {
	t.Parallel()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	a := newAuth(t, Options{JWT: JWTOptions{Secret: testSecret()}})
	token := signed(t, jwt.SigningMethodHS256, testSecret(), nil, claimsOf(nil))
	last := strings.IndexByte(alphabet, token[len(token)-1])
	respelled := token[:len(token)-1] + alphabet[last+1:last+2]
	if p, err := a.Authenticate(t.Context(), "Bearer "+respelled); !errors.Is(err, ErrBadCredential) {
		t.Errorf("%+v, %v", p, err)
	}
}

// The pinning itself: a P-384 key can't be made to give a signature that looks
// like ES256's, so that only the table shows it.
func TestAlgorithmsOfKeys(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"rsa": "RS256 RS384 RS512 PS256 PS384 PS512", "p224": "", "p256": "ES256", "p384": "ES384", "p521": "ES512", "ed25519": "EdDSA",
	} {
		algs, err := algorithms(signers()[name].Public())
		if got := strings.Join(algs, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if algs, err := algorithms(testSecret()); err == nil {
		t.Errorf("a secret: %q", algs)
	}
}

func TestHugeTokens(t *testing.T) {
	t.Parallel()
	store := newMemStore()
	a := newAuth(t, Options{Store: store, JWT: JWTOptions{Secret: testSecret()}})
	fits := signed(t, jwt.SigningMethodHS256, testSecret(), nil, claimsOf(map[string]any{"x": strings.Repeat("x", 5900)}))
	if len(fits) > credentialMaxBytes || len(fits) < credentialMaxBytes-300 {
		t.Fatalf("the test's own token has %d bytes", len(fits))
	}
	if _, err := a.Authenticate(t.Context(), "Bearer "+fits); err != nil {
		t.Errorf("%d bytes: %v", len(fits), err)
	}
	tooLong := signed(t, jwt.SigningMethodHS256, testSecret(), nil, claimsOf(map[string]any{"x": strings.Repeat("x", 6200)}))
	if _, err := a.Authenticate(t.Context(), "Bearer "+tooLong); !errors.Is(err, ErrBadCredential) {
		t.Errorf("%d bytes: %v", len(tooLong), err)
	}
	if _, err := a.Authenticate(t.Context(), "Bearer a."+strings.Repeat("b", 8000)+".c"); !errors.Is(err, ErrBadCredential) {
		t.Error(err)
	}
	if n := store.lookups.Load(); n != 0 {
		t.Errorf("%d look-ups for what is longer than any key", n)
	}
}

// A token that is cached is refused the moment it expires all the same.
func TestCachedTokenExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuth(t, Options{JWT: JWTOptions{Secret: testSecret()}})
		expiresAt := time.Now().Add(12 * time.Second)
		token := "Bearer " + signed(t, jwt.SigningMethodHS256, testSecret(), nil, claimsOf(map[string]any{"exp": expiresAt.Unix()}))
		for time.Now().Before(expiresAt) {
			if p, err := a.Authenticate(t.Context(), token); err != nil || p != ann() {
				t.Fatalf("%s before: %+v, %v", time.Until(expiresAt), p, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if p, err := a.Authenticate(t.Context(), token); !errors.Is(err, ErrBadCredential) {
			t.Errorf("at its exp: %+v, %v", p, err)
		}
	})
}

// A bad token is refused, and not called unavailable, also when the store is down.
func TestTokensWithoutStore(t *testing.T) {
	t.Parallel()
	store := newMemStore()
	store.down = true
	a := newAuth(t, Options{Store: store, JWT: JWTOptions{Secret: testSecret()}})
	good := signed(t, jwt.SigningMethodHS256, testSecret(), nil, claimsOf(nil))
	if p, err := a.Authenticate(t.Context(), "Bearer "+good); err != nil || p != ann() {
		t.Errorf("good: %+v, %v", p, err)
	}
	expired := signed(t, jwt.SigningMethodHS256, testSecret(), nil, claimsOf(map[string]any{"exp": 1}))
	if _, err := a.Authenticate(t.Context(), "Bearer "+expired); !errors.Is(err, ErrBadCredential) || !errors.Is(err, jwt.ErrTokenExpired) {
		t.Errorf("expired: %v", err)
	}
}

func TestSeveralPublicKeys(t *testing.T) {
	t.Parallel()
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testwait.Must(t, err)
	a := newAuth(t, Options{JWT: JWTOptions{PublicKeysPEM: publicPEM(t, signers()["rsa"], other, signers()["p256"])}})
	for _, key := range []crypto.Signer{other, signers()["p256"]} {
		token := signed(t, jwt.SigningMethodES256, key, map[string]any{"kid": "whatever"}, claimsOf(nil))
		if p, err := a.Authenticate(t.Context(), "Bearer "+token); err != nil || p != ann() {
			t.Errorf("%+v, %v", p, err)
		}
	}
}

func TestJWTOptions(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024) // It must be refused.
	testwait.Must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(signers()["p256"])
	testwait.Must(t, err)
	rsaPEM := publicPEM(t, signers()["rsa"])
	var nine []crypto.Signer
	for range 9 {
		nine = append(nine, signers()["p256"])
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(signers()["rsa"].Public().(*rsa.PublicKey))}) //nolint:errcheck // Another type would be a bug of this test, and panics.
	for _, c := range []struct {
		name string
		opts JWTOptions
		want bool
	}{
		{"nothing", JWTOptions{}, true},
		{"32 bytes", JWTOptions{Secret: testSecret()}, true},
		{"31 bytes", JWTOptions{Secret: testSecret()[:31]}, false},
		{"public key as secret", JWTOptions{Secret: rsaPEM}, false},
		{"public key", JWTOptions{PublicKeysPEM: rsaPEM}, true},
		{"pkcs1", JWTOptions{PublicKeysPEM: pkcs1}, true},
		{"private key", JWTOptions{PublicKeysPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, false},
		{"1024 bits", JWTOptions{PublicKeysPEM: publicPEM(t, small)}, false},
		{"p224", JWTOptions{PublicKeysPEM: publicPEM(t, signers()["p224"])}, false},
		{"nine keys", JWTOptions{PublicKeysPEM: publicPEM(t, nine...)}, false},
		{"no pem", JWTOptions{PublicKeysPEM: []byte("hello")}, false},
		{"pem and more", JWTOptions{PublicKeysPEM: append(slices.Clip(rsaPEM), "hello"...)}, false},
		{"broken pem", JWTOptions{PublicKeysPEM: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte{1}})}, false},
		{"https", JWTOptions{JWKSURL: "https://issuer.example/jwks"}, true},
		{"http to loopback", JWTOptions{JWKSURL: "http://127.0.0.1:1/jwks"}, true},
		{"http", JWTOptions{JWKSURL: "http://issuer.example/jwks"}, false},
		{"http to a name that starts like loopback", JWTOptions{JWKSURL: "http://127.0.0.1.example/jwks"}, false},
		{"file", JWTOptions{JWKSURL: "file:///etc/passwd"}, false},
		{"no host", JWTOptions{JWKSURL: "https:///jwks"}, false},
		{"no url", JWTOptions{JWKSURL: "://"}, false},
		{"key and set", JWTOptions{PublicKeysPEM: rsaPEM, JWKSURL: "https://issuer.example/jwks"}, false},
		{"secret and set", JWTOptions{Secret: testSecret(), JWKSURL: "https://issuer.example/jwks"}, true},
		{"issuer alone", JWTOptions{Issuer: "x"}, false},
	} {
		a, err := New(Options{Store: newMemStore(), JWT: c.opts})
		if (err == nil) != c.want || (err != nil && !errors.Is(err, ErrInvalidOptions)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if a != nil {
			a.Close()
		}
	}
}

func FuzzToken(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	pemKeys := publicPEM(f, signers()["rsa"], signers()["p256"], signers()["ed25519"])
	a := newAuth(f, Options{Now: func() time.Time { return now }, JWT: JWTOptions{Secret: testSecret(), PublicKeysPEM: pemKeys}})
	f.Add(`{"alg":"HS256"}`, `{"sub":"ann","exp":1800000001}`, true)
	f.Add(`{"alg":"RS256","kid":"x"}`, `{"sub":"ann","exp":1e300,"aud":[1]}`, false)
	f.Add(`{"alg":"ES256"}`, `{"sub":"..","exp":-1}`, false)
	f.Add(`{"alg":"EdDSA","crit":[]}`, `[]`, true)
	f.Add(`{"alg":"none"}`, `{"sub":"ann","exp":1800000001,"exp":1}`, true)
	f.Fuzz(func(t *testing.T, header, claims string, sign bool) {
		signature := func(string) []byte { return make([]byte, 64) }
		if sign {
			signature = withHMAC(testSecret())
		}
		p, err := a.Authenticate(t.Context(), "Bearer "+handmade(header, claims, signature))
		if err != nil {
			if p != (Principal{}) || !errors.Is(err, ErrBadCredential) {
				t.Fatalf("%+v, %v", p, err)
			}
			return
		}
		var h, c map[string]any
		if json.Unmarshal([]byte(header), &h) != nil || json.Unmarshal([]byte(claims), &c) != nil {
			t.Fatalf("accepted what isn't JSON: %q %q", header, claims)
		}
		exp, _ := c["exp"].(float64)
		if !sign || h["alg"] != "HS256" || h["crit"] != nil || exp <= float64(now.Unix()) || c["sub"] != p.Account || !ValidAccount(p.Account) || p.Role != RoleUser {
			t.Fatalf("accepted %q %q as %+v", header, claims, p)
		}
	})
}
