package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// batched is a command of a batch as a test sends it: members in JSON, of which empty ones are left out.
type batched struct{ key, path, body string }

// listed is a command with a key of its own.
func listed(path, body string) batched {
	return batched{key: quoted(newUUID()), path: quoted(path), body: body}
}

func quoted(s string) string { return `"` + s + `"` }

func batchOf(commands ...batched) string {
	var b strings.Builder
	for _, c := range commands {
		var members []string
		for _, m := range []struct{ name, value string }{{"key", c.key}, {"path", c.path}, {"body", c.body}} {
			if m.value != "" {
				members = append(members, fmt.Sprintf("%q:%s", m.name, m.value))
			}
		}
		b.WriteString(",{" + strings.Join(members, ",") + "}")
	}
	return `{"commands":[` + strings.TrimPrefix(b.String(), ",") + `]}`
}

// batchResult is what a batch's answer says of one command.
type batchResult struct {
	Status   int            `json:"status"`
	Body     jsontext.Value `json:"body"`
	Replayed bool           `json:"replayed"`
}

func (r batchResult) problem(t *testing.T, status int, code string) Problem {
	t.Helper()
	var p Problem
	if err := json.Unmarshal(r.Body, &p); err != nil || r.Status != status || p.Status != status || p.Code != code {
		t.Errorf("got %d %s, want %d %s (%v)", r.Status, r.Body, status, code, err)
	}
	return p
}

func batchSend(commands ...batched) send {
	return send{method: http.MethodPost, path: batchPath, body: batchOf(commands...)}
}

func (e *env) batch(commands ...batched) []batchResult {
	e.t.Helper()
	return e.send(batchSend(commands...)).results(len(commands))
}

func (r *reply) results(n int) []batchResult {
	r.t.Helper()
	var answer struct {
		Results []batchResult `json:"results"`
	}
	must(r.t, json.Unmarshal(r.want(http.StatusOK).body, &answer, json.RejectUnknownMembers(true)))
	if len(answer.Results) != n {
		r.t.Fatalf("%d results for %d commands", len(answer.Results), n)
	}
	return answer.Results
}

// everyListed returns a command of each route that a batch may have, all of which succeed in this order, and what the paths' objects
// are made of.
func (e *env) everyListed() []batched {
	e.t.Helper()
	e.account("ann", "EUR", 1000)
	e.account("ben", "EUR", 0)
	captured, released := e.post("/v1/holds", `{"account":"ann","amount":5}`), e.post("/v1/holds", `{"account":"ann","amount":5}`)
	sale := e.onSale(`"base_length":2`, "")
	auction := e.started(`[{"winners":1,"duration":"1h"}]`, "")
	return []batched{
		listed("/v1/transfers", `{"from":"ann","to":"ben","amount":100}`),
		listed("/v1/transfers", `{"legs":[{"from":"ben","to":"ann","amount":10},{"from":"ann","to":"ben","amount":20}]}`),
		listed("/v1/deposits", `{"account":"ben","amount":7,"reference":"in"}`),
		listed("/v1/withdrawals", `{"account":"ben","amount":3,"memo":"out"}`),
		listed("/v1/holds", `{"account":"ben","amount":4,"expires_in":"1h"}`),
		listed("/v1/holds/"+captured.str("id")+"/capture", `{"to":"ben","amount":2}`),
		listed("/v1/holds/"+released.str("id")+"/release", ``),
		listed("/v1/campaigns/"+sale+"/purchases", `{"account":"ann"}`),
		listed("/v1/auctions/"+auction+"/bids", `{"account":"ann","amount":50}`),
	}
}

