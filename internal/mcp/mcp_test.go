package mcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestACommitIsSettledAfterItsExpiry: a command that was sent in time may be committed later, to learn what became of it; one that was
// not may not.
func TestACommitIsSettledAfterItsExpiry(t *testing.T) {
	t.Parallel()
	a := newAgent(t, shared.Key, newClock())
	from, to := unique("settle")
	a.account(from, 100)
	a.account(to, 0)
	transfer := obj{"from": from, "to": to, "amount": 10}
	sent, lost, unsent := a.call("prepare_transfer", transfer), a.call("prepare_transfer", transfer), a.call("prepare_transfer", transfer)
	a.wire.set(true)
	a.refused("no_answer", "unknown", "commit", obj{"id": sent["id"]})
	a.refused("no_answer", "unknown", "commit", obj{"id": lost["id"], "command": lost["command"]})
	a.available(to, 20)
	a.clock.pass(DefaultPreparedFor + time.Second)
	a.refused("prepared_expired", "not_applied", "commit", obj{"id": unsent["id"]})
	a.refused("no_answer", "unknown", "commit", obj{"id": lost["id"]})
	if list, _ := a.call("list_prepared", nil)["items"].([]any); len(list) != 2 {
		t.Errorf("%v", list)
	}
	a.wire.set(false)
	for range 2 {
		if got := a.call("commit", obj{"id": sent["id"]}); got["repeated"] != true {
			t.Errorf("%v", got)
		}
	}
	a.clock.pass(settleFor)
	a.refused("prepared_expired", "unknown", "commit", obj{"id": lost["id"]})
	a.available(to, 20)
	// A process that knows nothing of it says so.
	b := newAgent(t, shared.Key, a.clock)
	b.refused("prepared_expired", "unknown", "commit", obj{"id": lost["id"], "command": lost["command"]})
	b.refused("prepared_expired", "unknown", "commit", obj{"id": unsent["id"]})
	a.available(to, 20)
}

// TestPayloadsStayWhatTheyAre: numbers that a float64 can't hold reach the server, by way of memory and by way of the agent.
func TestPayloadsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	a := newAgent(t, shared.Key, newClock())
	target, _ := unique("numbers")
	testwait.Must(t, testwait.Err(a.client.CreateTarget(t.Context(), client.CreateTargetRequest{Name: target, Kind: "webhook", URL: "http://127.0.0.1:9/"})))
	const number = "12345678901234567890"
	text, failed := a.text("prepare_publication", jsonText(`{"target":"`+target+`","payload":{"n":`+number+`,"b":[1.50,null],"a":"<&>"}}`))
	if failed || !strings.Contains(text, number) || !strings.Contains(text, "1.50") {
		t.Fatal(text)
	}
	made := field(t, text, `"id":"`)
	_, body, _ := strings.Cut(text, `"body":`)
	body, _, _ = strings.Cut(body, `,"path":`)
	body, _, _ = strings.Cut(body, `},"next":`)
	b := newAgent(t, shared.Key, a.clock)
	text, failed = b.text("commit", jsonText(`{"id":"`+made+`","command":{"path":"/v1/publications","body":`+body+`}}`))
	if failed {
		t.Fatal(text)
	}
	stored, _ := a.text("get_publication", obj{"publication": field(t, text, `"answer":{"id":"`)})
	if !strings.Contains(stored, number) || !strings.Contains(stored, "1.50") || !strings.Contains(stored, "<&>") {
		t.Error(stored)
	}
	text, failed = b.text("commit", jsonText(`{"id":"`+made+`","command":{"path":"/v1/publications","body":`+strings.Replace(body, number, number[:19]+"1", 1)+`}}`))
	if !failed || !strings.Contains(text, "prepared_changed") {
		t.Error(text)
	}
	text, failed = a.text("prepare_publication", jsonText(`{"target":"`+target+`","payload":{"n":1,"n":2}}`))
	if !failed || !strings.Contains(text, "bad_request") {
		t.Error(text)
	}
	text, failed = a.text("prepare_publication", obj{"target": target, "payload": strings.Repeat("x", maxCommandBytes)})
	if !failed || !strings.Contains(text, "65536 is the most") {
		t.Error(text)
	}
}

// jsonText is JSON that is sent as it is.
type jsonText string

func (j jsonText) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// field cuts a string out of a document.
func field(t *testing.T, text, begin string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, begin)
	value, _, ended := strings.Cut(rest, `"`)
	if !found || !ended {
		t.Fatalf("no %s in %s", begin, text)
	}
	return value
}

