package server

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

// twoLedgers is a server with its own ledger and one more, called eu.
func twoLedgers(t *testing.T) (e *env, other *env) {
	t.Helper()
	other = newEnv(t)
	e = newEnvWith(t, setup{ledgers: map[string]string{"eu": other.dbURL}})
	return e, other
}

func crossBody(fromLedger, from, toLedger, to string, amount int, mode string) string {
	return fmt.Sprintf(`{"from":{"ledger":%q,"account":%q},"to":{"ledger":%q,"account":%q},"amount":%d,"mode":%q}`, fromLedger, from, toLedger, to, amount, mode)
}

// modes are those of transfers between ledgers. Nothing is prepared where the run has no advisory locks.
func modes() []string {
	if pgtest.Off(pgkit.Prepare, pgkit.AdvisoryLocks) {
		return []string{"saga"}
	}
	return []string{"saga", "twophase"}
}

func TestCrossTransfer(t *testing.T) {
	t.Parallel()
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e, other := twoLedgers(t)
			e.account("alice", "EUR", 1000)
			other.account("bob", "EUR", 0)
			r := e.post("/v1/cross-transfers", crossBody("local", "alice", "eu", "bob", 300, mode)).want(http.StatusCreated)
			if r.str("status") != "completed" || r.str("mode") != mode {
				t.Errorf("%s", r.body)
			}
			again := e.get("/v1/cross-transfers/" + r.str("id")).want(http.StatusOK)
			if string(again.body) != string(r.body) {
				t.Errorf("read: %s, answered: %s", again.body, r.body)
			}
			back := e.post("/v1/cross-transfers", crossBody("eu", "bob", "local", "alice", 100, mode)).want(http.StatusCreated)
			if back.str("status") != "completed" {
				t.Errorf("%s", back.body)
			}
			e.wantBalance("alice", 800)
			other.wantBalance("bob", 200)
			for _, ledger := range []*env{e, other} {
				in := ledger.get("/v1/integrity").want(http.StatusOK)
				if in.decoded["valid"] != true {
					t.Errorf("%s", in.body)
				}
			}
			noneInDoubt(t, e)
		})
	}
}

func (e *env) wantBalance(account string, available int64) {
	e.t.Helper()
	var got, held int64
	e.sql(&got, `SELECT available FROM accounts WHERE id = $1`, account)
	e.sql(&held, `SELECT held FROM accounts WHERE id = $1`, account)
	if got != available || held != 0 {
		e.t.Errorf("%s has %d and %d held, not %d", account, got, held, available)
	}
}

func noneInDoubt(t *testing.T, e *env) {
	t.Helper()
	var coordinator string
	e.sql(&coordinator, `SELECT coordinator FROM sagas LIMIT 1`)
	var n int
	e.sql(&n, `SELECT count(*) FROM pg_prepared_xacts WHERE starts_with(gid, $1)`, coordinator)
	if n != 0 {
		t.Errorf("%d prepared transactions are left", n)
	}
}

func TestCrossTransferWithinOneLedger(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 0)
	other.account("alice", "EUR", 1000)
	other.account("bob", "EUR", 0)
	for _, ledger := range []string{"local", "eu"} {
		for _, mode := range []string{"saga", "twophase"} {
			r := e.post("/v1/cross-transfers", crossBody(ledger, "alice", ledger, "bob", 10, mode)).want(http.StatusCreated)
			if r.str("status") != "completed" {
				t.Errorf("%s", r.body)
			}
			if read := e.get("/v1/cross-transfers/" + r.str("id")).want(http.StatusOK); string(read.body) != string(r.body) {
				t.Errorf("read: %s, answered: %s", read.body, r.body)
			}
		}
	}
	e.wantBalance("bob", 20)
	other.wantBalance("bob", 20)
}

