// Scheduledposts has posts published at their time, to a receiver that takes each of them once.
//
// The program is both ends. It makes a webhook target and schedules five posts; and it is the server that the webhooks
// arrive at, which has a bad day: it refuses one delivery for want of time, and loses the connection in the middle of
// another that it has taken already. Fairlead sends again under the same webhook-id, and the receiver, which checks the
// Standard Webhooks signature and remembers ids, drops what it has. One post is cancelled before its time, and never
// comes. At the end somebody without the secret tries to post.
//
//	fairlead serve --allow-private-targets &     # because this receiver is on the loopback interface
//	export FAIRLEAD_KEY=$(cat fairlead-data/admin.key)
//	go run ./examples/scheduledposts
//
// FAIRLEAD_URL says where the server is, http://127.0.0.1:8080 by default.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
)

// The titles of the posts. Two of them meet a receiver that has trouble.
const (
	quick  = "Good morning"
	busy   = "The receiver has no time"
	lost   = "The receiver's answer is lost"
	later  = "Good evening"
	regret = "Better not"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scheduledposts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c, err := client.New(cmp.Or(os.Getenv("FAIRLEAD_URL"), "http://127.0.0.1:8080"), os.Getenv("FAIRLEAD_KEY"))
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	address := "http://" + listener.Addr().String()
	// The secret is in this answer and nowhere else: a program that runs for longer keeps it. This one makes a target anew.
	target, err := c.CreateTarget(ctx, client.CreateTargetRequest{
		Name: "diary-" + uuid.NewString(), Kind: client.CreateTargetRequestKindWebhook, URL: address,
	})
	if err != nil {
		return err
	}
	rc, err := newReceiver(target.Secret)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: rc, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // It ends by Close.
	defer func() { _ = server.Close() }()
	return tell(ctx, c, target.Name, address, rc)
}

// tell schedules the posts, waits for them, and says what came.
func tell(ctx context.Context, c *client.Client, target, address string, rc *receiver) error {
	now := time.Now()
	var expected []string // ids of the posts that are to be published
	for _, p := range []struct {
		title string
		in    time.Duration
	}{{quick, 0}, {busy, 0}, {lost, 0}, {later, time.Second}, {regret, time.Hour}} {
		made, err := c.CreatePublication(ctx, client.PublicationRequest{
			Target: target, Payload: post{Title: p.title}, PublishAt: now.Add(p.in),
		})
		if err != nil {
			return err
		}
		if p.title != regret {
			expected = append(expected, made.ID)
			continue
		}
		// Once this has returned without an error, nothing is sent.
		if _, err := c.CancelPublication(ctx, made.ID); err != nil {
			return err
		}
	}
	for _, id := range expected {
		if err := published(ctx, c, id); err != nil {
			return err
		}
	}
	if err := forge(ctx, address); err != nil {
		return err
	}

	rc.mu.Lock()
	defer rc.mu.Unlock()
	slices.Sort(rc.taken)
	for _, title := range rc.taken {
		fmt.Printf("%s: delivered %d times, taken once\n", title, rc.delivered[title])
	}
	fmt.Printf("forgeries refused: %d\n", rc.forged)
	return nil
}

// published waits for a publication to be published, which it is once, or to fail for good.
func published(ctx context.Context, c *client.Client, id string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := c.GetPublication(ctx, id)
		switch {
		case err != nil:
			return err
		case p.Status == client.PublicationStatusPublished:
			return nil
		case p.Status == client.PublicationStatusFailed:
			return fmt.Errorf("publication %s failed: %s", id, cmp.Or(p.LastError, "no reason given"))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// forge sends the receiver a post that bears no signature of the target's secret.
func forge(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"title":"Buy my pills"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Webhook-Id", uuid.NewString())
	req.Header.Set("Webhook-Timestamp", fmt.Sprint(time.Now().Unix()))
	req.Header.Set("Webhook-Signature", "v1,bm90IHRoZSByaWdodCBvbmU=")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusUnauthorized {
		err = fmt.Errorf("the receiver took a forgery: %s", resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}
