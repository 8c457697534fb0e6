package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestMCPLostAnswers: where answers are lost, commit says that the outcome is unknown, and the same id tells the truth later.
func TestMCPLostAnswers(t *testing.T) {
	t.Parallel()
	s := startScene(t)
	s.account("payer", 1000)
	s.account("payee", 0)
	between := newLossy(t, s.url)
	start := func() *agent { return newAgent(t, s.key, "--url", between.URL, "--allow-writes") }
	a := start()
	in := a.call("prepare_transfer", obj{"from": "payer", "to": "payee", "amount": 100})

	between.lose.Store(1) // The process repeats it by itself.
	if got := a.call("commit", obj{"id": in["id"]}); got["repeated"] != true || between.lost.Load() != 1 {
		t.Errorf("%v, %d answers were lost", got, between.lost.Load())
	}

	in = a.call("prepare_transfer", obj{"from": "payer", "to": "payee", "amount": 100})
	between.lose.Store(100)
	doc := a.refused("no_answer", "unknown", "commit", obj{"id": in["id"]})
	if doc["retryable"] != true || !strings.Contains(fmt.Sprint(doc["what_to_do"]), "commit again with the same id") || doc["id"] != in["id"] {
		t.Errorf("%v", doc)
	}
	list, _ := a.call("list_prepared", nil)["items"].([]any)
	if one, _ := list[0].(obj); len(list) != 1 || one["state"] != "unanswered" || one["id"] != in["id"] {
		t.Errorf("%v", list)
	}
	if got := s.available("payee"); got != "200+0" {
		t.Errorf("the payee has %s: the command was not carried out while its answers were lost", got)
	}
	a.kill()
	between.lose.Store(0)
	b := start()
	if got := b.call("commit", obj{"id": in["id"], "command": in["command"]}); got["repeated"] != true || got["status"] != 201.0 {
		t.Errorf("%v", got)
	}
	if got := s.available("payer") + " " + s.available("payee"); got != "800+0 200+0" {
		t.Errorf("%s", got)
	}

	// A server that is away.
	in = b.call("prepare_transfer", obj{"from": "payer", "to": "payee", "amount": 100})
	testwait.Must(t, between.Listener.Close())
	between.CloseClientConnections()
	b.refused("no_answer", "unknown", "commit", obj{"id": in["id"]})
	b.refused("no_answer", "not_applied", "get_account", obj{"account": "payer"})
}

// TestMCPAnswersWhatWasAsked: a client that sends its requests and closes the standard input gets all answers.
func TestMCPAnswersWhatWasAsked(t *testing.T) {
	t.Parallel()
	s := startScene(t)
	s.account("payer", 100)
	cmd := mcpCommand(t, s.key, "--url", s.url)
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"pipe","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":"three","method":"tools/call","params":{"name":"get_account","arguments":{"account":"payer"}}}
`)
	out, err := cmd.Output()
	testwait.Check(t, err)
	for _, want := range []string{`"id":1,"result"`, `"id":2,"result"`, `"id":"three","result"`, `\"available\":100`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in the answers: %.300s", want, out)
		}
	}
}

