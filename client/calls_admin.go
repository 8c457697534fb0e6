package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
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

// Measurements reads what the process that answers has measured over the last hour. since is the Last of an earlier answer, to get the
// samples after it only, or 0.
func (c *Client) Measurements(ctx context.Context, since int, opts ...CallOption) (*Measurements, error) {
	return get[Measurements](ctx, c, with("/v1/admin/measurements", "since", strconv.Itoa(since)), opts)
}

// Deadlocks tells which deadlocks the process that answers has broken since it began.
func (c *Client) Deadlocks(ctx context.Context, opts ...CallOption) (*Deadlocks, error) {
	return get[Deadlocks](ctx, c, "/v1/admin/deadlocks", opts)
}

// Balances reads an account's balance over the last hour.
func (c *Client) Balances(ctx context.Context, account string, opts ...CallOption) (*Balances, error) {
	return get[Balances](ctx, c, at("/v1/admin/accounts/%s/balances", account), opts)
}

// Sales reads how a campaign's sale went over time.
func (c *Client) Sales(ctx context.Context, campaign string, opts ...CallOption) (*Sales, error) {
	return get[Sales](ctx, c, at("/v1/admin/campaigns/%s/sales", campaign), opts)
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

// OpenHolds is [Client.AccountHolds], also for the system's own accounts.
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

// AdminBids gives the accepted bids of an auction, newest first, a page at a time; those of one account, or all where it is empty.
func (c *Client) AdminBids(ctx context.Context, auction, account string, opts ...CallOption) iter.Seq2[PlacedBid, error] {
	return pages[PlacedBid](ctx, c, opts, at("/v1/admin/auctions/%s/bids", auction), "account", account)
}

// BidChart reads an auction's rounds and bids for a chart: every bid, or an even sample of many.
func (c *Client) BidChart(ctx context.Context, auction string, opts ...CallOption) (*BidChart, error) {
	return get[BidChart](ctx, c, at("/v1/admin/auctions/%s/chart", auction), opts)
}

// Search finds things by an id, the reference of a transfer, the beginning of an account's id, or a part of a name: at most
// five of each kind.
func (c *Client) Search(ctx context.Context, q string, opts ...CallOption) (*Found, error) {
	return get[Found](ctx, c, with("/v1/admin/search", "q", q), opts)
}

// Names reads the names of up to 200 things by their ids, which are given with commas between them.
func (c *Client) Names(ctx context.Context, ids string, opts ...CallOption) (*Found, error) {
	return get[Found](ctx, c, with("/v1/admin/names", "ids", ids), opts)
}

// PublicationFilter chooses publications; what is empty does not filter.
type PublicationFilter struct {
	Status string
	Target string // the target's name
	Error  string // the last error of failed ones
	Cause  string // what failed ones failed for, such as dns or timeout
}

// AdminPublications gives publications, newest first, a page at a time.
func (c *Client) AdminPublications(ctx context.Context, f PublicationFilter, opts ...CallOption) iter.Seq2[Publication, error] {
	return pages[Publication](ctx, c, opts, "/v1/admin/publications", "status", f.Status, "target", f.Target, "error", f.Error, "cause", f.Cause)
}

// AdminMultidraws gives multi-draws without their results, newest first, a page at a time.
func (c *Client) AdminMultidraws(ctx context.Context, opts ...CallOption) iter.Seq2[MultidrawSummary, error] {
	return pages[MultidrawSummary](ctx, c, opts, "/v1/admin/multidraws")
}

// AdminPurchases gives a campaign's purchases, newest first, a page at a time; those of one account, or all where it is empty.
func (c *Client) AdminPurchases(ctx context.Context, campaign, account string, opts ...CallOption) iter.Seq2[Purchase, error] {
	return pages[Purchase](ctx, c, opts, at("/v1/admin/campaigns/%s/purchases", campaign), "account", account)
}

// AdminSagas gives operations of several steps, newest first, a page at a time; with an account (ID of this ledger, or LEDGER/ID), the
// transfers between ledgers from or to it, with no filter besides.
func (c *Client) AdminSagas(ctx context.Context, f SagaFilter, account string, opts ...CallOption) iter.Seq2[Saga, error] {
	return pages[Saga](ctx, c, opts, "/v1/admin/sagas", "name", f.Name, "status", f.Status, "stuck", onlyTrue(f.Stuck), "account", account)
}

// AdminTargets gives targets, newest first, a page at a time.
func (c *Client) AdminTargets(ctx context.Context, opts ...CallOption) iter.Seq2[Target, error] {
	return pages[Target](ctx, c, opts, "/v1/admin/targets")
}

// AdminAttempts gives a publication's attempts, newest first, a page at a time.
func (c *Client) AdminAttempts(ctx context.Context, publication string, opts ...CallOption) iter.Seq2[Attempt, error] {
	return pages[Attempt](ctx, c, opts, at("/v1/admin/publications/%s/attempts", publication))
}

// AdminAutomations gives automations, newest first, a page at a time.
func (c *Client) AdminAutomations(ctx context.Context, opts ...CallOption) iter.Seq2[Automation, error] {
	return pages[Automation](ctx, c, opts, "/v1/admin/automations")
}

// AdminFirings gives what an automation has fired, newest first, a page at a time.
func (c *Client) AdminFirings(ctx context.Context, automation string, opts ...CallOption) iter.Seq2[Firing, error] {
	return pages[Firing](ctx, c, opts, at("/v1/admin/automations/%s/firings", automation))
}

// AdminKeys gives API keys, newest first, a page at a time.
func (c *Client) AdminKeys(ctx context.Context, opts ...CallOption) iter.Seq2[APIKey, error] {
	return pages[APIKey](ctx, c, opts, "/v1/admin/keys")
}
