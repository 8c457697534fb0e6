package mcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestIDs: an id fits the command that it was made for, and no other; nor does an id of which a character was changed.
func TestIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z/{}":0-9]{0,40}`)
		s := sealer{key: []byte(text.Draw(t, "key")), server: text.Draw(t, "server")}
		c := command{Path: text.Draw(t, "path"), Body: jsontext.Value(text.Draw(t, "body"))}
		expires := time.UnixMilli(rapid.Int64Range(0, 1<<48-1).Draw(t, "expires"))
		made := s.id(c, expires)
		at, raw, ok := expiry(made)
		if !ok || !at.Equal(expires) || !s.fits(raw, c) || len(made) > 255 {
			t.Fatalf("%s: %v %v", made, at, ok)
		}
		if s.id(c, expires) == made {
			t.Fatal("two ids are the same")
		}
		// What is moved from one part to the next is another command.
		for name, other := range map[string]struct {
			s sealer
			c command
		}{
			"path":   {s, command{Path: c.Path + "x", Body: c.Body}},
			"body":   {s, command{Path: c.Path, Body: append(jsontext.Value("x"), c.Body...)}},
			"moved":  {s, command{Path: c.Path + "x", Body: append(jsontext.Value{}, strings.TrimPrefix(string(c.Body), "x")...)}},
			"server": {sealer{key: s.key, server: s.server + "x"}, c},
			"key":    {sealer{key: append([]byte("x"), s.key...), server: s.server}, c},
		} {
			if other.s.fits(raw, other.c) {
				t.Fatalf("another %s fits", name)
			}
		}
		i := rapid.IntRange(0, len(made)-1).Draw(t, "changed")
		other := []byte(made)
		other[i] = rapid.SampledFrom([]byte("abyz29-A")).Filter(func(b byte) bool { return b != made[i] }).Draw(t, "to")
		if _, raw, ok := expiry(string(other)); ok && s.fits(raw, c) {
			t.Fatalf("%s fits as well as %s", other, made)
		}
	})
	for _, bad := range []string{"", "mcp-", "mcp-abc", "x", strings.Repeat("a", 300), "MCP-" + strings.Repeat("a", 48)} {
		if _, _, ok := expiry(bad); ok {
			t.Errorf("%q is an id", bad)
		}
	}
}

// TestCanonical: a document has one canonical form, however it is written, and its numbers stay what they are.
func TestCanonical(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"b": 1, "a": [ 2, {"d":null,"c":"\u00e9\/"} ]}`: `{"a":[2,{"c":"é/","d":null}],"b":1}`,
		`{"n":12345678901234567890,"f":1.50,"e":1e400}`:   `{"e":1e400,"f":1.50,"n":12345678901234567890}`,
	} {
		got, err := canonical(jsontext.Value(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
		again, err := canonical(got)
		if err != nil || string(again) != want {
			t.Errorf("%s again: %s, %v", in, again, err)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `{`, `{} {}`} {
		if got, err := canonical(jsontext.Value(bad)); err == nil {
			t.Errorf("%s is taken as %s", bad, got)
		}
	}
}

// TestWrongArguments: an agent is told which argument is wrong, and how.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	a := newAgent(t, shared.Key, newClock())
	for _, c := range []struct {
		tool string
		args obj
		want string
	}{
		{"get_account", obj{}, `required: missing properties: ["account"]`},
		{"get_account", obj{"account": "a b"}, `account: pattern: "a b" does not match`},
		{"prepare_transfer", obj{"from": "a", "to": "b", "amount": -1}, "amount: minimum: -1"},
		{"prepare_transfer", obj{"legs": []obj{{"from": "a"}}}, `legs[]: required: missing properties: ["to" "amount"]`},
		{"prepare_transfer", obj{"legs": []obj{{"from": "a", "to": "b", "amount": "1"}}}, `legs[].amount: type: 1 has type "string", want "integer"`},
		{"prepare_transfer", obj{"from": "a", "sum": 1}, `unexpected additional properties ["sum"]`},
		{"prepare_auction_step", obj{"auction": "a", "step": "close"}, `step: enum: close does not equal any of: [start cancel]`},
		{"prepare_publication", obj{"target": "x", "payload": nil, "publish_at": "tomorrow"}, `publish_at: pattern: "tomorrow" does not match`},
		{"commit", obj{"id": "mcp-x", "command": "y"}, `command: type: y has type "string", want "object"`},
	} {
		text, failed := a.text(c.tool, c.args)
		var doc obj
		if err := json.Unmarshal([]byte(text), &doc); err != nil || !failed || doc["code"] != "bad_request" || !strings.Contains(fmt.Sprint(doc["detail"]), "has them: "+c.want) {
			t.Errorf("%s %v: %s, want %s", c.tool, c.args, text, c.want)
		}
	}
}

// TestShelf: as many commands are kept as there is room for. What has ended or expired makes room; what waits does not.
func TestShelf(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newShelf()
	one := func(i int) remembered {
		return remembered{id: fmt.Sprint(i), state: statePrepared, expires: now.Add(time.Duration(i) * time.Second)}
	}
	for i := 1; i <= maxPrepared; i++ {
		if !s.keep(one(i), now) {
			t.Fatalf("no room for the %dth", i)
		}
	}
	if s.keep(one(0), now) {
		t.Error("there is room for more than there should be")
	}
	if !s.keep(one(7), now) {
		t.Error("what is there needs room")
	}
	s.change("5", func(r *remembered) { r.state = stateDone })
	s.change("6", func(r *remembered) { r.state = stateRefused })
	s.change("9", func(r *remembered) { r.state = stateUnanswered })
	if _, known := s.get("5"); !s.keep(one(maxPrepared+1), now) || !known {
		t.Error("what is done makes no room")
	}
	if _, known := s.get("5"); known {
		t.Error("what is done is kept in place of what waits")
	}
	if list := s.list(now.Add(10 * time.Second)); len(list) != maxPrepared-10+3 || list[0].id != "9" || list[1].id != "10" {
		t.Errorf("%d are left, first %s, %s", len(list), list[0].id, list[1].id)
	}
	if list := s.list(now.Add(time.Hour)); len(list) != 1 || list[0].id != "9" {
		t.Errorf("%d are left after an hour", len(list))
	}
	if list := s.list(now.Add(settleFor + time.Minute)); len(list) != 0 {
		t.Errorf("%d are left for ever", len(list))
	}
	_, err := New(Options{PreparedFor: MaxPreparedFor + 1})
	if testwait.Err(0, err) == nil {
		t.Error("any expiry is taken")
	}
}