// TestMCPRefusals: what is changed, expired, foreign or wrong is refused, and says why.
func TestMCPRefusals(t *testing.T) { //nolint:tparallel // Its parts use one server, in order.
	t.Parallel()
	s := startScene(t)
	s.account("payer", 100)
	s.account("payee", 0)
	a := newAgent(t, s.key, "--url", s.url, "--allow-writes")
	transfer := obj{"from": "payer", "to": "payee", "amount": 60}
	in := a.call("prepare_transfer", transfer)
	command, _ := in["command"].(obj)
	changed := func(amount int) obj {
		return obj{"path": command["path"], "body": obj{"from": "payer", "to": "payee", "amount": amount}}
	}
	t.Run("changed", func(t *testing.T) {
		a.refused("prepared_changed", "not_applied", "commit", obj{"id": in["id"], "command": changed(61)})
		a.refused("prepared_changed", "not_applied", "commit", obj{"id": in["id"], "command": obj{"path": "/v1/withdrawals", "body": command["body"]}})
		other := a.call("prepare_transfer", transfer)
		if other["id"] == in["id"] {
			t.Error("two preparations have one id")
		}
		b := newAgent(t, s.key, "--url", s.url, "--allow-writes")
		b.refused("prepared_changed", "unknown", "commit", obj{"id": in["id"], "command": changed(61)})
		stranger := newAgent(t, s.keyOf("service"), "--url", s.url, "--allow-writes")
		stranger.refused("prepared_changed", "unknown", "commit", obj{"id": in["id"], "command": command})
		elsewhere := newAgent(t, s.key, "--url", newLossy(t, s.url).URL, "--allow-writes")
		elsewhere.refused("prepared_changed", "unknown", "commit", obj{"id": in["id"], "command": command})
		if got := s.available("payer"); got != "100+0" {
			t.Errorf("the payer has %s", got)
		}
		// The same written otherwise is the same.
		got := a.call("commit", obj{"id": in["id"], "command": changed(60)})
		if got["status"] != 201.0 {
			t.Errorf("%v", got)
		}
		// The server would have refused it, too.
		doc, status := s.keyed("POST", "/v1/transfers", fmt.Sprint(in["id"]), obj{"from": "payer", "to": "payee", "amount": 1})
		if status != http.StatusUnprocessableEntity || doc["code"] != "idempotency_key_reused" {
			t.Errorf("%d %v", status, doc)
		}
		if s.available("payer") != "40+0" {
			t.Errorf("the payer has %s", s.available("payer"))
		}
	})
	t.Run("refused by the server", func(t *testing.T) {
		in := a.call("prepare_transfer", transfer)
		refused, _ := in["refused_now"].([]any)
		if one, _ := refused[0].(obj); len(refused) != 1 || one["code"] != "insufficient_funds" {
			t.Errorf("%v", in)
		}
		doc := a.refused("insufficient_funds", "not_applied", "commit", obj{"id": in["id"]})
		if doc["retryable"] != false || doc["transfer"] == nil {
			t.Errorf("%v", doc)
		}
		s.call("POST", "/v1/deposits", obj{"account": "payer", "amount": 60})
		a.refused("insufficient_funds", "not_applied", "commit", obj{"id": in["id"]}) // For ever.
		again := a.call("prepare_transfer", transfer)
		a.call("commit", obj{"id": again["id"]})
	})
	t.Run("wrong", func(t *testing.T) {
		for _, args := range []obj{
			{},
			{"from": "payer"},
			{"from": "payer", "to": "payee"},
			{"from": "payer", "to": "payee", "amount": 0},
			{"from": "payer", "to": "payee", "amount": -5},
			{"from": "payer", "to": "payee", "amount": 1.5},
			{"from": "payer", "to": "payee", "amount": "5"},
			{"from": "payer", "to": "payee", "amount": uint64(1) << 53},
			{"from": "a b", "to": "payee", "amount": 5},
			{"from": "payer/../x", "to": "payee", "amount": 5},
			{"from": "payer", "to": "payee", "amount": 5, "sum": 5},
			{"from": "payer", "to": "payee", "amount": 5, "legs": []obj{{"from": "payer", "to": "payee", "amount": 5}}},
		} {
			a.refused("bad_request", "not_applied", "prepare_transfer", args)
		}
		a.refused("bad_request", "not_applied", "commit", obj{"id": "mcp-nonsense"})
		a.refused("bad_request", "not_applied", "commit", obj{})
		a.refused("bad_request", "not_applied", "commit", obj{"id": in["id"], "command": "transfer"})
		a.refused("bad_request", "not_applied", "prepare_auction_step", obj{"auction": s.id("POST", "/v1/auctions", obj{"title": "x", "currency": "EUR", "seller": "payee", "rounds": []obj{{"winners": 1, "duration": "1h"}}}), "step": "close"})
		a.refused("bad_request", "not_applied", "list_campaigns", obj{"limit": 201})
		a.refused("not_found", "not_applied", "get_account", obj{"account": "nobody"})
		a.refused("not_found", "not_applied", "prepare_release", obj{"hold": "0192f0c4-0000-7000-8000-000000000000"})
		a.refused("not_drawn", "not_applied", "get_draw", obj{"campaign": s.id("POST", "/v1/campaigns", obj{"name": "x", "currency": "EUR", "base_length": 1, "price": 1, "beneficiary": "payee", "prizes": []obj{{"name": "One", "quantity": 1}}})})
		in := a.call("prepare_transfer", obj{"from": "payer", "to": "nobody", "amount": 5})
		a.refused("not_found", "not_applied", "commit", obj{"id": in["id"]})
	})
	t.Run("expired", func(t *testing.T) {
		// A slow machine may take longer than that between two calls: then it has more time.
		var b *agent
		var sent obj
		for life, late := time.Second, true; late; life *= 2 {
			b = newAgent(t, s.key, "--url", s.url, "--allow-writes", "--prepared-for", life.String())
			sent = b.call("prepare_transfer", obj{"from": "payer", "to": "payee", "amount": 1})
			var doc obj
			if doc, late = b.try("commit", obj{"id": sent["id"]}); late && (doc["code"] != "prepared_expired" || life > patience) {
				t.Fatal(doc)
			}
		}
		in := b.call("prepare_transfer", obj{"from": "payer", "to": "payee", "amount": 1})
		until, err := time.Parse(time.RFC3339, fmt.Sprint(in["expires_at"]))
		testwait.Must(t, err)
		testwait.Eventually(t, patience, "its expiry", func() bool { return time.Now().After(until) })
		before := s.available("payer")
		b.refused("prepared_expired", "not_applied", "commit", obj{"id": in["id"]})
		a.refused("prepared_expired", "unknown", "commit", obj{"id": in["id"], "command": in["command"]})
		if got := b.call("commit", obj{"id": sent["id"]}); got["repeated"] != true { // It was sent in time.
			t.Errorf("%v", got)
		}
		if s.available("payer") != before {
			t.Error("an expired command was carried out")
		}
	})
	t.Run("a key that may not", func(t *testing.T) {
		b := newAgent(t, s.keyOf("reader"), "--url", s.url, "--allow-writes")
		in := b.call("prepare_transfer", obj{"from": "payer", "to": "payee", "amount": 1})
		b.refused("forbidden", "not_applied", "commit", obj{"id": in["id"]})
		c := newAgent(t, "no-such-key-no-such-key-no-such-key", "--url", s.url)
		c.refused("unauthorized", "not_applied", "get_account", obj{"account": "payer"})
	})
}

