package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/saga"
)

// lockedRow is a row that a session of the database keeps locked, and a command that needs it.
type lockedRow struct {
	lock string // locks the row of $1 in the database
	id   string // $1
	send send   // needs the row; its key is ignored
	// before, where it is set, is answered before the row is locked; its repeat is answered while the row is locked.
	before send
	// other is the same command on another object.
	other send
	// after are the statuses that the command may have once the row is free.
	after []int
}

// lockedRows makes the objects of a case in a server, which has nothing else.
var lockedRows = map[string]func(*env) lockedRow{
	"renew, grant locked": func(e *env) lockedRow {
		id, other := e.locked("a"), e.locked("b")
		renew := func(id string) send { return send{method: http.MethodPost, path: "/v1/locks/" + id + "/renew"} }
		return lockedRow{
			lock: `SELECT FROM lock_grants WHERE id = $1 FOR UPDATE`, id: id,
			send: renew(id), before: renew(id), other: renew(other),
			after: []int{http.StatusOK},
		}
	},
	"release, grant locked": func(e *env) lockedRow {
		id, other := e.locked("a"), e.locked("b")
		return lockedRow{
			lock: `SELECT FROM lock_grants WHERE id = $1 FOR UPDATE`, id: id,
			send:   send{method: http.MethodDelete, path: "/v1/locks/" + id},
			before: send{method: http.MethodPost, path: "/v1/locks/" + id + "/renew"},
			other:  send{method: http.MethodDelete, path: "/v1/locks/" + other},
			after:  []int{http.StatusNoContent, http.StatusGone},
		}
	},
	"release, key locked": func(e *env) lockedRow {
		id, other := e.locked("a"), e.locked("b")
		return lockedRow{
			lock: `SELECT FROM lock_keys WHERE key = $1 FOR UPDATE`, id: "a",
			send:  send{method: http.MethodDelete, path: "/v1/locks/" + id},
			other: send{method: http.MethodDelete, path: "/v1/locks/" + other}, after: []int{http.StatusNoContent, http.StatusGone},
		}
	},
	"acquire, key locked": func(e *env) lockedRow {
		e.locked("a")
		acquire := func(key string) send {
			return send{method: http.MethodPost, path: "/v1/locks", body: lockBody("o", "10m", "", key)}
		}
		return lockedRow{
			lock: `SELECT FROM lock_keys WHERE key = $1 FOR UPDATE`, id: "a", send: acquire("a"), other: acquire("b"),
			after: []int{http.StatusConflict},
		}
	},
	"roll a multi-draw back": func(e *env) lockedRow {
		id, other := e.drawn("a"), e.drawn("b")
		resume := send{method: http.MethodPost, path: "/v1/multidraws/" + id + "/resume"} // It is refused.
		return lockedRow{
			lock: `SELECT FROM multidraws WHERE id = $1 FOR UPDATE`, id: id, before: resume,
			send:  send{method: http.MethodPost, path: "/v1/multidraws/" + id + "/rollback"},
			other: send{method: http.MethodPost, path: "/v1/multidraws/" + other + "/rollback"},
			after: []int{http.StatusOK, http.StatusConflict},
		}
	},
	"resume a multi-draw": func(e *env) lockedRow {
		id, other := e.drawn("a"), e.drawn("b")
		resume := func(id string) send { return send{method: http.MethodPost, path: "/v1/multidraws/" + id + "/resume"} }
		return lockedRow{
			lock: `SELECT FROM multidraws WHERE id = $1 FOR UPDATE`, id: id, send: resume(id), before: resume(id), other: resume(other),
			after: []int{http.StatusConflict},
		}
	},
	"cancel a publication": func(e *env) lockedRow {
		e.target("t", "https://example.com")
		path, other := e.publication("t", `,"payload":1`), e.publication("t", `,"payload":1`)
		schedule := send{method: http.MethodPost, path: path + "/schedule", body: `{"publish_at":"2999-01-01T00:00:00Z"}`}
		return lockedRow{
			lock: `SELECT FROM publications WHERE id = $1 FOR UPDATE`, id: path[len("/v1/publications/"):], before: schedule,
			send:  send{method: http.MethodPost, path: path + "/cancel"},
			other: send{method: http.MethodPost, path: other + "/cancel"}, after: []int{http.StatusOK, http.StatusConflict},
		}
	},
	"pause a target": func(e *env) lockedRow {
		e.target("a", "https://example.com")
		e.target("b", "https://example.com")
		var id, other string
		e.sql(&id, `SELECT id::text FROM targets WHERE name = 'a'`)
		e.sql(&other, `SELECT id::text FROM targets WHERE name = 'b'`)
		pause := func(id string) send { return send{method: http.MethodPost, path: "/v1/targets/" + id + "/pause"} }
		resume := send{method: http.MethodPost, path: "/v1/targets/" + id + "/resume"} // It is refused.
		return lockedRow{
			lock: `SELECT FROM targets WHERE id = $1 FOR UPDATE`, id: id, send: pause(id), before: resume, other: pause(other),
			after: []int{http.StatusOK, http.StatusConflict},
		}
	},
	"pause an automation": func(e *env) lockedRow {
		e.target("t", "https://example.com")
		automation := func(name string) string {
			return e.post("/v1/automations", fmt.Sprintf(`{"name":%q,"target":"t","every":"1h"}`, name)).want(http.StatusCreated).str("id")
		}
		id, other := automation("a"), automation("b")
		pause := func(id string) send { return send{method: http.MethodPost, path: "/v1/automations/" + id + "/pause"} }
		resume := send{method: http.MethodPost, path: "/v1/automations/" + id + "/resume"} // It is refused.
		return lockedRow{
			lock: `SELECT FROM automations WHERE id = $1 FOR UPDATE`, id: id, send: pause(id), before: resume, other: pause(other),
			after: []int{http.StatusOK, http.StatusConflict},
		}
	},
	"retry a transfer between ledgers": func(e *env) lockedRow {
		e.account("ann", "EUR", 100)
		path, other := e.waitingCross("ann", "stranger"), e.waitingCross("ann", "stranger")
		return lockedRow{
			lock: `SELECT FROM sagas WHERE id = $1 FOR UPDATE`, id: path[len("/v1/cross-transfers/"):],
			send:  send{method: http.MethodPost, path: path + "/retry"},
			other: send{method: http.MethodPost, path: other + "/retry"}, after: []int{http.StatusOK, http.StatusConflict},
		}
	},
	"transfer by legs, the last account locked": func(e *env) lockedRow {
		e.account("ann", "EUR", 100)
		e.account("ben", "EUR", 100)
		legs := func(last string) string {
			return `{"legs":[{"from":"ben","to":"stranger","amount":1},{"from":"ben","to":"` + last + `","amount":1}]}`
		}
		return lockedRow{
			lock: `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, id: "ann",
			send:   send{method: http.MethodPost, path: "/v1/transfers", body: legs("ann")},
			before: send{method: http.MethodPost, path: "/v1/deposits", body: `{"account":"ann","amount":1}`},
			other:  send{method: http.MethodPost, path: "/v1/transfers", body: `{"legs":[{"from":"ben","to":"stranger","amount":1}]}`},
			after:  []int{http.StatusCreated},
		}
	},
	"execute a leg, account locked": func(e *env) lockedRow {
		e.account("ann", "EUR", 100)
		return lockedRow{
			lock: `SELECT FROM accounts WHERE id = $1 FOR UPDATE`, id: "ann",
			send:   send{method: http.MethodPost, path: "/v1/cross-legs", body: legBody(newUUID(), "debit", "ann", 1, "")},
			before: send{method: http.MethodPost, path: "/v1/deposits", body: `{"account":"ann","amount":1}`},
			other:  send{method: http.MethodPost, path: "/v1/cross-legs", body: legBody(newUUID(), "credit", "stranger", 1, "")},
			after:  []int{http.StatusOK},
		}
	},
	"revoke a key": func(e *env) lockedRow {
		id, _ := e.makeKey(auth.RoleService, "a")
		return lockedRow{
			lock: `UPDATE api_keys SET name = name WHERE id = $1`, id: id,
			send:   send{method: http.MethodDelete, path: "/v1/keys/" + id},
			before: send{method: http.MethodPost, path: "/v1/deposits", body: `{"account":"stranger","amount":1}`},
			other:  send{method: http.MethodPost, path: "/v1/withdrawals", body: `{"account":"stranger","amount":1}`},
			after:  []int{http.StatusOK},
		}
	},
	"release a hold, hold locked": func(e *env) lockedRow { return e.lockedHold(e.service, "release", "", "hold_rows") },
	"capture a hold, hold locked": func(e *env) lockedRow {
		return e.lockedHold(e.service, "capture", `{"to":"stranger"}`, "hold_rows")
	},
	"release a hold, account locked": func(e *env) lockedRow {
		return e.lockedHold(e.service, "release", "", "accounts")
	},
	"an administrator releases a hold, hold locked": func(e *env) lockedRow {
		return e.lockedHold(e.admin, "release", "", "hold_rows")
	},
	"an administrator releases a hold, account locked": func(e *env) lockedRow {
		return e.lockedHold(e.admin, "release", "", "accounts")
	},
}

// locked grants a lock, and returns its id.
func (e *env) locked(key string) string {
	e.t.Helper()
	return e.post("/v1/locks", lockBody("o", "10m", "", key)).want(http.StatusCreated).str("id")
}

// drawn makes a completed multi-draw, and returns its id.
func (e *env) drawn(key string) string {
	e.t.Helper()
	body := fmt.Sprintf(`{"lock_key":%q,"count":5,"range":{"min":1,"max":6}}`, key)
	return e.post("/v1/multidraws", body).want(http.StatusCreated).str("id")
}

func (e *env) lockedHold(as, verb, body, table string) lockedRow {
	e.t.Helper()
	path := "/v1/holds/%s/" + verb
	hold := func(account string) string {
		e.account(account, "EUR", 100)
		e.as = as
		return e.post("/v1/holds", fmt.Sprintf(`{"account":%q,"amount":5}`, account)).want(http.StatusCreated).str("id")
	}
	id, other := hold("ann"), hold("ben")
	row := lockedRow{
		lock: `SELECT FROM hold_rows WHERE id = $1 FOR UPDATE`, id: id,
		send:   send{method: http.MethodPost, path: fmt.Sprintf(path, id), body: body},
		before: send{method: http.MethodPost, path: "/v1/deposits", body: `{"account":"ann","amount":1}`},
		other:  send{method: http.MethodPost, path: fmt.Sprintf(path, other), body: body},
		after:  []int{http.StatusOK, http.StatusConflict},
	}
	if table == "accounts" {
		row.lock = `SELECT FROM accounts WHERE id = (SELECT account FROM hold_rows WHERE id = $1) FOR UPDATE`
	}
	return row
}

// stranger keeps a row locked, as a forgotten session would, until the returned function is called.
func (e *env) stranger(sql string, id any) (goAway func()) {
	e.t.Helper()
	conn := e.connect()
	_, err := conn.Exec(e.t.Context(), `BEGIN`)
	must(e.t, err)
	_, err = conn.Exec(e.t.Context(), sql, id)
	must(e.t, err)
	goAway = func() { _ = conn.Close(context.Background()) }
	e.t.Cleanup(goAway)
	return goAway
}

// TestALockedRowStopsItsOwnCommandsAlone has a session lock a row and stay away, and forty requests that need it, on a server
// with eight connections. The requests of strangers are answered while it is locked, and so are repeats. Those that need the row
// are refused after a while, with nothing applied, or carried out once it is free.
func TestALockedRowStopsItsOwnCommandsAlone(t *testing.T) {
	t.Parallel()
	for name, makeRow := range lockedRows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.account("stranger", "EUR", 0)
			row := makeRow(e)
			e.stopsItsOwnAlone(row)
		})
	}
}

func (e *env) stopsItsOwnAlone(row lockedRow) {
	const crowd = 40
	var first *reply
	if row.before.path != "" {
		row.before.key = newUUID()
		first = e.send(row.before)
	}
	goAway := e.stranger(row.lock, row.id)
	type answer struct {
		response *http.Response
		err      error
	}
	ask := func() <-chan answer {
		answers := make(chan answer, crowd)
		began := time.Now()
		for range crowd {
			s := row.send
			s.key = newUUID()
			go func() {
				response, err := e.trySend(s)
				answers <- answer{response, err}
			}()
		}
		eventually(e.t, patience, "the commands wait", func() bool {
			return e.metric("fairlead_blocked_commands") > 0 || // Or they wait on all connections that there are:
				e.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") >= 8 ||
				// Or, where a look took that long, they have waited, and have given up.
				len(answers) == crowd && time.Since(began) >= command.BlockedFor
		})
		return answers
	}
	read := func(answers <-chan answer) *reply {
		a := <-answers
		must(e.t, a.err)
		return e.received(row.send.method, row.send.path, row.send.body, a.response)
	}
	answers := ask()
	e.by("").get("/readyz").want(http.StatusOK)
	e.post("/v1/deposits", `{"account":"stranger","amount":1}`).want(http.StatusCreated)
	row.other.key = newUUID()
	if other := e.send(row.other); other.status >= http.StatusInternalServerError {
		e.t.Errorf("the same command on another object: %d %s", other.status, other.body)
	}
	if first != nil {
		again := e.send(row.before).want(first.status)
		if string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
			e.t.Errorf("a repeat while the row is locked: %s, at first %s", again.body, first.body)
		}
	}
	refusals := map[string]int{}
	for range crowd {
		r := read(answers)
		refusals[fmt.Sprint(r.status, " ", r.decoded["code"], " ", r.decoded["outcome"])]++
	}
	if refusals["503 row_locked not_applied"] != crowd {
		e.t.Errorf("while the row is locked, the commands are answered %v", refusals)
	}
	asked := time.Now()
	answers = ask()
	goAway()
	got := map[int]int{}
	for range crowd {
		r := read(answers)
		// A slow machine may not come to all of them in the time that a command waits for a row. They can be sent again.
		if time.Since(asked) > command.BlockedFor && r.status == http.StatusServiceUnavailable && r.str("code") == "row_locked" && r.str("outcome") == notApplied {
			row.send.key = newUUID()
			r = e.send(row.send)
		}
		got[r.status]++
	}
	for status := range got {
		found := false
		for _, want := range row.after {
			found = found || status == want
		}
		if !found {
			e.t.Errorf("once the row is free: %v, want only %v", got, row.after)
		}
	}
	if got[row.after[0]] == 0 {
		e.t.Errorf("once the row is free, none of the commands is carried out: %v", got)
	}
	eventually(e.t, patience, "nothing is blocked any more", func() bool { return e.metric("fairlead_blocked_commands") == 0 })
}

// TestALockedAccountStopsItsOwnCrossTransfersAlone: more transfers out of a locked account than a server runs at once take no
// turn from others, and go on when the account is free.
func TestALockedAccountStopsItsOwnCrossTransfersAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, to string }{{"saga", "local"}, {"saga", "eu"}, {"twophase", "eu"}} {
		t.Run(c.mode+" to "+c.to, func(t *testing.T) {
			t.Parallel()
			if c.mode == "twophase" {
				pgtest.Needs(t, pgkit.Prepare, pgkit.AdvisoryLocks)
			}
			e, other := twoLedgers(t)
			for _, account := range []string{"ann", "ben"} {
				e.account(account, "EUR", 1000)
				other.account(account+".there", "EUR", 0)
			}
			e.account("cid", "EUR", 0)
			to := "cid"
			if c.to != "local" {
				to = "ann.there"
			}
			goAway := e.stranger(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, "ann")
			const crowd = saga.MaxRuns + 8
			responses, errs := make([]*http.Response, crowd), make([]error, crowd)
			var asking sync.WaitGroup
			for i := range crowd {
				asking.Go(func() {
					responses[i], errs[i] = e.trySend(send{
						method: http.MethodPost, path: "/v1/cross-transfers", key: newUUID(), body: crossBody("local", "ann", c.to, to, 1, c.mode),
					})
				})
			}
			eventually(t, patience, "all are under way", func() bool { return e.count("sagas WHERE status = 'pending'") == crowd })
			if c.to != "local" {
				to = "ben.there"
			}
			e.by("").get("/readyz").want(http.StatusOK)
			e.post("/v1/deposits", `{"account":"ben","amount":1}`).want(http.StatusCreated)
			r := e.post("/v1/cross-transfers", crossBody("local", "ben", c.to, to, 1, c.mode)).want(http.StatusCreated)
			eventually(t, patience, "a transfer out of another account ends", func() bool { // A slow machine may need longer than a caller waits.
				return e.get("/v1/cross-transfers/"+r.str("id")).want(http.StatusOK).str("status") == "completed"
			})
			if n := e.count("sagas WHERE status <> 'pending'"); n != 1 {
				t.Errorf("%d transfers have ended while the account is locked", n)
			}
			goAway()
			asking.Wait()
			ends := map[string]int{}
			for i := range crowd {
				must(t, errs[i])
				r := e.received(http.MethodPost, "/v1/cross-transfers", "", responses[i])
				ends[fmt.Sprint(r.status, " ", r.decoded["status"])]++
			}
			if ends["201 completed"]+ends["201 pending"] != crowd { // A slow machine may need longer than a caller waits.
				t.Errorf("the transfers whose account has become free end %v", ends)
			}
			eventually(t, patience, "all have ended", func() bool { return e.count("sagas WHERE status = 'completed'") == crowd+1 })
			e.wantBalance("ann", 1000-crowd)
			noneInDoubt(t, e)
		})
	}
}
