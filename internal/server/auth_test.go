package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fairlead-dev/fairlead/internal/auth"
)

// concrete puts ids into a route's pattern.
func concrete(pattern string) string {
	return strings.NewReplacer("{id}", "01890000-0000-7000-8000-000000000000", "{position}", "01890000-0000-7000-8000-000000000001", "{asset...}", "x").Replace(pattern)
}

// TestNoCredential asks every route, and none, without a good credential: 401 comes before anything else.
func TestNoCredential(t *testing.T) {
	t.Parallel()
	e := newEnv(t).by("")
	before := e.snapshot()
	type target struct{ method, path string }
	targets := []target{
		{"GET", "/v1"},
		{"GET", "/v1/"},
		{"GET", "/v1/nothing"},
		{"POST", "/v1/nothing"},
		{"GET", "/v1//accounts"},
		{"GET", "/v1/../v1/keys"},
		{"PUT", "/v1/accounts"},
		{"DELETE", "/v1/campaigns"},
		{"OPTIONS", "/v1/keys"},
		{"TRACE", "/v1/transfers"},
		{"GET", "/v1/accounts/%00"},
		{"GET", "/v1/campaigns?limit=0"},
	}
	for _, r := range e.server.routes() {
		if strings.HasPrefix(r.path, "/v1") {
			targets = append(targets, target{r.method, concrete(r.path)})
		} else if r.access != accessPublic {
			t.Errorf("%s %s is not public", r.method, r.path)
		}
	}
	for _, to := range targets {
		none := e.raw(to.method, to.path, "Content-Length: 0").problem(http.StatusUnauthorized, "unauthorized")
		if got := none.header.Get("WWW-Authenticate"); got != `Bearer realm="fairlead"` {
			t.Errorf("%s: WWW-Authenticate %q", none.what, got)
		}
		bad := e.by("wrong").raw(to.method, to.path, "Content-Length: 0").problem(http.StatusUnauthorized, "unauthorized")
		if got := bad.header.Get("WWW-Authenticate"); got != `Bearer realm="fairlead", error="invalid_token"` {
			t.Errorf("%s: WWW-Authenticate %q", bad.what, got)
		}
	}
	for _, body := range []string{`{`, strings.Repeat(" ", 1<<20+1), `{"id":"alice","currency":"EUR"}`} {
		e.keyed("k", "/v1/accounts", body).problem(http.StatusUnauthorized, "unauthorized")
	}
	e.unchanged(before)
}

func TestBadCredentials(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "alice", "exp": in(time.Hour)}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	must(t, err)
	good := e.user("alice")
	head, _, _ := strings.Cut(good, ".")
	for name, header := range map[string][]string{
		"no scheme": {e.admin}, "other scheme": {"Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+e.admin))}, "empty": {""}, "scheme alone": {"Bearer"}, "nothing after": {"Bearer "},
		"glued": {"Bearer" + e.admin}, "two": {"Bearer " + e.admin, "Bearer " + e.admin}, "two in one": {"Bearer " + e.admin + ", Bearer x"}, "cut": {"Bearer " + e.admin[:len(e.admin)-1]},
		"longer": {"Bearer " + e.admin + "x"}, "other case": {"Bearer " + strings.ToUpper(e.admin)}, "quoted": {`Bearer "` + e.admin + `"`}, "huge": {"Bearer " + strings.Repeat("x", 9000)},
		"non-ASCII": {"Bearer schlüssel-schlüssel-schlüssel-schlüssel"}, "SQL": {"Bearer ' OR '1'='1"}, "unsigned": {"Bearer " + none},
		"other secret": {"Bearer " + token(t, jwt.MapClaims{"sub": "alice", "exp": in(time.Hour)}, strings.Repeat("x", 32))},
		"expired":      {"Bearer " + token(t, jwt.MapClaims{"sub": "alice", "exp": in(-time.Second)}, jwtSecret)},
		"no exp":       {"Bearer " + token(t, jwt.MapClaims{"sub": "alice"}, jwtSecret)},
		"not yet":      {"Bearer " + token(t, jwt.MapClaims{"sub": "alice", "exp": in(time.Hour), "nbf": in(30 * time.Minute)}, jwtSecret)},
		"no sub":       {"Bearer " + token(t, jwt.MapClaims{"exp": in(time.Hour)}, jwtSecret)},
		"bad sub":      {"Bearer " + token(t, jwt.MapClaims{"sub": "..", "exp": in(time.Hour)}, jwtSecret)},
		"escrow sub":   {"Bearer " + token(t, jwt.MapClaims{"sub": "outside/EUR", "exp": in(time.Hour)}, jwtSecret)},
		"number sub":   {"Bearer " + token(t, jwt.MapClaims{"sub": 5, "exp": in(time.Hour)}, jwtSecret)},
		"no signature": {"Bearer " + good[:strings.LastIndexByte(good, '.')+1]}, "head alone": {"Bearer " + head + ".."},
		"key's id": {"Bearer " + e.adminID},
	} {
		r := e.by("").send(send{method: http.MethodGet, path: "/v1/campaigns", header: http.Header{"Authorization": header}})
		if r.problem(http.StatusUnauthorized, "unauthorized"); t.Failed() {
			t.Fatalf("credential: %s", name)
		}
	}
	for _, header := range []string{"Bearer " + e.admin, "bearer " + e.admin, "BEARER   " + e.service, "Bearer " + good} {
		e.by("").send(send{method: http.MethodGet, path: "/v1/campaigns", header: http.Header{"Authorization": {header}}}).want(http.StatusOK)
	}
}

