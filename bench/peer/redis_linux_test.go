package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fairlead-dev/fairlead/bench/redisserver"
)

// startRedis gives a running peer over a Redis of its own, with accounts of 1,000 each.
func startRedis(t *testing.T, accounts int) (*fixture, *redisServer) {
	t.Helper()
	server, err := redisserver.Start(t.Context(), t.TempDir())
	if errors.Is(err, redisserver.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	s, err := openRedis(t.Context(), server.Addr(), 4, "secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	web := httptest.NewServer(s.routes())
	f := &fixture{T: t, url: web.URL}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		web.Close()
	})
	f.want(f.post("/v1/accounts", "b", `{"id":"organizer","currency":"POINTS"}`), http.StatusCreated, "organizer")
	for i := range accounts {
		id := fmt.Sprintf("a%d", i)
		f.want(f.post("/v1/accounts", "a"+id, fmt.Sprintf(`{"id":%q,"currency":"POINTS"}`, id)), http.StatusCreated, id)
		f.want(f.post("/v1/deposits", "d"+id, fmt.Sprintf(`{"account":%q,"amount":1000}`, id)), http.StatusCreated, "1000")
	}
	return f, s
}

func (f *fixture) wantIntegrity(valid bool) {
	f.Helper()
	f.want(f.send(f.Context(), http.MethodGet, "/v1/integrity", "", ""), http.StatusOK, fmt.Sprintf(`"valid":%t`, valid))
}

func TestRedisBid(t *testing.T) {
	f, s := startRedis(t, 3)
	path := f.auction("0s") + "/bids"
	f.want(f.post(path, "k1", bidBodyOf(0, 100)), http.StatusCreated, `"previous_amount":0,"round":1,`)
	f.want(f.post(path, "k2", bidBodyOf(1, 9)), http.StatusUnprocessableEntity, "bid_too_low")
	f.want(f.post(path, "k3", bidBodyOf(0, 104)), http.StatusUnprocessableEntity, "bid_too_low")
	f.want(f.post(path, "k4", bidBodyOf(0, 1001)), http.StatusPaymentRequired, "insufficient_funds")
	// The frozen money of the first bid is free for the raise.
	f.want(f.post(path, "k5", bidBodyOf(0, 1000)), http.StatusCreated, `"available":0,"frozen":1000`)
	f.want(f.post(path, "k6", bidBodyOf(7, 50)), http.StatusNotFound, "not_found")
	f.want(f.post(path, "k7", `{"account":"organizer","amount":50}`), http.StatusConflict, "own_auction")
	f.want(f.post(path, "", bidBodyOf(1, 50)), http.StatusBadRequest, "idempotency_key_required")
	f.wantIntegrity(true)
	if err := s.client.HIncrBy(t.Context(), accountKey("a1"), "available", 1).Err(); err != nil {
		t.Fatal(err)
	}
	f.wantIntegrity(false)
}

func TestRedisRanksTheEarlierOfEqualBidsFirst(t *testing.T) {
	f, s := startRedis(t, 3)
	auction := f.auction("0s")
	id := strings.TrimPrefix(auction, "/v1/auctions/")
	f.want(f.post(auction+"/bids", "k1", bidBodyOf(2, 100)), http.StatusCreated, "")
	// As if the auction had been started a minute earlier.
	if err := s.client.HIncrBy(t.Context(), metaKey(id), "started_at", -60_000).Err(); err != nil {
		t.Fatal(err)
	}
	f.want(f.post(auction+"/bids", "k2", bidBodyOf(1, 100)), http.StatusCreated, "")
	f.want(f.post(auction+"/bids", "k3", bidBodyOf(0, 101)), http.StatusCreated, "")
	board, err := s.client.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: boardKey(id), Start: 0, Stop: -1, Rev: true}).Result()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(board, " "); got != "a0 a2 a1" {
		t.Fatalf("the ranking is %s", got)
	}
	for _, key := range []string{dirtyAccountsKey, dirtyBidsKey + id} {
		if n, err := s.client.SCard(t.Context(), key).Result(); err != nil || n != 3 {
			t.Fatalf("%d marks in %s (%v)", n, key, err)
		}
	}
}

func TestRedisBidsAtOnce(t *testing.T) {
	const bidders, raises = 8, 5
	f, _ := startRedis(t, bidders)
	path := f.auction("0s")
	var all sync.WaitGroup
	for i := range bidders {
		all.Go(func() {
			for j := range raises {
				r := f.post(path+"/bids", fmt.Sprintf("k%d-%d", i, j), bidBodyOf(i, 10+i+100*j))
				if r.status != http.StatusCreated {
					f.Errorf("answer %d %s", r.status, r.body)
				}
			}
		})
	}
	all.Wait()
	f.wantIntegrity(true)
}
