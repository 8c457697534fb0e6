package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// broadcast is a server whose n-th connection says the n-th text and breaks off; after the last it answers 404.
type broadcast struct {
	plays []string // "503" refuses, "" drops the connection

	mu   sync.Mutex
	from []string // the places from which events were asked for
}

func (b *broadcast) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	n := len(b.from)
	b.from = append(b.from, r.Header.Get("Last-Event-ID"))
	b.mu.Unlock()
	if n >= len(b.plays) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"status":404,"code":"not_found","retryable":false,"outcome":"not_applied"}`)
		return
	}
	switch play := b.plays[n]; play {
	case "":
	case "503":
		refuse(http.StatusServiceUnavailable, "overloaded", "")(w, r)
		return
	default:
		_, _ = fmt.Fprint(w, play)
		_ = http.NewResponseController(w).Flush()
	}
	panic(http.ErrAbortHandler)
}

// asked is from where events were asked for so far.
func (b *broadcast) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.from)
}

func told(seq int) string {
	return fmt.Sprintf("id: %d\nevent: bid.placed\ndata: {\"topic\":\"auction:1\",\"seq\":%d,\"type\":\"bid.placed\",\"at\":\"2026-03-01T12:00:00Z\",\"data\":{}}\n\n", seq, seq)
}

const (
	saidSubscribed = ": subscribed 9\n\n"
	saidDropped    = "event: dropped\ndata: {\"op\":\"dropped\",\"topic\":\"auction:1\",\"last_seq\":4}\n\n"
	saidCountdown  = "event: countdown\ndata: {\"topic\":\"auction:1\",\"type\":\"countdown\",\"at\":\"2026-03-01T12:00:00Z\",\"data\":{}}\n\n"
)

func follow(t *testing.T, b *broadcast, since int64, opts ...client.Option) (seqs []string, err error) {
	t.Helper()
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, "key", append(opts, client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))...)
	testwait.Must(t, err)
	for e, err := range c.Follow(t.Context(), "auction:1", since) {
		if err != nil {
			return seqs, err
		}
		seqs = append(seqs, strconv.FormatInt(e.Seq, 10))
	}
	return seqs, nil
}

func TestFollow(t *testing.T) {
	var problem *client.Problem
	b := &broadcast{plays: []string{
		saidSubscribed + told(1) + told(2)[:50], "", saidSubscribed + told(2)[:len(told(2))-1], "503",
		told(2) + saidCountdown + told(3) + saidDropped, told(3) + ":\n\n" + told(4) + told(4) + told(5),
	}}
	seqs, err := follow(t, b, 0)
	if !errors.As(err, &problem) || problem.Code != "not_found" {
		t.Error(err)
	}
	if want := []string{"1", "2", "0", "3", "4", "5"}; !slices.Equal(seqs, want) {
		t.Errorf("events %v, want %v", seqs, want)
	}
	if want := []string{"0", "1", "1", "1", "1", "3", "5"}; !slices.Equal(b.asked(), want) {
		t.Errorf("asked from %v, want %v", b.asked(), want)
	}

	// What comes from now on has no gap either.
	b = &broadcast{plays: []string{saidSubscribed, saidSubscribed + told(10)}}
	if seqs, _ := follow(t, b, client.FromNow); !slices.Equal(seqs, []string{"10"}) || !slices.Equal(b.asked(), []string{"", "9", "10"}) {
		t.Errorf("events %v, asked from %v", seqs, b.asked())
	}
}

// TestFollowGivesUp counts connections in a row that were not accepted; accepted ones use up nothing.
func TestFollowGivesUp(t *testing.T) {
	var lost *client.UnansweredError
	b := &broadcast{plays: []string{saidSubscribed, "", saidSubscribed, "", "", "", ""}}
	if seqs, err := follow(t, b, 0, client.WithRetry(client.Retry{Attempts: 2})); !errors.As(err, &lost) || len(b.asked()) != 5 || seqs != nil {
		t.Errorf("%v, %v after %d connections", seqs, err, len(b.asked()))
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range newClient().Follow(ctx, "auction:1", 0) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
