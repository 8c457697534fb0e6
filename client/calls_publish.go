package client

import (
	"context"
	"iter"
	"net/http"
)

// CreateTarget makes a target of publications. Its signing secret is in this answer and nowhere else. Code target_exists: the
// name is taken.
func (c *Client) CreateTarget(ctx context.Context, q CreateTargetRequest, opts ...CallOption) (*MadeTarget, error) {
	return post[MadeTarget](ctx, c, "/v1/targets", q, opts)
}

// GetTarget reads a target, and how it is slowed down.
func (c *Client) GetTarget(ctx context.Context, id string, opts ...CallOption) (*Target, error) {
	return get[Target](ctx, c, at("/v1/targets/%s", id), opts)
}

// Targets gives all targets, oldest first, a page at a time.
func (c *Client) Targets(ctx context.Context, opts ...CallOption) iter.Seq2[Target, error] {
	return pages[Target](ctx, c, opts, "/v1/targets")
}

// CreatePublication makes a publication: scheduled, or a draft without a time. Code not_found: there is no such target.
func (c *Client) CreatePublication(ctx context.Context, q PublicationRequest, opts ...CallOption) (*Publication, error) {
	return post[Publication](ctx, c, "/v1/publications", q, opts)
}

// GetPublication reads a publication with its payload.
func (c *Client) GetPublication(ctx context.Context, id string, opts ...CallOption) (*Publication, error) {
	return get[Publication](ctx, c, at("/v1/publications/%s", id), opts)
}

// Publications gives publications, oldest first, a page at a time; those of one status, or all where it is empty.
func (c *Client) Publications(ctx context.Context, status string, opts ...CallOption) iter.Seq2[Publication, error] {
	return pages[Publication](ctx, c, opts, "/v1/publications", "status", status)
}

// Attempts gives the attempts of a publication in order, a page at a time.
func (c *Client) Attempts(ctx context.Context, publication string, opts ...CallOption) iter.Seq2[Attempt, error] {
	return pages[Attempt](ctx, c, opts, at("/v1/publications/%s/attempts", publication))
}

// Schedule gives a draft its time, or a scheduled publication another one. Code bad_transition: it is neither.
func (c *Client) Schedule(ctx context.Context, publication string, q ScheduleRequest, opts ...CallOption) (*Publication, error) {
	return post[Publication](ctx, c, at("/v1/publications/%s/schedule", publication), q, opts)
}

// PublishNow makes a draft or a scheduled publication due at once. Code bad_transition: it is past that.
func (c *Client) PublishNow(ctx context.Context, publication string, opts ...CallOption) (*Publication, error) {
	return post[Publication](ctx, c, at("/v1/publications/%s/publish", publication), nil, opts)
}

// CancelPublication cancels a draft or a scheduled publication: if it returns without an error, nothing is sent from then on.
// Code bad_transition: it is being published, or past that.
func (c *Client) CancelPublication(ctx context.Context, publication string, opts ...CallOption) (*Publication, error) {
	return post[Publication](ctx, c, at("/v1/publications/%s/cancel", publication), nil, opts)
}

// RetryPublication gives a failed publication new attempts, at once. Code bad_transition: it has not failed.
func (c *Client) RetryPublication(ctx context.Context, publication string, opts ...CallOption) (*Publication, error) {
	return post[Publication](ctx, c, at("/v1/publications/%s/retry", publication), nil, opts)
}

// RotateSecret gives a webhook another signing secret, which is in this answer and nowhere else. Code wrong_kind: it has none.
func (c *Client) RotateSecret(ctx context.Context, target string, q RotateSecretRequest, opts ...CallOption) (*MadeTarget, error) {
	return post[MadeTarget](ctx, c, at("/v1/targets/%s/secret", target), q, opts)
}

// ReplaceCredentials gives a target new credentials and resumes it. Code wrong_kind: it has none.
func (c *Client) ReplaceCredentials(ctx context.Context, target string, q CredentialsRequest, opts ...CallOption) (*Target, error) {
	return post[Target](ctx, c, at("/v1/targets/%s/credentials", target), q, opts)
}

// PauseTarget keeps a target's publications back. Code bad_transition: it is paused.
func (c *Client) PauseTarget(ctx context.Context, target string, opts ...CallOption) (*Target, error) {
	return post[Target](ctx, c, at("/v1/targets/%s/pause", target), nil, opts)
}

