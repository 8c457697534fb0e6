package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairlead-dev/fairlead/client"
)

type publicationInput struct {
	Target    string         `json:"target" jsonschema:"the target's name, as list_targets has it"`
	Payload   jsontext.Value `json:"payload" jsonschema:"what is published: any JSON"`
	PublishAt time.Time      `json:"publish_at,omitzero" jsonschema:"when, as RFC 3339 with a zone, such as 2030-01-31T09:00:00Z. In the past: at once. Absent: a draft, which is published later or never"`
	Jitter    string         `json:"jitter,omitzero" jsonschema:"a random part of this is added to the time, up to 5m"`
}

type publicationStepInput struct {
	Publication id              `json:"publication" jsonschema:"the publication's id"`
	Step        publicationStep `json:"step" jsonschema:"schedule: give it a time (publish_at). publish: publish it now. cancel: never publish it. retry: try a failed one again"`
	PublishAt   time.Time       `json:"publish_at,omitzero" jsonschema:"with schedule: when, as RFC 3339 with a zone"`
	Jitter      string          `json:"jitter,omitzero" jsonschema:"with schedule: a random part of this is added to the time, up to 5m; as before when absent"`
}

// addPublications adds the tools that prepare what is published.
func (s *service) addPublications(b *builder) {
	addPrepare(s, b, "publication", "Prepare a publication", "Prepares something to be published once to a target, at a time or as a draft.", describePublication)
	addPrepare(s, b, "publication_step", "Prepare a publication's next step", "Prepares scheduling, publishing, cancelling or retrying a publication.", describePublicationStep)
}

func describePublication(ctx context.Context, p *plan, in publicationInput) error {
	p.path = "/v1/publications"
	p.body = client.PublicationRequest{Target: in.Target, Payload: in.Payload, PublishAt: in.PublishAt, Jitter: in.Jitter}
	if err := p.target(ctx, in.Target); err != nil {
		return err
	}
	p.summary = fmt.Sprintf("Publish the payload to target %q once, %s.", in.Target, p.when(in.PublishAt, in.Jitter))
	if in.PublishAt.IsZero() {
		p.summary = fmt.Sprintf("Keep the payload as a draft for target %q. Nothing is sent.", in.Target)
	}
	p.note("What has been sent can't be taken back. A target that does not remember webhook-id may get it more than once.")
	return nil
}

// target looks whether a target is there and takes anything.
func (p *plan) target(ctx context.Context, name string) error {
	for t, err := range p.s.client.Targets(ctx) {
		switch {
		case err != nil:
			return err
		case t.Name != name:
			continue
		case !t.PausedAt.IsZero():
			p.note("The target is paused: nothing is sent until it is resumed.")
		}
		return nil
	}
	p.refuse("not_found", "there is no target named %q", name)
	return nil
}

// when says in words when something is published.
func (p *plan) when(at time.Time, jitter string) string {
	words := "at " + at.UTC().Format(timeFormat)
	if !at.After(p.s.now()) {
		words = "at once, because the time is past"
	}
	if jitter != "" {
		words += " plus a random part of " + jitter
	}
	return words
}

func describePublicationStep(ctx context.Context, p *plan, in publicationStepInput) error {
	was, err := p.s.client.GetPublication(ctx, string(in.Publication))
	if err != nil {
		return err
	}
	if in.Step != "schedule" && (!in.PublishAt.IsZero() || in.Jitter != "") {
		return wrongArguments("publish_at and jitter go with step schedule only")
	}
	from := []string{string(client.PublicationStatusDraft), string(client.PublicationStatusScheduled)}
	switch in.Step {
	case "schedule":
		if in.PublishAt.IsZero() {
			return wrongArguments("step schedule needs publish_at")
		}
		p.body = client.ScheduleRequest{PublishAt: in.PublishAt, Jitter: in.Jitter}
		p.summary = fmt.Sprintf("Publish %s to target %q once, %s.", was.ID, was.Target, p.when(in.PublishAt, in.Jitter))
	case "publish":
		p.summary = fmt.Sprintf("Publish %s to target %q now.", was.ID, was.Target)
	case "cancel":
		p.summary = fmt.Sprintf("Cancel publication %s to target %q for good: it is never sent.", was.ID, was.Target)
	default: // retry
		from = []string{string(client.PublicationStatusFailed)}
		p.summary = fmt.Sprintf("Try publication %s to target %q again, at once. Its last error was %q.", was.ID, was.Target, was.LastError)
	}
	p.needs("bad_transition", "the publication", string(was.Status), from...)
	p.may("bad_transition", "it is being published before, or its status changes otherwise")
	if !was.ActualPublishAt.IsZero() {
		p.note("At present it is %s, for %s.", was.Status, was.ActualPublishAt.Format(timeFormat))
	}
	p.path = at("/v1/publications/%s/"+string(in.Step), in.Publication)
	return nil
}
