package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

func TestPublishing(t *testing.T) {
	ctx, c := t.Context(), newClient()
	made, err := c.CreateTarget(ctx, client.CreateTargetRequest{
		Name: "blog", Kind: "webhook", URL: new("https://example.com/hook"), Config: &client.WebhookConfig{Timeout: new("3s")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(made.Secret, "whsec_") || made.Timeout != "3s" {
		t.Errorf("made %+v", made)
	}
	if _, err := c.CreateTarget(ctx, client.CreateTargetRequest{Name: "blog", Kind: "webhook", URL: new("https://example.com/hook")}); client.CodeOf(err) != "target_exists" {
		t.Errorf("a second one: %v", err)
	}
	if read, err := c.GetTarget(ctx, made.ID); err != nil || read.Name != "blog" || len(collected(t, c.Targets(ctx))) != 1 {
		t.Errorf("read %+v, %v", read, err)
	}
	draft, err := c.CreatePublication(ctx, client.PublicationRequest{Target: "blog", Payload: map[string]any{"title": "hello"}})
	if err != nil || draft.Status != "draft" || draft.PublishAt != nil {
		t.Fatalf("draft %+v, %v", draft, err)
	}
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	scheduled, err := c.Schedule(ctx, draft.ID, client.ScheduleRequest{PublishAt: at, Jitter: new("0s")})
	if err != nil || scheduled.Status != "scheduled" || !scheduled.ActualPublishAt.Equal(at) {
		t.Fatalf("scheduled %+v, %v", scheduled, err)
	}
	read, err := c.GetPublication(ctx, draft.ID)
	if err != nil {
		t.Fatal(err)
	}
	if payload, ok := read.Payload.(map[string]any); !ok || payload["title"] != "hello" {
		t.Errorf("payload %v", read.Payload)
	}
	if now, err := c.PublishNow(ctx, draft.ID); err != nil || now.ActualPublishAt.After(at) {
		t.Errorf("now %+v, %v", now, err)
	}
	if _, err := c.RetryPublication(ctx, draft.ID); client.CodeOf(err) != "bad_transition" {
		t.Errorf("a retry: %v", err)
	}
	if cancelled, err := c.CancelPublication(ctx, draft.ID); err != nil || cancelled.Status != "cancelled" {
		t.Errorf("cancelled %+v, %v", cancelled, err)
	}
	if all, open := collected(t, c.Publications(ctx, "cancelled")), collected(t, c.Publications(ctx, "scheduled")); len(all) != 1 || len(open) != 0 {
		t.Errorf("%d cancelled, %d scheduled", len(all), len(open))
	}
	if attempts := collected(t, c.Attempts(ctx, draft.ID)); len(attempts) != 0 {
		t.Errorf("attempts %+v", attempts)
	}
}