// TestMCPTools: without --allow-writes there is no tool that prepares or commits, and all say that they only read. Each tool and
// each argument is described.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--allow-writes"}} {
		a := newAgent(t, "any-key-will-do-since-nobody-is-asked", append([]string{"--url", "http://127.0.0.1:1"}, args...)...)
		writes := 0
		for tool, err := range a.session.Tools(t.Context(), nil) {
			testwait.Must(t, err)
			if strings.HasPrefix(tool.Name, "prepare_") || tool.Name == "commit" || tool.Name == "list_prepared" {
				writes++
			}
			if tool.Annotations.ReadOnlyHint != (tool.Name != "commit") {
				t.Errorf("%s: read-only is %v", tool.Name, tool.Annotations.ReadOnlyHint)
			}
			if len(tool.Description) < 20 || tool.Title == "" {
				t.Errorf("%s: %q %q", tool.Name, tool.Title, tool.Description)
			}
			schema, _ := tool.InputSchema.(obj)
			properties, _ := schema["properties"].(obj)
			for name, property := range properties {
				if p, _ := property.(obj); p["description"] == nil {
					t.Errorf("%s: %s is not described", tool.Name, name)
				}
			}
		}
		if (writes > 0) != (len(args) > 0) {
			t.Errorf("%v: %d tools for writes", args, writes)
		}
		if len(args) == 0 {
			_, err := a.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "commit", Arguments: obj{"id": "x"}})
			if err == nil || !strings.Contains(err.Error(), "unknown tool") {
				t.Errorf("commit: %v", err)
			}
		}
	}
}

