package server

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// newConsoleEnv is newEnv with the console.
func newConsoleEnv(t *testing.T) (*env, *postgres.Operator) {
	t.Helper()
	e := newEnv(t)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 4, Patience: patience, UnavailableAfter: patience})
	must(t, err)
	t.Cleanup(db.Close)
	sessions := postgres.NewOperator(db)
	s, err := New(Options{
		Ledger: e.ledger, Lottery: e.lottery, Auction: e.auction, Multidraw: e.multidraw, Publish: e.publish, Cross: e.cross, Locks: e.locks, Keys: e.keys,
		Operator: sessions, Sessions: sessions, PublicPages: true, Auth: e.server.Auth, Ready: db.Ready, Version: "test",
	})
	must(t, err)
	listener := httptest.NewServer(s.Handler())
	t.Cleanup(listener.Close)
	e.server, e.url = s, listener.URL
	return e, sessions
}

// browse sends what a browser would; headers are given as name and value in turn.
func (e *env) browse(method, path, body string, headers ...string) *http.Response {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	must(e.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := e.http.Do(req)
	must(e.t, err)
	content, err := io.ReadAll(resp.Body)
	must(e.t, err)
	must(e.t, resp.Body.Close())
	resp.Body = io.NopCloser(bytes.NewReader(content))
	return resp
}

// sessionIn finds the cookie that an answer sets.
func sessionIn(tb testing.TB, resp *http.Response) *http.Cookie {
	tb.Helper()
	for _, c := range resp.Cookies() {
		if c.Name == sessionCookie {
			return c
		}
	}
	content, _ := io.ReadAll(resp.Body)
	tb.Fatalf("no session: %d %s", resp.StatusCode, content)
	return nil
}

func (e *env) signIn(credential string) string {
	e.t.Helper()
	return sessionIn(e.t, e.browse(http.MethodPost, sessionPath, `{"key":"`+credential+`"}`, "Sec-Fetch-Site", "same-origin")).Value
}

func TestSession(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	cookie := func(value string) string { return sessionCookie + "=" + value }
	for body, want := range map[string]int{
		`{"key":"` + e.service + `"}`: http.StatusForbidden, `{"key":"nonsense"}`: http.StatusUnauthorized, `{"key":"` + e.user("alice") + `"}`: http.StatusForbidden,
		`{}`: http.StatusBadRequest, `{"key":"a","link":"b"}`: http.StatusBadRequest, `{"link":"nonsense"}`: http.StatusGone, `{"key":""}`: http.StatusUnauthorized,
	} {
		if r := e.browse(http.MethodPost, sessionPath, body); r.StatusCode != want || len(r.Cookies()) != 0 {
			t.Errorf("%s: %d, want %d", body, r.StatusCode, want)
		}
	}
	plain := sessionIn(t, e.browse(http.MethodPost, sessionPath, `{"key":"`+e.admin+`"}`))
	if !plain.HttpOnly || plain.SameSite != http.SameSiteStrictMode || plain.Path != "/" || plain.Secure || time.Until(plain.Expires) > operator.SessionLife {
		t.Errorf("the cookie: %+v", plain)
	}
	if behind := sessionIn(t, e.browse(http.MethodPost, sessionPath, `{"key":"`+e.admin+`"}`, "X-Forwarded-Proto", "https")); !behind.Secure || behind.Value == plain.Value {
		t.Errorf("behind TLS: %+v", behind)
	}
	if n := e.count("console_sessions WHERE hash = decode($1, 'escape')", plain.Value); n != 0 {
		t.Error("the database keeps the secret itself")
	}
	// The session is the key's: its rights, its name in the audit log.
	as := cookie(plain.Value)
	if r := e.browse(http.MethodGet, "/v1/keys", "", "Cookie", as); r.StatusCode != http.StatusOK {
		t.Errorf("keys: %d", r.StatusCode)
	}
	e.account("alice", "EUR", 0)
	if r := e.browse(http.MethodPost, "/v1/accounts", `{"id":"bob","currency":"EUR"}`, "Cookie", as, "Idempotency-Key", "k", "Sec-Fetch-Site", "same-origin"); r.StatusCode != http.StatusCreated {
		t.Errorf("an action: %d", r.StatusCode)
	}
	if r := e.browse(http.MethodGet, sessionPath, "", "Cookie", as); r.StatusCode != http.StatusOK {
		t.Errorf("who am I: %d", r.StatusCode)
	}
	if r := e.browse(http.MethodGet, sessionPath, "", "Cookie", cookie("nonsense")); r.StatusCode != http.StatusNoContent {
		t.Errorf("who is nobody: %d", r.StatusCode)
	}
	// A credential in the header goes before the cookie, and a session is none that could be sent there.
	for header, want := range map[string]int{"Bearer " + e.service: http.StatusForbidden, "Bearer x": http.StatusUnauthorized, "Session " + plain.Value: http.StatusUnauthorized, "session " + plain.Value: http.StatusUnauthorized} {
		if r := e.browse(http.MethodGet, "/v1/keys", "", "Cookie", as, "Authorization", header); r.StatusCode != want {
			t.Errorf("%s with a cookie: %d", strings.Fields(header)[0], r.StatusCode)
		}
	}
	if r := e.browse(http.MethodDelete, sessionPath, "", "Cookie", as); r.StatusCode != http.StatusNoContent || sessionIn(t, r).Value != "" {
		t.Errorf("signing out: %d", r.StatusCode)
	}
	if r := e.browse(http.MethodGet, "/v1/keys", "", "Cookie", as); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("after signing out: %d", r.StatusCode)
	}
}

