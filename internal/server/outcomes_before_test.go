package server

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// TestRefusalsBeforeTheKeyIsRead repeats a request that was applied, in ways in which it is refused before its key is read:
// none of the answers may say that it was not applied.
func TestRefusalsBeforeTheKeyIsRead(t *testing.T) {
	t.Parallel()
	e := newEnvWith(t, setup{limiter: &auth.LimiterOptions{Quota: 3, Window: time.Hour}})
	e.account("alice", "EUR", 100)
	e.account("bob", "EUR", 0)
	const path, body = "/v1/transfers", `{"from":"alice","to":"bob","amount":1}`
	unknown := func(r *reply, status int, code string) {
		t.Helper()
		r.problem(status, code).equal(`{"outcome":"unknown"}`)
	}

	// A user whose token has expired, and one whose rate is used up.
	short := token(t, jwt.MapClaims{"sub": "alice", "exp": time.Now().Add(-time.Hour).Unix()}, jwtSecret)
	user := e.by(e.user("alice"))
	user.keyed("k", path, body).want(http.StatusCreated)
	unknown(e.by(short).keyed("k", path, body), http.StatusUnauthorized, "unauthorized")
	eventuallyLimited := func() (r *reply) {
		eventually(t, patience, "the rate is used up", func() bool {
			r = user.keyed("k", path, body)
			return r.status == http.StatusTooManyRequests
		})
		return r
	}
	unknown(eventuallyLimited(), http.StatusTooManyRequests, "rate_limited")
	// What is known without the key keeps its word: no request of this content can have been applied.
	other := e.by(e.user("bob"))
	other.keyed("k", path, body).problem(http.StatusForbidden, "forbidden").equal(`{"outcome":"not_applied"}`)
	e.keyed("k", path, `{"from":"alice"`).problem(http.StatusBadRequest, "bad_request").equal(`{"outcome":"not_applied"}`)
	e.keyed("k", "/v1/nowhere", body).problem(http.StatusNotFound, "not_found").equal(`{"outcome":"not_applied"}`)
	// There is no key, so nothing was ever sent under it.
	e.by("").send(send{method: http.MethodPost, path: path, body: body}).problem(http.StatusUnauthorized, "unauthorized").equal(`{"outcome":"not_applied"}`)
	e.by("").get("/v1/accounts/alice").problem(http.StatusUnauthorized, "unauthorized").equal(`{"outcome":"not_applied"}`)

	// A key that was revoked, and a service that has closed.
	id, secret := e.makeKey(auth.RoleService, "once")
	service := e.by(secret)
	service.keyed("k", path, body).want(http.StatusCreated)
	e.revoke(id).want(http.StatusOK)
	eventually(t, patience, "the key is revoked", func() bool { return service.get("/v1/accounts/alice").status == http.StatusUnauthorized })
	unknown(service.keyed("k", path, body), http.StatusUnauthorized, "unauthorized")
	e.keyed("k", path, body).want(http.StatusCreated)
	must(t, e.ledger.Close(t.Context()))
	unknown(e.keyed("k", path, body), http.StatusServiceUnavailable, "shutting_down")
	e.balance("alice", 97, 0)
}

// TestAServiceThatHasReadTheKeySaysSo is for commands that are given up after their key was read.
func TestAServiceThatHasReadTheKeySaysSo(t *testing.T) {
	t.Parallel()
	reason := command.Unavailable(errors.New("a row is locked"))
	for _, c := range []struct {
		err     error
		outcome string
	}{{reason, outcomeUnknown}, {command.NotApplied(reason), notApplied}, {command.UnknownOutcome(reason), outcomeUnknown}} {
		p := problemOf(c.err, "id")
		p.beforeKey(c.err)
		if p.Outcome != c.outcome || p.Status != http.StatusServiceUnavailable {
			t.Errorf("%v: %+v", c.err, p)
		}
	}
}
