package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestLockedTables has whole tables locked by a session that does not let go, as an ALTER TABLE that waits for its own COMMIT does.
// There is no single row then to do without, and statements wait before they run.
func TestLockedTables(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"alice", "bob"} {
		e.account(id, "EUR", 100_000)
	}
	campaign := e.onSale(`"base_length":200`, "")
	auction := e.started(oneRound, `"cooldown":"0s"`)
	const (
		transfers = "/v1/transfers"
		holds     = "/v1/holds"
		locks     = "/v1/locks"
	)
	purchases, bids := "/v1/campaigns/"+campaign+"/purchases", "/v1/auctions/"+auction+"/bids"
	bodies := map[string]string{
		transfers: `{"from":"alice","to":"bob","amount":1}`, holds: `{"account":"alice","amount":1}`,
		purchases: `{"account":"alice"}`, bids: `{"account":"alice","amount":%d}`, locks: `{"keys":["k%d"],"owner":"o","ttl":"1s"}`,
	}
	n := 100
	command := func(path string) send {
		n += 2
		body := bodies[path]
		if strings.Contains(body, "%d") {
			body = fmt.Sprintf(body, n)
		}
		return send{method: http.MethodPost, path: path, body: body, key: newUUID()}
	}
	before := command(transfers)
	first := e.send(before).want(http.StatusCreated)
	for _, table := range []struct {
		name  string
		needs []string // it
	}{
		{"accounts", []string{transfers, holds, purchases, bids}},
		{"hold_rows", []string{holds}},
		{"transfers", []string{transfers, purchases}},
		{"auction_standing", []string{bids}},
		{"lock_queue", []string{locks}},
		{"idempotency_keys", []string{transfers, holds, purchases, bids, locks}},
	} {
		release := e.hang(table.name)
		var (
			sent    []send
			answers []func() []*reply
		)
		for _, path := range table.needs {
			s := command(path)
			sent, answers = append(sent, s), append(answers, e.crowd(1, s))
		}
		if table.name != "idempotency_keys" {
			if again := e.send(before).want(first.status); string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("a repeat while %s is locked: %s, at first %s", table.name, again.body, first.body)
			}
		}
		for i, answer := range answers {
			r := answer()[0]
			r.problem(http.StatusServiceUnavailable, "row_locked")
			// Where the keys can't be read, nobody knows what became of an earlier request.
			if outcome, _ := r.decoded["outcome"].(string); (outcome == "not_applied") != (table.name != "idempotency_keys") {
				t.Errorf("%s is locked, %s: outcome %q", table.name, sent[i].path, outcome)
			}
		}
		release()
		e.patient = true
		for _, s := range sent {
			e.send(s).want(http.StatusCreated)
		}
		e.patient = false
	}
}