// TestSessionEndsWithItsKeyAndItsTime does what a leaver's and a stolen cookie meet.
func TestSessionEndsWithItsKeyAndItsTime(t *testing.T) {
	t.Parallel()
	e, sessions := newConsoleEnv(t)
	secret, hash := operator.NewSecret()
	_, err := sessions.Begin(t.Context(), hash, e.adminID, time.Hour)
	must(t, err)
	status := func(secret string) int {
		return e.browse(http.MethodGet, "/v1/keys", "", "Cookie", sessionCookie+"="+secret).StatusCode
	}
	if status(secret) != http.StatusOK {
		t.Fatal("no session")
	}
	conn := e.connect()
	_, err = conn.Exec(t.Context(), `UPDATE console_sessions SET expires_at = clock_timestamp()`)
	must(t, errors.Join(err, conn.Close(t.Context())))
	if status(secret) != http.StatusUnauthorized {
		t.Error("a session goes on after its time")
	}
	other := "an-admin-key-of-the-tests-that-has-thirty-two-bytes"
	hashed := operator.HashOf(other)
	id := e.post("/v1/keys", `{"role":"admin","name":"leaver","hash":"`+hex.EncodeToString(hashed[:])+`"}`).want(http.StatusCreated).str("id")
	leaver := e.signIn(other)
	if status(leaver) != http.StatusOK {
		t.Fatal("no session")
	}
	e.revoke(id).want(http.StatusOK)
	if status(leaver) != http.StatusUnauthorized {
		t.Error("a revoked key's session goes on")
	}
}

// TestLinkSignsInOnce lets many use one link at once.
func TestLinkSignsInOnce(t *testing.T) {
	t.Parallel()
	e, sessions := newConsoleEnv(t)
	link, hash := operator.NewSecret()
	made, err := sessions.MakeLink(t.Context(), hash, time.Hour, true)
	must(t, err)
	if !made {
		t.Fatal("no first link")
	}
	if _, again := operator.NewSecret(); again != hash {
		made, err := sessions.MakeLink(t.Context(), again, time.Hour, true)
		must(t, err)
		if made {
			t.Error("a second first link")
		}
	}
	var (
		users sync.WaitGroup
		in    atomic.Int32
	)
	for range 8 {
		users.Go(func() {
			if r := e.browse(http.MethodPost, sessionPath, `{"link":"`+link+`"}`); r.StatusCode == http.StatusOK {
				in.Add(1)
			}
		})
	}
	users.Wait()
	if in.Load() != 1 {
		t.Errorf("%d signed in by one link", in.Load())
	}
	late, hash := operator.NewSecret()
	_, err = sessions.MakeLink(t.Context(), hash, time.Microsecond, false)
	must(t, err)
	if r := e.browse(http.MethodPost, sessionPath, `{"link":"`+late+`"}`); r.StatusCode != http.StatusGone {
		t.Errorf("a late link: %d", r.StatusCode)
	}
}