func TestCrossTransferRefusals(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 100)
	other.account("bob", "EUR", 100)
	other.account("dan", "USD", 0)
	other.account("alice", "EUR", 0)
	for _, mode := range modes() {
		for _, c := range []struct {
			body, code string
			status     int
		}{
			{crossBody("local", "alice", "mars", "bob", 1, mode), "not_found", 404},
			{crossBody("mars", "alice", "local", "bob", 1, mode), "not_found", 404},
			{crossBody("local", "alice", "eu", "nobody", 1, mode), "not_found", 404},
			{crossBody("eu", "nobody", "local", "alice", 1, mode), "not_found", 404},
			{crossBody("local", "alice", "eu", "dan", 1, mode), "currency_mismatch", 422},
			{crossBody("local", "alice", "local", "alice", 1, mode), "same_account", 422},
			{crossBody("eu", "bob", "eu", "bob", 1, mode), "same_account", 422},
			{crossBody("local", "alice", "eu", "bob", 0, mode), "bad_request", 400},
			{crossBody("local", "alice", "eu", "bob", 1, mode+"x"), "bad_request", 400},
			{crossBody("local", "transit/eu", "eu", "bob", 1, mode), "bad_request", 400},
			{crossBody("local", "alice", "", "bob", 1, mode), "bad_request", 400},
			{`{"from":{"ledger":"local"},"to":{"ledger":"eu","account":"bob"},"amount":1,"mode":"saga"}`, "bad_request", 400},
		} {
			e.post("/v1/cross-transfers", c.body).problem(c.status, c.code)
		}
		short := e.keyed("short-"+mode, "/v1/cross-transfers", crossBody("local", "alice", "eu", "bob", 101, mode)).problem(402, "insufficient_funds")
		intent := e.get("/v1/cross-transfers/" + short.str("transfer")).want(http.StatusOK)
		if intent.str("status") != "failed" || intent.str("reason") != "insufficient_funds" {
			t.Errorf("%s", intent.body)
		}
		again := e.keyed("short-"+mode, "/v1/cross-transfers", crossBody("local", "alice", "eu", "bob", 101, mode))
		if string(again.body) != string(short.body) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repeat: %d %s, at first %s", again.status, again.body, short.body)
		}
		e.post("/v1/cross-transfers", crossBody("eu", "bob", "local", "alice", 101, mode)).problem(402, "insufficient_funds")
	}
	// The same name in another ledger is another account.
	e.post("/v1/cross-transfers", crossBody("local", "alice", "eu", "alice", 1, "saga")).want(201)
	e.wantBalance("alice", 99)
	other.wantBalance("bob", 100)
	other.wantBalance("alice", 1)
	noneInDoubt(t, e)
}

// full is a balance that leaves no room for a transfer.
const full = 9_223_372_036_854_775_807

// fill brings an account to the largest balance there is.
func (e *env) fill(account string) {
	e.t.Helper()
	e.account(account, "EUR", 0)
	conn := e.connect()
	defer func() { _ = conn.Close(e.t.Context()) }()
	for _, sql := range []string{
		`UPDATE accounts SET available = 9223372036854775807, version = version + 1 WHERE id = $1`,
		`INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
			VALUES (md5($1)::uuid, 'deposit', 'outside/EUR', $1, 9223372036854775807, 'EUR', 'completed', now())`,
		`INSERT INTO entries (account, id, version, transfer, amount, currency, at)
			SELECT a, gen_random_uuid(), v, md5($1)::uuid, n, 'EUR', now()
			FROM (VALUES ($1, 2, 9223372036854775807), ('outside/EUR', 0, -9223372036854775807)) AS e (a, v, n)`,
	} {
		_, err := conn.Exec(e.t.Context(), sql, account)
		must(e.t, err)
	}
}

func TestCrossTransferThatCannotBeCredited(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 100)
	other.fill("brim")
	ends := map[string]string{"saga": "compensated", "twophase": "failed"}
	for _, mode := range modes() {
		status := ends[mode]
		r := e.post("/v1/cross-transfers", crossBody("local", "alice", "eu", "brim", 10, mode)).want(http.StatusCreated)
		if r.str("status") != status || r.str("reason") != "balance_overflow" {
			t.Errorf("%s", r.body)
		}
		e.wantBalance("alice", 100)
		other.wantBalance("brim", full)
	}
	noneInDoubt(t, e)
}

