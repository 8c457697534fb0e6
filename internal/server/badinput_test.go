package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// member is one member of a request, as JSON text.
type member struct {
	name  string
	value string // a good one
	kind  string // which bad values it is given
	must  bool   // its absence, and null, are bad
}

// postRoute is a POST route with a request that it accepts.
type postRoute struct {
	path    string // with the id of something that is there
	members []member
	// wrap puts the members into the request, where they are those of an inner object; %s stands for them.
	wrap   string
	status int // of a good request
}

func document(members []member) string {
	parts := make([]string, len(members))
	for i, m := range members {
		parts[i] = fmt.Sprintf("%q:%s", m.name, m.value)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (p *postRoute) body(members []member) string {
	if p.wrap == "" {
		return document(members)
	}
	return strings.Replace(p.wrap, "%s", document(members), 1)
}

// with returns the members with one value changed.
func (p *postRoute) with(i int, value string) string {
	changed := append([]member(nil), p.members...)
	changed[i].value = value
	return p.body(changed)
}

// without returns the members but one.
func (p *postRoute) without(i int) string {
	return p.body(append(append([]member(nil), p.members[:i]...), p.members[i+1:]...))
}

// postRoutes are all POST routes. The requests are good when they are sent in this order.
func (e *env) postRoutes() []postRoute {
	e.t.Helper()
	e.account("alice", "EUR", 1_000_000)
	e.account("bob", "EUR", 0)
	hold := func() string {
		return "/v1/holds/" + e.post("/v1/holds", `{"account":"alice","amount":10}`).want(http.StatusCreated).str("id")
	}
	sale := "/v1/campaigns/" + e.onSale(`"base_length":4`, "")
	pending := "/v1/campaigns/" + e.campaign(`"base_length":1`, "")
	drawn := e.onSale(`"base_length":1`, "")
	e.buy(drawn, "alice").want(http.StatusCreated)
	money := []member{{"account", `"alice"`, "id", true}, {"amount", `5`, "amount", true}, {"memo", `"m"`, "memo", false}}
	campaign := []member{
		{"name", `"n"`, "name", true},
		{"base_length", `3`, "base_length", true},
		{"price", `5`, "amount", true},
		{"currency", `"EUR"`, "currency", true},
		{"beneficiary", `"bob"`, "id", true},
		{"prizes", `[{"name":"p","quantity":1}]`, "prizes", true},
		{"purchase_limit", `2`, "count", false},
		{"draw", `"instant"`, "draw", false},
	}
	lot := e.started(twoRounds, `"cooldown":"0s"`)
	unstarted, cancelled := e.auctioned(twoRounds, ``), e.auctioned(twoRounds, ``)
	auction := []member{
		{"title", `"t"`, "title", true},
		{"currency", `"EUR"`, "currency", true},
		{"seller", `"bob"`, "id", true},
		{"rounds", `[{"winners":1,"duration":"1h"}]`, "rounds", true},
		{"min_bid", `5`, "amount", false},
		{"min_increment", `5`, "amount", false},
		{"anti_snipe", `{"window":"1s","extension":"1s","max_extensions":1}`, "object", false},
		{"cooldown", `"1s"`, "span", false},
		{"unique_amounts", `true`, "flag", false},
	}
	const (
		lots = `{"title":"t","currency":"EUR","seller":"bob",`
		once = `"rounds":[{"winners":1,"duration":"1h"}],`
	)
	renewed := e.lock("o", "1h", "", "renewed").want(http.StatusCreated).str("id")
	e.target("standing", "https://example.com")
	draft := func() string { return e.publication("standing", `,"payload":1`) }
	const around = `{"name":"n","currency":"EUR","beneficiary":"bob","price":5,`
	return []postRoute{
		{path: "/v1/accounts", status: 201, members: []member{{"id", `"new"`, "id", true}, {"currency", `"EUR"`, "currency", true}}},
		{path: "/v1/deposits", status: 201, members: money},
		{path: "/v1/withdrawals", status: 201, members: money},
		{path: "/v1/transfers", status: 201, members: []member{
			{"from", `"alice"`, "id", true}, {"to", `"bob"`, "id", true}, {"amount", `5`, "amount", true}, {"memo", `"m"`, "memo", false},
		}},
		{path: "/v1/holds", status: 201, members: []member{{"account", `"alice"`, "id", true}, {"amount", `5`, "amount", true}, {"expires_in", `"1h"`, "duration", false}}},
		{path: hold() + "/capture", status: 200, members: []member{{"to", `"bob"`, "id", true}, {"amount", `5`, "amount", false}}},
		{path: hold() + "/release", status: 200},
		{path: "/v1/campaigns", status: 201, members: campaign},
		{path: "/v1/campaigns", status: 201, wrap: around + `"base_length":3,"prizes":[{"name":"q","quantity":1},%s]}`, members: []member{
			{"name", `"p"`, "name", true}, {"layer", `1`, "layer", false}, {"quantity", `1`, "quantity", true},
		}},
		{path: "/v1/campaigns", status: 201, wrap: around + `"prizes":[{"name":"q","quantity":1}],"layers":[{"positions":1},%s]}`, members: []member{
			{"positions", `2`, "positions", true}, {"price", `1`, "amount", false},
		}},
		{path: "/v1/campaigns", status: 201, wrap: around + `"prizes":[{"name":"q","quantity":1}],"layers":[%s]}`, members: []member{{"positions", `2`, "positions", true}}},
		{path: sale + "/purchases", status: 201, members: []member{{"account", `"alice"`, "id", true}, {"layer", `1`, "layer", false}}},
		{path: pending + "/publish", status: 200},
		{path: pending + "/cancel", status: 200},
		{path: "/v1/campaigns/" + drawn + "/draw", status: 200},
		{path: "/v1/auctions", status: 201, members: auction},
		{path: "/v1/auctions", status: 201, wrap: lots + `"rounds":[{"winners":1,"duration":"1h"},%s]}`, members: []member{
			{"winners", `1`, "winners", true}, {"duration", `"1h"`, "round's span", true},
		}},
		{path: "/v1/auctions", status: 201, wrap: lots + once + `"anti_snipe":%s}`, members: []member{
			{"window", `"1s"`, "span", true}, {"extension", `"1s"`, "span", true}, {"max_extensions", `1`, "extensions", true},
		}},
		{path: "/v1/auctions/" + lot + "/bids", status: 201, members: []member{{"account", `"alice"`, "id", true}, {"amount", `5`, "amount", true}}},
		{path: "/v1/auctions/" + unstarted + "/start", status: 200},
		{path: "/v1/auctions/" + cancelled + "/cancel", status: 200},
		{path: "/v1/cross-transfers", status: 201, members: []member{
			{"from", `{"ledger":"local","account":"alice"}`, "object", true},
			{"to", `{"ledger":"local","account":"bob"}`, "object", true},
			{"amount", `5`, "amount", true},
			{"mode", `"saga"`, "draw", true},
		}},
		{path: "/v1/cross-transfers", status: 201, wrap: `{"from":%s,"to":{"ledger":"local","account":"bob"},"amount":5,"mode":"twophase"}`, members: []member{
			{"ledger", `"local"`, "id", true}, {"account", `"alice"`, "id", true},
		}},
		{path: "/v1/multidraws", status: 201, members: []member{
			{"lock_key", `"k"`, "name", true}, {"count", `5`, "draws", true}, {"range", `{"min":1,"max":6}`, "object", true}, {"async", `false`, "flag", false},
		}},
		{path: "/v1/multidraws", status: 201, wrap: `{"lock_key":"w","count":5,"prizes":[{"id":"q","name":"q","weight":1},%s]}`, members: []member{
			{"id", `"p"`, "id", true}, {"name", `"p"`, "name", true}, {"weight", `3`, "weight", true}, {"value", `5`, "integer", false},
		}},
		{path: "/v1/locks", status: 201, members: []member{
			{"keys", `["k","l","k"]`, "keys", true}, {"owner", `"o"`, "name", true}, {"ttl", `"1h"`, "lock's ttl", true}, {"wait", `"1s"`, "lock's wait", false},
		}},
		{path: "/v1/locks/" + renewed + "/renew", status: 200, members: []member{{"ttl", `"2h"`, "lock's ttl", false}}},
		{path: "/v1/targets", status: 201, members: []member{
			{"name", `"t"`, "name", true},
			{"kind", `"webhook"`, "target's kind", true},
			{"url", `"https://example.com/hook"`, "url", true},
			{"config", `{}`, "config", false},
			{"timeout", `"15m"`, "target's timeout", false},
		}},
		{path: "/v1/targets", status: 201, wrap: `{"name":"u","kind":"webhook","url":"http://example.com","config":%s}`, members: []member{
			{"timeout", `"100ms"`, "timeout", false},
		}},
		{path: "/v1/publications", status: 201, members: []member{
			{"target", `"standing"`, "name", true}, {"publish_at", `"2999-12-31T23:59:59.999999Z"`, "moment", false}, {"jitter", `"5m"`, "jitter", false}, {"payload", `{"a":1}`, "JSON", true},
		}},
		{path: draft() + "/schedule", status: 200, members: []member{{"publish_at", `"2999-12-31T23:59:59Z"`, "moment", true}, {"jitter", `"0s"`, "jitter", false}}},
		{path: draft() + "/publish", status: 200},
		{path: draft() + "/cancel", status: 200},
		{path: e.failedPublication("standing") + "/retry", status: 200},
		{path: "/v1/keys", status: 201, members: []member{
			{"role", `"service"`, "role", true}, {"name", `"n"`, "name", true}, {"hash", `"` + strings.Repeat("0f", 32) + `"`, "hash", true},
		}},
	}
}

// notANumber is bad wherever an integer from 1 on is wanted.
var notANumber = []string{
	`0`, `-0`, `-1`, `-9223372036854775808`, `-9223372036854775809`, `9223372036854775807`, `9223372036854775808`, `18446744073709551615`, `18446744073709551617`,
	`340282366920938463463374607431768211457`, strings.Repeat("9", 1000), `1.0`, `1.5`, `0.1`, `5e0`, `1e3`, `1E3`, `1e-1`, `1e400`, `-1e3`, `1e99999999999`,
	`"5"`, `""`, `"٣"`, `"５"`, `٣`, `５`, `Ⅴ`, `true`, `false`, `[]`, `[5]`, `{}`, `{"a":5}`, `+5`, `05`, `0x5`, `.5`, `5.`, `-`, `5_000`, `5,5`, `5 5`, `NaN`, `Infinity`,
	`-Infinity`, `nul`, `"null"`, `5;DROP TABLE accounts`, `5/*c*/`,
}

// notText is bad wherever a string is wanted.
var notText = []string{
	`5`, `0`, `1.5`, `true`, `false`, `[]`, `["a"]`, `{}`, `{"a":"b"}`, `'a'`, `a`, `"a`, `a"`, `"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, "\"\xff\"", "\"\xc0\xaf\"",
	"\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", `"\x41"`, `"\u12"`, "\"\x01\"", "\"a\nb\"", "\"\x00\"", "\"\t\"", `"a" "b"`, `"a"+"b"`,
}

// controls are bad in every text that people read.
var controls = []string{`"a\u0000"`, `"\u0000"`, `"a\u0001b"`, `"\b"`, `"\f"`, `"\n"`, `"\r"`, `"\t"`, `"\u001f"`, `"\u007f"`, `"\u0080"`, `"\u0085"`, `"\u009f"`, "\"\x7f\"", "\"\u0085\"", "\"a\u009bm\""}

// fragments mean something to somebody further in.
var fragments = []string{
	`"'; DROP TABLE accounts;--"`, `"' OR '1'='1"`, `"a' UNION SELECT 1--"`, `"$1"`, `"%27"`, `"../../etc/passwd"`, `"a/b"`, `"/"`, `"\\"`, `"a\\b"`, `"a%00"`, `"a%2Fb"`,
	`"<script>"`, `"${jndi:ldap://x}"`, `"{{7*7}}"`, `"a b"`, `" a"`, `"a "`, `"ä"`, `"аlice"`, `"ａlice"`, `"🎟"`, `"a\u200b"`, `"\ufeffalice"`, `"outside/EUR"`, `"escrow/x"`,
}

// badValues are what a member of each kind must not be.
func badValues(kind string) []string {
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	quote := func(s string) string { return `"` + s + `"` }
	switch kind {
	case "amount":
		return join(notANumber, []string{`9007199254740992`, `9007199254740993`, `90071992547409910`})
	case "base_length":
		return join(notANumber, []string{`1001`, `2147483647`, `2147483648`, `4294967297`})
	case "positions":
		return join(notANumber, []string{`1000001`, `2147483648`, `4294967297`})
	case "count", "layer":
		return join(notANumber, []string{`2147483648`, `4294967297`, `9007199254740991`})
	case "quantity": // A large one is too many prizes, which is a decision.
		return join(notANumber, []string{`9007199254740992`, `9223372036854775807`})
	case "id":
		return join(notText, controls, fragments, []string{`""`, `"."`, `".."`, quote(strings.Repeat("a", 65)), quote(strings.Repeat("a", 10_000))})
	case "currency":
		return join(notText, controls, fragments, []string{`""`, `"E"`, `"EU"`, `"eur"`, `"Eur"`, `"1EU"`, `"EU-"`, `"ABCDEFGHIJKLM"`, `"EUR\n"`, `"ЕUR"`, `"ÉUR"`, `"EU٣"`})
	case "name":
		return join(notText, controls, []string{`""`, quote(strings.Repeat("n", 201)), quote(strings.Repeat("ß", 201)), quote(strings.Repeat("🎟", 201)), quote(strings.Repeat(`\ud83c\udf9f`, 201))})
	case "memo":
		return join(notText, controls, []string{quote(strings.Repeat("n", 501)), quote(strings.Repeat("ß", 501)), quote(strings.Repeat("🎟", 501))})
	case "duration":
		return join(notText, controls, fragments, []string{
			`""`, `"0"`, `"0s"`, `"-0s"`, `"-1s"`, `"5"`, `"1d"`, `"1 s"`, `" 1s"`, `"1s "`, `"1S"`, `"1e3s"`, `"٣s"`, `"P1D"`, `"87601h"`, `"99999999999h"`, `"9223372036854775808ns"`, `"h"`, `"1h-1m"`, `3600`,
		})
	case "title":
		return join(notText, controls, []string{`""`, quote(strings.Repeat("n", 501)), quote(strings.Repeat("ß", 501)), quote(strings.Repeat("🎟", 501))})
	case "span", "round's span":
		spans := join(notText, controls, fragments, []string{
			`""`, `"-1s"`, `"-1us"`, `"5"`, `"1d"`, `"1 s"`, `" 1s"`, `"1s "`, `"1S"`, `"1e3s"`, `"٣s"`, `"P1D"`, `"8785h"`, `"99999999999h"`, `"9223372036854775808ns"`, `"h"`, `3600`,
			`"1ns"`, `"999ns"`, `"1.0000001s"`, `"8784h0m0.000001s"`, `"1h1ns"`,
		})
		if kind == "span" {
			return spans
		}
		return append(spans, `"0"`, `"0s"`, `"-0s"`, `"999us"`)
	case "lock's ttl", "lock's wait":
		spans := join(notText, controls, fragments, []string{
			`""`, `"-1s"`, `"-1us"`, `"5"`, `"1d"`, `"1 s"`, `" 1s"`, `"1s "`, `"1S"`, `"1e3s"`, `"٣s"`, `"P1D"`, `"99999999999h"`, `"9223372036854775808ns"`, `"h"`, `3600`,
			`"1ns"`, `"1.0000001s"`,
		})
		if kind == "lock's wait" {
			return append(spans, `"10m0.000001s"`, `"1h"`, `"-0.1s"`)
		}
		return append(spans, `"0"`, `"0s"`, `"-0s"`, `"99.999ms"`, `"24h0m0.000001s"`, `"25h"`)
	case "keys":
		many := make([]string, 101)
		for i := range many {
			many[i] = fmt.Sprintf("%q", fmt.Sprint("k", i))
		}
		return []string{
			`[]`, `{}`, `""`, `"k"`, `5`, `true`, `[null]`, `[5]`, `[[]]`, `[["k"]]`, `[{}]`, `["k",]`, `["k"`, `["k",null]`, `["k",""]`, `["k","a\u0000"]`, `["a\nb"]`, `["\u007f"]`,
			`["\u0085"]`, `["\ud800"]`, `["` + strings.Repeat("ß", 201) + `"]`, `["` + strings.Repeat("k", 10_000) + `"]`, `[` + strings.Join(many, ",") + `]`, `{"0":"k"}`,
		}
	case "winners":
		return join(notANumber, []string{`10001`, `2147483648`, `4294967297`})
	case "config":
		return []string{`[]`, `[{}]`, `5`, `"x"`, `true`, `{"x":1}`, `{"timeout":"10s","timeout":"10s"}`, `{"timeout":10}`, `{"Timeout":"10s"}`}
	case "target's kind":
		return join(notText, controls, fragments, []string{`""`, `"deviantart"`, `"Webhook"`, `"webhook "`})
	case "url":
		return join(notText, controls, fragments, []string{
			`""`, `"example.com"`, `"//example.com"`, `"ftp://example.com"`, `"http://"`, `"https:///x"`, `"http://u:p@example.com"`, `"http://example.com/#x"`, `"http://example.com:0"`,
			`"http://example.com:65536"`, `"http://a b"`, `"javascript:alert(1)"`, `"file:///etc/passwd"`, quote("http://example.com/" + strings.Repeat("x", 2000)),
		})
	case "timeout", "target's timeout", "jitter":
		spans := join(notText, controls, fragments, []string{
			`""`, `"-1s"`, `"5"`, `"1d"`, `"1 s"`, `" 1s"`, `"1S"`, `"P1D"`, `"99999999999h"`, `"h"`, `30`, `"1.0000001s"`, `"15m0.000001s"`, `"-1us"`,
		})
		switch kind {
		case "jitter":
			return append(spans, `"5m0.000001s"`)
		case "timeout":
			return append(spans, `"0"`, `"0s"`, `"99ms"`)
		}
		return append(spans, `"0"`, `"0s"`, `"999ms"`)
	case "moment":
		return join(notText, controls, fragments, []string{
			`""`, `"now"`, `"2030-01-01"`, `"2030-01-01T00:00:00"`, `"2030-01-01 00:00:00Z"`, `"2030-02-30T00:00:00Z"`, `"2030-01-01T24:00:00Z"`, `"2030-01-01T00:00:00,5Z"`,
			`"2030-1-1T0:0:0Z"`, `"9999-01-01T00:00:00Z"`, `"12030-01-01T00:00:00Z"`, `"2030-01-01T00:00:00+25:00"`, `"2030-01-01T00:00:00+24:00"`, `"2030-01-01T00:00:00+23:60"`, `"2030-01-01T1:00:00Z"`, `1900000000`, `"1900000000"`,
		})
	case "JSON":
		return []string{`nul`, `'a'`, `{"a":1,"a":2}`, `[1,]`, `{"a"}`, `"\ud800"`, "\"\xff\"", `01`, `NaN`, `{`, `"a`, `1 2`}
	case "draws":
		return join(notANumber, []string{`20000001`, `2147483648`, `4294967297`})
	case "integer", "weight":
		bad := []string{`1.5`, `0.1`, `1e-1`, `"5"`, `""`, `true`, `[5]`, `{}`, `9223372036854775808`, `-9223372036854775809`, `0x5`, `05`, `+5`, `NaN`, `Infinity`}
		if kind == "weight" {
			bad = append(bad, `-1`, `-9223372036854775808`, `9223372036854775807`) // The last with the other weight.
		}
		return bad
	case "extensions":
		all := slices.Clone(notANumber)
		all = slices.DeleteFunc(all, func(s string) bool { return s == `0` || s == `-0` }) // None is fine here.
		return join(all, []string{`1000001`, `2147483648`, `4294967297`})
	case "flag":
		return join(notText[:3], []string{`"true"`, `"false"`, `""`, `True`, `yes`, `1.0`, `[true]`, `{"a":true}`, `tru`})
	case "object":
		return []string{`[]`, `""`, `5`, `true`, `[{}]`, `{}`, `{"window":"1s","extension":"1s","max_extensions":1,"x":1}`, `{"window":"1s","extension":"1s","max_extensions":1,"window":"1s"}`}
	case "rounds":
		many := strings.Repeat(`{"winners":1,"duration":"1h"},`, 1001)
		return []string{
			`[]`, `{}`, `""`, `5`, `true`, `[null]`, `[5]`, `["a"]`, `[[]]`, `[{}]`, `[{"winners":1,"duration":"1h"},]`, `[{"winners":1,"duration":"1h"}`, `[` + strings.TrimSuffix(many, ",") + `]`,
			`[{"winners":1,"duration":"1h","x":1}]`, `[{"winners":1,"duration":"1h","winners":1}]`,
		}
	case "draw":
		return join(notText, controls, []string{`""`, `"Instant"`, `"instant "`, `"manual"`, `"none"`})
	case "role":
		return join(notText, controls, fragments, []string{`""`, `"user"`, `"Admin"`, `"root"`, `"admin,service"`})
	case "hash":
		return join(notText, controls, fragments, []string{`""`, quote(strings.Repeat("0", 63)), quote(strings.Repeat("0", 65)), quote(strings.Repeat("0F", 32)), quote(strings.Repeat("0g", 32)), quote(strings.Repeat("0f", 33))})
	case "prizes":
		many := strings.Repeat(`{"name":"x","quantity":1},`, 1001)
		return []string{
			`[]`, `{}`, `""`, `5`, `true`, `[null]`, `[5]`, `["a"]`, `[[]]`, `[{}]`, `[{"name":"p","quantity":1},]`, `[{"name":"p","quantity":1}`, `[` + strings.TrimSuffix(many, ",") + `]`,
			`[{"name":"p","quantity":1},{"name":"p","quantity":2}]`, `[{"name":"p","quantity":1,"x":1}]`, `[{"name":"p","quantity":1,"quantity":1}]`,
		}
	}
	panic("no bad values for " + kind)
}

// refused sends a bad request and fails unless it is refused as one.
func (e *env) refused(path, body string) {
	e.t.Helper()
	e.post(path, body).problem(http.StatusBadRequest, "bad_request")
}

// TestBadMembers gives every member of every POST route every bad value of its kind.
func TestBadMembers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	routes := e.postRoutes()
	before := e.snapshot()
	sent := 0
	for _, p := range routes {
		for i, m := range p.members {
			bad := badValues(m.kind)
			if m.must {
				e.refused(p.path, p.without(i))
			}
			if m.must && m.kind != "JSON" { // Null is a value like any other there.
				bad = append(bad, `null`)
			}
			for _, value := range bad {
				e.refused(p.path, p.with(i, value))
				sent++
			}
			good := p.body(p.members)
			named := fmt.Sprintf("%q:", m.name)
			for _, body := range []string{
				strings.Replace(good, named, named+m.value+","+named, 1), // twice
				strings.Replace(good, named, `"`+strings.ToUpper(m.name[:1])+m.name[1:]+`":`+m.value+","+named, 1),
				strings.Replace(good, named, `"`+strings.ToUpper(m.name)+`":`, 1),
				strings.Replace(good, named, `"`+strings.ReplaceAll(m.name, "a", "á")+`_":`, 1),
				strings.Replace(good, named, `"`+m.name+`\u0000":`, 1),
				strings.Replace(good, named, m.name+":", 1),
				strings.Replace(good, named, "'"+m.name+"':", 1),
			} {
				e.refused(p.path, body)
			}
		}
	}
	e.unchanged(before)
	if sent < 1000 {
		t.Errorf("only %d bad values were sent", sent)
	}
	e.acceptsGood(routes)
}

// acceptsGood shows that the requests which were varied are good ones.
func (e *env) acceptsGood(routes []postRoute) {
	e.t.Helper()
	for _, p := range routes {
		body := ``
		if len(p.members) > 0 {
			body = p.body(p.members)
		}
		e.post(p.path, body).want(p.status)
	}
}

// TestBadDocuments gives every POST route what is no request at all.
func TestBadDocuments(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	routes := e.postRoutes()
	before := e.snapshot()
	for _, p := range routes {
		good := p.body(p.members)
		open := strings.TrimSuffix(good, "}")
		more := open + ","
		if len(p.members) == 0 {
			more = open
		} else if slices.ContainsFunc(p.members, func(m member) bool { return m.must }) {
			e.refused(p.path, ``)
			e.refused(p.path, ` `)
			e.refused(p.path, `{}`)
		}
		deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
		for _, body := range []string{
			`null`, `true`, `5`, `"a"`, `[]`, `[` + good + `]`, `x`, `{`, `}`, `{}}`, `{"`, `{"a"`, `{"a":`, `{"a":1`, `{a:1}`, `{"a" 1}`, `{,}`, `//`, `<a/>`, `a=b&c=d`, "\x00", "\xff\xfe{\x00}\x00",
			good + good, good + `{}`, good + `x`, good + ` null`, good + `,`, good + `]`, good + "\x00", open, more + `}` + `}`, more + `"unknown":1}`, more + `"":1}`, more + `"__proto__":{}}`,
			more + `"unknown":null}`, "\ufeff" + good, "\xef\xbb\xbf" + good, "\u00a0" + good, "\v" + good, "\x00" + good, "/**/" + good, good + "//", good + "\n#",
			more + `"x":` + deep(10_000) + `}`, more + `"x":` + deep(100) + `}`, strings.Repeat(`{"x":`, 10_000) + `1` + strings.Repeat(`}`, 10_000), deep(10_000), strings.Repeat(`[`, 100_000), strings.Repeat(`{"a":`, 100_000),
			more + "\"\xff\":1}", more + `"\ud800":1}`, more + "\"\x01\":1}", more + `"x":1,"x":2}`,
		} {
			e.refused(p.path, body)
		}
		for i := range p.members {
			e.refused(p.path, p.with(i, deep(10_000)))
			if p.members[i].kind != "JSON" {
				e.refused(p.path, p.with(i, strings.Repeat(`{"a":`, 5000)+`1`+strings.Repeat(`}`, 5000)))
			}
		}
	}
	e.unchanged(before)
	e.acceptsGood(routes)
}

// TestBodySize sends what is as large as it may be, and one byte more.
func TestBodySize(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	routes := e.postRoutes()
	before := e.snapshot()
	pad := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	for _, p := range routes {
		good := p.body(p.members)
		e.post(p.path, pad(good, 1<<20+1)).problem(http.StatusRequestEntityTooLarge, "payload_too_large")
		e.post(p.path, pad(good+"x", 1<<20)).problem(http.StatusBadRequest, "bad_request")
	}
	e.post("/v1/deposits", strings.Repeat("[", 1<<20)).problem(http.StatusBadRequest, "bad_request")
	e.post("/v1/deposits", `{"account":"`+strings.Repeat("a", 1<<20-14)+`"}`).problem(http.StatusBadRequest, "bad_request")
	e.post("/v1/deposits", strings.Repeat(" ", 4<<20)).problem(http.StatusRequestEntityTooLarge, "payload_too_large")
	// A body that does not say how long it is.
	chunked := func(body string) *reply {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/v1/deposits", struct{ *strings.Reader }{strings.NewReader(body)})
		must(t, err)
		request.ContentLength = -1
		request.Header.Set("Authorization", "Bearer "+e.admin)
		request.Header.Set("Idempotency-Key", newUUID())
		response, err := e.http.Do(request)
		must(t, err)
		return e.received(http.MethodPost, "/v1/deposits", "chunked", response)
	}
	chunked(pad(`{"account":"alice","amount":5}`, 1<<20+1)).problem(http.StatusRequestEntityTooLarge, "payload_too_large")
	e.unchanged(before)
	chunked(pad(`{"account":"alice","amount":5}`, 1<<20)).want(http.StatusCreated)
	for _, p := range routes {
		e.post(p.path, pad(p.body(p.members), 1<<20)).want(p.status)
	}
}

// TestGoodLimits sends what is just good enough, so that the matrix of bad values stands next to it.
func TestGoodLimits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 10)
	e.account("rich", "EUR", 0)
	for _, name := range []string{"n", strings.Repeat("n", 200), strings.Repeat("ß", 200), strings.Repeat("🎟", 200), " ", "'; DROP TABLE accounts;--", "\u2028", "\ufffd", "a\u200bb", "<b>", "\u00a0", "\U0010ffff"} {
		r := e.post("/v1/campaigns", fmt.Sprintf(`{"name":%s,"base_length":1,"price":1,"currency":"EUR","beneficiary":"alice","prizes":[{"name":%[1]s,"quantity":1}]}`, mustMarshal(name)))
		r.want(http.StatusCreated).equal(fmt.Sprintf(`{"name":%s,"prizes":[{"name":%[1]s,"layer":null,"quantity":1}]}`, mustMarshal(name)))
		e.get("/v1/campaigns/" + r.str("id")).equal(fmt.Sprintf(`{"name":%s}`, mustMarshal(name)))
	}
	for _, memo := range []string{strings.Repeat("🎟", 500), "'; DELETE FROM entries;--", `\`, `"`, "%s%n"} {
		r := e.post("/v1/deposits", fmt.Sprintf(`{"account":"rich","amount":1,"memo":%s}`, mustMarshal(memo))).want(http.StatusCreated)
		e.get("/v1/transfers/" + r.str("id")).equal(fmt.Sprintf(`{"memo":%s}`, mustMarshal(memo)))
	}
	e.post("/v1/deposits", `{"account":"rich","amount":9007199254740991}`).want(http.StatusCreated)
	for _, d := range []string{"1ns", "87600h", "1.5s", "1h1m1s", "+1s", "1µs"} {
		e.post("/v1/holds", fmt.Sprintf(`{"account":"rich","amount":1,"expires_in":%q}`, d)).want(http.StatusCreated)
	}
}
