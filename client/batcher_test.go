package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const patience = testwait.Patience

// between is a transport that counts batches and what is in them, and can lose answers or give its own.
type between struct {
	batches, commands, alone, lost atomic.Int64
	// lose reports whether the answer to the n-th batch is lost after the server has done what it asks for.
	lose func(n int64) bool
	// refuse answers the n-th batch with a status, unless that is 0.
	refuse func(n int64) int
	// stick reports whether the n-th batch gets no answer until its context ends, when stuck is closed.
	stick func(n int64) bool
	stuck chan struct{}
	// hold is waited for before a batch goes on; nil: nothing is.
	hold <-chan struct{}
}

func (b *between) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/v1/commands" {
		if r.Method != http.MethodGet {
			b.alone.Add(1)
		}
		return http.DefaultTransport.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var batch struct{ Commands []json.RawMessage }
	if err := json.Unmarshal(body, &batch); err != nil || len(body) > 4<<20 || len(batch.Commands) > 4096 {
		return nil, fmt.Errorf("a batch of %d bytes: %w", len(body), err)
	}
	n := b.batches.Add(1)
	b.commands.Add(int64(len(batch.Commands)))
	if b.hold != nil {
		<-b.hold
	}
	if b.stick != nil && b.stick(n) {
		<-r.Context().Done()
		close(b.stuck)
		return nil, r.Context().Err()
	}
	if b.refuse != nil && b.refuse(n) != 0 {
		w := httptest.NewRecorder()
		w.WriteHeader(b.refuse(n))
		return w.Result(), nil
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && b.lose != nil && b.lose(n) {
		b.lost.Add(1)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errors.New("the answer is lost")
	}
	return resp, err
}

// batcher makes one that goes through b. It passes a batch by only where one sticks.
func batcher(t *testing.T, b *between) *client.Batcher {
	t.Helper()
	c, err := client.New(shared.URL, shared.Key, client.WithHTTPClient(&http.Client{Transport: b}))
	testwait.Must(t, err)
	if b.stick != nil {
		return client.NewBatcher(c)
	}
	return client.NeverSlow(client.NewBatcher(c))
}

// crowd makes n transfers of 1 at a time, of which every tenth asks for more than there is, and returns how many failed otherwise than
// they should have.
func crowd(t *testing.T, c *client.Batcher, from, to string, n int) {
	t.Helper()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			q := client.TransferRequest{From: from, To: to, Amount: 1}
			if i%10 == 9 {
				q.Amount = 1_000_000
			}
			made, err := c.Transfer(t.Context(), q)
			switch {
			case i%10 == 9 && client.CodeOf(err) != "insufficient_funds":
				t.Errorf("call %d: %v, %v", i, made, err)
			case i%10 != 9 && (err != nil || made.From != from || made.Amount != 1):
				t.Errorf("call %d: %v, %v", i, made, err)
			}
		})
	}
	calls.Wait()
}

func wantAvailable(t *testing.T, c *client.Batcher, account string, amount int64) {
	t.Helper()
	if a, err := c.GetAccount(t.Context(), account); err != nil || a.Available != amount {
		t.Errorf("%+v, %v, want %d", a, err, amount)
	}
}

