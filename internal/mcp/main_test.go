package mcp

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testserver"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// shared is the real server of all tests.
var shared testserver.Server

// secret is the one of the server's tokens.
var secret = strings.Repeat("s", 32)

func TestMain(m *testing.M) {
	os.Exit(testserver.Main(m, &shared, fairlead.Options{JWTSecret: secret, AllowPrivateTargets: true}))
}

// runs counts the tests, so that names are new when a test runs again.
var runs atomic.Int64

// unique makes names of the test's own.
func unique(name string) (a, b string) {
	n := runs.Add(1)
	return fmt.Sprintf("%s-a%d", name, n), fmt.Sprintf("%s-b%d", name, n)
}

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// losing is an HTTP client's transport that drops the answers to commands while it is told to.
type losing struct {
	mu   sync.Mutex
	lose bool
}

func (l *losing) set(lose bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = lose
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.lose && r.Method == http.MethodPost {
		return nil, errors.Join(errors.New("the answer is lost"), answer.Body.Close())
	}
	return answer, err
}

// agent talks to tools of this process.
type agent struct {
	t       *testing.T
	session *sdk.ClientSession
	client  *client.Client
	wire    *losing
	clock   *clock
}

// newAgent makes one whose tools have a key or token, with writes.
func newAgent(t *testing.T, credential string, clock *clock) *agent {
	t.Helper()
	wire := &losing{}
	c, err := client.New(shared.URL, credential, client.WithRetry(client.Retry{Attempts: 1}), client.WithHTTPClient(&http.Client{Transport: wire}))
	testwait.Must(t, err)
	server, err := build(Options{Client: c, URL: shared.URL + "/", Credential: credential, AllowWrites: true, PreparedFor: DefaultPreparedFor, Version: "1"}, clock.now)
	testwait.Must(t, err)
	here, there := sdk.NewInMemoryTransports()
	served, err := server.Connect(t.Context(), there, nil)
	testwait.Must(t, err)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	testwait.Must(t, err)
	t.Cleanup(func() {
		testwait.Check(t, session.Close())
		testwait.Check(t, served.Wait())
	})
	return &agent{t: t, session: session, client: c, wire: wire, clock: clock}
}

type obj = map[string]any

// text calls a tool and returns the text that came.
func (a *agent) text(tool string, args any) (text string, failed bool) {
	a.t.Helper()
	r, err := a.session.CallTool(testwait.Context(a.t, testwait.Patience), &sdk.CallToolParams{Name: tool, Arguments: args})
	testwait.Must(a.t, err)
	content, ok := r.Content[0].(*sdk.TextContent)
	if !ok {
		a.t.Fatalf("%T", r.Content[0])
	}
	return content.Text, r.IsError
}

func (a *agent) call(tool string, args any) (doc obj) {
	a.t.Helper()
	text, failed := a.text(tool, args)
	if err := json.Unmarshal([]byte(text), &doc); err != nil || failed {
		a.t.Fatalf("%s %v: %s, %v", tool, args, text, err)
	}
	return doc
}

// refused wants a failure of a code and an outcome.
func (a *agent) refused(code, outcome, tool string, args any) {
	a.t.Helper()
	text, failed := a.text(tool, args)
	var doc obj
	if err := json.Unmarshal([]byte(text), &doc); err != nil || !failed || doc["code"] != code || doc["outcome"] != outcome {
		a.t.Errorf("%s %v: not refused with %s, %s, but %s", tool, args, code, outcome, text)
	}
}

// account opens an account with money on it.
func (a *agent) account(name string, amount int64) {
	a.t.Helper()
	admin, err := client.New(shared.URL, shared.Key)
	testwait.Must(a.t, err)
	testwait.Must(a.t, testwait.Err(admin.CreateAccount(a.t.Context(), client.CreateAccountRequest{ID: name, Currency: "EUR"})))
	if amount > 0 {
		testwait.Must(a.t, testwait.Err(admin.Deposit(a.t.Context(), client.MovementRequest{Account: name, Amount: amount})))
	}
}

func (a *agent) available(name string, want int64) {
	a.t.Helper()
	admin, err := client.New(shared.URL, shared.Key)
	testwait.Must(a.t, err)
	got, err := admin.GetAccount(a.t.Context(), name)
	testwait.Must(a.t, err)
	if got.Available != want {
		a.t.Errorf("%s has %d, want %d", name, got.Available, want)
	}
}
