package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// fixture is a running peer with accounts of 1,000 each, and a beneficiary.
type fixture struct {
	*testing.T

	server *server
	url    string
}

type reply struct {
	status   int
	body     string
	replayed bool
}

func start(t *testing.T, pipelined bool, accounts int) *fixture {
	t.Helper()
	ctx := t.Context()
	url := pgtest.NewDatabase(t, nil)
	open := func(size int) *server {
		pool, err := openPool(ctx, url, size, planGeneric)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return &server{purchases: pool, bids: pool, transfers: pool, adminKey: "secret", pipelined: pipelined}
	}
	s := open(8)
	if err := migrate(ctx, s.transfers); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.routes())
	f := &fixture{T: t, server: s, url: web.URL}
	t.Cleanup(func() {
		r := f.send(context.Background(), http.MethodGet, "/v1/integrity", "", "")
		if !strings.Contains(r.body, `"valid":true`) {
			t.Errorf("the books don't balance: %s", r.body)
		}
		http.DefaultClient.CloseIdleConnections()
		web.Close()
	})
	f.want(f.post("/v1/accounts", "b", `{"id":"organizer","currency":"POINTS"}`), http.StatusCreated, "organizer")
	for i := range accounts {
		id := fmt.Sprintf("a%d", i)
		f.want(f.post("/v1/accounts", "a"+id, fmt.Sprintf(`{"id":%q,"currency":"POINTS"}`, id)), http.StatusCreated, id)
		f.want(f.post("/v1/deposits", "d"+id, fmt.Sprintf(`{"account":%q,"amount":1000}`, id)), http.StatusCreated, "1000")
	}
	return f
}

func (f *fixture) post(path, key, body string) reply {
	return f.send(f.Context(), http.MethodPost, path, key, body)
}

func (f *fixture) send(ctx context.Context, method, path, key, body string) reply {
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Error(err)
		return reply{}
	}
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Idempotency-Key", key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Error(err)
		return reply{}
	}
	defer answer.Body.Close() //nolint:errcheck // It is read to its end.
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Error(err)
	}
	return reply{answer.StatusCode, string(text), answer.Header.Get("Idempotent-Replayed") == "true"}
}

func (f *fixture) want(r reply, status int, part string) {
	f.Helper()
	if r.status != status || !strings.Contains(r.body, part) {
		f.Fatalf("answer %d %s, want %d with %q", r.status, r.body, status, part)
	}
}

// both runs a test against each variant.
func both(t *testing.T, accounts int, test func(*fixture)) {
	t.Helper()
	for _, pipelined := range []bool{false, true} {
		t.Run(fmt.Sprintf("pipelined=%t", pipelined), func(t *testing.T) { test(start(t, pipelined, accounts)) })
	}
}

func (f *fixture) available(id string) (amount int64) {
	f.Helper()
	err := f.server.transfers.QueryRow(f.Context(), "SELECT available FROM accounts WHERE id = $1", id).Scan(&amount)
	if err != nil {
		f.Fatal(err)
	}
	return amount
}

func TestTransfer(t *testing.T) {
	both(t, 2, func(f *fixture) {
		const body = `{"from":"a0","to":"a1","amount":300}`
		first := f.post("/v1/transfers", "k1", body)
		f.want(first, http.StatusCreated, `"completed"`)
		again := f.post("/v1/transfers", "k1", body)
		if again.body != first.body || again.status != first.status || !again.replayed || first.replayed {
			f.Fatalf("first %+v, again %+v", first, again)
		}
		f.want(f.post("/v1/transfers", "k1", `{"from":"a0","to":"a1","amount":301}`),
			http.StatusUnprocessableEntity, "idempotency_key_reused")
		f.want(f.post("/v1/transfers", "k2", `{"from":"a0","to":"a1","amount":701}`),
			http.StatusPaymentRequired, "insufficient_funds")
		f.want(f.post("/v1/transfers", "k3", `{"from":"a0","to":"a0","amount":1}`),
			http.StatusUnprocessableEntity, "same_account")
		f.want(f.post("/v1/transfers", "k4", `{"from":"a0","to":"nobody","amount":1}`), http.StatusNotFound, "not_found")
		f.want(f.post("/v1/transfers", "k5", `{"from":"a0","to":"a1","amount":1,"x":2}`), http.StatusBadRequest, "bad_request")
		f.want(f.post("/v1/transfers", "", body), http.StatusBadRequest, "idempotency_key_required")
		if a, b := f.available("a0"), f.available("a1"); a != 700 || b != 1300 {
			f.Fatalf("balances %d and %d", a, b)
		}
	})
}

func TestSameKeyAtOnceHasOneEffect(t *testing.T) {
	both(t, 2, func(f *fixture) {
		replies := make([]reply, 16)
		var all sync.WaitGroup
		for i := range replies {
			all.Go(func() { replies[i] = f.post("/v1/transfers", "one", `{"from":"a0","to":"a1","amount":10}`) })
		}
		all.Wait()
		for _, r := range replies {
			f.want(r, http.StatusCreated, `"completed"`)
			if r.body != replies[0].body {
				f.Fatalf("two answers: %s and %s", r.body, replies[0].body)
			}
		}
		if a := f.available("a0"); a != 990 {
			f.Fatalf("balance %d", a)
		}
	})
}

func TestRace(t *testing.T) {
	const buyers, baseLength, positions, price = 15, 4, 10, 7
	both(t, buyers, func(f *fixture) {
		created := f.post("/v1/campaigns", "c", fmt.Sprintf(`{"name":"race","base_length":%d,"price":%d,"currency":"POINTS",
			"beneficiary":"organizer","prizes":[{"name":"first","quantity":1},{"name":"second","quantity":2}]}`, baseLength, price))
		f.want(created, http.StatusCreated, `"pending"`)
		_, rest, _ := strings.Cut(created.body, `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		path := "/v1/campaigns/" + id
		f.want(f.post(path+"/purchases", "early", `{"account":"a0"}`), http.StatusConflict, "not_active")
		f.want(f.post(path+"/publish", "p", `{}`), http.StatusOK, `"active"`)
		replies := make([]reply, buyers)
		var all sync.WaitGroup
		for i := range replies {
			all.Go(func() {
				replies[i] = f.post(path+"/purchases", fmt.Sprintf("buy%d", i), fmt.Sprintf(`{"account":"a%d"}`, i))
			})
		}
		all.Wait()
		sold := 0
		for i, r := range replies {
			if r.status == http.StatusCreated {
				sold++
			} else {
				f.want(r, http.StatusConflict, "sold_out")
			}
			again := f.post(path+"/purchases", fmt.Sprintf("buy%d", i), fmt.Sprintf(`{"account":"a%d"}`, i))
			if again.body != r.body || !again.replayed {
				f.Fatalf("answer %+v, again %+v", r, again)
			}
		}
		if sold != positions {
			f.Fatalf("%d sold", sold)
		}
		f.want(f.send(f.Context(), http.MethodGet, path, "", ""), http.StatusOK, `"completed"`)
		draw := f.send(f.Context(), http.MethodGet, path+"/draw", "", "")
		if n := strings.Count(draw.body, `"prize"`); n != 3 {
			f.Fatalf("%d winners: %s", n, draw.body)
		}
		if got := f.available("organizer"); got != positions*price {
			f.Fatalf("the beneficiary has %d", got)
		}
	})
}