// TestBatcherGathers sends what comes while a batch is under way in the next one.
func TestBatcherGathers(t *testing.T) {
	hold := make(chan struct{})
	b := &between{hold: hold}
	c := batcher(t, b)
	ids := open(t, newClient(), 1000, 2)
	first := make(chan error, 1)
	go func() {
		_, err := c.Deposit(t.Context(), client.MovementRequest{Account: ids[0], Amount: 1})
		first <- err
	}()
	testwait.Eventually(t, patience, "the first batch is under way", func() bool { return b.batches.Load() == 1 })
	done := make(chan struct{})
	go func() { defer close(done); crowd(t, c, ids[0], ids[1], 200) }()
	testwait.Eventually(t, patience, "the others wait", func() bool { return c.Waiting() == 200 })
	close(hold)
	testwait.Must(t, <-first)
	<-done
	if b.batches.Load() != 2 || b.commands.Load() != 201 || b.alone.Load() != 0 {
		t.Errorf("%d batches of %d commands, %d requests beside", b.batches.Load(), b.commands.Load(), b.alone.Load())
	}
	wantAvailable(t, c, ids[1], 180+1000)
	// What can't be in a batch goes alone.
	_, err := c.CreateAccount(t.Context(), client.CreateAccountRequest{ID: ids[0] + "-x", Currency: "SIM"})
	testwait.Must(t, err)
	_, err = c.Deposit(t.Context(), client.MovementRequest{Account: ids[0], Amount: 1}, client.Header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	testwait.Must(t, err)
	if b.alone.Load() != 2 {
		t.Errorf("%d requests went alone", b.alone.Load())
	}
}

// TestBatcherKeepsKeys: where answers are lost, each call is sent again under its own key, and done once.
func TestBatcherKeepsKeys(t *testing.T) {
	// Five batches fail, and a call is tried six times.
	b := &between{lose: func(n int64) bool { return n <= 3 }, refuse: func(n int64) int {
		if n == 4 || n == 5 {
			return http.StatusServiceUnavailable
		}
		return 0
	}}
	c := batcher(t, b)
	ids := open(t, newClient(), 1000, 2)
	for range 3 {
		crowd(t, c, ids[0], ids[1], 100)
	}
	if b.lost.Load() != 3 {
		t.Errorf("%d answers were lost", b.lost.Load())
	}
	wantAvailable(t, c, ids[1], 270+1000)

	var answer client.Answer
	b.lose, b.refuse = nil, nil
	first, err := c.Transfer(t.Context(), client.TransferRequest{From: ids[0], To: ids[1], Amount: 1}, client.Key("mine"+ids[0]), client.Into(&answer))
	testwait.Must(t, err)
	if answer.Replayed || answer.Status != http.StatusCreated || answer.Key != "mine"+ids[0] {
		t.Errorf("%+v", answer)
	}
	var alone client.Answer
	again, err := newClient().Transfer(t.Context(), client.TransferRequest{From: ids[0], To: ids[1], Amount: 1}, client.Key("mine"+ids[0]), client.Into(&alone))
	if err != nil || again.ID != first.ID || !alone.Replayed || !bytes.Equal(alone.Body, answer.Body) {
		t.Errorf("alone: %+v, %v", alone, err)
	}
}

// TestBatcherWithAnOlderServer sends every call alone.
func TestBatcherWithAnOlderServer(t *testing.T) {
	b := &between{refuse: func(int64) int { return http.StatusNotFound }}
	c := batcher(t, b)
	ids := open(t, newClient(), 1000, 2)
	crowd(t, c, ids[0], ids[1], 20)
	if b.alone.Load() != 20 {
		t.Errorf("%d requests went alone", b.alone.Load())
	}
	wantAvailable(t, c, ids[1], 18+1000)
}

// TestBatcherDividesWhatIsTooMuch has more calls wait than a batch takes.
func TestBatcherDividesWhatIsTooMuch(t *testing.T) {
	const calls = 5000
	hold := make(chan struct{})
	b := &between{hold: hold}
	c := batcher(t, b)
	account := open(t, newClient(), 0, 1)[0]
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			testwait.Check(t, testwait.Err(c.Deposit(t.Context(), client.MovementRequest{Account: account, Amount: 1})))
		})
	}
	testwait.Eventually(t, patience, "the others wait", func() bool { return b.commands.Load()+int64(c.Waiting()) == calls })
	close(hold)
	all.Wait()
	if n := b.batches.Load(); n > 4 {
		t.Errorf("%d batches", n)
	}
	wantAvailable(t, c, account, calls)
}

// TestBatcherLetsCallersGo: a caller whose context ends waits no longer, and the others are served.
func TestBatcherLetsCallersGo(t *testing.T) {
	hold := make(chan struct{})
	b := &between{hold: hold}
	c := batcher(t, b)
	account := open(t, newClient(), 0, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	deposit := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := c.Deposit(ctx, client.MovementRequest{Account: account, Amount: 1})
			ended <- err
		}()
		return ended
	}
	sent := deposit(ctx)
	testwait.Eventually(t, patience, "the first batch is under way", func() bool { return b.batches.Load() == 1 })
	waits := deposit(ctx)
	stays := deposit(t.Context())
	testwait.Eventually(t, patience, "two wait", func() bool { return c.Waiting() == 2 })
	cancel()
	for _, ended := range []<-chan error{sent, waits} {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who leaves gets %v", err)
		}
	}
	close(hold)
	testwait.Must(t, <-stays)
	if b.commands.Load() != 2 {
		t.Errorf("%d commands were sent", b.commands.Load())
	}
	if a, err := c.GetAccount(t.Context(), account); err != nil || a.Available < 1 || a.Available > 2 { // The first was perhaps given up in time.
		t.Errorf("%+v, %v", a, err)
	}
}

// TestBatcherPassesAStuckBatch: a batch without an answer delays those behind it by a second, and is given up when its caller leaves.
func TestBatcherPassesAStuckBatch(t *testing.T) {
	stuck := make(chan struct{})
	b := &between{stick: func(n int64) bool { return n == 1 }, stuck: stuck}
	c := batcher(t, b)
	account := open(t, newClient(), 0, 1)[0]
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := c.Deposit(ctx, client.MovementRequest{Account: account, Amount: 1})
		first <- err
	}()
	testwait.Eventually(t, patience, "the first batch is under way", func() bool { return b.batches.Load() == 1 })
	for range 3 { // The second one begins when the first is late, and the others do not wait for that.
		testwait.Check(t, testwait.Err(c.Deposit(t.Context(), client.MovementRequest{Account: account, Amount: 1})))
	}
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-stuck
	wantAvailable(t, c, account, 3)
}
