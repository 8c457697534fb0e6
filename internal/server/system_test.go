package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestProbes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		r := e.by("").get(path).want(http.StatusOK)
		r.exactly(r.decoded, "status", "version").equal(`{"status":"ok","version":"test"}`)
	}
	o := Options{
		Ledger: e.ledger, Lottery: e.lottery, Auction: e.auction, Publish: e.publish, Cross: e.server.Cross, Locks: e.locks, Keys: e.keys, Auth: e.server.Auth,
		Operator: e.server.Operator, Version: "v",
		Ready: func(context.Context) error { return errors.New("secret-inside") },
	}
	s, err := New(o)
	must(t, err)
	for path, status := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != status || strings.Contains(w.Body.String(), "secret-inside") {
			t.Errorf("%s without a database: %d %s", path, w.Code, w.Body)
		}
		if path == "/readyz" && w.Body.String() != `{"status":"unavailable","reason":"database_unreachable","version":"v"}` {
			t.Errorf("readiness without a database: %s", w.Body)
		}
	}
}

// metric reads one sample, by name and labels as they are written.
func (e *env) metric(name string) float64 {
	e.t.Helper()
	text := string(e.by("").get("/metrics").want(http.StatusOK).body)
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		e.t.Fatalf("no metric %s in\n%s", name, text)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	must(e.t, err)
	return value
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	text := string(e.by("").get("/metrics").want(http.StatusOK).body)
	for name, kind := range map[string]string{
		"draw_triggered_total": "counter", "draw_duration_seconds": "histogram", "draw_success_total": "counter", "draw_failure_total": "counter", "draw_retries_total": "counter",
		"advisory_lock_wait_seconds": "histogram", "state_machine_conflicts_total": "counter", "oversold_campaigns": "gauge", "draws_stuck": "gauge", "commands_total": "counter",
	} {
		for _, line := range []string{"# TYPE fairlead_lottery_" + name + " " + kind + "\n", "# HELP fairlead_lottery_" + name + " "} {
			if !strings.Contains(text, line) {
				t.Errorf("no %q before anything happened", line)
			}
		}
	}
	e.account("alice", "EUR", 1000)
	id := e.onSale(`"base_length":2`, "")
	for range 3 {
		e.buy(id, "alice").want(http.StatusCreated)
	}
	e.campaignPost(id, "publish", ``).problem(http.StatusConflict, "bad_transition")
	e.campaignPost(id, "cancel", ``).problem(http.StatusConflict, "bad_transition")
	testwait.Must(t, testwait.Err(e.lottery.Sweep(t.Context())))
	for name, want := range map[string]float64{
		"draw_triggered_total": 1, "draw_success_total": 1, `draw_failure_total{error_type="other"}`: 0, "draw_retries_total": 0, "draw_duration_seconds_count": 1,
		"state_machine_conflicts_total": 2, "oversold_campaigns": 0, "draws_stuck": 0, "commands_total": 6,
	} {
		if got := e.metric("fairlead_lottery_" + name); got != want {
			t.Errorf("fairlead_lottery_%s is %v, want %v", name, got, want)
		}
	}
	// As docs/operations/metrics.md has it.
	gauge := regexp.MustCompile(`_(overdue|lag)_seconds$|^fairlead_books_late_seconds$`)
	for _, m := range regexp.MustCompile(`(?m)^# HELP (fairlead_\w+_(?:seconds|size|bytes)) (.*)\n# TYPE \S+ (\w+)$`).FindAllStringSubmatch(text, -1) {
		if want := gauge.MatchString(m[1]) || strings.Contains(m[2], "at the last sample"); want != (m[3] == "gauge") {
			t.Errorf("%s is a %s", m[1], m[3])
		}
	}
	// The first two purchases need no lock, unless the machine stalls.
	if got := e.metric("fairlead_lottery_advisory_lock_wait_seconds_count"); got < 4 || got > 6 {
		t.Errorf("%v commands waited for the lock, want 4 to 6", got)
	}
	// A label has one value a route, not one an id, and a client cannot make up values.
	e.get("/v1/campaigns/" + id).want(http.StatusOK)
	e.get("/v1/made-up-"+id).problem(http.StatusNotFound, "not_found")
	e.raw("MADEUP", "/v1/campaigns/"+id).problem(http.StatusMethodNotAllowed, "method_not_allowed")
	text = string(e.by("").get("/metrics").body)
	if strings.Contains(text, id) || strings.Contains(text, "made-up") || strings.Contains(text, "MADEUP") {
		t.Error("a client's words are in the metrics")
	}
	if got := e.metric(`fairlead_http_requests_total{method="GET",route="/v1/campaigns/{id}",status="200"}`); got != 1 {
		t.Errorf("%v requests were counted", got)
	}
	e.metric(`fairlead_http_requests_total{method="GET",route="unmatched",status="404"}`)
	e.metric(`fairlead_http_requests_total{method="other",route="/v1/campaigns/{id}",status="405"}`)
}

