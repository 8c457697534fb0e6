package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

// withRemote is a server and another one, whose ledger it knows over HTTP as us.
func withRemote(t *testing.T) (e *env, other *env) {
	t.Helper()
	other = newEnv(t)
	e = newEnvWith(t, setup{ledgers: map[string]string{"us": other.url + " " + other.service}})
	return e, other
}

// TestCrossTransferToAnotherServer moves money there and back, within the other server, and where it can't go.
func TestCrossTransferToAnotherServer(t *testing.T) {
	t.Parallel()
	e, other := withRemote(t)
	e.account("alice", "EUR", 1000)
	other.account("bob", "EUR", 0)
	other.account("carl", "EUR", 0)
	other.fill("brim")
	for _, c := range []struct {
		fromLedger, from, toLedger, to string
		amount                         int
		status, reason                 string
	}{
		{"local", "alice", "us", "bob", 300, "completed", ""},
		{"us", "bob", "local", "alice", 100, "completed", ""},
		{"us", "bob", "us", "carl", 50, "completed", ""},
		{"local", "alice", "us", "brim", 10, "compensated", "balance_overflow"},
	} {
		r := e.post("/v1/cross-transfers", crossBody(c.fromLedger, c.from, c.toLedger, c.to, c.amount, "saga")).want(http.StatusCreated)
		if r.str("status") != c.status || r.str("reason") != c.reason {
			t.Errorf("%+v: %s", c, r.body)
		}
	}
	e.post("/v1/cross-transfers", crossBody("us", "bob", "local", "alice", 151, "saga")).problem(402, "insufficient_funds")
	e.post("/v1/cross-transfers", crossBody("us", "nobody", "local", "alice", 1, "saga")).problem(404, "not_found")
	e.post("/v1/cross-transfers", crossBody("local", "alice", "us", "bob", 1, "twophase")).problem(422, "two_phase_unavailable")
	e.wantBalance("alice", 800)
	other.wantBalance("bob", 150)
	other.wantBalance("carl", 50)
	for _, ledger := range []*env{e, other} {
		if in := ledger.get("/v1/integrity").want(http.StatusOK); in.decoded["valid"] != true {
			t.Errorf("%s", in.body)
		}
	}
	var n int
	other.sql(&n, `SELECT count(*) FROM entries WHERE account = 'transit/house'`)
	if n != 2 {
		t.Errorf("%d entries of transit/house in the other's books", n)
	}
}

