package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client/api"
)

// The pauses between attempts where the server asks for none: long enough for a lane to drain or a process to start.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotent-Replayed"
)

// Retry bounds how long a call is tried. The zero value means the defaults.
type Retry struct {
	// Attempts is how often a request is sent at most; 0 means 6, 1 means that nothing is sent again.
	Attempts int
	// Limit is how long after its first attempt a call may begin its last one; 0 means 30 s. A longer Retry-After ends
	// the call at once, with the answer that asked for it.
	Limit time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Attempts <= 0 {
		r.Attempts = 6
	}
	if r.Limit <= 0 {
		r.Limit = 30 * time.Second
	}
	return r
}

// CallOption changes one call.
type CallOption = api.RequestEditorFn

// Key gives a call the caller's own idempotency key, 1 to 255 visible ASCII characters, in place of a random one.
func Key(key string) CallOption {
	return func(_ context.Context, req *http.Request) error {
		req.Header.Set(keyHeader, key)
		return nil
	}
}

// Answer is what really came, for callers who look closer: see [Into].
type Answer struct {
	Status int
	Header http.Header
	// Body is the answer as it came, byte for byte.
	Body []byte
	// Replayed tells that the server repeated the answer to an earlier request with the same key.
	Replayed bool
	// Key is the idempotency key that was sent; empty where none was.
	Key string
	// Attempts is how often the request was sent, but for what net/http repeats by itself when a connection that it kept
	// turns out to be dead.
	Attempts int
}

type answerKey struct{}

// Into stores the call's answer in a, whether it succeeds or ends in a [Problem]. The Answer belongs to that call until
// it returns.
func Into(a *Answer) CallOption {
	return func(_ context.Context, req *http.Request) error {
		*req = *req.WithContext(context.WithValue(req.Context(), answerKey{}, a)) //nolint:contextcheck // The request's is the one to extend.
		return nil
	}
}

// transport sends the generated client's requests: with the credential, a key, and again if it must.
type transport struct {
	http  *http.Client
	key   string
	retry Retry
}

// Do sends a request until it is settled. An answer of 400 or above is returned as an error, a *Problem; the body of
// the others has been read, so that a connection that fails halfway counts as no answer.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	if t.key != "" {
		req.Header.Set("Authorization", "Bearer "+t.key)
	}
	if req.Method != http.MethodGet && req.Header.Get(keyHeader) == "" {
		req.Header.Set(keyHeader, uuid.NewString())
	}
	ctx, key := req.Context(), req.Header.Get(keyHeader)
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstPause, maxPause
	began := time.Now()
	for attempt := 1; ; attempt++ {
		resp, body, err := t.once(req)
		pause := pauses.NextBackOff()
		if err != nil {
			err = &UnansweredError{Key: key, Attempts: attempt, Err: err}
		} else {
			if a, ok := ctx.Value(answerKey{}).(*Answer); ok {
				*a = Answer{
					Status: resp.StatusCode, Header: resp.Header, Body: body, Replayed: resp.Header.Get(replayedHeader) == "true",
					Key: key, Attempts: attempt,
				}
			}
			if resp.StatusCode < http.StatusBadRequest {
				return resp, nil
			}
			p := problemOf(resp, body)
			p.Key, p.RetryAfter = key, retryAfter(resp.Header)
			if !p.Retryable || settled(ctx, p.Code) {
				return nil, p
			}
			// The pause on top of it keeps a crowd that was turned away from coming back at one moment.
			pause, err = p.RetryAfter+pause, p
		}
		if attempt >= t.retry.Attempts || time.Since(began)+pause > t.retry.Limit || !wait(ctx, pause) {
			return nil, err
		}
		if err := rewind(req); err != nil {
			return nil, err
		}
	}
}

// once makes one attempt and reads its answer to the end.
func (t *transport) once(req *http.Request) (*http.Response, []byte, error) {
	resp, err := t.http.Do(req) //nolint:gosec // The program that uses the client says which server it calls.
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, body, err
}

// wait pauses, and reports whether the context still lasts.
func wait(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// rewind makes a request's body ready to be sent again.
func rewind(req *http.Request) error {
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return fmt.Errorf("client: rewind the body: %w", err)
	}
	req.Body = body
	return nil
}

// retryAfter reads Retry-After in either of its forms; 0 means that there is none.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
