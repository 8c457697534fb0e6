package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDocumentIsCurrent fails when the code has moved away from the copy of its document.
func TestDocumentIsCurrent(t *testing.T) {
	want, err := server.Document(server.ContractVersion)
	testwait.Must(t, err)
	got, err := os.ReadFile("../docs/openapi.json")
	testwait.Must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("docs/openapi.json is not what the code makes: run scripts/generate.sh")
	}
}

// open opens n accounts that no other test has.
func open(t *testing.T, c *client.Client, amount int64, n int) (ids []string) {
	t.Helper()
	for range n {
		id := "test-" + uuid.NewString()
		ids = append(ids, id)
		testwait.Must(t, testwait.Err(c.CreateAccount(t.Context(), client.CreateAccountRequest{ID: id, Currency: "SIM"})))
		if amount > 0 {
			testwait.Must(t, testwait.Err(c.Deposit(t.Context(), client.MovementRequest{Account: id, Amount: amount, Memo: "float"})))
		}
	}
	return ids
}

func TestLedger(t *testing.T) {
	ctx, c := t.Context(), newClient()
	ids := open(t, c, 1_000, 2)
	a, b := ids[0], ids[1]
	moved, err := c.Transfer(ctx, client.TransferRequest{From: a, To: b, Amount: 400})
	if err != nil || moved.Status != client.TransferStatusCompleted {
		t.Fatalf("%+v, %v", moved, err)
	}
	if read, err := c.GetTransfer(ctx, moved.ID); err != nil || !reflect.DeepEqual(read, moved) {
		t.Errorf("read %+v, %v, want %+v", read, err, moved)
	}
	testwait.Check(t, testwait.Err(c.Withdraw(ctx, client.MovementRequest{Account: b, Amount: 100})))
	hold, err := c.Hold(ctx, client.HoldRequest{Account: b, Amount: 300, ExpiresIn: "1h"})
	if err != nil || hold.ExpiresAt.IsZero() {
		t.Fatalf("%+v, %v", hold, err)
	}
	if hold, err = c.CaptureHold(ctx, hold.ID, client.CaptureRequest{To: a, Amount: new(int64(200))}); err != nil || hold.Captured != 200 {
		t.Errorf("%+v, %v", hold, err)
	}
	if _, err := c.ReleaseHold(ctx, hold.ID); client.CodeOf(err) != "hold_closed" {
		t.Error(err)
	}
	if open, err := c.Hold(ctx, client.HoldRequest{Account: b, Amount: 5}); err != nil || !open.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", open, err)
	} else if open, err = c.GetHold(ctx, open.ID); err != nil || open.Status != client.HoldStatusOpen {
		t.Errorf("%+v, %v", open, err)
	}
	read, err := c.GetAccount(ctx, b)
	if err != nil || read.Available != 1_095 || read.Held != 5 {
		t.Errorf("%+v, %v", read, err)
	}
	var amounts []int64
	for e, err := range c.Entries(ctx, b) {
		testwait.Must(t, err)
		amounts = append(amounts, e.Amount)
	}
	if !slices.Equal(amounts, []int64{1_000, 400, -100, -200}) {
		t.Errorf("entries %v", amounts)
	}
	in, err := c.Integrity(ctx)
	if err != nil || !in.Valid || in.Difference.Sign() != 0 || in.FirstBadAccount != "" || in.Currencies[0].Deposits.Sign() <= 0 {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestProblem(t *testing.T) {
	c := newClient()
	ids := open(t, c, 10, 2)
	_, err := c.Transfer(t.Context(), client.TransferRequest{From: ids[0], To: ids[1], Amount: 11}, client.Key("too-much-for-"+ids[0]))
	var p *client.Problem
	if !errors.As(err, &p) {
		t.Fatal(err)
	}
	if p.Status != http.StatusPaymentRequired || p.Code != "insufficient_funds" || p.Outcome != client.NotApplied || p.Retryable ||
		p.RequestID == "" || p.Key != "too-much-for-"+ids[0] {
		t.Errorf("%+v", p)
	}
	if failed, err := c.GetTransfer(t.Context(), p.Transfer); err != nil || failed.Status != client.TransferStatusFailed {
		t.Errorf("%+v, %v", failed, err)
	}
	stranger, err := client.New(shared.URL, "wrong")
	testwait.Must(t, err)
	if _, err := stranger.GetAccount(t.Context(), ids[0]); client.CodeOf(err) != "unauthorized" {
		t.Error(err)
	}
}

// TestPages reads a list that is longer than a page.
func TestPages(t *testing.T) {
	ctx, c := t.Context(), newClient()
	ids := open(t, c, 0, 1)
	made, err := c.CreateCampaign(ctx, client.CreateCampaignRequest{
		Name: "pages", Layers: []client.LayerRequest{{Positions: 401}}, Price: 1, Currency: "SIM", Beneficiary: ids[0],
		Prizes: []client.PrizeRequest{{Name: "p", Quantity: 1}},
	})
	testwait.Must(t, err)
	n := int64(0)
	for p, err := range c.Positions(ctx, made.ID) {
		if n++; err != nil || p.Number != n || p.Account != "" {
			t.Fatalf("%d: %+v, %v", n, p, err)
		}
	}
	if n != 401 {
		t.Errorf("%d positions", n)
	}
	for _, err := range c.Positions(ctx, "0190a5e4-0000-7000-8000-00000000ffff") {
		if client.CodeOf(err) != "not_found" {
			t.Error(err)
		}
	}
	if !made.PublishedAt.IsZero() || made.BaseLength != 0 {
		t.Errorf("null came as %v, %v", made.PublishedAt, made.BaseLength)
	}
	testwait.Check(t, testwait.Err(c.CancelCampaign(ctx, made.ID)))
	if s, err := c.Statistics(ctx, made.ID); err != nil || !s.FirstSaleAt.IsZero() || s.Status != "cancelled" {
		t.Errorf("%+v, %v", s, err)
	}
}

// trouble stands before the real server and loses, refuses or cuts the first answers to a path.
type trouble struct {
	mu   sync.Mutex
	plan []func(w http.ResponseWriter, r *http.Request)
	keys []string
}

func (tr *trouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tr.mu.Lock()
	tr.keys = append(tr.keys, r.Header.Get("Idempotency-Key"))
	var next func(http.ResponseWriter, *http.Request)
	if len(tr.plan) > 0 {
		next, tr.plan = tr.plan[0], tr.plan[1:]
	}
	tr.mu.Unlock()
	if next == nil {
		next = shared.Handler.ServeHTTP
	}
	next(w, r)
}

// loseAnswer lets the server do it, and drops the connection instead of answering.
func loseAnswer(_ http.ResponseWriter, r *http.Request) {
	shared.Handler.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// cutAnswer breaks the connection in the middle of the answer.
func cutAnswer(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	shared.Handler.ServeHTTP(rec, r)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(rec.Body.Len()))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	panic(http.ErrAbortHandler)
}

func refuse(status int, code, retryAfter string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q,"retryable":true,"outcome":"unknown"}`, status, code)
	}
}

func badGateway(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "<html>", http.StatusBadGateway)
}

func through(t *testing.T, tr *trouble, opts ...client.Option) *client.Client {
	t.Helper()
	s := httptest.NewServer(tr)
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, shared.Key, opts...)
	testwait.Must(t, err)
	return c
}

// TestRetry has each kind of trouble come before the answer, and wants one effect and one key.
func TestRetry(t *testing.T) {
	plans := map[string][]func(http.ResponseWriter, *http.Request){
		"lost":      {loseAnswer, loseAnswer},
		"cut":       {cutAnswer},
		"full":      {refuse(http.StatusServiceUnavailable, "overloaded", "")},
		"in flight": {loseAnswer, refuse(http.StatusConflict, "in_flight", "")},
		"limited":   {refuse(http.StatusTooManyRequests, "rate_limited", "")},
		"gateway":   {badGateway, loseAnswer, cutAnswer},
	}
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			tr := &trouble{plan: plan}
			c := through(t, tr)
			account := open(t, newClient(), 0, 1)[0]
			var a client.Answer
			m, err := c.Deposit(t.Context(), client.MovementRequest{Account: account, Amount: 30}, client.Into(&a))
			if err != nil || m.Available != 30 {
				t.Fatalf("%+v, %v", m, err)
			}
			// net/http may have sent one of them by itself: it knows the header, too.
			if len(tr.keys) != len(plan)+1 || a.Attempts < 2 || a.Attempts > len(tr.keys) {
				t.Errorf("%d requests, %d attempts", len(tr.keys), a.Attempts)
			}
			if a.Key == "" || len(slices.Compact(tr.keys)) != 1 || tr.keys[0] != a.Key {
				t.Errorf("sent key %q, server got %v", a.Key, tr.keys)
			}
			if read, err := newClient().GetAccount(t.Context(), account); err != nil || read.Available != 30 {
				t.Errorf("%+v, %v", read, err)
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	tr := &trouble{plan: []func(http.ResponseWriter, *http.Request){refuse(http.StatusServiceUnavailable, "overloaded", "1")}}
	began := time.Now()
	testwait.Must(t, through(t, tr).Ready(t.Context()))
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("came back after %s", waited)
	}
	// One that asks for more than the limit gets the answer to its caller at once.
	tr.plan = []func(http.ResponseWriter, *http.Request){refuse(http.StatusServiceUnavailable, "overloaded", "3600")}
	err := through(t, tr).Ready(t.Context())
	var p *client.Problem
	if !errors.As(err, &p) || p.RetryAfter != time.Hour {
		t.Errorf("%v, %+v", err, p)
	}
}

// TestUnanswered gives up, and settles the call later with the key that the error names.
func TestUnanswered(t *testing.T) {
	account := open(t, newClient(), 0, 1)[0]
	tr := &trouble{plan: slices.Repeat([]func(http.ResponseWriter, *http.Request){loseAnswer}, 2)}
	c := through(t, tr, client.WithRetry(client.Retry{Attempts: 2}))
	_, err := c.Deposit(t.Context(), client.MovementRequest{Account: account, Amount: 40})
	var lost *client.UnansweredError
	if !errors.As(err, &lost) || lost.Attempts != 2 || lost.Key == "" {
		t.Fatal(err)
	}
	var a client.Answer
	m, err := c.Deposit(t.Context(), client.MovementRequest{Account: account, Amount: 40}, client.Key(lost.Key), client.Into(&a))
	if err != nil || m.Available != 40 || !a.Replayed {
		t.Errorf("%+v, %+v, %v", m, a, err)
	}
}

// TestAnUnknownOutcomeIsSettledByItsKey loses the answer to what was done, and has every later attempt turned away before its
// key is read.
func TestAnUnknownOutcomeIsSettledByItsKey(t *testing.T) {
	for _, code := range []string{"unavailable", "overloaded", "shutting_down", "outcome_unknown"} {
		t.Run(code, func(t *testing.T) {
			account := open(t, newClient(), 0, 1)[0]
			tr := &trouble{plan: []func(http.ResponseWriter, *http.Request){loseAnswer, refuse(http.StatusServiceUnavailable, code, "")}}
			// A connection of its own for each attempt, or net/http might send the first one again by itself.
			c := through(t, tr, client.WithRetry(client.Retry{Attempts: 2}), client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
			q := client.MovementRequest{Account: account, Amount: 40}
			_, err := c.Deposit(t.Context(), q)
			var p *client.Problem
			if !errors.As(err, &p) || p.Code != code || p.Outcome != client.Unknown || !p.Retryable || p.Key == "" {
				t.Fatalf("%v, %+v", err, p)
			}
			var a client.Answer
			m, err := c.Deposit(t.Context(), q, client.Key(p.Key), client.Into(&a))
			if err != nil || m.Available != 40 || !a.Replayed {
				t.Errorf("%+v, %+v, %v", m, a, err)
			}
		})
	}
}

// TestNotAppliedDoesNotEndDoubt loses the answer to what was done. No refusal of a later attempt may then say that nothing was done, in
// the same call or in another one under the key, until the server repeats its answer.
func TestNotAppliedDoesNotEndDoubt(t *testing.T) {
	notApplied := func(status int, code string, retryable bool) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q,"retryable":%t,"outcome":"not_applied"}`, status, code, retryable)
		}
	}
	for name, refusal := range map[string]func(http.ResponseWriter, *http.Request){
		"unavailable":  notApplied(http.StatusServiceUnavailable, "unavailable", true),
		"rate limit":   notApplied(http.StatusTooManyRequests, "rate_limited", true),
		"lock held":    notApplied(http.StatusConflict, "lock_held", true),
		"older server": notApplied(http.StatusNotFound, "not_found", false),
	} {
		for _, kept := range []bool{true, false} { // On a kept connection, net/http may send the first attempt again by itself.
			t.Run(fmt.Sprintf("%s, kept=%t", name, kept), func(t *testing.T) {
				account := open(t, newClient(), 0, 1)[0]
				transport := &http.Transport{DisableKeepAlives: !kept}
				t.Cleanup(transport.CloseIdleConnections)
				tr := &trouble{}
				c := through(t, tr, client.WithRetry(client.Retry{Attempts: 2}), client.WithHTTPClient(&http.Client{Transport: transport}))
				testwait.Must(t, testwait.Err(c.GetAccount(t.Context(), account)))
				tr.plan = []func(http.ResponseWriter, *http.Request){loseAnswer, refusal, refusal, refusal}
				q := client.MovementRequest{Account: account, Amount: 40}
				_, err := c.Deposit(t.Context(), q, client.Key("doubt"+account))
				for range 2 {
					var p *client.Problem
					if !errors.As(err, &p) || p.Outcome != client.Unknown {
						t.Fatalf("%v, %+v", err, p)
					}
					_, err = c.Deposit(t.Context(), q, client.Key("doubt"+account))
					if err == nil {
						break
					}
				}
				m, err := c.Deposit(t.Context(), q, client.Key("doubt"+account))
				if err != nil || m.Available != 40 {
					t.Errorf("%+v, %v", m, err)
				}
			})
		}
	}
}

