package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// answering makes a server of a handler and counts its requests.
func answering(t *testing.T, h http.HandlerFunc) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// bothWays makes a client, and a batcher of it.
func bothWays(t *testing.T, url string, opts ...client.Option) map[string]*client.Client {
	t.Helper()
	c, err := client.New(url, "key", opts...)
	testwait.Must(t, err)
	return map[string]*client.Client{"alone": c, "batched": client.NewBatcher(c).Client}
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// inBatch puts an answer into the answer to a batch of one.
func inBatch(status int, body string) string {
	return fmt.Sprintf(`{"results":[{"status":%d,"body":%s}]}`, status, body)
}

// redirects sends every request to the same path of another server.
func redirects(to string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.RequestURI(), status)
	}
}

var someTransfer = client.TransferRequest{From: "ann", To: "bob", Amount: 5}

// TestARedirectedCommandIsNoSuccess: the list that a GET of the same path would be answered with is no answer to a command.
func TestARedirectedCommandIsNoSuccess(t *testing.T) {
	target, arrived := answering(t, says(http.StatusOK, `{"items":[]}`))
	follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
		for name, opts := range map[string][]client.Option{"default": nil, "follows": {client.WithHTTPClient(follows)}} {
			t.Run(fmt.Sprintf("%d, %s", status, name), func(t *testing.T) {
				front, asked := answering(t, redirects(target, status))
				for way, c := range bothWays(t, front, opts...) {
					t.Run(way, func(t *testing.T) {
						asked.Store(0)
						made, err := c.Transfer(t.Context(), someTransfer, client.Key("k1"))
						var p *client.Problem
						if !errors.As(err, &p) || p.Status != status || p.Key != "k1" || p.Outcome != client.Unknown || p.Retryable {
							t.Fatalf("%+v, %v, %+v", made, err, p)
						}
						if !strings.Contains(err.Error(), target) || !strings.Contains(err.Error(), "base URL") {
							t.Errorf("it does not say what to do: %v", err)
						}
						if err := c.ReleaseLock(t.Context(), "l"); !errors.As(err, &p) || p.Status != status {
							t.Errorf("a DELETE: %v", err)
						}
						if asked.Load() != 2 || arrived.Load() != 0 {
							t.Errorf("%d requests, %d followed", asked.Load(), arrived.Load())
						}
					})
				}
			})
		}
	}
}

// TestARedirectThatKeepsTheMethodIsFollowed: the command arrives with its body and key.
func TestARedirectThatKeepsTheMethodIsFollowed(t *testing.T) {
	made := `{"id":"t1"}`
	target, _ := answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch command := r.Method == http.MethodPost && strings.Contains(string(body), `"ann"`); {
		case r.Method == http.MethodGet, command && r.Header.Get("Idempotency-Key") == "k1":
			says(http.StatusOK, made)(w, r)
		case command && strings.Contains(string(body), `"key":"k1"`):
			says(http.StatusOK, inBatch(http.StatusCreated, made))(w, r)
		default:
			says(http.StatusBadRequest, "")(w, r)
		}
	})
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		front, _ := answering(t, redirects(target, status))
		for way, c := range bothWays(t, front) {
			t.Run(way, func(t *testing.T) {
				if got, err := c.Transfer(t.Context(), someTransfer, client.Key("k1")); err != nil || got.ID != "t1" {
					t.Errorf("%d: %+v, %v", status, got, err)
				}
			})
		}
	}
	front, _ := answering(t, redirects(target, http.StatusMovedPermanently))
	var asked int
	c, err := client.New(front, "key", client.WithHTTPClient(&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		asked++
		return nil
	}}))
	testwait.Must(t, err)
	if got, err := c.GetTransfer(t.Context(), "t1"); err != nil || got.ID != "t1" || asked != 1 {
		t.Errorf("a read: %+v, %v; the CheckRedirect was asked %d times", got, err, asked)
	}
}