// TestPlansSayWhatWillBe: what a plan foresees is what the server does.
func TestPlansSayWhatWillBe(t *testing.T) {
	t.Parallel()
	a := newAgent(t, shared.Key, newClock())
	payer, payee := unique("plan")
	a.account(payer, 100)
	a.account(payee, 0)
	accounts := func(doc obj) string {
		text := ""
		list, _ := doc["accounts"].([]any)
		for _, item := range list {
			one, _ := item.(obj)
			text += fmt.Sprintf("%v %v %v%+.0f %v%+.0f; ", one["account"], one["currency"], one["available"], one["available_change"], one["held"], one["held_change"])
		}
		return text
	}
	codes := func(doc obj) string {
		var found []string
		list, _ := doc["refused_now"].([]any)
		for _, item := range list {
			one, _ := item.(obj)
			found = append(found, fmt.Sprint(one["code"]))
		}
		return strings.Join(found, " ")
	}
	held, err := a.client.Hold(t.Context(), client.HoldRequest{Account: payer, Amount: 40})
	testwait.Must(t, err)
	for _, c := range []struct {
		tool                string
		args                obj
		accounts, refusedBy string
		summary             string
	}{
		{"prepare_transfer", obj{"from": payer, "to": payee, "amount": 60}, payer + " EUR 60-60 40+0; " + payee + " EUR 0+60 0+0; ", "", payer + " pays " + payee + " 60 minor units of EUR."},
		{"prepare_transfer", obj{"from": payer, "to": payee, "amount": 61}, payer + " EUR 60-61 40+0; " + payee + " EUR 0+61 0+0; ", "insufficient_funds", ""},
		{"prepare_transfer", obj{"from": payer, "to": payer, "amount": 1}, "", "same_account", ""},
		{
			"prepare_transfer",
			obj{"legs": []obj{{"from": payer, "to": payee, "amount": 50}, {"from": payee, "to": payer, "amount": 50}}},
			payer + " EUR 60+0 40+0; " + payee + " EUR 0+0 0+0; ", "", "All of these or none",
		},
		{"prepare_transfer", obj{"legs": []obj{{"from": payee, "to": payer, "amount": 50}, {"from": payer, "to": payee, "amount": 50}}}, "", "insufficient_funds", ""},
		{"prepare_capture", obj{"hold": held.ID, "to": payee, "amount": 15}, payer + " EUR 60+25 40-40; " + payee + " EUR 0+15 0+0; ", "", "pays " + payee + " 15 minor units of EUR. The rest, 25"},
		{"prepare_capture", obj{"hold": held.ID, "to": payee, "amount": 41}, "", "capture_too_large", ""},
		{"prepare_release", obj{"hold": held.ID}, payer + " EUR 60+40 40-40; ", "", ""},
		{"prepare_account", obj{"account": payer, "currency": "EUR"}, "", "account_exists", ""},
		{"prepare_withdrawal", obj{"account": payer, "amount": 100}, "", "insufficient_funds", ""},
		{"prepare_deposit", obj{"account": "nobody", "amount": 100}, "nobody <nil> <nil>+100 <nil>+0; ", "not_found", ""},
		{"prepare_auction", obj{"title": "x", "currency": "USD", "seller": payee, "rounds": []obj{{"winners": 1, "duration": "1h"}}}, "", "currency_mismatch", ""},
		{"prepare_publication", obj{"target": "nowhere at all", "payload": 1}, "", "not_found", "draft"},
	} {
		doc := a.call(c.tool, c.args)
		if c.accounts != "" && accounts(doc) != c.accounts || codes(doc) != c.refusedBy || !strings.Contains(fmt.Sprint(doc["summary"]), c.summary) {
			t.Errorf("%s %v: %q, %q, %v", c.tool, c.args, accounts(doc), codes(doc), doc["summary"])
		}
		if c.refusedBy == "" {
			continue
		}
		text, failed := a.text("commit", obj{"id": doc["id"]})
		if !failed || !strings.Contains(text, `"code":"`+c.refusedBy+`"`) || !strings.Contains(text, `"outcome":"not_applied"`) {
			t.Errorf("%s %v: foreseen is %s, and there came %s", c.tool, c.args, c.refusedBy, text)
		}
	}
	a.available(payer, 60)

	// A reference that is taken is told beforehand, and moves nothing.
	deposit := obj{"account": payee, "amount": 7, "reference": payer}
	a.call("commit", obj{"id": a.call("prepare_deposit", deposit)["id"]})
	again := a.call("prepare_deposit", deposit)
	if !strings.Contains(fmt.Sprint(again["notes"]), "has completed with this reference") {
		t.Errorf("%v", again["notes"])
	}
	a.call("commit", obj{"id": again["id"]})
	a.available(payee, 7)
}

// TestAUserActsForItself: with a user's token, what others have is not shown, and does not prevent a transfer to them.
func TestAUserActsForItself(t *testing.T) {
	t.Parallel()
	own, other := unique("user")
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": own, "exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(secret))
	testwait.Must(t, err)
	a := newAgent(t, token, newClock())
	a.account(own, 100)
	a.account(other, 0)
	in := a.call("prepare_transfer", obj{"from": own, "to": other, "amount": 10, "reference": own})
	if refused, _ := in["refused_now"].([]any); len(refused) != 0 || !strings.Contains(fmt.Sprint(in["notes"]), "can't be read with this key") {
		t.Errorf("%v", in)
	}
	a.call("commit", obj{"id": in["id"]})
	a.available(other, 10)
	in = a.call("prepare_transfer", obj{"from": other, "to": own, "amount": 10})
	a.refused("forbidden", "not_applied", "commit", obj{"id": in["id"]})
	a.available(other, 10)
	a.refused("forbidden", "not_applied", "get_account", obj{"account": other})
	a.refused("forbidden", "not_applied", "search", obj{"text": "user"})
}