// TestLegs sends legs as another server would, again and again, in the wrong order, and with what it must not say.
func TestLegs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	saga := newUUID()
	var group sync.WaitGroup
	answers := make([]string, 6)
	for i := range answers {
		group.Go(func() {
			// Some with the same key, some with others.
			r := e.keyed(fmt.Sprint("leg-", i%3), "/v1/cross-legs", legBody(saga, "debit", "alice", 30, ""))
			answers[i] = fmt.Sprint(r.status, string(r.body))
		})
	}
	group.Wait()
	if slices.Sort(answers); answers[0] != answers[5] || !strings.HasPrefix(answers[0], "200") {
		t.Errorf("%q", answers)
	}
	e.wantBalance("alice", 70)
	// Too late to be cancelled, and undone once.
	if r := e.post("/v1/cross-legs", legBody(saga, "debit", "alice", 30, `,"cancel":"cancelled"`)).want(200); r.str("outcome") != "done" {
		t.Errorf("%s", r.body)
	}
	for range 2 {
		e.post("/v1/cross-legs", legBody(saga, "debit", "alice", 30, `,"undo":true`)).want(200)
	}
	e.wantBalance("alice", 100)
	// What was not done can't be undone, nor more than was done.
	e.post("/v1/cross-legs", legBody(newUUID(), "debit", "alice", 30, `,"undo":true`)).problem(409, "bad_transition")
	second := newUUID()
	e.post("/v1/cross-legs", legBody(second, "debit", "alice", 30, "")).want(200)
	e.post("/v1/cross-legs", legBody(second, "debit", "alice", 31, `,"undo":true`)).problem(409, "bad_transition")
	// A cancellation, or a refusal, stands.
	third := newUUID()
	for _, rest := range []string{`,"cancel":"deadline_exceeded"`, ""} {
		if r := e.post("/v1/cross-legs", legBody(third, "credit", "alice", 5, rest)).want(200); r.str("outcome") != "refused" || r.str("reason") != "deadline_exceeded" {
			t.Errorf("%s", r.body)
		}
	}
	for account, reason := range map[string]string{"alice": "insufficient_funds", "nobody": "account_not_found"} {
		if r := e.post("/v1/cross-legs", legBody(newUUID(), "debit", account, 1000, "")).want(200); r.str("reason") != reason {
			t.Errorf("%s", r.body)
		}
	}
	e.account("dora", "USD", 100)
	for _, step := range []string{"debit", "credit"} {
		if r := e.post("/v1/cross-legs", legBody(newUUID(), step, "dora", 1, "")).want(200); r.str("reason") != "currency_mismatch" {
			t.Errorf("%s", r.body)
		}
	}
	for _, bad := range []string{
		legBody(newUUID(), "debits", "alice", 1, ""), legBody("00000000-0000-0000-0000-000000000000", "debit", "alice", 1, ""),
		legBody(newUUID(), "debit", "alice", 0, ""), legBody(newUUID(), "debit", "alice", 1, `,"undo":true,"cancel":"x"`),
		legBody(newUUID(), "transfer", "alice", 1, ""), strings.Replace(legBody(newUUID(), "debit", "alice", 1, ""), `"local"`, `"elsewhere"`, 1),
		strings.Replace(legBody(newUUID(), "debit", "alice", 1, ""), `"house"`, `"local"`, 1),
	} {
		e.post("/v1/cross-legs", bad).problem(400, "bad_request")
	}
	e.keyed("leg-0", "/v1/cross-legs", legBody(saga, "debit", "alice", 31, "")).problem(422, "idempotency_key_reused")
	e.by(e.user("alice")).post("/v1/cross-legs", legBody(newUUID(), "credit", "alice", 1, "")).problem(403, "forbidden")
	e.wantBalance("alice", 70)
}

// TestStuckSaga lets a compensation fail more than ten times: it is shown as stuck, with its error, and an operator finishes
// it when the cause is gone.
func TestStuckSaga(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 100)
	other.fill("brim")
	conn := pgtest.Connect(t, e.dbURL)
	// The money can't come back to where it went from.
	_, err := conn.Exec(t.Context(), `ALTER TABLE transfers ADD CONSTRAINT broken CHECK (destination <> 'alice') NOT VALID`)
	must(t, err)
	done := make(chan *reply, 1)
	go func() {
		done <- e.keyed("stuck", "/v1/cross-transfers", crossBody("local", "alice", "eu", "brim", 10, "saga"))
	}()
	var stuck map[string]any
	eventually(t, patience, "a saga that is stuck", func() bool {
		items, _ := e.get("/v1/sagas?stuck=true").want(200).decoded["items"].([]any)
		if len(items) == 1 {
			stuck, _ = items[0].(map[string]any)
		}
		return stuck != nil
	})
	attempts := 0
	if _, err := fmt.Sscan(fmt.Sprint(stuck["attempts"]), &attempts); err != nil || attempts < 10 {
		t.Errorf("%v attempts", stuck["attempts"])
	}
	if text, _ := stuck["last_error"].(string); !strings.Contains(text, "undo.debit") || !strings.Contains(text, "broken") {
		t.Errorf("last error: %v", stuck["last_error"])
	}
	e.wantBalance("alice", 90)
	path, _ := stuck["id"].(string)
	path = "/v1/sagas/" + path
	if r := e.get(path).want(200); r.str("status") != "pending" || r.decoded["stuck"] != true {
		t.Errorf("%s", r.body)
	}
	_, err = conn.Exec(t.Context(), `ALTER TABLE transfers DROP CONSTRAINT broken`)
	must(t, err)
	e.post(path+"/retry", "") // Unless it has got on by itself just now.
	eventually(t, patience, "the compensation", func() bool { return e.get(path).shows("status", "compensated") })
	<-done
	e.wantBalance("alice", 100)
	e.post(path+"/retry", "").problem(409, "bad_transition")
	e.post(path+"/compensate", "").problem(409, "bad_transition")
	var audited int
	e.sql(&audited, `SELECT count(*) FROM audit_log WHERE action = 'saga.retry'`)
	if audited > 1 {
		t.Errorf("%d audited", audited)
	}
}

