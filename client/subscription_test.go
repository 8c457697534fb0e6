package client_test

import (
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestSubscriptions(t *testing.T) {
	ctx, c := t.Context(), newClient()
	target, err := c.CreateTarget(ctx, client.CreateTargetRequest{Name: "events", Kind: "webhook", URL: "https://example.com/events"})
	testwait.Must(t, err)
	// Nothing is to be sent there.
	_, err = c.PauseTarget(ctx, target.ID)
	testwait.Must(t, err)
	auction, err := c.CreateAuction(ctx, client.CreateAuctionRequest{
		Title: "followed", Currency: "SIM", Seller: open(t, c, 1, 1)[0], Rounds: []client.RoundRequest{{Winners: 1, Duration: "1h"}},
	})
	testwait.Must(t, err)
	started, err := c.StartAuction(ctx, auction.ID)
	testwait.Must(t, err)
	topic := "auction:" + auction.ID

	ask := client.SubscriptionRequest{
		Name: "followers", Target: "events", Topics: []string{topic, "campaign:*"}, Types: []string{"auction.started"},
		Envelope: client.SubscriptionRequestEnvelopeCloudevents, From: client.SubscriptionRequestFromStart,
	}
	made, err := c.CreateSubscription(ctx, ask)
	if err != nil || made.Name != "followers" || made.Target != "events" || !slices.Equal(made.Topics, ask.Topics) || !slices.Equal(made.Types, ask.Types) ||
		made.Envelope != client.SubscriptionEnvelopeCloudevents || !made.PausedAt.IsZero() || made.CreatedAt.IsZero() {
		t.Fatalf("made %+v, %v", made, err)
	}
	if _, err := c.CreateSubscription(ctx, ask); client.CodeOf(err) != "subscription_exists" {
		t.Errorf("a second one: %v", err)
	}
	if read, err := c.GetSubscription(ctx, made.ID); err != nil || read.Name != made.Name || !read.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("read %+v, %v", read, err)
	}
	if all := collected(t, c.Subscriptions(ctx)); len(all) != 1 || all[0].ID != made.ID {
		t.Errorf("all: %+v", all)
	}
	at := func(seq int64) {
		t.Helper()
		topics := collected(t, c.SubscriptionTopics(ctx, made.ID))
		if len(topics) != 1 || topics[0].Topic != topic || topics[0].Seq != seq || topics[0].Head != started.Seq || topics[0].Lag != started.Seq-seq ||
			topics[0].LastError.Message != "" || !topics[0].DeliveredAt.IsZero() {
			t.Errorf("topics %+v", topics)
		}
	}
	at(0)
	if paused, err := c.PauseSubscription(ctx, made.ID); err != nil || paused.PausedAt.IsZero() || paused.PausedReason != client.SubscriptionPausedReasonRequest {
		t.Errorf("paused %+v, %v", paused, err)
	}
	if _, err := c.PauseSubscription(ctx, made.ID); client.CodeOf(err) != "bad_transition" {
		t.Errorf("paused again: %v", err)
	}
	if replayed, err := c.ReplayTopic(ctx, made.ID, client.ReplayRequest{Topic: topic, After: 1}); err != nil || replayed.ID != made.ID {
		t.Errorf("replayed %+v, %v", replayed, err)
	}
	at(1)
	if _, err := c.ReplayTopic(ctx, made.ID, client.ReplayRequest{Topic: topic, After: started.Seq + 1}); client.CodeOf(err) != "replay_out_of_range" {
		t.Errorf("replayed after what there is: %v", err)
	}
	if resumed, err := c.ResumeSubscription(ctx, made.ID); err != nil || !resumed.PausedAt.IsZero() || resumed.PausedReason != "" {
		t.Errorf("resumed %+v, %v", resumed, err)
	}
	if ended, err := c.DeleteSubscription(ctx, made.ID); err != nil || ended.ID != made.ID {
		t.Errorf("deleted %+v, %v", ended, err)
	}
	if _, err := c.GetSubscription(ctx, made.ID); client.CodeOf(err) != "not_found" {
		t.Errorf("read what is deleted: %v", err)
	}
	if all := collected(t, c.Subscriptions(ctx)); len(all) != 0 {
		t.Errorf("all: %+v", all)
	}
}