// TestOversellGauge takes the database's own defence away, which no code of the server could, and oversells by hand.
func TestOversellGauge(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.onSale(`"base_length":2`, "")
	conn := e.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	oversell := `UPDATE campaigns SET sold_positions = total_positions + 1`
	if _, err := conn.Exec(t.Context(), oversell); err == nil {
		t.Fatal("the database lets a campaign be oversold")
	}
	var constraints []string
	e.sql(&constraints, `SELECT array_agg(conname::text) FROM pg_constraint WHERE conrelid = 'campaigns'::regclass AND contype = 'c'
		AND pg_get_constraintdef(oid) LIKE '%sold_positions <= total_positions%'`)
	for _, name := range constraints {
		_, err := conn.Exec(t.Context(), `ALTER TABLE campaigns DROP CONSTRAINT `+pgx.Identifier{name}.Sanitize())
		must(t, err)
	}
	_, err := conn.Exec(t.Context(), oversell)
	must(t, err)
	_, err = e.lottery.Sweep(t.Context())
	must(t, err)
	if got := e.metric("fairlead_lottery_oversold_campaigns"); got != 1 {
		t.Errorf("the gauge says %v", got)
	}
}

var (
	assetPattern   = regexp.MustCompile(`(?i)(?:src|href|action|poster|data|srcset)\s*=\s*["']?([^"'\s>]+)`)
	outsidePattern = regexp.MustCompile(`(?i)^(?:[a-z]+:)?//`)
)

// TestDocs reads the page of documentation as a browser would.
func TestDocs(t *testing.T) {
	t.Parallel()
	e := newEnv(t).by("")
	page := e.get("/docs").want(http.StatusOK)
	if !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") {
		t.Errorf("content type %q", page.header.Get("Content-Type"))
	}
	html := string(page.body)
	if !strings.Contains(html, "/openapi.json") {
		t.Errorf("the page does not name the document: %s", html)
	}
	assets := 0
	for _, found := range assetPattern.FindAllStringSubmatch(html, -1) {
		address := found[1]
		if outsidePattern.MatchString(address) {
			t.Errorf("the page loads %s", address)
			continue
		}
		if strings.HasPrefix(address, "data:") || strings.HasPrefix(address, "#") {
			continue
		}
		if !strings.HasPrefix(address, "/docs/") {
			t.Errorf("the page loads %s, which is not under /docs/", address)
		}
		if r := e.get(address).want(http.StatusOK); len(r.body) == 0 {
			t.Errorf("%s is empty", address)
		}
		assets++
	}
	if assets < 2 {
		t.Errorf("%d assets in %s", assets, html)
	}
	// The page asks nobody else to check the document.
	if regexp.MustCompile(`(?i)validatorUrl\s*:\s*["']https?:`).MatchString(html) || regexp.MustCompile(`(?i)@import|url\(\s*["']?https?:`).MatchString(html) {
		t.Error("the page asks somebody else")
	}
	e.get("/docs/nothing-there.js").problem(http.StatusNotFound, "not_found")
	for _, path := range []string{"/docs", "/docs/", "/docs/docs.js", "/docs/swagger-ui-bundle.js"} {
		policy := e.get(path).want(http.StatusOK).header.Get("Content-Security-Policy")
		scripts := regexp.MustCompile(`script-src [^;]*`).FindString(policy)
		if !strings.HasPrefix(policy, "default-src 'none'") || scripts != "script-src 'self'" || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s has the policy %q", path, policy)
		}
	}
	if regexp.MustCompile(`(?i)<script>|<script [^>]*>[^<]|<style|\son[a-z]+=`).MatchString(html) {
		t.Errorf("the page has a script of its own, which its policy forbids: %s", html)
	}
}

// TestDocsAreReadyToBeSent asks for the largest asset many times, by clients that take gzip and by others.
//
//nolint:paralleltest // It measures the whole process.
func TestDocsAreReadyToBeSent(t *testing.T) {
	asset := func(encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/docs/swagger-ui-bundle.js", http.NoBody)
		r.SetPathValue("asset", "swagger-ui-bundle.js")
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		must(t, getDocs(w, r))
		return w
	}
	plain, packed := asset("identity"), asset("gzip")
	if plain.Header().Get("Content-Encoding") != "" || packed.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Length") == packed.Header().Get("Content-Length") {
		t.Errorf("%v and %v", plain.Header(), packed.Header())
	}
	const most = 16 << 10
	for _, encoding := range []string{"identity", "gzip"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 100
		for range times {
			asset(encoding)
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > most {
			t.Errorf("%s: %d bytes are allocated for a request", encoding, each)
		}
	}
}
