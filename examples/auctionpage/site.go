package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"

	"github.com/fairlead-dev/fairlead/client"
)

//go:embed page
var files embed.FS

// contentPolicy lets the page load and call nothing but this program.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// newSite serves the page, the auction's events, and bids.
func newSite(c *client.Client, fairlead, key, auction string) http.Handler {
	server, err := url.Parse(fairlead)
	check(err)
	page, err := fs.Sub(files, "page")
	check(err)
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	mux.Handle("GET /events", events(server, key, auction))
	mux.HandleFunc("POST /bids", bids(c, auction))
	// Other sites' pages can't bid in the name of a visitor.
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", contentPolicy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		guarded.ServeHTTP(w, r)
	})
}

// events passes the auction's stream through, from its first event or from the one after the browser's last: a browser that
// reconnects by itself says so in a header, the page's script in the query. Each browser costs
// a stream of the server's; a site with a crowd reads one and hands it on.
func events(server *url.URL, key, auction string) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Path, r.Out.URL.RawPath = "/v1/events", ""
		r.SetURL(server)
		r.Out.URL.RawQuery = url.Values{"topic": {"auction:" + auction}, "since": {cmp.Or(r.In.URL.Query().Get("since"), "0")}}.Encode()
		// Of what the browser sent, the server gets this and nothing else.
		r.Out.Header = http.Header{"Authorization": {"Bearer " + key}, "Accept": {"text/event-stream"}}
		if last := r.In.Header.Get("Last-Event-ID"); last != "" {
			r.Out.Header.Set("Last-Event-ID", last)
		}
	}}
}

// bids takes a bid from the page's form and answers with a sentence. Here a visitor is whoever he says; on a site of yours it
// is the account of his session.
func bids(c *client.Client, auction string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		amount, err := strconv.ParseInt(r.PostFormValue("amount"), 10, 64)
		if err != nil {
			http.Error(w, "The amount is no number of cents.", http.StatusBadRequest)
			return
		}
		bid, err := placeBid(r.Context(), c, auction, r.PostFormValue("name"), amount, r.PostFormValue("key"))
		if err != nil {
			explain(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "Your bid of %d.%02d EUR stands, at rank %d.", bid.Amount/100, bid.Amount%100, bid.Rank) // A visitor who left is told nothing.
	}
}

// explain says why there is no bid, or that nobody knows yet: then the page asks again with the bid's key.
func explain(w http.ResponseWriter, err error) {
	p, answered := errors.AsType[*client.Problem](err)
	if !answered {
		http.Error(w, "The auction house does not answer.", http.StatusBadGateway)
		return
	}
	http.Error(w, cmp.Or(map[string]string{
		"amount_taken":       "Somebody has bid exactly that.",
		"bid_too_low":        "That is too little.",
		"insufficient_funds": "That is more than you have.",
		"not_active":         "No round is open.",
		"cooldown":           "Not so fast.",
	}[p.Code], p.Detail), p.Status)
}
