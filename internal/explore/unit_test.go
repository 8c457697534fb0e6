//go:build unix

package explore

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// wireOf encodes messages.
func wireOf(t *testing.T, messages ...pgproto3.FrontendMessage) (out []byte) {
	t.Helper()
	for _, m := range messages {
		var err error
		out, err = m.Encode(out)
		testwait.Must(t, err)
	}
	return out
}

func TestUnits(t *testing.T) {
	start := wireOf(t, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"application_name": "fairlead reads"}})
	if n := unit(start[:len(start)-1], false); n != 0 {
		t.Errorf("half a start is a unit of %d", n)
	}
	if n := unit(append(start, 'Q'), false); n != len(start) || startParameters(start)["application_name"] != "fairlead reads" {
		t.Errorf("the start is a unit of %d of %d, %v", n, len(start), startParameters(start))
	}
	batch := wireOf(t, &pgproto3.Parse{Name: "a", Query: "UPDATE  accounts SET x = 1"}, &pgproto3.Bind{PreparedStatement: "a"}, &pgproto3.Execute{}, &pgproto3.Sync{})
	next := wireOf(t, &pgproto3.Query{String: "commit"})
	if n := unit(batch[:len(batch)-5], true); n != 0 {
		t.Errorf("a batch without its Sync is a unit of %d", n)
	}
	if n := unit(append(batch, next...), true); n != len(batch) {
		t.Errorf("the batch is a unit of %d of %d", n, len(batch))
	}
	parse, describe := &pgproto3.Parse{Name: "b", Query: "SELECT 1"}, &pgproto3.Describe{ObjectType: 'S', Name: "b"}
	if !prepares(wireOf(t, parse, describe, parse, describe, &pgproto3.Sync{})) || prepares(batch) || prepares(next) {
		t.Error("what prepares statements is not told from what executes them")
	}
	statements := map[string]string{}
	for want, u := range map[string][]byte{
		"update accounts": batch, "commit": next,
		"describe select set_config(": wireOf(t, &pgproto3.Parse{Query: "SELECT set_config($1)"}, &pgproto3.Describe{ObjectType: 'S'}, &pgproto3.Sync{}),
	} {
		if got := tell(u, statements); got != want {
			t.Errorf("%q is told as %q", want, got)
		}
	}
	if got := statementsIn(append(batch, next...), statements); !slices.Equal(got, []string{"UPDATE  accounts SET x = 1", "commit"}) {
		t.Errorf("the statements are %q", got)
	}
	if statements["a"] == "" {
		t.Error("a prepared statement is not known by its name")
	}
}

// TestWithoutLimit takes the limit of a wait for locks out of what begins a transaction, and leaves other units as they are.
func TestWithoutLimit(t *testing.T) {
	begin := wireOf(t, &pgproto3.Query{String: "begin isolation level read committed; set local lock_timeout = 3000"})
	u, limit := withoutLimit(begin)
	if want := wireOf(t, &pgproto3.Query{String: "begin isolation level read committed; set local lock_timeout = 0"}); !bytes.Equal(u, want) || limit != "3000" {
		t.Errorf("%q, %q", u, limit)
	}
	for _, other := range []pgproto3.FrontendMessage{&pgproto3.Query{String: "commit"}, &pgproto3.Parse{Query: "SET LOCAL lock_timeout = 1"}} {
		if u, limit := withoutLimit(wireOf(t, other)); !bytes.Equal(u, wireOf(t, other)) || limit != "" {
			t.Errorf("%q, %q", u, limit)
		}
	}
}

func TestWithCode(t *testing.T) {
	m, err := (&pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014", Message: "canceling", Detail: "d"}).Encode(nil)
	testwait.Must(t, err)
	var got pgproto3.ErrorResponse
	testwait.Must(t, got.Decode(withCode(m, "55P03", "lock timeout")[5:]))
	if got.Code != "55P03" || got.Message != "lock timeout" || got.Severity != "ERROR" || got.Detail != "d" {
		t.Errorf("%+v", got)
	}
}

// TestConn reads and writes as a network connection does, and lets a bubble see who waits.
func TestConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := 0
		c := newConn("s1", newGoroutines(), func() { signals++ })
		read := func() (string, error) {
			p := make([]byte, 8)
			n, err := c.Read(p)
			return string(p[:n]), err
		}
		testwait.Must(t, c.SetDeadline(time.Now().Add(time.Second)))
		begun := time.Now()
		if _, err := read(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		testwait.Must(t, c.SetDeadline(time.Time{}))
		go func() {
			time.Sleep(time.Minute)
			c.answer([]byte("told"))
		}()
		if got, err := read(); got != "told" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		testwait.Must(t, testwait.Err(c.Write(wireOf(t, &pgproto3.Query{String: "select"}))))
		if c.first(true, true) == nil || c.first(true, true) != nil || signals != 1 {
			t.Errorf("one unit, told once, not %d times", signals)
		}
		c.sever()
		if _, err := read(); !errors.Is(err, io.EOF) || !c.gone() {
			t.Errorf("after a cut: %v", err)
		}
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("a write after a cut")
		}
		testwait.Must(t, c.Close())
		if _, err := read(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}
