package server

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
)

// makeKey registers a key and returns its id and its secret.
func (e *env) makeKey(role auth.Role, name string) (id, secret string) {
	e.t.Helper()
	secret, hash, err := auth.GenerateKey(role)
	must(e.t, err)
	made := e.by(e.admin).post("/v1/keys", fmt.Sprintf(`{"role":%q,"name":%q,"hash":%q}`, role, name, hex.EncodeToString(hash[:]))).want(http.StatusCreated)
	made.exactly(made.decoded, "id", "role", "name", "created_at", "revoked_at").equal(fmt.Sprintf(`{"role":%q,"name":%q,"revoked_at":null}`, role, name)).uuids("id").times("created_at")
	return made.str("id"), secret
}

func (e *env) revoke(id string) *reply {
	e.t.Helper()
	return e.by(e.admin).send(send{method: http.MethodDelete, path: "/v1/keys/" + id, key: newUUID()})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	id, secret := e.makeKey(auth.RoleService, "Läden 🎟")
	e.by(secret).get("/v1/campaigns").want(http.StatusOK)
	e.by(secret).get("/v1/keys").problem(http.StatusForbidden, "forbidden")
	_, admin := e.makeKey(auth.RoleAdmin, "second")
	list := e.by(admin).get("/v1/keys").want(http.StatusOK)
	if len(list.items()) != 4 || list.at("next") != nil {
		t.Fatalf("keys: %s", list.body)
	}
	for _, item := range list.items() {
		list.exactly(item, "id", "role", "name", "created_at", "revoked_at")
	}
	hash := auth.HashKey(secret)
	for _, hidden := range []string{secret, hex.EncodeToString(hash[:])} {
		if strings.Contains(string(list.body), hidden) {
			t.Errorf("the list shows a secret: %s", list.body)
		}
	}
	again := fmt.Sprintf(`{"role":"admin","name":"n","hash":%q}`, hex.EncodeToString(hash[:]))
	e.post("/v1/keys", again).problem(http.StatusConflict, "key_exists")

	gone := e.revoke(id).want(http.StatusOK).times("revoked_at").equal(fmt.Sprintf(`{"id":%q}`, id))
	if twice := e.revoke(id).want(http.StatusOK); twice.str("revoked_at") != gone.str("revoked_at") {
		t.Error("revoking twice moves the time")
	}
	e.post("/v1/keys", again).problem(http.StatusConflict, "key_exists") // A revoked key stays revoked.
	e.revoke(newUUID()).problem(http.StatusNotFound, "not_found")
	for i, item := range e.get("/v1/keys").items() {
		_ = item
		if list := e.get("/v1/keys"); list.str(fmt.Sprintf("items.%d.id", i)) == id {
			list.times(fmt.Sprintf("items.%d.revoked_at", i))
		}
	}
}

func TestRevokedKeyIsRefusedWithin5Seconds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	made := 0
	testpromise.Check(t, "key-revoked", func() time.Duration {
		made++
		id, secret := e.makeKey(auth.RoleService, fmt.Sprint("short-lived-", made))
		used := func() bool { return e.by(secret).get("/v1/campaigns").status == http.StatusOK }
		if !used() {
			t.Fatal("the key does not work")
		}
		e.revoke(id).want(http.StatusOK)
		began := time.Now()
		// It is used without a pause meanwhile, so that nothing it left in a cache is forgotten for want of use.
		eventually(t, patience, "the revoked key is refused", func() bool { return !used() })
		took := time.Since(began)
		for range 20 {
			e.by(secret).get("/v1/campaigns").problem(http.StatusUnauthorized, "unauthorized")
		}
		return took
	})
}

func TestLastAdminStays(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.revoke(e.adminID).problem(http.StatusConflict, "last_admin")
	second, _ := e.makeKey(auth.RoleAdmin, "second")
	e.revoke(second).want(http.StatusOK)
	e.revoke(e.adminID).problem(http.StatusConflict, "last_admin")
	e.get("/v1/keys").want(http.StatusOK)
	// A service key is no admin to be left.
	e.makeKey(auth.RoleService, "other")
	e.revoke(e.adminID).problem(http.StatusConflict, "last_admin")
}

// TestAuditLog writes down what was done, by whom and in which request; what was refused was not done.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	rows := func(action, object string) int {
		return e.count("audit_log WHERE action = $1 AND object = $2", action, object)
	}
	id, _ := e.makeKey(auth.RoleService, "k")
	key := newUUID()
	for range 3 {
		e.send(send{method: http.MethodDelete, path: "/v1/keys/" + id, key: key}).want(http.StatusOK)
	}
	campaign := e.campaign(`"base_length":2`, "")
	e.send(send{method: http.MethodPost, path: "/v1/campaigns/" + campaign + "/publish", key: "p", header: http.Header{"X-Request-Id": {"request-7"}}}).want(http.StatusOK)
	e.campaignPost(campaign, "publish", ``).problem(http.StatusConflict, "bad_transition")
	e.campaignPost(campaign, "cancel", ``).want(http.StatusOK)
	for action, object := range map[string]string{"key.create": id, "key.revoke": id, "campaign.create": campaign, "campaign.publish": campaign, "campaign.cancel": campaign} {
		if n := rows(action, object); n != 1 {
			t.Errorf("%d rows of %s, want 1", n, action)
		}
	}
	if n := e.count("audit_log WHERE action = 'campaign.publish' AND principal = 'key:' || $1 AND request_id = 'request-7'", e.adminID); n != 1 {
		t.Error("the row does not say who published in which request")
	}

	before := e.count("audit_log")
	e.revoke(e.adminID).problem(http.StatusConflict, "last_admin")
	e.post("/v1/keys", `{"role":"admin","name":"n","hash":"`+strings.Repeat("00", 32)+`"}`).want(http.StatusCreated)
	e.post("/v1/keys", `{"role":"admin","name":"n","hash":"`+strings.Repeat("00", 32)+`"}`).problem(http.StatusConflict, "key_exists")
	e.revoke(newUUID()).problem(http.StatusNotFound, "not_found")
	if n := e.count("audit_log") - before; n != 1 {
		t.Errorf("%d rows for one key made and three refusals", n)
	}
}