// TestBatch has a command of each kind, and repeats them: in the batch, in part, in another order, and singly.
func TestBatch(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	commands := e.everyListed()
	commands = append(commands, listed("/v1/transfers", `{"from":"ben","to":"ann","amount":1000000}`)) // A decided refusal.
	first := e.batch(commands...)
	for i, r := range first {
		want := http.StatusCreated
		if c := commands[i].path; strings.HasSuffix(c, `/capture"`) || strings.HasSuffix(c, `/release"`) {
			want = http.StatusOK
		}
		if i == len(first)-1 {
			r.problem(t, http.StatusPaymentRequired, "insufficient_funds")
		} else if r.Status != want || r.Replayed {
			t.Errorf("%s: %d %s, replayed %v", commands[i].path, r.Status, r.Body, r.Replayed)
		}
	}
	before := e.snapshot()
	again := e.batch(commands...)
	half := e.batch(commands[8], commands[2], commands[0])
	for i, r := range append(again, half...) {
		want := first[append([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 8, 2, 0)[i]]
		if r.Status != want.Status || string(r.Body) != string(want.Body) || !r.Replayed {
			t.Errorf("repeated: %d %s, replayed %v; first %d %s", r.Status, r.Body, r.Replayed, want.Status, want.Body)
		}
	}
	for i, c := range commands {
		single := e.keyed(strings.Trim(c.key, `"`), strings.Trim(c.path, `"`), c.body).want(first[i].Status)
		if string(single.body) != string(first[i].Body) || single.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("singly: %s, in the batch %s", single.body, first[i].Body)
		}
	}
	e.unchanged(before)

	// A single request's answer is the batch's too, and another body under its key is refused.
	done := e.keyed("single", "/v1/deposits", `{"account":"ann","amount":1}`).want(http.StatusCreated)
	mixed := e.batch(
		batched{`"single"`, `"/v1/deposits"`, `{"amount":1, "account":"ann", "memo":null}`}, batched{`"single"`, `"/v1/deposits"`, `{"account":"ann","amount":2}`},
		batched{`"\"single\""`, `"/v1/withdrawals"`, `{"account":"ann","amount":1}`}, batched{`"single"`, `"/v1/withdrawals"`, `{"account":"ann","amount":1}`},
	)
	if string(mixed[0].Body) != string(done.body) || !mixed[0].Replayed {
		t.Errorf("the batch says %s, the single request %s", mixed[0].Body, done.body)
	}
	mixed[1].problem(t, http.StatusUnprocessableEntity, "idempotency_key_reused")
	if mixed[2].Status != http.StatusCreated || mixed[2].Replayed || string(mixed[3].Body) != string(mixed[2].Body) || !mixed[3].Replayed {
		t.Errorf("one key twice in a batch: %+v, %+v", mixed[2], mixed[3])
	}
}

