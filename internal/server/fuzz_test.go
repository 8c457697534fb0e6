package server

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// fuzzDecode decodes a body into one type of request. What is accepted must be spelt one way, and that way be accepted.
func fuzzDecode[Req any](t *testing.T, body []byte) {
	t.Helper()
	var first Req
	err := edge.Decode(body, &first)
	if err != nil {
		var r *refusal
		if !errors.As(err, &r) || r.Kind.Code != edge.BadRequest.Code {
			t.Fatalf("%T: %v is no refusal of a bad request", first, err)
		}
		if !utf8.ValidString(r.Detail) || strings.Contains(r.Detail, "server.") || strings.Contains(r.Detail, "Go ") {
			t.Fatalf("%T: detail %q", first, r.Detail)
		}
		return
	}
	canonical := mustMarshal(&first)
	var second Req
	if err := edge.Decode(canonical, &second); err != nil {
		t.Fatalf("%T: the canonical form %s of %q is refused: %v", first, canonical, body, err)
	}
	if again := mustMarshal(&second); !bytes.Equal(canonical, again) {
		t.Fatalf("%T: %q is %s, which is %s", first, body, canonical, again)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, ` `, `{}`, `null`, `[]`, `{"id":"alice","currency":"EUR"}`, `{"account":"a","amount":9007199254740991,"memo":null}`, `{"from":"a","to":"b","amount":1.0}`, `{"account":"a","amount":1,"reference":null}`, `{"from":"a","to":"b","amount":1,"reference":"r"}`,
		`{"account":"a","amount":1,"expires_in":"1h"}`, `{"to":"a","amount":null}`, `{"account":"a","layer":3}`, `{"role":"admin","name":"n","hash":"00"}`,
		`{"name":"n","base_length":3,"layers":null,"price":1,"prizes":[{"name":"p","layer":null,"quantity":1}],"purchase_limit":2,"draw":"instant"}`,
		`{"layers":[{"positions":1,"price":null},null],"prizes":[null]}`, `{"layers":[],"prizes":[]}`, `{"a":1,"a":2}`, `{"Amount":1}`, `{"memo":"\ud800"}`, "{\"memo\":\"\xff\"}", "\ufeff{}",
		`{"amount":1e3}`, `{"amount":-0}`, `{"id":"a"} x`, `{"draw":""}`, strings.Repeat(`{"x":`, 100),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzDecode[createAccountRequest](t, body)
		fuzzDecode[movementRequest](t, body)
		fuzzDecode[transferRequest](t, body)
		fuzzDecode[holdRequest](t, body)
		fuzzDecode[captureRequest](t, body)
		fuzzDecode[createCampaignRequest](t, body)
		fuzzDecode[purchaseRequest](t, body)
		fuzzDecode[createKeyRequest](t, body)
		fuzzDecode[noFields](t, body)
		// A campaign that decodes is checked without a panic, whatever its numbers.
		var q createCampaignRequest
		if edge.Decode(body, &q) == nil {
			_, _ = q.op() // Refusals are as good as operations here.
		}
	})
}

func FuzzPage(f *testing.F) {
	for _, seed := range []string{"", "limit=1", "limit=200&after=1y2p0ij32e8e7", "limit=0", "limit=%zz", "after=-1", "limit=1&limit=2", "after=Z", "limit=01", "x=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		u := &url.URL{Path: "/v1/campaigns", RawQuery: query}
		q, malformed := url.ParseQuery(query)
		err := checkURL(u)
		if malformed != nil && err == nil {
			t.Fatalf("%q: taken, though %v", query, malformed)
		}
		var p page[int64]
		if err == nil {
			p, err = parsePage(&http.Request{URL: u}, u.Path, maxLimit, oldestFirst())
		}
		if err != nil {
			var r *refusal
			if !errors.As(err, &r) || r.Kind.Code != edge.BadRequest.Code {
				t.Fatalf("%q: %v", query, err)
			}
			return
		}
		if p.limit < 1 || p.limit > maxLimit || p.after < 0 || (p.after == 0) != !q.Has("after") {
			t.Fatalf("%q: %+v", query, p)
		}
		if !q.Has("limit") && p.limit != defaultLimit {
			t.Fatalf("%q: %+v", query, p)
		}
	})
}

func FuzzValidate(f *testing.F) {
	for _, seed := range []string{"", ".", "..", "...", "alice", "a/b", "EUR", "A00", "ABCDEFGHIJKLM", "eur", "EUR\n", "a\x00", "\u0085", "é", "\xff", strings.Repeat("é", 200), strings.Repeat("a", 65), "1h", "-1s", "0", "1e9h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all := func(low, high int, ok func(byte) bool) bool {
			if len(s) < low || len(s) > high {
				return false
			}
			for i := range len(s) {
				if !ok(s[i]) {
					return false
				}
			}
			return true
		}
		upper := func(c byte) bool { return 'A' <= c && c <= 'Z' }
		digit := func(c byte) bool { return '0' <= c && c <= '9' }
		passes := func(check func(*checks)) bool {
			var c checks
			check(&c)
			return c.err == nil
		}
		wantID := s != "." && s != ".." && all(1, 64, func(c byte) bool {
			return upper(c) || digit(c) || ('a' <= c && c <= 'z') || strings.IndexByte("._:@-", c) >= 0
		})
		if got := passes(func(c *checks) { c.id("x", s) }); got != wantID || auth.ValidAccount(s) != wantID {
			t.Fatalf("id %q: %v, want %v", s, got, wantID)
		}
		if _, err := pathAccount(s); (err == nil) != wantID {
			t.Fatalf("account %q: %v, want %v", s, err, wantID)
		}
		wantCurrency := all(3, 12, func(c byte) bool { return upper(c) || digit(c) }) && upper(s[0])
		if got := passes(func(c *checks) { c.currency("x", s) }); got != wantCurrency {
			t.Fatalf("currency %q: %v, want %v", s, got, wantCurrency)
		}
		runes, clean := 0, utf8.ValidString(s)
		for _, r := range s {
			runes++
			clean = clean && !unicode.Is(unicode.Cc, r)
		}
		if got := passes(func(c *checks) { c.name("x", s) }); got != (clean && runes >= 1 && runes <= 200) {
			t.Fatalf("name %q: %v", s, got)
		}
		if got := passes(func(c *checks) { c.memo("x", s) }); got != (clean && runes <= 500) {
			t.Fatalf("memo %q: %v", s, got)
		}
		var c checks
		if d := c.duration("x", &s, maxExpiry); (d != nil) != (c.err == nil) || (d != nil && (*d <= 0 || *d > maxExpiry)) {
			t.Fatalf("duration %q: %v, %v", s, d, c.err)
		}
		if id, err := pathUUID(s, "x"); err == nil && !strings.EqualFold(id.String(), s) {
			t.Fatalf("uuid %q: %v", s, id)
		}
	})
}