// TestMCPReads calls every tool that reads, on a server that has something of everything.
func TestMCPReads(t *testing.T) {
	t.Parallel()
	s := startScene(t)
	s.fill()
	a := newAgent(t, s.key, "--url", s.url)
	args := map[string]obj{
		"get_account": {"account": "buyer-1"}, "list_accounts": {"prefix": "buyer", "limit": 2}, "list_entries": {"account": "buyer-1", "limit": 3}, "list_holds": {"account": "buyer-1"},
		"get_hold": {"hold": s.newHold()}, "get_transfer": {"transfer": s.transfer}, "find_transfer": {"reference": "none"}, "get_cross_transfer": {"transfer": s.saga}, "check_integrity": nil,
		"list_campaigns": {"limit": 2}, "get_campaign": {"campaign": s.drawn}, "get_campaign_statistics": {"campaign": s.onSale}, "list_campaign_purchases": {"campaign": s.onSale},
		"list_account_purchases": {"account": "buyer-1"}, "get_draw": {"campaign": s.drawn}, "get_multidraw": {"multidraw": s.multidraw},
		"list_auctions": {}, "get_auction": {"auction": s.auction}, "get_leaderboard": {"auction": s.auction}, "get_min_winning_bid": {"auction": s.auction},
		"list_auction_winners": {"auction": s.auction}, "list_bids": {"auction": s.auction}, "list_account_bids": {"account": "buyer-1"},
		"list_publications": {"status": "failed"}, "get_publication": {"publication": s.failed}, "list_attempts": {"publication": s.failed}, "list_targets": {},
		"list_subscriptions": {}, "list_subscription_topics": {"subscription": s.subscription, "limit": 2},
		"search": {"text": "buyer"}, "list_locks": {"limit": 1}, "verify_draw": {"campaign": s.drawn}, "verify_multidraw": {"multidraw": s.multidraw},
	}
	var names []string
	for tool, err := range a.session.Tools(t.Context(), nil) {
		testwait.Must(t, err)
		names = append(names, tool.Name)
		in, known := args[tool.Name]
		if !known {
			t.Errorf("%s is not tried", tool.Name)
			continue
		}
		doc := a.call(tool.Name, in)
		if strings.HasPrefix(tool.Name, "verify_") && (doc["valid"] != true || doc["results"] == 0.0) {
			t.Errorf("%s: %v", tool.Name, doc)
		}
	}
	for name := range args {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s", name)
		}
	}
	if got, want := a.call("get_account", obj{"account": "buyer-1"}), s.call("GET", "/v1/accounts/buyer-1", nil); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v is not %v", got, want)
	}
	first := a.call("list_entries", obj{"account": "buyer-1", "limit": 1})
	second := a.call("list_entries", obj{"account": "buyer-1", "limit": 1, "after": first["next"]})
	if fmt.Sprint(first["items"]) == fmt.Sprint(second["items"]) {
		t.Errorf("the second page is the first: %v", first)
	}
	commitment := strings.Repeat("0", 64)
	if doc := a.call("verify_draw", obj{"campaign": s.drawn, "commitment": commitment}); doc["valid"] != false || doc["difference"] == nil {
		t.Errorf("another commitment: %v", doc)
	}
	if doc := a.call("verify_multidraw", obj{"multidraw": s.multidraw, "commitment": commitment}); doc["valid"] != false {
		t.Errorf("another commitment: %v", doc)
	}
}