// ResumeTarget lets a paused target's publications go. Code bad_transition: it is not paused.
func (c *Client) ResumeTarget(ctx context.Context, target string, opts ...CallOption) (*Target, error) {
	return post[Target](ctx, c, at("/v1/targets/%s/resume", target), nil, opts)
}

// CreateAutomation makes an automation. Codes: automation_exists, not_found (the target).
func (c *Client) CreateAutomation(ctx context.Context, q AutomationRequest, opts ...CallOption) (*Automation, error) {
	return post[Automation](ctx, c, "/v1/automations", q, opts)
}

// GetAutomation reads an automation, and when it fires next.
func (c *Client) GetAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return get[Automation](ctx, c, at("/v1/automations/%s", id), opts)
}

// Automations gives all automations, oldest first, a page at a time.
func (c *Client) Automations(ctx context.Context, opts ...CallOption) iter.Seq2[Automation, error] {
	return pages[Automation](ctx, c, opts, "/v1/automations")
}

// Firings gives what an automation has fired in order, a page at a time.
func (c *Client) Firings(ctx context.Context, automation string, opts ...CallOption) iter.Seq2[Firing, error] {
	return pages[Firing](ctx, c, opts, at("/v1/automations/%s/firings", automation))
}

// PauseAutomation keeps an automation from firing. Code bad_transition: it is not active.
func (c *Client) PauseAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return post[Automation](ctx, c, at("/v1/automations/%s/pause", id), nil, opts)
}

// ResumeAutomation lets a paused automation fire again. Code bad_transition: it is not paused.
func (c *Client) ResumeAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return post[Automation](ctx, c, at("/v1/automations/%s/resume", id), nil, opts)
}

// CancelAutomation ends an automation for good. Code bad_transition: it has ended.
func (c *Client) CancelAutomation(ctx context.Context, id string, opts ...CallOption) (*Automation, error) {
	return post[Automation](ctx, c, at("/v1/automations/%s/cancel", id), nil, opts)
}

// CreateSubscription subscribes a webhook to the events of topics. Codes: subscription_exists, not_found (the target, or a topic),
// webhook_required.
func (c *Client) CreateSubscription(ctx context.Context, q SubscriptionRequest, opts ...CallOption) (*Subscription, error) {
	return post[Subscription](ctx, c, "/v1/subscriptions", q, opts)
}

// GetSubscription reads a subscription.
func (c *Client) GetSubscription(ctx context.Context, id string, opts ...CallOption) (*Subscription, error) {
	return get[Subscription](ctx, c, at("/v1/subscriptions/%s", id), opts)
}

// Subscriptions gives all subscriptions, oldest first, a page at a time.
func (c *Client) Subscriptions(ctx context.Context, opts ...CallOption) iter.Seq2[Subscription, error] {
	return pages[Subscription](ctx, c, opts, "/v1/subscriptions")
}

// SubscriptionTopics gives the topics that a subscription has come to, and how far, a page at a time.
func (c *Client) SubscriptionTopics(ctx context.Context, subscription string, opts ...CallOption) iter.Seq2[TopicProgress, error] {
	return pages[TopicProgress](ctx, c, opts, at("/v1/subscriptions/%s/topics", subscription))
}

// PauseSubscription keeps a subscription's events back. Code bad_transition: it is paused on request already.
func (c *Client) PauseSubscription(ctx context.Context, id string, opts ...CallOption) (*Subscription, error) {
	return post[Subscription](ctx, c, at("/v1/subscriptions/%s/pause", id), nil, opts)
}

// ResumeSubscription lets a paused subscription's events go. Code bad_transition: it is not paused.
func (c *Client) ResumeSubscription(ctx context.Context, id string, opts ...CallOption) (*Subscription, error) {
	return post[Subscription](ctx, c, at("/v1/subscriptions/%s/resume", id), nil, opts)
}

// ReplayTopic has the events of a topic after a number delivered, again or for the first time. Codes: not_found (the topic),
// replay_out_of_range.
func (c *Client) ReplayTopic(ctx context.Context, subscription string, q ReplayRequest, opts ...CallOption) (*Subscription, error) {
	return post[Subscription](ctx, c, at("/v1/subscriptions/%s/replay", subscription), q, opts)
}

// DeleteSubscription ends a subscription for good.
func (c *Client) DeleteSubscription(ctx context.Context, id string, opts ...CallOption) (*Subscription, error) {
	return Call[Subscription](ctx, c, http.MethodDelete, at("/v1/subscriptions/%s", id), nil, opts...)
}
