package server

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	id := e.onSale(`"base_length":2`, "")
	before := e.snapshot()
	for _, path := range []string{
		"/", "//", "/v1", "/v1/", "/v1/nothing", "/v2/accounts/alice", "/v1accounts", "/V1/accounts/alice", "/v1/Accounts/alice", "/v1/account/alice",
		"/v1//accounts/alice", "//v1/accounts/alice", "/v1/accounts/", "/v1/accounts//entries", "/v1/accounts/alice/", "/v1/accounts/alice//entries", "/v1/accounts/alice/entries/",
		"/v1/accounts/../accounts/alice", "/v1/./accounts/alice", "/v1/accounts/.", "/v1/accounts/..", "/v1/accounts/alice/..", "/v1/accounts/alice/../alice", "/../../etc/passwd",
		"/v1/accounts/%2e", "/v1/accounts/%2E%2e", "/v1/accounts/%2e%2e/alice", "/v1/accounts/%2e%2e%2falice", "/v1/%2e%2e/v1/accounts/alice", "/v1/accounts/x%2f..%2falice",
		"/v1/accounts%2falice", "/v1%2faccounts%2falice", "/v1/accounts/alice%2fentries", "/v1/accounts/%2falice", "/v1/accounts/alice%2f", "/v1/accounts/%2f%2f",
		"/v1/accounts/outside%2FEUR", "/v1/accounts/escrow%2F" + id, "/v1/accounts/alice%0a", "/v1/accounts/%c3%a4",
		"/v1/accounts/alice%20", "/v1/accounts/%20alice", "/v1/accounts/alice'--", "/v1/accounts/alice;x=1", "/v1/accounts/a%25b", "/v1/accounts/alice%3Flimit=1", "/v1/accounts/alice%23",
		"/v1/accounts/" + strings.Repeat("a", 64), "/v1/accounts/" + strings.Repeat("a", 65), "/v1/accounts/" + strings.Repeat("a", 10_000), "/v1/accounts/ä", "/v1/accounts/Alice",
		"/v1/accounts/alice/entries/x", "/v1/deposits/" + newUUID(), "/v1/campaigns/" + id + "/nothing", "/v1/campaigns/" + id + "/Publish", "/v1/keys/x/y",
		"/healthz/", "/healthz/x", "/openapi.json/", "/docs/../v1/accounts/alice", "/docs/%2e%2e/healthz", "/docs/..", "/favicon.ico", "/.git/config", "/debug/pprof/",
		"/v1/cross-transfers/" + newUUID(), "/v1/multidraws/" + newUUID(),
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r := e.raw(method, path, "Idempotency-Key: k", "Content-Length: 0")
			if r.status == http.StatusMethodNotAllowed && method != http.MethodGet {
				continue // The path is that of a GET route, with an id that names nothing.
			}
			r.problem(http.StatusNotFound, "not_found")
			if r.header.Get("Location") != "" {
				t.Errorf("%s: redirected to %s", r.what, r.header.Get("Location"))
			}
		}
	}
	e.unchanged(before)
}

func TestBadUUIDs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	campaign := e.onSale(`"base_length":2`, "")
	auction := e.started(twoRounds, "")
	hold := e.post("/v1/holds", `{"account":"alice","amount":10}`).want(http.StatusCreated).str("id")
	transfer := e.post("/v1/deposits", `{"account":"alice","amount":10}`).want(http.StatusCreated).str("id")
	before := e.snapshot()
	for _, good := range []string{campaign, auction, hold, transfer, e.adminID} {
		for _, bad := range []string{
			"x", "0", "-1", "null", "undefined", "NaN", good[:35], good + "0", " " + good, good + "%20", "{" + good + "}", "urn:uuid:" + good, strings.ReplaceAll(good, "-", ""), good[:8] + "_" + good[9:],
			"g" + good[1:], good + "%0a", good + "'", "1%20OR%201=1", newUUID(), "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "%D9%A3" + good[1:],
		} {
			bad = strings.NewReplacer(" ", "%20", "{", "%7B", "}", "%7D").Replace(bad)
			for _, target := range []string{
				"GET /v1/transfers/" + bad, "GET /v1/holds/" + bad, "POST /v1/holds/" + bad + "/release", "GET /v1/campaigns/" + bad, "GET /v1/campaigns/" + bad + "/positions",
				"GET /v1/campaigns/" + bad + "/purchases", "GET /v1/campaigns/" + bad + "/draw", "GET /v1/campaigns/" + bad + "/proof", "GET /v1/campaigns/" + bad + "/statistics",
				"POST /v1/campaigns/" + bad + "/publish", "POST /v1/campaigns/" + bad + "/cancel", "POST /v1/campaigns/" + bad + "/draw", "GET /v1/auctions/" + bad, "GET /v1/auctions/" + bad + "/leaderboard", "GET /v1/auctions/" + bad + "/winners",
				"GET /v1/auctions/" + bad + "/bids", "GET /v1/auctions/" + bad + "/min-winning-bid", "POST /v1/auctions/" + bad + "/start", "POST /v1/auctions/" + bad + "/cancel", "DELETE /v1/keys/" + bad,
			} {
				method, path, _ := strings.Cut(target, " ")
				key := newUUID()
				if method == http.MethodGet {
					key = ""
				}
				e.send(send{method: method, path: path, key: key}).problem(http.StatusNotFound, "not_found")
			}
		}
	}
	e.unchanged(before)
}

func TestMethods(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	before := e.snapshot()
	allowed := map[string][]string{}
	for _, r := range e.server.routes() {
		allowed[r.path] = append(allowed[r.path], r.method)
		if r.method == http.MethodGet {
			allowed[r.path] = append(allowed[r.path], http.MethodHead)
		}
	}
	if len(allowed) < 25 {
		t.Fatalf("only %d paths", len(allowed))
	}
	for pattern, methods := range allowed {
		path := strings.NewReplacer("{id}", newUUID(), "{position}", newUUID(), "{asset...}", "x").Replace(pattern)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "post"} {
			if slices.Contains(methods, method) {
				continue
			}
			r := e.raw(method, path, "Idempotency-Key: k", "Content-Length: 0")
			if method == http.MethodHead {
				if r.status != http.StatusMethodNotAllowed {
					t.Errorf("HEAD %s: %d", pattern, r.status)
				}
				continue
			}
			r.problem(http.StatusMethodNotAllowed, "method_not_allowed")
			got := strings.Split(r.header.Get("Allow"), ", ")
			want := slices.Clone(methods)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s %s: Allow %v, want %v", method, pattern, got, want)
			}
		}
	}
	e.unchanged(before)
}

// TestHead answers as GET would, without a body.
func TestHead(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	for path, status := range map[string]int{"/v1/accounts/alice": 200, "/v1/accounts/nobody": 404, "/healthz": 200, "/v1/campaigns?limit=0": 400, "/v1/nothing": 404} {
		get := e.get(path)
		head := e.send(send{method: http.MethodHead, path: path})
		if head.status != status || get.status != status || len(head.body) != 0 || head.header.Get("Content-Type") != get.header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %q, GET: %d %q", path, head.status, head.header.Get("Content-Type"), get.status, get.header.Get("Content-Type"))
		}
	}
}