// TestARedirectInACircle ends with what the last redirect said, for calls and for Open.
func TestARedirectInACircle(t *testing.T) {
	front, asked := answering(t, redirects("", http.StatusTemporaryRedirect))
	for way, c := range bothWays(t, front) {
		t.Run(way, func(t *testing.T) {
			asked.Store(0)
			var p *client.Problem
			if _, err := c.Transfer(t.Context(), someTransfer); !errors.As(err, &p) || p.Status != http.StatusTemporaryRedirect || asked.Load() > 11 {
				t.Errorf("%v after %d requests", err, asked.Load())
			}
			resp, err := c.Open(t.Context(), "/metrics")
			if !errors.As(err, &p) || p.Status != http.StatusTemporaryRedirect {
				t.Errorf("Open: %v", err)
			}
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
}

// unreadable are answers that no Fairlead server gives to a transfer.
var unreadable = map[string]http.HandlerFunc{
	"a page":         says(http.StatusOK, "<html>"),
	"empty":          says(http.StatusCreated, ""),
	"no content":     says(http.StatusNoContent, ""),
	"not modified":   says(http.StatusNotModified, ""),
	"accepted":       says(http.StatusAccepted, "<html>"),
	"cut":            cutWithoutLength(`{"id":"t1"`),
	"cut in a batch": cutWithoutLength(`{"results":[{"status":201,"body":{"id":"t1"}}`),
}

// cutWithoutLength ends a connection in the middle of an answer that has no Content-Length.
func cutWithoutLength(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = buffer.WriteString("HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n" + body)
		_ = buffer.Flush()
		_ = conn.Close()
	}
}

// TestAnUnreadableAnswerIsNone: it is tried again, under the same key, and ends the call as no answer at all.
func TestAnUnreadableAnswerIsNone(t *testing.T) {
	for name, answer := range unreadable {
		t.Run(name, func(t *testing.T) {
			var bad atomic.Int64
			url, requests := answering(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case bad.Add(-1) >= 0:
					answer(w, r)
				case r.URL.Path == "/v1/commands":
					says(http.StatusOK, inBatch(http.StatusCreated, `{"id":"t1"}`))(w, r)
				default:
					says(http.StatusCreated, `{"id":"t1"}`)(w, r)
				}
			})
			for way, c := range bothWays(t, url, client.WithRetry(client.Retry{Attempts: 2})) {
				t.Run(way, func(t *testing.T) {
					requests.Store(0)
					bad.Store(2)
					var lost *client.UnansweredError
					made, err := c.Transfer(t.Context(), someTransfer, client.Key("k1"))
					if !errors.As(err, &lost) || lost.Key != "k1" || lost.Attempts != 2 || requests.Load() != 2 {
						t.Fatalf("%+v, %v after %d requests", made, err, requests.Load())
					}
					bad.Store(1)
					if made, err := c.Transfer(t.Context(), someTransfer, client.Key("k1")); err != nil || made.ID != "t1" {
						t.Errorf("%+v, %v", made, err)
					}
				})
			}
		})
	}
}

// TestAnUnreadableAnswerLeavesDoubt: after it, no refusal says that nothing was done.
func TestAnUnreadableAnswerLeavesDoubt(t *testing.T) {
	var n atomic.Int64
	url, _ := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			says(http.StatusCreated, "<html>")(w, r)
			return
		}
		says(http.StatusServiceUnavailable, `{"status":503,"code":"unavailable","retryable":true,"outcome":"not_applied"}`)(w, r)
	})
	for way, c := range bothWays(t, url, client.WithRetry(client.Retry{Attempts: 2})) {
		t.Run(way, func(t *testing.T) {
			var p *client.Problem
			if _, err := c.Transfer(t.Context(), someTransfer); !errors.As(err, &p) || p.Outcome != client.Unknown {
				t.Errorf("%v, %+v", err, p)
			}
		})
	}
}

