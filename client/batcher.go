package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"
)

// The limits of POST /v1/commands.
const (
	batchPath        = "/v1/commands"
	maxBatchCommands = 4096
	maxBatchBytes    = 4 << 20
)

// Bounds of what a server without answers can hold up.
const (
	slowAfter  = time.Second // the next batch no longer waits for one that has been under way for so long
	maxBatches = 8           // that are under way at a time
)

// batchablePaths are those of the routes whose requests can be in a batch.
var batchablePaths = regexp.MustCompile(`^/v1/(transfers|deposits|withdrawals|holds|holds/[\w.:@-]+/(capture|release)|campaigns/[\w.:@-]+/purchases|auctions/[\w.:@-]+/bids)$`)

// Batcher is a [Client] whose transfers, deposits, withdrawals, holds, purchases and bids travel in batches (POST /v1/commands): while
// one request is under way, the calls that come meanwhile gather, and the next request takes all of them, up to 4,096 or 4 MiB. It
// never waits on a timer, so a lone call is sent at once. Each call keeps its own key, answer, retries and context, as with a Client; one
// that is refused refuses no other. Calls that one goroutine makes one after the other keep their order, and others have none.
//
// A batch that has no answer after a second no longer holds the next one up: eight may be under way at a time. A batch is given up when
// all of its callers have left.
//
// It is for programs that make many calls at a time, each in its goroutine. Calls with a [Header] of their own, and all others, are sent
// alone; so are those that a server without batches does not take. It is safe for concurrent use and has no goroutine while it is idle.
type Batcher struct{ *Client }

// NewBatcher makes a batcher of a client, with its credential, retries and HTTP client.
func NewBatcher(c *Client) *Batcher {
	batching := &Client{base: c.base, key: c.key, http: c.http, retry: c.retry, doubts: c.doubts, seen: c.seen}
	batching.batches = &batches{client: c, slowAfter: slowAfter}
	return &Batcher{batching}
}

// Waiting is how many calls wait for the batch after the one that is under way.
func (b *Batcher) Waiting() int {
	b.batches.mu.Lock()
	defer b.batches.mu.Unlock()
	return len(b.batches.waiting)
}

// errSendAlone is returned for a call whose batch was refused as a whole, so that nothing of it was decided.
var errSendAlone = errors.New("client: the server does not take this batch")

// batches gathers requests and sends them, one batch at a time.
type batches struct {
	client    *Client
	slowAfter time.Duration

	mu      sync.Mutex
	waiting []*batchedCall
	senders int // goroutines that send
	slow    int // those whose batch has been under way for long
}

// batchedCall is a request that waits for its answer.
type batchedCall struct {
	text []byte        // the command, in JSON
	done chan struct{} // closed when answer and err are set
	left chan struct{} // closed when nobody waits for it any more

	answer *Answer
	err    error
}

// batchable reports whether a request can be in a batch: nothing but the header of its key is lost by it.
func (r *request) batchable() bool {
	if r.method != http.MethodPost || !batchablePaths.MatchString(r.path) {
		return false
	}
	for name := range r.header {
		if !slices.Contains([]string{"Authorization", "Content-Type", keyHeader}, name) {
			return false
		}
	}
	return len(r.header[keyHeader]) == 1
}

// do sends a request in the next batch and returns its answer, or errSendAlone.
func (b *batches) do(ctx context.Context, r *request) (*Answer, error) {
	key, err := json.Marshal(r.header.Get(keyHeader))
	if err != nil {
		return nil, err
	}
	call := &batchedCall{done: make(chan struct{}), left: make(chan struct{})}
	call.text = fmt.Appendf(nil, `{"key":%s,"path":"%s","body":%s}`, key, r.path, r.body)
	if len(call.text) > maxBatchBytes/2 {
		return nil, errSendAlone
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, call)
	b.begin() //nolint:contextcheck // A batch is sent for many, and none of their contexts ends it.
	b.mu.Unlock()
	defer close(call.left)
	select {
	case <-call.done:
		return call.answer, call.err
	case <-ctx.Done():
		b.mu.Lock()
		b.waiting = slices.DeleteFunc(b.waiting, func(other *batchedCall) bool { return other == call })
		b.mu.Unlock()
		return nil, ctx.Err()
	}
}