func TestCrossTransferByUsers(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 100)
	other.account("alice", "EUR", 100)
	other.account("bob", "EUR", 0)
	u := e.by(e.user("alice"))
	made := u.post("/v1/cross-transfers", crossBody("local", "alice", "eu", "bob", 10, "saga")).want(http.StatusCreated)
	u.post("/v1/cross-transfers", crossBody("eu", "alice", "local", "alice", 10, "saga")).problem(403, "forbidden")
	u.post("/v1/cross-transfers", crossBody("eu", "bob", "local", "alice", 10, "saga")).problem(403, "forbidden")
	u.post("/v1/cross-transfers", crossBody("local", "bob", "eu", "bob", 10, "saga")).problem(403, "forbidden")
	u.get("/v1/cross-transfers/" + made.str("id")).want(200).equal(`{"status":"completed"}`)
	// The other side is an account of another ledger: a local account of the same name is no party.
	e.by(e.user("bob")).get("/v1/cross-transfers/"+made.str("id")).problem(404, "not_found")
	u.get("/v1/cross-transfers").problem(403, "forbidden")
	u.post("/v1/cross-transfers/"+made.str("id")+"/compensate", "").problem(403, "forbidden")
	e.post("/v1/cross-transfers/"+made.str("id")+"/compensate", "").problem(409, "bad_transition")
	e.post("/v1/cross-transfers/"+made.str("id")+"/retry", "").problem(409, "bad_transition")
	e.post("/v1/cross-transfers/"+newUUID()+"/retry", "").problem(404, "not_found")
	if items := e.get("/v1/cross-transfers?stuck=true").want(200).items(); len(items) != 0 {
		t.Errorf("stuck: %v", items)
	}
	if items := e.get("/v1/cross-transfers").want(200).items(); len(items) != 1 {
		t.Errorf("all: %v", items)
	}
}

// TestCrossTransferRepeats sends each of many transfers several times at once: one effect each, one answer each.
func TestCrossTransferRepeats(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 10_000)
	other.account("bob", "EUR", 10_000)
	const transfers, repeats = 24, 3
	answers := make([][repeats]string, transfers)
	var group sync.WaitGroup
	for i := range transfers {
		mode := modes()[i/2%len(modes())]
		body := crossBody("local", "alice", "eu", "bob", 1, mode)
		if i%2 == 1 {
			body = crossBody("eu", "bob", "local", "alice", 2, mode)
		}
		for n := range repeats {
			group.Go(func() {
				r := e.keyed(fmt.Sprint("repeat-", i), "/v1/cross-transfers", body)
				answers[i][n] = fmt.Sprint(r.status, " ", string(r.body))
			})
		}
	}
	group.Wait()
	for i, a := range answers {
		if a[0] != a[1] || a[1] != a[2] || a[0][:3] != "201" {
			t.Errorf("transfer %d: %q", i, a)
		}
	}
	e.wantBalance("alice", 10_000-transfers/2+transfers)
	other.wantBalance("bob", 10_000+transfers/2-transfers)
	if n := e.count(`sagas WHERE status = 'completed'`); n != transfers {
		t.Errorf("%d transfers, not %d", n, transfers)
	}
	noneInDoubt(t, e)
	e.keyed("repeat-0", "/v1/cross-transfers", crossBody("local", "alice", "eu", "bob", 5, "saga")).problem(422, "idempotency_key_reused")
}

// TestStuckCrossTransfer takes the other ledger away from a transfer in mid-way; it goes on when the ledger is back, or is
// given up by an operator.
func TestStuckCrossTransfer(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	e.account("alice", "EUR", 100)
	other.account("bob", "EUR", 0)
	conn := pgtest.Connect(t, other.dbURL)
	// Renamed, the table is a database that refuses each leg with an error that is no decision.
	_, err := conn.Exec(t.Context(), `ALTER TABLE saga_legs RENAME TO gone`)
	must(t, err)
	done := make(chan *reply, 1)
	go func() {
		done <- e.keyed("stuck", "/v1/cross-transfers", crossBody("local", "alice", "eu", "bob", 10, "saga"))
	}()
	var id string
	eventually(t, patience, "a transfer that is stuck", func() bool {
		items, _ := e.get("/v1/cross-transfers?stuck=true").want(200).decoded["items"].([]any)
		if len(items) == 1 {
			id, _ = items[0].(map[string]any)["id"].(string)
		}
		return id != "" || len(done) > 0
	})
	e.wantBalance("alice", 90)
	e.post("/v1/cross-transfers/"+id+"/compensate", "").want(200)
	_, err = conn.Exec(t.Context(), `ALTER TABLE gone RENAME TO saga_legs`)
	must(t, err)
	e.post("/v1/cross-transfers/"+id+"/retry", "")
	r := <-done
	if r.status != 201 || r.str("id") != id || r.str("status") != "compensated" && r.str("status") != "pending" {
		t.Errorf("%d %s", r.status, r.body)
	}
	eventually(t, patience, "the compensation", func() bool { return e.get("/v1/cross-transfers/"+id).shows("status", "compensated") })
	e.wantBalance("alice", 100)
	other.wantBalance("bob", 0)
}
