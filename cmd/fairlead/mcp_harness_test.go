package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// agent is a client of the protocol, with the process of fairlead mcp that it talks to.
type agent struct {
	t       *testing.T
	session *sdk.ClientSession
	process *exec.Cmd
}

// mcpCommand is fairlead mcp, with a key in its environment.
func mcpCommand(t *testing.T, key string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := exec.LookPath("fairlead") // testscript has put it there: this test's own binary.
	testwait.Must(t, err)
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"mcp"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), keyVariable+"="+key)
	cmd.Stderr = os.Stderr
	return cmd
}

// newAgent starts fairlead mcp and talks to it over its standard input and output.
func newAgent(t *testing.T, key string, args ...string) *agent {
	t.Helper()
	cmd := mcpCommand(t, key, args...)
	return connect(t, &sdk.CommandTransport{Command: cmd}, cmd)
}

// newWebAgent starts fairlead mcp and talks to it over HTTP.
func newWebAgent(t *testing.T, key string, args ...string) *agent {
	t.Helper()
	cmd := mcpCommand(t, key, append(args, "--http", "127.0.0.1:0")...)
	endpoint := startMCP(t, cmd)
	// Without this the client keeps a stream open for notifications, which the server has none of.
	return connect(t, &sdk.StreamableClientTransport{Endpoint: endpoint, DisableStandaloneSSE: true, MaxRetries: -1}, cmd)
}

// startMCP starts it with --http, and returns where it listens.
func startMCP(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Stderr = nil
	log, err := cmd.StderrPipe()
	testwait.Must(t, err)
	testwait.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, log)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(log).ReadString('\n')
	testwait.Must(t, err)
	_, endpoint, found := strings.Cut(strings.TrimSpace(line), "listens at ")
	if !found {
		t.Fatalf("it said %q", line)
	}
	return endpoint
}

func connect(t *testing.T, transport sdk.Transport, process *exec.Cmd) *agent {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(testwait.Context(t, patience), transport, nil)
	testwait.Must(t, err)
	a := &agent{t: t, session: session, process: process}
	t.Cleanup(func() { _ = session.Close() }) // It may have been killed.
	return a
}

// kill ends the process at once.
func (a *agent) kill() {
	a.t.Helper()
	testwait.Must(a.t, a.process.Process.Kill())
	_ = a.session.Close()
}

// try calls a tool and returns the document that came, and whether it is an error.
func (a *agent) try(tool string, args any) (doc obj, failed bool) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	r, err := a.session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		a.t.Errorf("%s %v: %v", tool, args, err)
		return obj{}, true
	}
	text, ok := r.Content[0].(*sdk.TextContent)
	if !ok {
		a.t.Errorf("%s: %T", tool, r.Content[0])
		return obj{}, true
	}
	if err := json.Unmarshal([]byte(text.Text), &doc); err != nil {
		a.t.Errorf("%s: %v in %s", tool, err, text.Text)
	}
	if !r.IsError {
		if same, err := json.Marshal(r.StructuredContent, json.Deterministic(true)); err != nil || len(same) == 0 {
			a.t.Errorf("%s: structured content %v, %v", tool, r.StructuredContent, err)
		}
	}
	return doc, r.IsError
}

// call calls a tool, which must succeed.
func (a *agent) call(tool string, args any) obj {
	a.t.Helper()
	doc, failed := a.try(tool, args)
	if failed {
		a.t.Fatalf("%s %v: %v", tool, args, doc)
	}
	return doc
}

// refused calls a tool, which must fail with a code and an outcome and say what to do.
func (a *agent) refused(code, outcome, tool string, args any) obj {
	a.t.Helper()
	doc, failed := a.try(tool, args)
	if !failed || doc["code"] != code || doc["outcome"] != outcome || doc["detail"] == "" || doc["what_to_do"] == "" || doc["retryable"] == nil {
		a.t.Errorf("%s %v: not refused with %s, %s, but %v", tool, args, code, outcome, doc)
	}
	return doc
}

// lossy stands between fairlead mcp and its server. It carries requests out and cuts the connection in place of an answer.
type lossy struct {
	*httptest.Server

	lose    atomic.Int64 // how many answers to commands are still to be lost
	lost    atomic.Int64
	reached atomic.Int64 // commands that came
}

func newLossy(t *testing.T, server string) *lossy {
	t.Helper()
	to, err := url.Parse(server)
	testwait.Must(t, err)
	forward := httputil.NewSingleHostReverseProxy(to)
	l := &lossy{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			forward.ServeHTTP(w, r)
			return
		}
		l.reached.Add(1)
		if l.lose.Add(-1) < 0 {
			forward.ServeHTTP(w, r)
			return
		}
		forward.ServeHTTP(httptest.NewRecorder(), r)
		l.lost.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(l.Close)
	return l
}

// available is what an account can spend, as the server has it.
func (s *scene) available(account string) string {
	s.t.Helper()
	a := s.call("GET", "/v1/accounts/"+account, nil)
	return fmt.Sprintf("%v+%v", a["available"], a["held"])
}

// keyOf makes an API key of a role.
func (s *scene) keyOf(role string) string {
	s.t.Helper()
	secret := "agent-" + uuid.NewString()
	s.call("POST", "/v1/keys", obj{"role": role, "name": "agent", "hash": fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))})
	return secret
}