// TestBatchRefusals: what is wrong with the envelope refuses all, and what is wrong with a command refuses that one.
func TestBatchRefusals(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("ann", "EUR", 10)
	good := batched{`"good"`, `"/v1/deposits"`, `{"account":"ann","amount":1}`}
	before := e.snapshot()
	one := batchOf(good)
	for _, body := range []string{
		``, `{}`, `[]`, `{"commands":null}`, `{"commands":[]}`, `{"commands":{}}`, `{"commands":[5}`, one + `x`, one[:len(one)-1],
		`{"commands":[` + strings.Repeat(`{"key":"k","path":"/v1/deposits","body":{}},`, maxCommands) + one[13:],
		strings.Replace(one, `{"commands"`, `{"x":1,"commands"`, 1),
		strings.Replace(one, `"amount":1`, `"amount":1,"amount":1`, 1), strings.Replace(one, `"key"`, `"key":"a","key"`, 1),
		strings.Replace(one, `"ann"`, "\"\xff\"", 1), strings.Replace(one, `{"account":"ann","amount":1}`, `{"account"}`, 1),
	} {
		e.send(send{method: http.MethodPost, path: batchPath, body: body}).problem(http.StatusBadRequest, "bad_request")
	}
	e.send(send{method: http.MethodPost, path: batchPath, body: one + strings.Repeat(" ", maxBatch)}).problem(http.StatusRequestEntityTooLarge, "payload_too_large")
	e.unchanged(before)

	const deposits, body = `"/v1/deposits"`, `{"account":"ann","amount":1}`
	long := strings.Repeat("k", 256)
	for _, c := range []struct {
		batched

		status int
		code   string
	}{
		{batched{``, deposits, body}, 400, "idempotency_key_required"},
		{batched{`null`, deposits, body}, 400, "idempotency_key_required"},
		{batched{`7`, deposits, body}, 400, "idempotency_key_required"},
		{batched{`""`, deposits, body}, 400, "idempotency_key_required"},
		{batched{`"a b"`, deposits, body}, 400, "idempotency_key_required"},
		{batched{quoted(long), deposits, body}, 400, "idempotency_key_required"},
		{batched{`"k1"`, ``, body}, 400, "bad_request"},
		{batched{`"k2"`, `17`, body}, 400, "bad_request"},
		{batched{`"k3"`, `"/v1/accounts"`, `{"id":"new","currency":"EUR"}`}, 400, "bad_request"},
		{batched{`"k4"`, `"/v1/commands"`, one}, 400, "bad_request"},
		{batched{`"k5"`, `"/v1/deposits/"`, body}, 400, "bad_request"},
		{batched{`"k6"`, `"v1/deposits"`, body}, 400, "bad_request"},
		{batched{`"k7"`, `"/v1/deposits?a=b"`, body}, 400, "bad_request"},
		{batched{`"k8"`, `"/v1/auctions//bids"`, `{"account":"ann","amount":1}`}, 400, "bad_request"},
		{batched{`"k9"`, `"/v1/auctions/a/b/bids"`, `{"account":"ann","amount":1}`}, 400, "bad_request"},
		{batched{`"k10"`, `"/v1/auctions/none/bids"`, `{"account":"ann","amount":1}`}, 404, "not_found"},
		{batched{`"k11"`, quoted("/v1/auctions/" + newUUID() + "/bids"), `{"account":"ann","amount":1}`}, 404, "not_found"},
		{batched{`"k12"`, quoted("/v1/campaigns/00000000-0000-0000-0000-000000000000/purchases"), `{"account":"ann"}`}, 404, "not_found"},
		{batched{`"k13"`, quoted("/v1/auctions/00000000-0000-0000-0000-000000000000/bids"), `{"account":"ann","amount":1}`}, 404, "not_found"},
		{batched{`"k14"`, quoted("/v1/holds/" + newUUID() + "/release"), ``}, 404, "not_found"},
		{batched{`"k15"`, deposits, ``}, 400, "bad_request"},
		{batched{`"k16"`, deposits, `null`}, 400, "bad_request"},
		{batched{`"k17"`, deposits, `[]`}, 400, "bad_request"},
		{batched{`"k18"`, deposits, `{"account":"ann","amount":1,"x":1}`}, 400, "bad_request"},
		{batched{`"k19"`, deposits, `{"account":"ann","amount":"1"}`}, 400, "bad_request"},
		{batched{`"k20"`, deposits, `{"account":"nobody","amount":1}`}, 404, "not_found"},
		{batched{`"k21"`, deposits, `{"account":"ann","amount":1,"memo":"` + strings.Repeat("m", maxBody) + `"}`}, 413, "payload_too_large"},
		{batched{`"k22"`, `"/v1/withdrawals"`, `{"account":"ann","amount":1000}`}, 402, "insufficient_funds"},
	} {
		got := e.batch(listed("/v1/deposits", body), c.batched, listed("/v1/deposits", body))
		got[1].problem(t, c.status, c.code)
		for _, i := range []int{0, 2} {
			if got[i].Status != http.StatusCreated {
				t.Errorf("beside %s %s: %d %s", c.path, c.key, got[i].Status, got[i].Body)
			}
		}
	}
	// A command that is none.
	for _, text := range []string{`5`, `[]`, `null`, `"k"`, `{}`, `{"x":1,"key":"other","path":"/v1/deposits","body":` + body + `}`, `{"key":"Key","Path":"/v1/deposits"}`} {
		whole := batchOf(listed("/v1/deposits", body), listed("/v1/deposits", body))
		whole = strings.TrimSuffix(whole, "]}") + "," + text + "]}"
		got := e.send(send{method: http.MethodPost, path: batchPath, body: whole}).results(3)
		if got[0].Status != http.StatusCreated || got[1].Status != http.StatusCreated || got[2].Status != http.StatusBadRequest {
			t.Errorf("%s: %+v", text, got)
		}
	}
	e.get(batchPath).problem(http.StatusMethodNotAllowed, "method_not_allowed")
	e.by("").send(batchSend(good)).problem(http.StatusUnauthorized, "unauthorized").equal(`{"outcome":"unknown"}`)
	_, reader := e.makeKey(auth.RoleReader, "reads")
	e.by(reader).send(batchSend(good)).problem(http.StatusForbidden, "forbidden")

	// Users act on their own accounts, as they do singly.
	e.account("ben", "EUR", 10)
	got := e.by(e.user("ben")).batch(good, listed("/v1/transfers", `{"from":"ben","to":"ann","amount":1}`), listed("/v1/transfers", `{"from":"ann","to":"ben","amount":1}`),
		listed("/v1/holds", `{"account":"ben","amount":1}`))
	got[0].problem(t, http.StatusForbidden, "forbidden")
	got[2].problem(t, http.StatusForbidden, "forbidden")
	got[3].problem(t, http.StatusForbidden, "forbidden")
	if got[1].Status != http.StatusCreated {
		t.Errorf("a user's own transfer: %d %s", got[1].Status, got[1].Body)
	}
}

