package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMayActFor(t *testing.T) {
	t.Parallel()
	user := Principal{Role: RoleUser, ID: "user:ann", Account: "ann"}
	for _, c := range []struct {
		name    string
		p       Principal
		account string
		want    bool
	}{
		{"admin", Principal{Role: RoleAdmin}, "ann", true},
		{"service", Principal{Role: RoleService}, "ann", true},
		{"reader", Principal{Role: RoleReader}, "ann", false},
		{"user own", user, "ann", true},
		{"user other", user, "bob", false},
		{"user other case", user, "Ann", false},
		{"user none", user, "", false},
		{"user without account", Principal{Role: RoleUser}, "", false},
		{"zero", Principal{}, "ann", false},
		{"zero none", Principal{}, "", false},
		{"unheard-of role", Principal{Role: "root", Account: "ann"}, "ann", false},
	} {
		if got := c.p.MayActFor(c.account); got != c.want {
			t.Errorf("%s: MayActFor(%q) = %v", c.name, c.account, got)
		}
		// Only a reader may read more than it may move.
		if got, want := c.p.MayRead(c.account), c.want || c.p.Role == RoleReader; got != want {
			t.Errorf("%s: MayRead(%q) = %v", c.name, c.account, got)
		}
	}
	if !(Principal{Role: RoleAdmin}).IsAdmin() || (Principal{Role: RoleService}).IsAdmin() || user.IsAdmin() {
		t.Error("IsAdmin is for admin keys alone")
	}
}

func TestValidAccount(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"a": true, "A-z_0.9:@": true, "...": true, strings.Repeat("a", 64): true,
		"": false, ".": false, "..": false, strings.Repeat("a", 65): false,
		"a b": false, "a/b": false, "é": false, "a\x00": false, "١": false, "a%20": false,
	} {
		if got := ValidAccount(s); got != want {
			t.Errorf("ValidAccount(%q) = %v", s, got)
		}
	}
}

func TestGenerateKey(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, role := range []Role{RoleAdmin, RoleService, RoleReader} {
		for range 100 {
			secret, hash, err := GenerateKey(role)
			testwait.Must(t, err)
			random, ok := strings.CutPrefix(secret, "fl_"+string(role)+"_")
			raw, err := base64.RawURLEncoding.DecodeString(random)
			if !ok || err != nil || len(raw) != 32 {
				t.Fatalf("%q is not prefix and 256 bits: %v", secret, err)
			}
			if seen[secret] || hash != HashKey(secret) {
				t.Fatalf("%q: seen before, or not its hash", secret)
			}
			seen[secret] = true
			testwait.Must(t, ValidAdminKey(secret))
		}
	}
	for _, role := range []Role{RoleUser, "", "root"} {
		if secret, _, err := GenerateKey(role); err == nil || secret != "" {
			t.Errorf("role %q got a key", role)
		}
	}
}

func TestValidAdminKey(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		strings.Repeat("a", 32):                 true,
		strings.Repeat("~", 4096):               true,
		strings.Repeat("!", 32):                 true,
		strings.Repeat("a", 31):                 false,
		strings.Repeat("a", 4097):               false,
		"":                                      false,
		strings.Repeat("a", 31) + " ":           false,
		strings.Repeat("a", 32) + "\n":          false,
		strings.Repeat("a", 32) + "\x7f":        false,
		strings.Repeat("é", 32):                 false,
		"\t" + strings.Repeat("a", 32):          false,
		strings.Repeat("a", 16) + " 0123456789": false,
	} {
		err := ValidAdminKey(s)
		if (err == nil) != want {
			t.Errorf("ValidAdminKey(%q) = %v", s, err)
		}
		if err != nil && !errors.Is(err, ErrInvalidAdminKey) {
			t.Errorf("%v is not ErrInvalidAdminKey", err)
		}
		if err != nil && len(s) > 20 && strings.Contains(err.Error(), s) {
			t.Errorf("%v tells the secret", err)
		}
	}
}

func TestEnsureAdminKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store := newMemStore()
	at := time.Unix(1_000_000, 0)
	secret := strings.Repeat("s3cret/+", 5)

	if _, err := EnsureAdminKey(ctx, store, "short", "id-0", at); !errors.Is(err, ErrInvalidAdminKey) {
		t.Fatalf("short: %v", err)
	}
	first, err := EnsureAdminKey(ctx, store, secret, "id-1", at)
	if err != nil || first.ID != "id-1" || first.Role != RoleAdmin {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again, err := EnsureAdminKey(ctx, store, secret, "id-2", at)
	if err != nil || again.ID != "id-1" {
		t.Fatalf("again: %+v, %v", again, err)
	}
	// The race of two processes: the look-up finds nothing, the insert does.
	racing := &racingStore{memStore: store, misses: 1}
	if got, err := EnsureAdminKey(ctx, racing, secret, "id-3", at); err != nil || got.ID != "id-1" {
		t.Fatalf("race: %+v, %v", got, err)
	}
	testwait.Must(t, store.RevokeKey(ctx, "id-1"))
	if _, err := EnsureAdminKey(ctx, store, secret, "id-4", at); !errors.Is(err, ErrKeyRevoked) {
		t.Fatalf("revoked: %v", err)
	}
	service := store.addKey(t, RoleService, "svc")
	if _, err := EnsureAdminKey(ctx, store, service, "id-5", at); err == nil {
		t.Fatal("a service key became an admin key")
	}
	store.set(func(s *memStore) { s.down = true })
	if _, err := EnsureAdminKey(ctx, store, strings.Repeat("x", 40), "id-6", at); !errors.Is(err, errStoreDown) {
		t.Fatalf("down: %v", err)
	}
}

func TestAuthorizationHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string
		want   string
		err    error
	}{
		{"none", nil, "", ErrNoCredential},
		{"one", []string{"Bearer x"}, "Bearer x", nil},
		{"two", []string{"Bearer x", "Bearer y"}, "", ErrBadCredential},
		{"two the same", []string{"Bearer x", "Bearer x"}, "", ErrBadCredential},
	} {
		h := http.Header{}
		for _, v := range c.values {
			h.Add("authorization", v)
		}
		if got, err := Authorization(h); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestSubprotocolAuthorization(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string
		want   string
		err    error
	}{
		{"none", nil, "", ErrNoCredential},
		{"no bearer", []string{"fairlead"}, "", ErrNoCredential},
		{"one line", []string{"fairlead, bearer.K"}, "Bearer K", nil},
		{"two lines", []string{"bearer.K", "fairlead"}, "Bearer K", nil},
		{"a token's dots", []string{"fairlead,bearer.a.b.c"}, "Bearer a.b.c", nil},
		{"two bearers", []string{"fairlead, bearer.K, bearer.L"}, "", ErrBadCredential},
		{"not offered", []string{"bearer.K"}, "", ErrBadCredential},
		{"empty", []string{"fairlead, bearer."}, "Bearer ", nil}, // Authenticate refuses it.
	} {
		h := http.Header{}
		for _, v := range c.values {
			h.Add("Sec-WebSocket-Protocol", v)
		}
		if got, err := SubprotocolAuthorization(h); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestChallenge(t *testing.T) {
	t.Parallel()
	if got := Challenge(ErrNoCredential); got != `Bearer realm="fairlead"` {
		t.Error(got)
	}
	if got := Challenge(ErrBadCredential); got != `Bearer realm="fairlead", error="invalid_token"` {
		t.Error(got)
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", credentialMaxBytes)
	for _, c := range []struct {
		in, want string
		err      error
	}{
		{"", "", ErrNoCredential},
		{"Bearer x", "x", nil},
		{"bearer x", "x", nil},
		{"BEARER x", "x", nil},
		{"bEaReR   x", "x", nil},
		{"Bearer a,b=;\"~!", "a,b=;\"~!", nil},
		{"Bearer " + long, long, nil},
		{"Bearer " + long + "a", "", ErrBadCredential},
		{"Bearer", "", ErrBadCredential},
		{"Bearer ", "", ErrBadCredential},
		{"Bearer    ", "", ErrBadCredential},
		{"Bearerx", "", ErrBadCredential},
		{"Bearer\tx", "", ErrBadCredential},
		{" Bearer x", "", ErrBadCredential},
		{"Bearer x ", "", ErrBadCredential},
		{"Bearer x y", "", ErrBadCredential},
		{"Bearer x, Bearer y", "", ErrBadCredential},
		{"Bearer é", "", ErrBadCredential},
		{"Bearer x\x00", "", ErrBadCredential},
		{"Basic dXNlcjpwYXNz", "", ErrBadCredential},
		{"x", "", ErrBadCredential},
		{"Bearer", "", ErrBadCredential},
	} {
		got, err := bearer(c.in)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("bearer(%.40q) = %.40q, %v", c.in, got, err)
		}
	}
}

func FuzzBearer(f *testing.F) {
	for _, s := range []string{"", "Bearer x", "bearer  x", "Bearer", "Basic x", "Bearer x\n", "Bearer é", "Bearer a, b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := bearer(s)
		if err != nil {
			if got != "" || (!errors.Is(err, ErrNoCredential) && !errors.Is(err, ErrBadCredential)) {
				t.Fatalf("%q, %v", got, err)
			}
			return
		}
		if got == "" || len(got) > credentialMaxBytes || firstInvisible(got) >= 0 {
			t.Fatalf("%q is no credential", got)
		}
		// What was taken away is the scheme and spaces, and nothing else.
		if rest, ok := strings.CutSuffix(s, got); !ok || !strings.EqualFold(strings.TrimRight(rest, " "), "bearer") || !strings.HasSuffix(rest, " ") {
			t.Fatalf("bearer(%q) = %q", s, got)
		}
	})
}