// TestMCPEnds: a signal, or the end of its input, ends it with success while its host is still there.
func TestMCPEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
		"signal": func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(syscall.SIGTERM) },
		"input":  func(_ *exec.Cmd, in io.Closer) error { return in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := mcpCommand(t, "any-key-will-do-since-nobody-is-asked", "--url", "http://127.0.0.1:1")
			in, err := cmd.StdinPipe()
			testwait.Must(t, err)
			out, err := cmd.StdoutPipe()
			testwait.Must(t, err)
			testwait.Must(t, cmd.Start())
			_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`+"\n")
			testwait.Must(t, err)
			answer, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !strings.Contains(answer, `"protocolVersion":"2025-06-18"`) {
				t.Errorf("%s, %v", answer, err)
			}
			testwait.Must(t, end(cmd, in))
			testwait.Check(t, cmd.Wait())
		})
	}
}

// TestMCPOverHTTP: beyond loopback a token is needed; pages of other origins and rebound names are refused.
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	s := startScene(t)
	s.account("payer", 100)
	cmd := mcpCommand(t, s.key, "--url", s.url, "--http", "0.0.0.0:0")
	cmd.Stderr = nil
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "needs a token in FAIRLEAD_MCP_TOKEN") {
		t.Errorf("%v %s", err, out)
	}

	token := strings.Repeat("token-", 6)
	cmd = mcpCommand(t, s.key, "--url", s.url, "--http", "0.0.0.0:0")
	cmd.Env = append(cmd.Env, mcpTokenVariable+"="+token)
	endpoint := strings.Replace(startMCP(t, cmd), "[::]", "127.0.0.1", 1)
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	ask := func(endpoint string, change func(r *http.Request)) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(list))
		testwait.Must(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		change(r)
		answer, err := http.DefaultClient.Do(r)
		testwait.Must(t, err)
		testwait.Check(t, answer.Body.Close())
		return answer.StatusCode
	}
	bearer := func(token string) func(r *http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	open := startMCP(t, mcpCommand(t, s.key, "--url", s.url, "--http", "127.0.0.1:0"))
	for _, c := range []struct {
		name, endpoint string
		change         func(r *http.Request)
		want           int
	}{
		{"no token", endpoint, func(*http.Request) {}, http.StatusUnauthorized},
		{"another token", endpoint, bearer(token + "x"), http.StatusUnauthorized},
		{"the server's own key", endpoint, bearer(s.key), http.StatusUnauthorized},
		{"the token", endpoint, bearer(token), http.StatusOK},
		{"loopback", open, func(*http.Request) {}, http.StatusOK},
		{"another path", strings.TrimSuffix(open, "/mcp"), func(*http.Request) {}, http.StatusNotFound},
		{"a page of another origin", open, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		{"a page of another port", open, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }, http.StatusForbidden},
		{"a page in a sandbox", open, func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		{"a cross-site request", open, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		{"a name that was rebound", open, func(r *http.Request) {
			r.Host = "evil.example"
			r.Header.Set("Origin", "http://evil.example")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}, http.StatusForbidden},
	} {
		if got := ask(c.endpoint, c.change); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}

	authorized := &http.Client{Transport: withToken(token)}
	a := connect(t, &sdk.StreamableClientTransport{Endpoint: endpoint, HTTPClient: authorized, DisableStandaloneSSE: true}, nil)
	if got := a.call("get_account", obj{"account": "payer"}); got["available"] != 100.0 {
		t.Errorf("%v", got)
	}
}

// withToken adds the token to each request.
type withToken string

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Header.Set("Authorization", "Bearer "+string(w))
	return http.DefaultTransport.RoundTrip(r)
}
