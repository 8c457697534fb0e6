package main

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// maxBody bounds what is read of a delivery: anybody can send one.
const maxBody = 1 << 20

// post is the payload of this program's publications.
type post struct {
	Title string `json:"title"`
}

// receiver takes deliveries: signed ones, each once. It is safe for concurrent use.
//
// What it has seen it keeps in memory, which does for an example. A receiver that outlives its process keeps the ids in
// its database, and inserts the id in the very transaction in which it does what the delivery asks for.
type receiver struct {
	webhook *standardwebhooks.Webhook

	mu        sync.Mutex
	seen      map[string]bool // by webhook-id, which all attempts of a publication share
	taken     []string        // titles
	delivered map[string]int  // deliveries of each title, repeats too
	forged    int
}

// ServeHTTP answers 2xx for what it has, now or before, 5xx for what is to be sent again, and 401 for forgeries.
func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	// The signature covers id, time and body. Only after this line is any of them to be believed.
	if err := rc.webhook.Verify(body, r.Header); err != nil {
		rc.forged++
		http.Error(w, "the signature is not right", http.StatusUnauthorized)
		return
	}
	var p post
	if err := json.Unmarshal(body, &p); err != nil {
		http.Error(w, "this is no post", http.StatusUnprocessableEntity)
		return
	}
	rc.delivered[p.Title]++
	first := rc.delivered[p.Title] == 1
	if p.Title == busy && first {
		http.Error(w, "come back later", http.StatusServiceUnavailable)
		return
	}
	if id := r.Header.Get(standardwebhooks.HeaderWebhookID); !rc.seen[id] {
		rc.seen[id] = true
		rc.taken = append(rc.taken, p.Title)
	}
	if p.Title == lost && first {
		panic(http.ErrAbortHandler) // The post was taken, and the connection breaks before the server learns of it.
	}
	w.WriteHeader(http.StatusNoContent)
}