// TestBatchCountsItsCommands: each command is a request in its sender's rate.
func TestBatchCountsItsCommands(t *testing.T) {
	t.Parallel()
	e := newEnvWith(t, setup{limiter: &auth.LimiterOptions{Policy: "user", Quota: 5, Window: time.Hour}})
	e.account("ann", "EUR", 100)
	e.account("ben", "EUR", 0)
	var commands []batched
	for range 7 {
		commands = append(commands, listed("/v1/transfers", `{"from":"ann","to":"ben","amount":1}`))
	}
	user := e.by(e.user("ann"))
	answer := user.send(batchSend(commands...))
	if left := answer.header.Get("RateLimit"); !strings.HasPrefix(left, `"user";r=0;`) || answer.header.Get("Retry-After") != "" {
		t.Errorf("RateLimit %q, Retry-After %q", left, answer.header.Get("Retry-After"))
	}
	for i, r := range answer.results(len(commands)) {
		switch {
		case i < 5 && r.Status != http.StatusCreated:
			t.Errorf("command %d: %d %s", i, r.Status, r.Body)
		case i >= 5:
			// Five requests an hour.
			if p := r.problem(t, http.StatusTooManyRequests, "rate_limited"); !p.Retryable || p.RetryAfter < 1 || p.RetryAfter > 720 {
				t.Errorf("command %d can't be sent again: %s", i, r.Body)
			}
		}
	}
	user.send(batchSend(commands[0])).problem(http.StatusTooManyRequests, "rate_limited").equal(`{"outcome":"unknown"}`) // No key was read.
	e.balance("ben", 5, 0)
}