// TestForbiddenTellsNothing compares the refusals for what is there with those for what is not.
func TestForbiddenTellsNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 0)
	id := e.onSale(`"base_length":2`, "")
	auction := e.started(twoRounds, "")
	hold := e.post("/v1/holds", `{"account":"alice","amount":10}`).want(http.StatusCreated).str("id")
	e.post("/v1/deposits", `{"account":"bob","amount":10}`).want(http.StatusCreated)
	alice := e.by(e.user("alice"))
	before := e.snapshot()
	ask := func(method, path, body string) string {
		t.Helper()
		header := http.Header{"X-Request-Id": {"same"}}
		if method != http.MethodGet {
			header["Idempotency-Key"] = []string{newUUID()}
		}
		return string(alice.send(send{method: method, path: path, body: body, header: header}).problem(http.StatusForbidden, "forbidden").body)
	}
	for _, pair := range [][2][3]string{
		{{"GET", "/v1/accounts/bob"}, {"GET", "/v1/accounts/nobody"}},
		{{"GET", "/v1/accounts/bob"}, {"GET", "/v1/accounts/outside%2FEUR"}},
		{{"GET", "/v1/accounts/bob/entries"}, {"GET", "/v1/accounts/nobody/entries"}},
		{{"GET", "/v1/accounts/bob/entries?limit=0"}, {"GET", "/v1/accounts/nobody/entries"}},
		{{"POST", "/v1/holds/" + hold + "/release"}, {"POST", "/v1/holds/" + newUUID() + "/release", `{`}},
		{{"POST", "/v1/transfers", `{"from":"bob","to":"alice","amount":1}`}, {"POST", "/v1/transfers", `{"from":"nobody","to":"nobody","amount":1}`}},
		{{"POST", "/v1/campaigns/" + id + "/purchases", `{"account":"bob"}`}, {"POST", "/v1/campaigns/" + newUUID() + "/purchases", `{"account":"nobody"}`}},
		{{"POST", "/v1/campaigns/" + id + "/purchases", `{"account":"bob"}`}, {"POST", "/v1/campaigns/x/purchases", `{"account":"nobody","layer":99}`}},
		{{"POST", "/v1/auctions/" + auction + "/bids", `{"account":"bob","amount":5}`}, {"POST", "/v1/auctions/x/bids", `{"account":"nobody","amount":5}`}},
		{{"POST", "/v1/auctions/" + auction + "/cancel"}, {"POST", "/v1/auctions/" + newUUID() + "/cancel"}},
		{{"POST", "/v1/campaigns/" + id + "/publish"}, {"POST", "/v1/campaigns/" + newUUID() + "/publish"}},
		{{"POST", "/v1/deposits", `{"account":"alice","amount":1}`}, {"POST", "/v1/deposits", `{`}},
	} {
		there, absent := ask(pair[0][0], pair[0][1], pair[0][2]), ask(pair[1][0], pair[1][1], pair[1][2])
		if there != absent {
			t.Errorf("%v is refused with %s, %v with %s", pair[0], there, pair[1], absent)
		}
	}
	e.unchanged(before)

	// What is alice's own she may do.
	alice.get("/v1/accounts/alice").want(http.StatusOK)
	alice.get("/v1/accounts/alice/entries").want(http.StatusOK)
	alice.post("/v1/transfers", `{"from":"alice","to":"bob","amount":5}`).want(http.StatusCreated)
	alice.post("/v1/campaigns/"+id+"/purchases", `{"account":"alice"}`).want(http.StatusCreated)
	alice.get("/v1/campaigns/" + id).want(http.StatusOK).equal(`{"sold_positions":1}`)
	e.balance("alice", 885, 10)
	e.by(e.user("newcomer")).get("/v1/accounts/newcomer").problem(http.StatusNotFound, "not_found")
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	const quota = 3
	e := newEnvWith(t, setup{limiter: &auth.LimiterOptions{Quota: quota, Window: time.Hour}})
	alice := e.by(e.user("alice"))
	for n := range quota {
		r := alice.get("/v1/campaigns").want(http.StatusOK)
		if got, want := r.header.Get("RateLimit"), fmt.Sprintf(`"user";r=%d;t=`, quota-n-1); !strings.HasPrefix(got, want) {
			t.Errorf("RateLimit %q, want %s…", got, want)
		}
		if got := r.header.Get("RateLimit-Policy"); got != `"user";q=3;w=3600` {
			t.Errorf("RateLimit-Policy %q", got)
		}
	}
	other := token(t, jwt.MapClaims{"sub": "alice", "exp": time.Now().Add(2 * time.Hour).Unix()}, jwtSecret)
	for _, r := range []*reply{
		alice.get("/v1/campaigns"), e.by(other).get("/v1/accounts/alice"), alice.post("/v1/transfers", `{`), alice.get("/v1/nothing"), alice.post("/v1/keys", `{}`),
	} {
		outcome := "not_applied"
		if strings.HasPrefix(r.what, http.MethodPost) {
			outcome = "unknown" // An earlier request with its key may have been applied.
		}
		r.problem(http.StatusTooManyRequests, "rate_limited").equal(`{"retryable":true,"outcome":"` + outcome + `"}`)
		if wait := r.header.Get("Retry-After"); wait == "" || strings.Trim(wait, "0123456789") != "" || wait == "0" {
			t.Errorf("%s: Retry-After %q", r.what, wait)
		}
	}
	e.by(e.user("bob")).get("/v1/campaigns").want(http.StatusOK)
	for _, credential := range []string{e.admin, e.service} {
		for range 2 * quota {
			if r := e.by(credential).get("/v1/campaigns").want(http.StatusOK); r.header.Get("RateLimit") != "" {
				t.Errorf("a key is rate-limited: %v", r.header)
			}
		}
	}
	for range 2 * quota {
		e.by("").get("/healthz").want(http.StatusOK)
	}
}
