package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/operator"
)

// TestSignInsAreAudited signs in by key and by link, and in vain in every way, and looks for what the audit log says.
func TestSignInsAreAudited(t *testing.T) {
	t.Parallel()
	e, sessions := newConsoleEnv(t)
	link, hash := operator.NewSecret()
	_, err := sessions.MakeLink(t.Context(), hash, operator.LinkLife, false)
	must(t, err)
	key := "key:" + e.adminID
	want := map[string]string{} // by request
	for _, try := range []struct {
		body, action, principal string
		status                  int
	}{
		{`{"key":"` + e.admin + `"}`, "session.begin", key, http.StatusOK},
		{`{"link":"` + link + `"}`, "session.begin", key, http.StatusOK},
		{`{"link":"` + link + `"}`, "session.refused", "unknown", http.StatusGone},
		{`{"link":"nonsense"}`, "session.refused", "unknown", http.StatusGone},
		{`{"key":"nonsense"}`, "session.refused", "unknown", http.StatusUnauthorized},
		{`{"key":"` + e.service + `"}`, "session.refused", "unknown", http.StatusForbidden},
		{`{"key":"` + e.user("alice") + `"}`, "session.refused", "unknown", http.StatusForbidden},
		{`{}`, "", "", http.StatusBadRequest},
	} {
		r := e.browse(http.MethodPost, sessionPath, try.body)
		if r.StatusCode != try.status {
			t.Errorf("%s: %d", try.body, r.StatusCode)
		}
		if try.action != "" {
			want[r.Header.Get("X-Request-Id")] = try.action + " by " + try.principal + " from address:127.0.0.1"
		}
	}
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), `SELECT request_id, action, principal, object FROM audit_log WHERE action LIKE 'session.%'`)
	must(t, err)
	var request, action, principal, object string
	found := 0
	_, err = pgx.ForEachRow(rows, []any{&request, &action, &principal, &object}, func() error {
		found++
		if got := action + " by " + principal + " from " + object; want[request] != got {
			t.Errorf("the log says %q, want %q", got, want[request])
		}
		return nil
	})
	must(t, err)
	if found != len(want) {
		t.Errorf("%d rows, want %d", found, len(want))
	}
}

// TestSignInsAreLimited tries keys until the address has used its rate up: nothing more is written down then. A right key signs in all the same.
func TestSignInsAreLimited(t *testing.T) {
	t.Parallel()
	e, _ := newConsoleEnv(t)
	limited := 0
	for range 2 * signInQuota {
		switch r := e.browse(http.MethodPost, sessionPath, `{"key":"`+newUUID()+`"}`); r.StatusCode {
		case http.StatusUnauthorized:
		case http.StatusTooManyRequests:
			limited++
			if r.Header.Get("Retry-After") == "" || !strings.Contains(r.Header.Get("RateLimit"), "sign-in") {
				t.Errorf("limited without a word about when: %v", r.Header)
			}
		default:
			t.Errorf("%d", r.StatusCode)
		}
	}
	if limited == 0 {
		t.Errorf("%d keys were tried from one address", 2*signInQuota)
	}
	if rows := e.count("audit_log WHERE action = 'session.refused'"); rows != 2*signInQuota-limited {
		t.Errorf("%d rows of %d refusals", rows, 2*signInQuota-limited)
	}
	if r := e.browse(http.MethodPost, sessionPath, `{"key":"`+e.admin+`"}`); r.StatusCode != http.StatusOK {
		t.Errorf("the right key: %d", r.StatusCode)
	}
	// Another server's visitors, and this one's requests with a key, are not concerned.
	e.get("/v1/keys").want(http.StatusOK)
}

func TestAddressOf(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:80": "address:192.0.2.1", "[::ffff:192.0.2.1]:80": "address:192.0.2.1", "[2001:db8:1:2:3:4:5:6]:80": "address:2001:db8:1:2::/64",
		"[2001:db8:1:2::9]:81": "address:2001:db8:1:2::/64", "[fe80::1%eth0]:80": "address:fe80::/64", "@": "address:@",
	} {
		if got := addressOf(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
