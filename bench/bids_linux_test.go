package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
)

// TestBidsAreUniqueAndRaises checks what the source promises: one request an account before any bids again, and every
// amount above all that came before.
func TestBidsAreUniqueAndRaises(t *testing.T) {
	t.Parallel()
	const accounts, cycles = 5, 3
	b := &bidding{path: "/v1/auctions/x", order: []int{3, 0, 4, 1, 2}}
	next := b.source("secret")
	last, keys, seen := int64(0), map[string]bool{}, map[string]int{}
	for i := range accounts * cycles {
		head, body, _ := bytes.Cut(next(), []byte("\r\n\r\n"))
		var in struct {
			Account string `json:"account"`
			Amount  int64  `json:"amount"`
		}
		if err := json.Unmarshal(body, &in); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if in.Amount <= last || in.Amount > openingBalance {
			t.Fatalf("amount %d after %d", in.Amount, last)
		}
		last = in.Amount
		seen[in.Account]++
		if seen[in.Account] != i/accounts+1 {
			t.Fatalf("account %s bids for the %dth time in request %d", in.Account, seen[in.Account], i)
		}
		_, rest, _ := bytes.Cut(head, []byte("Idempotency-Key: "))
		key, _, _ := bytes.Cut(rest, []byte("\r\n"))
		if len(key) == 0 || keys[string(key)] {
			t.Fatalf("key %q in request %d", key, i)
		}
		keys[string(key)] = true
	}
	if seen[accountID(2)] != cycles {
		t.Fatalf("bids by account: %v", seen)
	}
}

func TestSourceEndsBeforeTheMoney(t *testing.T) {
	t.Parallel()
	b := &bidding{path: "/v1/auctions/x", order: []int{0}, sent: lastAmount - firstAmount - 1}
	next := b.source("secret")
	if next() == nil || next() != nil {
		t.Fatal("the source doesn't end at the last amount")
	}
}

func TestBidAnswersAreCounted(t *testing.T) {
	t.Parallel()
	b := &bidding{others: map[string]int64{}}
	for _, a := range []struct {
		status int
		body   string
	}{
		{http.StatusCreated, `{"amount":1}`},
		{http.StatusConflict, `{"code":"amount_taken"}`},
		{http.StatusConflict, `{"code":"amount_taken"}`},
		{http.StatusTooManyRequests, ``},
	} {
		if err := b.check(a.status, []byte(a.body)); err != nil {
			t.Fatal(err)
		}
	}
	if b.total != 1 || b.refused != 3 || b.others["409 amount_taken"] != 2 || b.others["429 without code"] != 1 {
		t.Fatalf("%d accepted, %d refused: %v", b.total, b.refused, b.others)
	}
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusOK} {
		if err := b.check(status, nil); err == nil {
			t.Fatalf("answer %d was taken", status)
		}
	}
}
