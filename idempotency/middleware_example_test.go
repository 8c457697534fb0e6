package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/memstore"
)

// orders is a handler that must not run twice for one order.
type orders struct{ made int }

func (o *orders) create(w http.ResponseWriter, r *http.Request) {
	what, err := io.ReadAll(r.Body)
	if err != nil || len(what) == 0 {
		http.Error(w, "what do you order?", http.StatusBadRequest) // Not kept: the key can be used again.
		return
	}
	o.made++
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "order %d: %s", o.made, what)
}

// show sends a request and prints its answer.
func show(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text := w.Body.String()
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/problem+json") {
		_, text, _ = strings.Cut(text, `"code":`)
		text, _, _ = strings.Cut(text, ",")
	}
	replayed := ""
	if w.Header().Get("Idempotent-Replayed") == "true" {
		replayed = " (replayed)"
	}
	fmt.Printf("%d %s%s\n", w.Code, strings.TrimSpace(text), replayed)
}

// In front of a handler on the standard mux. A server of more than one process takes pgstore or redisstore instead.
func ExampleMiddleware_Wrap() {
	keys, err := idempotency.New(idempotency.Options{
		Store:     memstore.New(),
		Principal: func(r *http.Request) string { return r.Header.Get("X-User") }, // whom your authentication has found
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", keys.Wrap(http.HandlerFunc((&orders{}).create)))

	show(mux, `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, "a lamp")
	show(mux, "8e03978e-40d5-43dd-bc93-6894a57f9324", "a lamp") // quoted or bare, it is the same key
	show(mux, "8e03978e-40d5-43dd-bc93-6894a57f9324", "two lamps")
	show(mux, "another", "")
	show(mux, "another", "a table")
	show(mux, "", "a chair")
	// Output:
	// 201 order 1: a lamp
	// 201 order 1: a lamp (replayed)
	// 422 "idempotency_key_reused"
	// 400 what do you order?
	// 201 order 2: a table
	// 400 "idempotency_key_required"
}

// As a middleware of chi, for all routes of a group.
func ExampleMiddleware_Wrap_chi() {
	keys, err := idempotency.New(idempotency.Options{Store: memstore.New(), Principal: idempotency.Everybody})
	if err != nil {
		panic(err)
	}
	o := &orders{}
	r := chi.NewRouter()
	r.Group(func(r chi.Router) {
		r.Use(keys.Wrap)
		r.Post("/orders", o.create)
	})

	show(r, "k1", "a lamp")
	show(r, "k1", "a lamp")
	// Output:
	// 201 order 1: a lamp
	// 201 order 1: a lamp (replayed)
}
