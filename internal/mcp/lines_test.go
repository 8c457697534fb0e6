package mcp_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead-dev/fairlead/internal/mcp"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestLinesThatAreNoMessages: what is no message is answered with an error, and the messages after it are still served.
func TestLinesThatAreNoMessages(t *testing.T) {
	t.Parallel()
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	for line, want := range map[string]string{
		`{bad`:                        `"code":-32700`,
		`{"jsonrpc":"2.0","id":1} {}`: `"code":-32700`,
		`[]`:                          `"code":-32600`,
		`[1]`:                         `"code":-32600`,
		`42`:                          `"code":-32600`,
		`{"jsonrpc":"2.0"}`:           `"code":-32600`,
		`{"id":91,"method":"ping"}`:   `"code":-32600`,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`: `"code":-32600`,
		`"` + strings.Repeat("x", 5<<20) + `"`:      `"code":-32600`,
		"\xff":                                      `"code":-32700`,
		"  ":                                        "",
	} {
		var out bytes.Buffer
		c, err := mcp.Lines(strings.NewReader(line+"\n\n"+ping), &out).Connect(t.Context())
		testwait.Must(t, err)
		m, err := c.Read(t.Context())
		if err != nil {
			t.Errorf("%.40s ends the session: %v", line, err)
			continue
		}
		testwait.Must(t, c.Write(t.Context(), m))
		if got := out.String(); !strings.Contains(got, want) || !strings.HasSuffix(got, ping+"\n") || strings.Count(got, "\n") > 2 {
			t.Errorf("%.40s: %.300s", line, got)
		}
		if _, err := c.Read(t.Context()); err == nil {
			t.Errorf("%.40s: there is more", line)
		}
		testwait.Must(t, c.Close())
	}
}

// TestSessionOutlastsBadLines: a client that sends what is no message keeps its session.
func TestSessionOutlastsBadLines(t *testing.T) {
	t.Parallel()
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		`{bad`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
	}, "\n")
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
	defer cancel()
	err := server.Run(ctx, mcp.Answering{Transport: mcp.Lines(strings.NewReader(in), &out), Grace: testwait.Patience})
	if got := out.String(); err != nil || !strings.Contains(got, `"code":-32700`) || !strings.Contains(got, `"id":2`) {
		t.Errorf("%v: %s", err, got)
	}
}
