package client

import (
	"context"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

// CreateTarget makes a target of publications. Its signing secret is in this answer and nowhere else. Code target_exists: the
// name is taken.
func (c *Client) CreateTarget(ctx context.Context, q CreateTargetRequest, opts ...CallOption) (*MadeTarget, error) {
	return created(c.api.PostTargetsWithResponse(ctx, nil, q, opts...))
}

// GetTarget reads a target, and how it is slowed down.
func (c *Client) GetTarget(ctx context.Context, id string, opts ...CallOption) (*Target, error) {
	return ok(c.api.GetTargetsIDWithResponse(ctx, id, opts...))
}

// Targets gives all targets, oldest first, a page at a time.
func (c *Client) Targets(ctx context.Context, opts ...CallOption) iter.Seq2[Target, error] {
	return pages(func(after *string) ([]Target, *string, error) {
		list, err := ok(c.api.GetTargetsWithResponse(ctx, &api.GetTargetsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// CreatePublication makes a publication: scheduled, or a draft without a time. Code not_found: there is no such target.
func (c *Client) CreatePublication(ctx context.Context, q PublicationRequest, opts ...CallOption) (*Publication, error) {
	return created(c.api.PostPublicationsWithResponse(ctx, nil, q, opts...))
}

// GetPublication reads a publication with its payload.
func (c *Client) GetPublication(ctx context.Context, id string, opts ...CallOption) (*Publication, error) {
	return ok(c.api.GetPublicationsIDWithResponse(ctx, id, opts...))
}

// Publications gives publications, oldest first, a page at a time; those of one status, or all where it is empty.
func (c *Client) Publications(ctx context.Context, status string, opts ...CallOption) iter.Seq2[Publication, error] {
	var only *string
	if status != "" {
		only = &status
	}
	return pages(func(after *string) ([]Publication, *string, error) {
		list, err := ok(c.api.GetPublicationsWithResponse(ctx, &api.GetPublicationsParams{Limit: pageLimit(), After: after, Status: only}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// Attempts gives the attempts of a publication in order, a page at a time.
func (c *Client) Attempts(ctx context.Context, publication string, opts ...CallOption) iter.Seq2[Attempt, error] {
	return pages(func(after *string) ([]Attempt, *string, error) {
		list, err := ok(c.api.GetPublicationsIDAttemptsWithResponse(ctx, publication, &api.GetPublicationsIDAttemptsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// Schedule gives a draft its time, or a scheduled publication another one. Code bad_transition: it is past that.
func (c *Client) Schedule(ctx context.Context, publication string, q ScheduleRequest, opts ...CallOption) (*Publication, error) {
	return ok(c.api.PostPublicationsIDScheduleWithResponse(ctx, publication, nil, q, opts...))
}

// PublishNow makes a draft or a scheduled publication due at once. Code bad_transition: it is past that.
func (c *Client) PublishNow(ctx context.Context, publication string, opts ...CallOption) (*Publication, error) {
	return ok(c.api.PostPublicationsIDPublishWithResponse(ctx, publication, nil, api.NoFields{}, opts...))
}

// CancelPublication cancels a draft or a scheduled publication: if it returns without an error, nothing is sent from then on.
// Code bad_transition: it is being published, or past that.
func (c *Client) CancelPublication(ctx context.Context, publication string, opts ...CallOption) (*Publication, error) {
	return ok(c.api.PostPublicationsIDCancelWithResponse(ctx, publication, nil, api.NoFields{}, opts...))
}

// RetryPublication gives a failed publication new attempts, at once. Code bad_transition: it has not failed.
func (c *Client) RetryPublication(ctx context.Context, publication string, opts ...CallOption) (*Publication, error) {
	return ok(c.api.PostPublicationsIDRetryWithResponse(ctx, publication, nil, api.NoFields{}, opts...))
}

// RotateSecret gives a webhook another signing secret, which is in this answer and nowhere else. Code wrong_kind: it has none.
func (c *Client) RotateSecret(ctx context.Context, target string, q RotateSecretRequest, opts ...CallOption) (*MadeTarget, error) {
	return ok(c.api.PostTargetsIDSecretWithResponse(ctx, target, nil, q, opts...))
}

// ReplaceCredentials gives a target new credentials and resumes it. Code wrong_kind: it has none.
func (c *Client) ReplaceCredentials(ctx context.Context, target string, q CredentialsRequest, opts ...CallOption) (*Target, error) {
	return ok(c.api.PostTargetsIDCredentialsWithResponse(ctx, target, nil, q, opts...))
}

// PauseTarget keeps a target's publications back. Code bad_transition: it is paused.
func (c *Client) PauseTarget(ctx context.Context, target string, opts ...CallOption) (*Target, error) {
	return ok(c.api.PostTargetsIDPauseWithResponse(ctx, target, nil, api.NoFields{}, opts...))
}

// ResumeTarget lets a paused target's publications go. Code bad_transition: it is not paused.
func (c *Client) ResumeTarget(ctx context.Context, target string, opts ...CallOption) (*Target, error) {
	return ok(c.api.PostTargetsIDResumeWithResponse(ctx, target, nil, api.NoFields{}, opts...))
}

// CreateAutomation makes an automation. Codes: automation_exists, not_found (the target).
func (c *Client) CreateAutomation(ctx context.Context, q AutomationRequest, opts ...CallOption) (*Automation, error) {
	return created(c.api.PostAutomationsWithResponse(ctx, nil, q, opts...))
}

// GetAutomation reads an automation, and when it fires next.
func (c *Client) GetAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return ok(c.api.GetAutomationsIDWithResponse(ctx, id, opts...))
}

// Automations gives all automations, oldest first, a page at a time.
func (c *Client) Automations(ctx context.Context, opts ...CallOption) iter.Seq2[Automation, error] {
	return pages(func(after *string) ([]Automation, *string, error) {
		list, err := ok(c.api.GetAutomationsWithResponse(ctx, &api.GetAutomationsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// Firings gives what an automation has fired in order, a page at a time.
func (c *Client) Firings(ctx context.Context, automation string, opts ...CallOption) iter.Seq2[Firing, error] {
	return pages(func(after *string) ([]Firing, *string, error) {
		list, err := ok(c.api.GetAutomationsIDFiringsWithResponse(ctx, automation, &api.GetAutomationsIDFiringsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// PauseAutomation keeps an automation from firing. Code bad_transition: it is not active.
func (c *Client) PauseAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return ok(c.api.PostAutomationsIDPauseWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// ResumeAutomation lets a paused automation fire again. Code bad_transition: it is not paused.
func (c *Client) ResumeAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return ok(c.api.PostAutomationsIDResumeWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// CancelAutomation ends an automation for good. Code bad_transition: it has ended.
func (c *Client) CancelAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return ok(c.api.PostAutomationsIDCancelWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}
