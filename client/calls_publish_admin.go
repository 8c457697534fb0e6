package client

import (
	"context"
	"iter"
	"net/http"
)

// RegisterKey makes an API key known by the SHA-256 of its secret, which the server never sees.
func (c *Client) RegisterKey(ctx context.Context, q CreateKeyRequest, opts ...CallOption) (*APIKey, error) {
	return post[APIKey](ctx, c, "/v1/keys", q, opts)
}

// RevokeKey revokes an API key for good; in force everywhere within 5 s.
func (c *Client) RevokeKey(ctx context.Context, id string, opts ...CallOption) (*APIKey, error) {
	return Call[APIKey](ctx, c, http.MethodDelete, at("/v1/keys/%s", id), nil, opts...)
}

// APIKeys yields all API keys, oldest first, revoked ones too. It ends with the first error.
func (c *Client) APIKeys(ctx context.Context, opts ...CallOption) iter.Seq2[APIKey, error] {
	return pages[APIKey](ctx, c, opts, "/v1/keys")
}

// Ready returns nil when the server takes commands; it is tried, like any call, until it does.
func (c *Client) Ready(ctx context.Context, opts ...CallOption) error {
	_, err := get[Health](ctx, c, "/readyz", opts)
	return err
}

// Healthy returns nil when the server's process runs, whether or not it takes commands.
func (c *Client) Healthy(ctx context.Context, opts ...CallOption) error {
	_, err := get[Health](ctx, c, "/healthz", opts)
	return err
}

// Overview reads what the process that answers has measured, and what waits in the whole system. It takes an admin key, as
// do all methods below.
func (c *Client) Overview(ctx context.Context, opts ...CallOption) (*Overview, error) {
	return get[Overview](ctx, c, "/v1/admin/overview", opts)
}

// DatabaseWaits tells which sessions of the server's database wait for PostgreSQL's own locks, and for whom.
func (c *Client) DatabaseWaits(ctx context.Context, opts ...CallOption) (*DatabaseWaits, error) {
	return get[DatabaseWaits](ctx, c, "/v1/admin/database-waits", opts)
}

// KeyedRequest names a request that was sent with an idempotency key.
type KeyedRequest struct {
	Key       string
	Method    string // such as POST
	Path      string // such as /v1/transfers
	Principal string // who sent it, such as key:ID or user:SUB
}

// KeyRecord reads what the server keeps under a request's idempotency key. Code not_found: nothing.
func (c *Client) KeyRecord(ctx context.Context, r KeyedRequest, opts ...CallOption) (*KeyRecord, error) {
	return get[KeyRecord](ctx, c, with("/v1/admin/idempotency", "key", r.Key, "method", r.Method, "path", r.Path, "principal", r.Principal), opts)
}

// AuditFilter narrows the list of administrative actions; its zero value lists all.
type AuditFilter struct {
	Action    string // such as campaign.publish
	Object    string // the id of what it was done to
	Principal string // such as key:ID
}

// Audits gives administrative actions, newest first, a page at a time.
func (c *Client) Audits(ctx context.Context, f AuditFilter, opts ...CallOption) iter.Seq2[Audit, error] {
	return pages[Audit](ctx, c, opts, "/v1/admin/audit", "action", f.Action, "object", f.Object, "principal", f.Principal)
}

// Accounts gives the accounts whose id begins with prefix, by id, a page at a time.
func (c *Client) Accounts(ctx context.Context, prefix string, opts ...CallOption) iter.Seq2[Account, error] {
	return pages[Account](ctx, c, opts, "/v1/admin/accounts", "prefix", prefix)
}

// AdminEntries gives an account's history, newest first, a page at a time.
func (c *Client) AdminEntries(ctx context.Context, account string, opts ...CallOption) iter.Seq2[Entry, error] {
	return pages[Entry](ctx, c, opts, at("/v1/admin/accounts/%s/entries", account))
}

// OpenHolds gives an account's open holds, a page at a time.
func (c *Client) OpenHolds(ctx context.Context, account string, opts ...CallOption) iter.Seq2[OpenHold, error] {
	return pages[OpenHold](ctx, c, opts, at("/v1/admin/accounts/%s/holds", account))
}

// Transfers gives transfers, newest first, a page at a time; those of one status, or all where it is empty.
func (c *Client) Transfers(ctx context.Context, status string, opts ...CallOption) iter.Seq2[Transfer, error] {
	return pages[Transfer](ctx, c, opts, "/v1/admin/transfers", "status", status)
}

// AdminCampaigns gives campaigns, newest first, a page at a time; those of one status, or all where it is empty.
func (c *Client) AdminCampaigns(ctx context.Context, status string, opts ...CallOption) iter.Seq2[CampaignSummary, error] {
	return pages[CampaignSummary](ctx, c, opts, "/v1/admin/campaigns", "status", status)
}

// SaleMap reads which positions of a campaign are sold.
func (c *Client) SaleMap(ctx context.Context, campaign string, opts ...CallOption) (*SaleMap, error) {
	return get[SaleMap](ctx, c, at("/v1/admin/campaigns/%s/map", campaign), opts)
}

// AdminAuctions gives auctions, newest first, a page at a time; those of one status, or all where it is empty.
func (c *Client) AdminAuctions(ctx context.Context, status string, opts ...CallOption) iter.Seq2[AuctionSummary, error] {
	return pages[AuctionSummary](ctx, c, opts, "/v1/admin/auctions", "status", status)
}

// AdminBids gives all accepted bids of an auction, newest first, a page at a time.
func (c *Client) AdminBids(ctx context.Context, auction string, opts ...CallOption) iter.Seq2[PlacedBid, error] {
	return pages[PlacedBid](ctx, c, opts, at("/v1/admin/auctions/%s/bids", auction))
}

// BidChart reads an auction's rounds and bids for a chart: every bid, or an even sample of many.
func (c *Client) BidChart(ctx context.Context, auction string, opts ...CallOption) (*BidChart, error) {
	return get[BidChart](ctx, c, at("/v1/admin/auctions/%s/chart", auction), opts)
}

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

// PublicCampaign reads what a campaign's public page shows. It needs no key, as do none of the methods here but Alias.
func (c *Client) PublicCampaign(ctx context.Context, id string, opts ...CallOption) (*PublicCampaign, error) {
	return get[PublicCampaign](ctx, c, at("/p/campaigns/%s/state", id), opts)
}

// PublicPosition reads that a position was sealed, and by which alias it was bought.
func (c *Client) PublicPosition(ctx context.Context, campaign, position string, opts ...CallOption) (*PublicPosition, error) {
	return get[PublicPosition](ctx, c, at("/p/campaigns/%s/positions/%s", campaign, position), opts)
}

// PublicAuction reads what an auction's public page shows.
func (c *Client) PublicAuction(ctx context.Context, id string, opts ...CallOption) (*PublicAuction, error) {
	return get[PublicAuction](ctx, c, at("/p/auctions/%s/state", id), opts)
}

// Alias reads what the public pages of a topic, campaign:ID or auction:ID, call an account.
func (c *Client) Alias(ctx context.Context, account, topic string, opts ...CallOption) (*Alias, error) {
	return get[Alias](ctx, c, with(at("/v1/accounts/%s/aliases", account), "topic", topic), opts)
}