// TestKeysMakeLinks has keys make links of their own, by the hash of a secret.
func TestKeysMakeLinks(t *testing.T) {
	t.Parallel()
	e, sessions := newConsoleEnv(t)
	link, hash := operator.NewSecret()
	document := fmt.Sprintf(`{"hash":"%x"}`, hash[:])
	for credential, status := range map[string]int{"": http.StatusUnauthorized, e.service: http.StatusForbidden, e.user("ann"): http.StatusForbidden} {
		if r := e.browse(http.MethodPost, linksPath, document, "Authorization", "Bearer "+credential); r.StatusCode != status {
			t.Errorf("a link is answered %d, not %d", r.StatusCode, status)
		}
	}
	for _, bad := range []string{``, `{}`, `{"hash":"00"}`, fmt.Sprintf(`{"hash":"%x00"}`, hash[:]), `{"hash":"x"}`, `{"link":"a"}`} {
		if r := e.browse(http.MethodPost, linksPath, bad, "Authorization", "Bearer "+e.admin); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, r.StatusCode)
		}
	}
	for range 2 { // An answer may be lost.
		if r := e.browse(http.MethodPost, linksPath, document, "Authorization", "Bearer "+e.admin); r.StatusCode != http.StatusCreated {
			t.Fatalf("the link: %d", r.StatusCode)
		}
	}
	audited := e.by(e.admin).get("/v1/admin/audit?action=link.create").want(http.StatusOK)
	if audited.str("items.0.principal") != "key:"+e.adminID || audited.str("items.0.action") != "link.create" {
		t.Errorf("audited: %s", audited.body)
	}
	secret := sessionIn(t, e.browse(http.MethodPost, sessionPath, `{"link":"`+link+`"}`)).Value
	if x, err := sessions.Session(t.Context(), operator.HashOf(secret)); err != nil || x.Key.Role != auth.RoleAdmin || x.Key.ID != e.adminID {
		t.Errorf("the link signs in as %+v, %v; want %s", x.Key, err, e.adminID)
	}
	if err := sessions.MakeLinkOf(t.Context(), hash, newUUID(), time.Hour); !errors.Is(err, operator.ErrNoSession) {
		t.Errorf("a link of no key: %v", err)
	}
}

// TestSessionActsForOwnPagesAlone sends what a page of somebody else would make a visitor's browser send.
func TestSessionActsForOwnPagesAlone(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	as := sessionCookie + "=" + e.signIn(e.admin)
	for _, foreign := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		headers := append([]string{"Cookie", as, "Idempotency-Key", "k"}, foreign...)
		for _, action := range [][2]string{{http.MethodPost, "/v1/accounts"}, {http.MethodDelete, "/v1/keys/" + newUUID()}, {http.MethodDelete, sessionPath}, {http.MethodPost, sessionPath}} {
			if r := e.browse(action[0], action[1], `{"id":"mallory","currency":"EUR"}`, headers...); r.StatusCode != http.StatusForbidden {
				t.Errorf("%v %v: %d", action, foreign, r.StatusCode)
			}
		}
		socket := append([]string{"Cookie", as, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, foreign...)
		if r := e.browse(http.MethodGet, "/v1/live", "", socket...); r.StatusCode != http.StatusForbidden {
			t.Errorf("a socket from %v: %d", foreign, r.StatusCode)
		}
	}
	if e.count("accounts WHERE id = 'mallory'") != 0 || e.browse(http.MethodGet, "/v1/keys", "", "Cookie", as).StatusCode != http.StatusOK {
		t.Error("a foreign page has acted")
	}
	// A key in the header is nobody's by accident: pages elsewhere may use one.
	if r := e.browse(http.MethodPost, "/v1/accounts", `{"id":"abroad","currency":"EUR"}`, "Authorization", "Bearer "+e.service, "Idempotency-Key", "k", "Sec-Fetch-Site", "cross-site"); r.StatusCode != http.StatusCreated {
		t.Errorf("a key from another page: %d", r.StatusCode)
	}
}

// TestSocketBySession opens the live stream as the console does, and loses it with the session's key.
func TestSocketBySession(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	as := sessionCookie + "=" + e.signIn(e.admin)
	_, resp, err := websocket.Dial(t.Context(), e.url+"/v1/live", &websocket.DialOptions{HTTPHeader: http.Header{"Cookie": {as}, "Origin": {e.url}}})
	// This server has no hub: that it says so shows that the session was accepted.
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestConsolePagesAndAssets(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	for _, path := range []string{"/", "/console"} {
		if r := e.browse(http.MethodGet, path, ""); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/console/" {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.Header.Get("Location"))
		}
	}
	for _, path := range []string{"/console/", "/console/campaigns", "/console/campaigns/" + newUUID(), "/console/anything/at/all"} {
		r := e.browse(http.MethodGet, path, "")
		policy := r.Header.Get("Content-Security-Policy")
		if r.StatusCode != http.StatusOK || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: %d, policy %s", path, r.StatusCode, policy)
		}
	}
	for name, asset := range console.Assets() {
		r := e.browse(http.MethodGet, assetRoot+name, "")
		if asset.IsPage() {
			if r.StatusCode != http.StatusNotFound {
				t.Errorf("the page %s is served as a file, without its policy", name)
			}
			continue
		}
		tag := r.Header.Get("ETag")
		again := e.browse(http.MethodGet, assetRoot+name, "", "If-None-Match", tag)
		if r.StatusCode != http.StatusOK || tag == "" || again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: %d, then %d", name, r.StatusCode, again.StatusCode)
		}
	}
	for _, path := range []string{"/console/assets/", "/console/assets/nothing.js", "/console/assets/js", "/console/assets/%2e%2e/console.html", "/console/assets/..%2fdoc.go"} {
		if r := e.browse(http.MethodGet, path, ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}