// TestBatchFarOverItsRate: what is refused of a batch costs its sender something, too, since all of it was read: an eighth of a request each, here two of
// the five an hour.
func TestBatchFarOverItsRate(t *testing.T) {
	t.Parallel()
	e := newEnvWith(t, setup{limiter: &auth.LimiterOptions{Policy: "user", Quota: 5, Window: time.Hour}})
	e.account("ann", "EUR", 100)
	e.account("ben", "EUR", 0)
	commands := make([]batched, 5+2*refusedPerRequest)
	for i := range commands {
		commands[i] = listed("/v1/transfers", `{"from":"ann","to":"ben","amount":1}`)
	}
	user := e.by(e.user("ann"))
	for i, r := range user.send(batchSend(commands...)).results(len(commands)) {
		if i < 5 && r.Status != http.StatusCreated {
			t.Errorf("command %d: %d %s", i, r.Status, r.Body)
		}
		if i < 5 {
			continue
		}
		if p := r.problem(t, http.StatusTooManyRequests, "rate_limited"); p.RetryAfter <= 2*720 || p.RetryAfter > 3*720 {
			t.Errorf("command %d may be sent again after %d s", i, p.RetryAfter)
		}
	}
	user.send(batchSend(commands[0])).problem(http.StatusTooManyRequests, "rate_limited")
	e.balance("ben", 5, 0)
}

// TestBatchesAtOnce: a user has so many batches under way, and keys as many as they like.
func TestBatchesAtOnce(t *testing.T) {
	t.Parallel()
	var b batchesOf
	ann, ben := auth.Principal{Role: auth.RoleUser, ID: "ann"}, auth.Principal{Role: auth.RoleUser, ID: "ben"}
	var leave func()
	for range batchesAtOnce {
		var err error
		leave, err = b.enter(ann)
		must(t, err)
		_, err = b.enter(auth.Principal{Role: auth.RoleService, ID: "ann"})
		must(t, err)
	}
	if _, err := b.enter(ann); problemOf(err, "").Status != http.StatusTooManyRequests {
		t.Errorf("one more: %v", err)
	}
	left, err := b.enter(ben)
	must(t, err)
	left()
	if leave(); len(b.by) != 1 || b.by["ann"] != batchesAtOnce-1 {
		t.Errorf("under way: %v", b.by)
	}
	_, err = b.enter(ann)
	must(t, err)
}

// TestBatchKeepsItsOrder sends batches in which each command needs the one before, beside single commands that take the lane's time and
// have it fall back: with lanes that split, with refusals, and on a row that a session has locked for a while.
func TestBatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	e := newEnvWith(t, setup{lanes: groupcommit.Options{MaxBatch: 64, MaxQueue: 8192}})
	const steps = 500
	for _, id := range []string{"a", "b", "c", "busy"} {
		e.account(id, "EUR", 0)
	}
	// Money comes in, goes round and out again. A step before its turn finds no money.
	var circle []batched
	for range steps / 5 {
		circle = append(circle, listed("/v1/deposits", `{"account":"a","amount":1}`), listed("/v1/transfers", `{"from":"a","to":"b","amount":1}`),
			listed("/v1/transfers", `{"from":"b","to":"c","amount":1}`), listed("/v1/withdrawals", `{"account":"c","amount":1}`), listed("/v1/withdrawals", `{"account":"c","amount":1}`))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	for range 8 {
		beside.Go(func() {
			for ctx.Err() == nil {
				response, err := e.trySend(send{method: http.MethodPost, path: "/v1/deposits", body: `{"account":"busy","amount":1}`, key: newUUID()})
				if err == nil {
					_ = response.Body.Close()
				}
			}
		})
	}
	inOrder := func(results []batchResult) {
		t.Helper()
		for i, r := range results {
			if i%5 == 4 {
				r.problem(t, http.StatusPaymentRequired, "insufficient_funds")
			} else if r.Status != http.StatusCreated {
				t.Fatalf("command %d was decided out of its turn: %d %s", i, r.Status, r.Body)
			}
		}
	}
	inOrder(e.batch(circle...))
	cancel()
	beside.Wait()

	for i := range circle {
		circle[i].key = quoted(newUUID())
	}
	goAway := e.stranger(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, "b")
	answered := make(chan *http.Response, 1)
	go func() {
		response, err := e.trySend(batchSend(circle...))
		testwait.Check(t, err)
		answered <- response
	}()
	eventually(t, patience, "the batch waits", func() bool { return e.metric("fairlead_blocked_commands") > 0 })
	e.post("/v1/deposits", `{"account":"busy","amount":1}`).want(http.StatusCreated) // It waits for no stranger.
	goAway()
	response := <-answered
	if response == nil {
		t.FailNow()
	}
	inOrder(e.received(http.MethodPost, batchPath, "", response).results(len(circle)))
	for _, id := range []string{"a", "b", "c"} {
		e.balance(id, 0, 0)
	}
}

