package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestPublishing(t *testing.T) {
	ctx, c := t.Context(), newClient()
	made, err := c.CreateTarget(ctx, client.CreateTargetRequest{
		Name: "blog", Kind: "webhook", URL: "https://example.com/hook", Config: client.TargetConfig{Timeout: "3s"},
	})
	testwait.Must(t, err)
	if !strings.HasPrefix(made.Secret, "whsec_") || made.Timeout != "3s" {
		t.Errorf("made %+v", made)
	}
	if _, err := c.CreateTarget(ctx, client.CreateTargetRequest{Name: "blog", Kind: "webhook", URL: "https://example.com/hook"}); client.CodeOf(err) != "target_exists" {
		t.Errorf("a second one: %v", err)
	}
	if read, err := c.GetTarget(ctx, made.ID); err != nil || read.Name != "blog" || len(collected(t, c.Targets(ctx))) != 1 {
		t.Errorf("read %+v, %v", read, err)
	}
	draft, err := c.CreatePublication(ctx, client.PublicationRequest{Target: "blog", Payload: map[string]any{"title": "hello"}})
	if err != nil || draft.Status != "draft" || !draft.PublishAt.IsZero() {
		t.Fatalf("draft %+v, %v", draft, err)
	}
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	scheduled, err := c.Schedule(ctx, draft.ID, client.ScheduleRequest{PublishAt: at, Jitter: "0s"})
	if err != nil || scheduled.Status != "scheduled" || !scheduled.ActualPublishAt.Equal(at) {
		t.Fatalf("scheduled %+v, %v", scheduled, err)
	}
	read, err := c.GetPublication(ctx, draft.ID)
	testwait.Must(t, err)
	if payload, ok := read.Payload.(map[string]any); !ok || payload["title"] != "hello" {
		t.Errorf("payload %v", read.Payload)
	}
	if _, err := c.PauseTarget(ctx, made.ID); err != nil { // The worker would send it before it is cancelled.
		t.Fatal(err)
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

func TestTargetsAndAutomations(t *testing.T) {
	ctx, c := t.Context(), newClient()
	made, err := c.CreateTarget(ctx, client.CreateTargetRequest{Name: "rotated", Kind: "webhook", URL: "https://example.com/hook"})
	testwait.Must(t, err)
	if again, err := c.RotateSecret(ctx, made.ID, client.RotateSecretRequest{Overlap: "1h"}); err != nil || again.Secret == made.Secret || again.Secret == "" {
		t.Errorf("rotated %+v, %v", again, err)
	}
	if _, err := c.ReplaceCredentials(ctx, made.ID, client.CredentialsRequest{RefreshToken: "r"}); client.CodeOf(err) != "wrong_kind" {
		t.Errorf("credentials of a webhook: %v", err)
	}
	if paused, err := c.PauseTarget(ctx, made.ID); err != nil || paused.PausedAt.IsZero() {
		t.Errorf("paused %+v, %v", paused, err)
	}
	if resumed, err := c.ResumeTarget(ctx, made.ID); err != nil || !resumed.PausedAt.IsZero() {
		t.Errorf("resumed %+v, %v", resumed, err)
	}
	rule, err := c.CreateAutomation(ctx, client.AutomationRequest{Name: "daily", Target: "rotated", Times: []string{"09:00"}, TimeZone: "Europe/Berlin"})
	if err != nil || rule.NextAt.IsZero() || rule.Status != "active" {
		t.Fatalf("made %+v, %v", rule, err)
	}
	if read, err := c.GetAutomation(ctx, rule.ID); err != nil || read.Times[0] != "09:00:00" {
		t.Errorf("read %+v, %v", read, err)
	}
	if len(collected(t, c.Automations(ctx))) != 1 || len(collected(t, c.Firings(ctx, rule.ID))) != 0 {
		t.Error("the lists are not right")
	}
	for _, step := range []struct {
		do     func() (*client.Automation, error)
		status string
	}{
		{func() (*client.Automation, error) { return c.PauseAutomation(ctx, rule.ID) }, "paused"},
		{func() (*client.Automation, error) { return c.ResumeAutomation(ctx, rule.ID) }, "active"},
		{func() (*client.Automation, error) { return c.CancelAutomation(ctx, rule.ID) }, "cancelled"},
	} {
		if got, err := step.do(); err != nil || string(got.Status) != step.status {
			t.Errorf("%s: %+v, %v", step.status, got, err)
		}
	}
}
