package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlead-dev/fairlead/client"
)

const (
	demoPosts     = 60
	demoCancelled = 10 // of them
	demoPostsLead = 1500 * time.Millisecond
)

// delivery is a post that arrived.
type delivery struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
}

// receiver takes posts. It answers none before it is released.
type receiver struct {
	server   http.Server
	url      string
	served   chan struct{}
	released chan struct{}

	mu         sync.Mutex
	secret     string
	deliveries []delivery
	versions   map[string]int64 // the newest by post
	more       chan struct{}    // closed and replaced at each delivery
}

func newReceiver(ctx context.Context) (*receiver, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/hook", served: make(chan struct{}), released: make(chan struct{}), versions: map[string]int64{}, more: make(chan struct{})}
	r.server.Handler, r.server.ReadHeaderTimeout = r, cleanupTimeout
	go func() {
		_ = r.server.Serve(l) // It says that it was closed.
		close(r.served)
	}()
	return r, nil
}

func (r *receiver) close() {
	_ = r.server.Close()
	<-r.served
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(io.LimitReader(q.Body, maxLiveMessage))
	r.mu.Lock()
	webhook, keyErr := standardwebhooks.NewWebhook(r.secret)
	if err = errors.Join(err, keyErr); err == nil {
		err = webhook.Verify(body, q.Header)
	}
	version, numberErr := strconv.ParseInt(q.Header.Get("fairlead-execution-version"), 10, 64)
	if err = errors.Join(err, numberErr); err != nil {
		r.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	post := delivery{q.Header.Get("webhook-id"), version}
	r.deliveries = append(r.deliveries, post)
	r.versions[post.ID] = max(r.versions[post.ID], version)
	close(r.more)
	r.more = make(chan struct{})
	r.mu.Unlock()
	select {
	case <-r.released:
		w.WriteHeader(http.StatusNoContent)
	case <-q.Context().Done(): // The sender is dead.
	}
}

// await waits until enough has arrived.
func (r *receiver) await(ctx context.Context, enough func(posts int) bool) error {
	for {
		r.mu.Lock()
		posts, more := len(r.versions), r.more
		r.mu.Unlock()
		if enough(posts) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-more:
		}
	}
}

// schedulePosts makes posts that are due at one moment, and cancels some before.
func (d *Demo) schedulePosts(ctx context.Context, r *receiver) error {
	name := "demo" + d.tag
	target, err := d.api.CreateTarget(ctx, client.CreateTargetRequest{Name: name, Kind: "webhook", URL: r.url, Timeout: "2m"})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.secret = target.Secret
	r.mu.Unlock()
	due := time.Now().Add(demoPostsLead)
	for i := range demoPosts {
		cancelled, at := i%(demoPosts/demoCancelled) == 0, due
		if cancelled {
			at = time.Now().Add(demoPostsLead) // On a slow machine there must be time to cancel it, too.
		}
		p, err := d.api.CreatePublication(ctx, client.PublicationRequest{Target: name, PublishAt: at, Payload: map[string]string{"title": fmt.Sprintf("Post %d", i+1)}})
		if err != nil {
			return err
		}
		if cancelled {
			_, err := d.api.CancelPublication(ctx, p.ID)
			if err == nil {
				d.cancelled = append(d.cancelled, p.ID)
				continue
			}
			if client.CodeOf(err) != "bad_transition" { // It was due already.
				return err
			}
		}
		d.posts = append(d.posts, p.ID)
	}
	return nil
}

// awaitPosts waits until all posts are published.
func (d *Demo) awaitPosts(ctx context.Context, r *receiver) error {
	step, done := d.screen.Progress("The posts", len(d.posts))
	for _, id := range d.posts {
		if err := until(ctx, func() (bool, error) {
			p, err := d.api.GetPublication(ctx, id)
			return err == nil && p.Status == client.PublicationStatusPublished, err
		}); err != nil {
			done()
			return err
		}
		step()
	}
	done()
	r.mu.Lock()
	defer r.mu.Unlock()
	d.deliveries = append([]delivery(nil), r.deliveries...)
	c := &d.result.Crash
	for _, version := range r.versions {
		if version > 1 {
			c.SentAgain++
		}
	}
	d.screen.End("%d published once; %d were sent again, under their id, as version 2", len(d.posts), c.SentAgain)
	return nil
}
