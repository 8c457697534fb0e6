package server

import (
	_ "embed"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// docs/examples.json has a request and an answer of each operation, as a server has really taken and given them. The names are
// made friendlier and long lists are cut.
//
//go:embed docs/examples.json
var examplesText []byte

type example struct {
	Request  jsontext.Value `json:"request,omitzero"`
	Response jsontext.Value `json:"response,omitzero"`
}

//nolint:gochecknoglobals // It is made of a file that never changes.
var examples = sync.OnceValue(func() map[string]example {
	var all map[string]example
	if err := json.Unmarshal(examplesText, &all); err != nil {
		panic("server: docs/examples.json: " + err.Error())
	}
	return all
})

// name is the route as the document has it.
func (rt route) name() string { return rt.method + " " + strings.ReplaceAll(rt.path, "...", "") }

// tags are the sections of the document's page, in order.
//
//nolint:gochecknoglobals // As above.
var tags = []*huma.Tag{
	{Name: "lottery", Description: "Campaigns: positions in layers that are sold once each, and one draw that anybody can recompute."},
	{Name: "multi-draws", Description: "Millions of draws in one operation, which may be interrupted, resumed and rolled back."},
	{Name: "auctions", Description: "Auctions in rounds: bids hold money, late bids extend the round, and each round settles once."},
	{Name: "ledger", Description: "Accounts, deposits, withdrawals, transfers and holds in double entry, also between ledgers."},
	{Name: "operations of several steps", Description: "For operators: what transfers between ledgers are made of, and how to end one that is stuck."},
	{Name: "publishing", Description: "Payloads that go to a target at a time, once, and the rules that schedule them."},
	{Name: "locks", Description: "Locks on one key or many among processes, with a token that makes writes of former holders refusable."},
	{Name: "live", Description: "Numbered events without a gap, over WebSocket or as server-sent events."},
	{Name: "administration", Description: "API keys, and what the console and `fairlead top` show. For admin keys; reader keys may read."},
	{Name: "public pages", Description: "Pages without a credential, which show aliases in place of accounts."},
	{Name: "public log", Description: "Facts that anybody may read, in a log that only grows: checkpoints and tiles as C2SP's tlog-tiles has them, and what proves leaves and balances."},
	{Name: "operation", Description: "Health, metrics, and this document."},
}

// plainMedia are the answers that are no document of a Go type.
//
//nolint:gochecknoglobals // As above.
var plainMedia = map[string]string{
	"GET /metrics":          "text/plain",
	"GET /openapi.json":     "application/json",
	"GET /docs":             "text/html",
	"GET /docs/{asset}":     "text/javascript",
	"GET /log/checkpoint":   "text/plain",
	"GET /log/key":          "text/plain",
	"GET /p/campaigns/{id}": "text/html",
	"GET /p/auctions/{id}":  "text/html",
	"GET /p/check":          "text/html",
	"GET /v1/events":        "text/event-stream",

	"GET /log/tile/{level}/{tile}": "application/octet-stream",
}

// success describes the answer of a route that has done what it was asked to.
func success(registry huma.Registry, rt route) *huma.Response {
	r := &huma.Response{Description: http.StatusText(rt.status)}
	if rt.status == http.StatusSwitchingProtocols {
		r.Description = "the connection is a WebSocket from now on"
	}
	answer := examples()[rt.name()].Response
	if media, plain := plainMedia[rt.name()]; plain {
		schema := &huma.Schema{Type: huma.TypeString}
		if media == "application/json" {
			schema.Type = huma.TypeObject
		}
		r.Content = map[string]*huma.MediaType{media: {Schema: schema, Example: answer}}
	}
	if rt.doc.response != nil {
		r.Content = map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(rt.doc.response, true, schemaName(rt.doc.response, "")), Example: answer}}
	}
	return r
}

// refusalsOf lists the codes of the refusals that a route may answer with: its own, and those of its sort.
func refusalsOf(rt route) []string {
	codes := append([]string{"bad_request"}, operations[rt.name()].problems...)
	if rt.access == accessPublic {
		codes = append(codes, "foreign_host")
	} else {
		codes = append(codes, "unauthorized", "forbidden", "rate_limited")
	}
	if strings.Contains(rt.path, "{") {
		codes = append(codes, "not_found")
	}
	if rt.method != http.MethodGet {
		codes = append(codes, "idempotency_key_required", "idempotency_key_reused", "payload_too_large")
	}
	if t := rt.doc.request; t != nil && t.Kind() == reflect.Struct {
		for f := range t.Fields() {
			// What names an account may name one that isn't there.
			if slices.Contains([]string{"account", "from", "to", "beneficiary", "seller", "target"}, strings.Split(f.Tag.Get("json"), ",")[0]) {
				codes = append(codes, "not_found")
			}
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// addRefusals describes the refusals of a route by status, with an example of each code. Equal descriptions are shared.
func addRefusals(components *huma.Components, problem *huma.Schema, rt route, responses map[string]*huma.Response) {
	byStatus := map[int][]string{}
	for _, code := range refusalsOf(rt) {
		e, found := explain(code)
		if !found {
			panic("server: " + rt.name() + " has an unknown code: " + code)
		}
		byStatus[e.Kinds[0].Status] = append(byStatus[e.Kinds[0].Status], code)
	}
	for status, codes := range byStatus {
		name := strings.Join(codes, "-")
		if components.Responses[name] == nil {
			media := &huma.MediaType{Schema: problem, Examples: map[string]*huma.Example{}}
			var titles []string
			for _, code := range codes {
				components.Examples[code] = problemExample(code)
				media.Examples[code] = &huma.Example{Ref: "#/components/examples/" + code}
				titles = append(titles, fmt.Sprintf("`%s`: %s.", code, components.Examples[code].Summary))
			}
			components.Responses[name] = &huma.Response{Description: strings.Join(titles, " "), Content: map[string]*huma.MediaType{contentTypeProblem: media}}
		}
		responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + name}
	}
}

// problemExample shows a problem of that code.
func problemExample(code string) *huma.Example {
	e, _ := explain(code)
	p := problemOf(&refusal{Kind: e.Kinds[0], Detail: e.Kinds[0].Title + "."}, "01a20c13-2e17-7b2a-8010-14b1f32f7393")
	const transfer = "01a20c13-2dc0-783e-b71e-c1d5de9fe4a7"
	switch code {
	case "cooldown":
		p.RetryAfter = 1
	case "deadlock":
		p.Cycle = []string{"worker-1", "worker-2"}
	case "insufficient_funds", "reference_taken":
		p.Transfer = transfer
	case edge.BadRequest.Code:
		p.Detail = "amount must be an integer from 1 to 9007199254740991"
	}
	return &huma.Example{Summary: e.Kinds[0].Title, Value: jsontext.Value(mustMarshal(p))}
}