// TestBatchPassesALockedRow: a row that stays locked refuses its own commands, and those behind them are decided then.
func TestBatchPassesALockedRow(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"ann", "ben", "cid"} {
		e.account(id, "EUR", 100)
	}
	goAway := e.stranger(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, "ben")
	commands := []batched{
		listed("/v1/transfers", `{"from":"ann","to":"cid","amount":1}`), listed("/v1/transfers", `{"from":"ann","to":"ben","amount":1}`),
		listed("/v1/transfers", `{"from":"cid","to":"ann","amount":1}`), listed("/v1/transfers", `{"from":"ben","to":"ann","amount":1}`),
	}
	got := e.batch(commands...)
	for i, r := range got {
		if i%2 == 0 {
			if r.Status != http.StatusCreated {
				t.Errorf("command %d: %d %s", i, r.Status, r.Body)
			}
		} else if p := r.problem(t, http.StatusServiceUnavailable, "row_locked"); p.Outcome != notApplied || !p.Retryable {
			t.Errorf("command %d: %s", i, r.Body)
		}
	}
	goAway()
	for i, r := range e.batch(commands...) {
		if r.Status != http.StatusCreated || r.Replayed != (i%2 == 0) {
			t.Errorf("command %d again: %d %s, replayed %v", i, r.Status, r.Body, r.Replayed)
		}
	}
}

// TestBatchPassesLockedAuctions has more of them than could be waited for one after the other.
func TestBatchPassesLockedAuctions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("ann", "EUR", 100)
	e.account("ben", "EUR", 0)
	var commands []batched
	var locked []string
	for range 2 * int(edge.CommandTimeout/command.BlockedFor) {
		locked = append(locked, e.started(`[{"winners":1,"duration":"1h"}]`, ""))
		commands = append(commands, listed("/v1/auctions/"+locked[len(locked)-1]+"/bids", `{"account":"ann","amount":1}`))
	}
	commands = append(commands, listed("/v1/transfers", `{"from":"ann","to":"ben","amount":1}`))
	e.stranger(`SELECT FROM auctions WHERE id = ANY ($1) FOR UPDATE`, locked)
	for i, r := range e.batch(commands...) {
		if i < len(locked) {
			r.problem(t, http.StatusServiceUnavailable, "row_locked")
		} else if r.Status != http.StatusCreated {
			t.Errorf("the transfer: %d %s", r.Status, r.Body)
		}
	}
}

// TestBatchOfAClientThatLeaves is carried out all the same.
func TestBatchOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("ann", "EUR", 0)
	held, open := e.gate("entries")
	ctx, leave := context.WithCancel(t.Context())
	request, err := e.request(ctx, batchSend(listed("/v1/deposits", `{"account":"ann","amount":1}`), listed("/v1/deposits", `{"account":"ann","amount":2}`)))
	must(t, err)
	left := make(chan struct{})
	go func() {
		defer close(left)
		response, err := e.http.Do(request)
		if err == nil {
			_ = response.Body.Close()
			t.Error("the client was answered before it left")
		}
	}()
	held("the batch is being committed")
	leave()
	<-left
	open()
	eventually(t, patience, "the batch is carried out", func() bool { return e.get("/v1/accounts/ann").num("available") == 3 })
}