// TestOtherUnreadableAnswers: a proof that is cut, an answer where none is expected, and a result in a batch that has no status.
func TestOtherUnreadableAnswers(t *testing.T) {
	var answer atomic.Value
	url, _ := answering(t, func(w http.ResponseWriter, r *http.Request) { answer.Load().(http.HandlerFunc)(w, r) }) //nolint:errcheck,forcetypeassert // Nothing else is stored.
	c, err := client.New(url, "key", client.WithRetry(client.Retry{Attempts: 1}))
	testwait.Must(t, err)
	for name, it := range map[string]struct {
		answer http.HandlerFunc
		call   func(ctx context.Context) error
		good   bool
	}{
		"proof": {says(http.StatusOK, "{\"a\": 1}\n"), func(ctx context.Context) error {
			got, err := c.Proof(ctx, "c")
			if err == nil && string(got) != "{\"a\": 1}\n" {
				t.Errorf("the proof came as %q", got)
			}
			return err
		}, true},
		"cut proof":          {cutWithoutLength(`{"a": `), func(ctx context.Context) error { return testwait.Err(c.Proof(ctx, "c")) }, false},
		"released":           {says(http.StatusNoContent, ""), func(ctx context.Context) error { return c.ReleaseLock(ctx, "l") }, true},
		"a page for release": {says(http.StatusOK, "<html>"), func(ctx context.Context) error { return c.ReleaseLock(ctx, "l") }, false},
		"no status": {says(http.StatusOK, inBatch(0, "{}")), func(ctx context.Context) error {
			return testwait.Err(client.NewBatcher(c).Transfer(ctx, someTransfer))
		}, false},
		"accepted batch": {says(http.StatusAccepted, "{}"), func(ctx context.Context) error {
			return testwait.Err(client.NewBatcher(c).Transfer(ctx, someTransfer))
		}, false},
	} {
		answer.Store(it.answer)
		err := it.call(t.Context())
		var lost *client.UnansweredError
		if it.good && err != nil || !it.good && !errors.As(err, &lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRetryAfterOfTheDocument: a result in a batch has no headers, and its problem says how long to wait.
func TestRetryAfterOfTheDocument(t *testing.T) {
	const cooldown = `{"status":429,"code":"cooldown","retryable":true,"outcome":"not_applied","retry_after":1}`
	var n atomic.Int64
	url, requests := answering(t, func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusCreated, `{"seq":1}`
		if n.Add(1)%2 == 1 {
			status, body = http.StatusTooManyRequests, cooldown
		}
		if r.URL.Path == "/v1/commands" {
			status, body = http.StatusOK, inBatch(status, body)
		}
		says(status, body)(w, r)
	})
	for way, c := range bothWays(t, url) {
		t.Run(way, func(t *testing.T) {
			requests.Store(0)
			began := time.Now()
			_, err := c.Bid(t.Context(), "a", client.BidRequest{Account: "ann", Amount: 5})
			if took := time.Since(began); err != nil || took < time.Second || requests.Load() != 2 {
				t.Errorf("%v after %s and %d requests", err, took, requests.Load())
			}
		})
	}
}

// TestAVeryLongRetryAfter ends the call at once, however long it is.
func TestAVeryLongRetryAfter(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, seconds := range []string{"9223372036", "9999999999999", "99999999999999999999999"} {
		for _, header := range []bool{true, false} {
			url, requests := answering(t, func(w http.ResponseWriter, r *http.Request) {
				member := ""
				if header {
					w.Header().Set("Retry-After", seconds)
				} else {
					member = `,"retry_after":` + seconds
				}
				says(http.StatusTooManyRequests, `{"status":429,"code":"rate_limited","retryable":true,"outcome":"unknown"`+member+`}`)(w, r)
			})
			for way, c := range bothWays(t, url) {
				t.Run(way, func(t *testing.T) {
					requests.Store(0)
					var p *client.Problem
					_, err := c.Transfer(t.Context(), someTransfer)
					if !errors.As(err, &p) || p.RetryAfter != year || requests.Load() != 1 {
						t.Errorf("%s, header %t: %v, %+v after %d requests", seconds, header, err, p, requests.Load())
					}
				})
			}
		}
	}
}

// TestAMalformedKeyIsNotSent refuses it before a request is made.
func TestAMalformedKeyIsNotSent(t *testing.T) {
	url, requests := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/commands" {
			says(http.StatusOK, inBatch(http.StatusCreated, "{}"))(w, r)
			return
		}
		says(http.StatusCreated, "{}")(w, r)
	})
	for way, c := range bothWays(t, url) {
		t.Run(way, func(t *testing.T) {
			requests.Store(0)
			for _, key := range []string{"a\nb", "a b", "a\x00", "é", `"open`, strings.Repeat("k", 256)} {
				_, err := c.Transfer(t.Context(), someTransfer, client.Key(key))
				var lost *client.UnansweredError
				if err == nil || errors.As(err, &lost) || !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
					t.Errorf("%q: %v", key, err)
				}
			}
			if requests.Load() != 0 {
				t.Errorf("%d requests were sent", requests.Load())
			}
			for _, key := range []string{"a", `"quoted"`, strings.Repeat("k", 255)} {
				if _, err := c.Transfer(t.Context(), someTransfer, client.Key(key)); err != nil {
					t.Errorf("%q: %v", key, err)
				}
			}
		})
	}
}
