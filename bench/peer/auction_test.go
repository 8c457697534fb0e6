package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

const auctionBody = `{"title":"t","currency":"POINTS","seller":"organizer","rounds":[{"winners":3,"duration":"24h"}],
	"min_bid":10,"min_increment":5,"anti_snipe":{"window":%q,"extension":"10s","max_extensions":1},"cooldown":"0s"}`

// auction makes and starts an auction and returns its path. Its round is 24 h long, so that a window of that length
// makes the first bid extend it.
func (f *fixture) auction(window string) string {
	f.Helper()
	created := f.post("/v1/auctions", "c"+window, fmt.Sprintf(auctionBody, window))
	f.want(created, http.StatusCreated, `"pending"`)
	_, rest, _ := strings.Cut(created.body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	path := "/v1/auctions/" + id
	f.want(f.post(path+"/bids", "early"+window, `{"account":"a0","amount":10}`), http.StatusConflict, "not_active")
	f.want(f.post(path+"/start", "s"+window, `{}`), http.StatusOK, `"active"`)
	return path
}

func bidBodyOf(account, amount int) string {
	return fmt.Sprintf(`{"account":"a%d","amount":%d}`, account, amount)
}

func TestBid(t *testing.T) {
	both(t, 3, func(f *fixture) {
		path := f.auction("0s") + "/bids"
		first := f.post(path, "k1", bidBodyOf(0, 100))
		f.want(first, http.StatusCreated, `"previous_amount":0,"round":1,`)
		f.want(first, http.StatusCreated, `"rank":1,"seq":2`)
		again := f.post(path, "k1", bidBodyOf(0, 100))
		if again.body != first.body || !again.replayed {
			f.Fatalf("first %+v, again %+v", first, again)
		}
		f.want(f.post(path, "k1", bidBodyOf(0, 101)), http.StatusUnprocessableEntity, "idempotency_key_reused")
		f.want(f.post(path, "k2", bidBodyOf(1, 90)), http.StatusCreated, `"rank":2,"seq":3`)
		f.want(f.post(path, "k3", bidBodyOf(2, 90)), http.StatusConflict, "amount_taken")
		f.want(f.post(path, "k4", bidBodyOf(2, 9)), http.StatusUnprocessableEntity, "bid_too_low")
		f.want(f.post(path, "k5", bidBodyOf(0, 104)), http.StatusUnprocessableEntity, "bid_too_low")
		f.want(f.post(path, "k6", bidBodyOf(0, 1001)), http.StatusPaymentRequired, "insufficient_funds")
		// The frozen money of the first bid is free for the raise.
		f.want(f.post(path, "k7", bidBodyOf(0, 1000)), http.StatusCreated, `"previous_amount":100,`)
		f.want(f.post(path, "k8", bidBodyOf(7, 50)), http.StatusNotFound, "not_found")
		f.want(f.post(path, "k9", `{"account":"organizer","amount":50}`), http.StatusConflict, "own_auction")
		if a, b := f.available("a0"), f.available("a1"); a != 0 || b != 910 {
			f.Fatalf("available %d and %d", a, b)
		}
	})
}

func TestBidInTheLastMomentsExtendsOnce(t *testing.T) {
	both(t, 2, func(f *fixture) {
		path := f.auction("24h")
		f.want(f.post(path+"/bids", "k1", bidBodyOf(0, 100)), http.StatusCreated, `"seq":2`)
		f.want(f.post(path+"/bids", "k2", bidBodyOf(1, 200)), http.StatusCreated, `"seq":4`)
		f.want(f.send(f.Context(), http.MethodGet, path, "", ""), http.StatusOK, `"total_bids":2,"seq":4`)
	})
}

func TestBidsAtOnceStandOnce(t *testing.T) {
	const bidders, raises = 8, 5
	both(t, bidders, func(f *fixture) {
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
		want := fmt.Sprintf(`"total_bids":%d,"seq":%d`, bidders*raises, bidders*raises+1)
		f.want(f.send(f.Context(), http.MethodGet, path, "", ""), http.StatusOK, want)
		if a := f.available("a0"); a != 1000-10-100*(raises-1) {
			f.Fatalf("available %d", a)
		}
	})
}
