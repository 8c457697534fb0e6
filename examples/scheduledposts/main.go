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
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

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
	ctx := context.Background()
	c, err := client.New(cmp.Or(os.Getenv("FAIRLEAD_URL"), "http://127.0.0.1:8080"), os.Getenv("FAIRLEAD_KEY"))
	check(err)
	rc := &receiver{seen: make(map[string]bool), delivered: make(map[string]int)}
	server := httptest.NewUnstartedServer(rc)
	address := "http://" + server.Listener.Addr().String()
	// The secret is in this answer and nowhere else: a program that runs for longer keeps it. This one makes a target anew.
	target, err := c.CreateTarget(ctx, client.CreateTargetRequest{
		Name: "diary-" + uuid.NewString(), Kind: client.CreateTargetRequestKindWebhook, URL: address,
	})
	check(err)
	rc.webhook, err = standardwebhooks.NewWebhook(target.Secret)
	check(err)
	server.Start()
	defer server.Close()

	now := time.Now()
	var expected []string // ids of the posts that are to be published
	for _, p := range []struct {
		title string
		in    time.Duration
	}{{quick, 0}, {busy, 0}, {lost, 0}, {later, time.Second}, {regret, time.Hour}} {
		made, err := c.CreatePublication(ctx, client.PublicationRequest{
			Target: target.Name, Payload: post{Title: p.title}, PublishAt: now.Add(p.in),
		})
		check(err)
		if p.title != regret {
			expected = append(expected, made.ID)
			continue
		}
		// Once this has returned without an error, nothing is sent.
		_, err = c.CancelPublication(ctx, made.ID)
		check(err)
	}
	for _, id := range expected {
		awaitPublished(ctx, c, id)
	}
	forge(ctx, address)

	rc.mu.Lock()
	defer rc.mu.Unlock()
	slices.Sort(rc.taken)
	for _, title := range rc.taken {
		fmt.Printf("%s: delivered %d times, taken once\n", title, rc.delivered[title])
	}
	fmt.Printf("forgeries refused: %d\n", rc.forged)
}

// awaitPublished waits for a publication to be published, which it is once, or to fail for good.
func awaitPublished(ctx context.Context, c *client.Client, id string) {
	for {
		p, err := c.GetPublication(ctx, id)
		check(err)
		switch p.Status { //nolint:exhaustive // All others are on the way.
		case client.PublicationStatusPublished:
			return
		case client.PublicationStatusFailed:
			panic(fmt.Sprintf("publication %s failed: %s", id, cmp.Or(p.LastError, "no reason given")))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// forge sends the receiver a post that bears no signature of the target's secret.
func forge(ctx context.Context, address string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"title":"Buy my pills"}`))
	check(err)
	req.Header.Set("Webhook-Id", uuid.NewString())
	req.Header.Set("Webhook-Timestamp", fmt.Sprint(time.Now().Unix()))
	req.Header.Set("Webhook-Signature", "v1,bm90IHRoZSByaWdodCBvbmU=")
	resp, err := http.DefaultClient.Do(req)
	check(err)
	check(resp.Body.Close())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