// TestInDoubtRoute shows a prepared transaction of ours, and none of others.
func TestInDoubtRoute(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 100)
	other.account("bob", "EUR", 0)
	e.post("/v1/cross-transfers", crossBody("local", "alice", "eu", "bob", 1, "twophase")).want(201)
	var coordinator string
	e.sql(&coordinator, `SELECT coordinator FROM sagas LIMIT 1`)
	conn := pgtest.Connect(t, other.dbURL)
	// Its saga is at work on it, says the log: it is shown, and left alone.
	path := e.waitingCross("alice", "alice")
	id := strings.TrimPrefix(path, "/v1/cross-transfers/")
	own := pgtest.Connect(t, e.dbURL)
	_, err := own.Exec(t.Context(), `UPDATE sagas SET protocol = 'twophase', lease_expires_at = now() + interval '1 hour' WHERE id = $1`, id)
	must(t, err)
	gid := coordinator + ":" + id + ":1:0"
	for _, sql := range []string{
		"BEGIN", "SELECT pg_advisory_xact_lock(1)", "PREPARE TRANSACTION '" + gid + "'",
		"BEGIN", "SELECT pg_advisory_xact_lock(2)", "PREPARE TRANSACTION 'another program''s " + id + "'",
	} {
		_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		must(t, err)
	}
	r := e.get("/v1/in-doubt").want(200)
	items := r.items()
	if len(items) != 1 || !strings.Contains(string(r.body), gid) || !strings.Contains(string(r.body), `"running"`) || !strings.Contains(string(r.body), `"ledger":"eu"`) {
		t.Errorf("%s", r.body)
	}
	// Given up, it is rolled back by the resolver.
	_, err = own.Exec(t.Context(), `UPDATE sagas SET lease_expires_at = to_timestamp(0) WHERE id = $1`, id)
	must(t, err)
	eventually(t, patience, "the rollback", func() bool { return len(e.get("/v1/in-doubt").items()) == 0 })
	var left string
	other.sql(&left, `SELECT gid FROM pg_prepared_xacts WHERE database = current_database()`)
	_, err = conn.Exec(t.Context(), "ROLLBACK PREPARED 'another program''s "+id+"'", pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	if !strings.HasPrefix(left, "another program") {
		t.Errorf("left: %s", left)
	}
	_, err = own.Exec(t.Context(), `DELETE FROM sagas WHERE id = $1`, id)
	must(t, err)
	// The log knows nothing of this one: it stays, and why.
	unknown := coordinator + ":" + newUUID() + ":1:0"
	for _, sql := range []string{"BEGIN", "SELECT pg_advisory_xact_lock(1)", "PREPARE TRANSACTION '" + unknown + "'"} {
		_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		must(t, err)
	}
	if r := e.get("/v1/in-doubt").want(200); len(r.items()) != 1 || !strings.Contains(string(r.body), `"in_doubt"`) || !strings.Contains(string(r.body), `"too_young"`) {
		t.Errorf("%s", r.body)
	}
	_, err = conn.Exec(t.Context(), "ROLLBACK PREPARED '"+unknown+"'", pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	e.post("/v1/in-doubt/adopt", "").want(200).equal(`{"coordinator":"` + coordinator + `","ledgers":[]}`)
	e.by(e.user("alice")).post("/v1/in-doubt/adopt", "").problem(403, "forbidden")
	e.get("/v1/sagas?stuck=perhaps").problem(400, "bad_request")
	e.get("/v1/sagas?status=lost").problem(400, "bad_request")
	e.get("/v1/sagas/"+newUUID()).problem(404, "not_found")
	e.by(e.user("alice")).get("/v1/in-doubt").problem(403, "forbidden")
	e.by(e.user("alice")).get("/v1/sagas").problem(403, "forbidden")
}