// begin starts a goroutine that sends what waits, unless one will. The caller holds the mutex.
func (b *batches) begin() {
	if len(b.waiting) > 0 && b.senders == b.slow && b.senders < maxBatches {
		b.senders++
		go b.send()
	}
}

// send sends batch after batch until no call waits.
func (b *batches) send() {
	for {
		b.mu.Lock()
		n, size := 0, 0
		for n < len(b.waiting) && n < maxBatchCommands && size+len(b.waiting[n].text)+1 < maxBatchBytes-len(`{"commands":[]}`) {
			size += len(b.waiting[n].text) + 1
			n++
		}
		calls := slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		if n == 0 {
			b.senders--
		}
		b.mu.Unlock()
		if n == 0 {
			return
		}
		b.watched(calls, size)
		for _, call := range calls {
			close(call.done)
		}
	}
}

// watched is exchange, which lets the next batch begin when this one takes long, and ends when all callers have left.
func (b *batches) watched(calls []*batchedCall, size int) {
	ctx, cancel := context.WithCancel(context.Background())
	slow := time.AfterFunc(b.slowAfter, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.slow++
		b.begin()
	})
	ended := make(chan struct{})
	go func() {
		defer cancel()
		for _, call := range calls {
			select {
			case <-call.left:
			case <-ended:
				return
			}
		}
	}()
	b.exchange(ctx, calls, size)
	close(ended)
	if !slow.Stop() { // Should its function come only now, it begins what waits.
		b.mu.Lock()
		b.slow--
		b.mu.Unlock()
	}
}

// exchange sends a batch and gives each of its calls what the server says of it.
func (b *batches) exchange(ctx context.Context, calls []*batchedCall, size int) {
	answer, err := b.post(ctx, calls, size)
	var results struct {
		Results []struct {
			Status   int             `json:"status"`
			Body     json.RawMessage `json:"body"`
			Replayed bool            `json:"replayed"`
		} `json:"results"`
	}
	switch {
	case err != nil:
	case answer.Status == http.StatusOK:
		if err = json.Unmarshal(answer.Body, &results); err == nil && len(results.Results) != len(calls) {
			err = fmt.Errorf("%w: %d results for %d commands", errUnexpected, len(results.Results), len(calls))
		}
	case isSuccess(answer.Status):
		err = fmt.Errorf("%w: its status is %d %s", errUnexpected, answer.Status, http.StatusText(answer.Status))
	case answer.Status == http.StatusBadRequest, answer.Status == http.StatusNotFound, answer.Status == http.StatusMethodNotAllowed,
		answer.Status == http.StatusRequestEntityTooLarge:
		err = errSendAlone
	}
	for i, call := range calls {
		switch {
		case err != nil:
			call.err = err
		case answer.Status == http.StatusOK:
			r := results.Results[i]
			content := "application/json"
			if r.Status >= http.StatusBadRequest {
				content = "application/problem+json"
			}
			call.answer = &Answer{Status: r.Status, Header: http.Header{"Content-Type": {content}}, Body: r.Body, Replayed: r.Replayed}
		default: // It is true of each of them, such as 503.
			own := *answer
			own.Header = answer.Header.Clone()
			call.answer = &own
		}
	}
}

func (b *batches) post(ctx context.Context, calls []*batchedCall, size int) (*Answer, error) {
	var body bytes.Buffer
	body.Grow(size + len(`{"commands":[]}`))
	body.WriteString(`{"commands":[`)
	for i, call := range calls {
		if i > 0 {
			body.WriteByte(',')
		}
		body.Write(call.text)
	}
	body.WriteString(`]}`)
	r := &request{method: http.MethodPost, url: b.client.base + batchPath, header: http.Header{"Content-Type": {"application/json"}}, body: body.Bytes(), seen: b.client.seen}
	if b.client.key != "" {
		r.header.Set("Authorization", "Bearer "+b.client.key)
	}
	resp, err := r.send(ctx, b.client.http)
	if err != nil {
		return nil, err
	}
	return read(resp)
}