// TestContextEndsTheCall: a call that waits for its next try ends with its context. On a machine that stalls for as long as the pause, it is made
// anew.
func TestContextEndsTheCall(t *testing.T) {
	const pause = 20 * time.Second
	took := pause
	for tries := 0; took > pause-time.Second && tries < 3; tries++ {
		ctx, cancel := context.WithCancel(t.Context())
		tr := &trouble{plan: []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, r *http.Request) {
			cancel()
			refuse(http.StatusServiceUnavailable, "overloaded", "20")(w, r)
		}}}
		began := time.Now()
		if err := through(t, tr).Ready(ctx); err == nil {
			t.Error("it had an answer")
		}
		took = time.Since(began)
		if len(tr.keys) != 1 {
			t.Errorf("%d requests", len(tr.keys))
		}
	}
	if took > pause-time.Second {
		t.Errorf("it ended after %s", took)
	}
}

func TestNewRefusesBadAddresses(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:8080", "ftp://host", "http://", "/v1", "http://a b"} {
		if _, err := client.New(address, "k"); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}

// TestReadsCarryThePosition: reads carry the furthest place in the log that the client was told, and commands none. A place that can't be
// read is none.
func TestReadsCarryThePosition(t *testing.T) {
	tell, got := "", ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Fairlead-After")
		if tell != "" {
			w.Header().Set("Fairlead-After", tell)
		}
		_, _ = fmt.Fprint(w, "{}")
	}))
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, "key")
	testwait.Must(t, err)
	want := ""
	for _, step := range []struct{ tell, want string }{
		{"", ""}, {"nonsense", ""}, {"1/FF", "1/FF"}, {"0/FFFF", "1/FF"}, {"2/0", "2/0"}, {"", "2/0"},
	} {
		tell = step.tell
		_, err := c.Deposit(t.Context(), client.MovementRequest{Account: "ann", Amount: 1})
		testwait.Must(t, err)
		if got != "" {
			t.Errorf("a command carries %s", got)
		}
		tell, want = "", step.want
		if _, err = c.GetAccount(t.Context(), "ann"); err != nil || got != want {
			t.Errorf("after %q a read carries %q, want %q: %v", step.tell, got, want, err)
		}
	}
}
