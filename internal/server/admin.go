package server

import (
	"context"
	"net/http"
	"reflect"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// Operator is what the server reads for operators, and what they do otherwise than services. Places before which lists begin
// are exclusive.
type Operator interface {
	// ReleaseHold releases a hold with a row in the audit log; its operation is a [ledger.ReleaseHold].
	ReleaseHold(ctx context.Context, c command.Command[ledger.Op]) (command.Answer, error)
	Campaigns(ctx context.Context, status lottery.Status, before int64, limit int) ([]lottery.Campaign, error)
	Auctions(ctx context.Context, status auction.Status, before int64, limit int) ([]auction.Auction, error)
	Accounts(ctx context.Context, prefix, after string, limit int) ([]ledger.Account, error)
	Entries(ctx context.Context, account string, before int64, limit int) ([]ledger.Entry, error)
	OpenHolds(ctx context.Context, account string, before uuid.UUID, limit int) ([]ledger.Hold, error)
	Transfers(ctx context.Context, status ledger.TransferStatus, before uuid.UUID, limit int) ([]ledger.Transfer, error)
	Audit(ctx context.Context, f operator.AuditFilter, before uuid.UUID, limit int) ([]operator.AuditRow, error)
	KeyRecord(ctx context.Context, id idempotency.ID) (operator.KeyRecord, error)
	Backlog(ctx context.Context) (operator.Backlog, error)
	// Secret reads a secret that all servers share.
	Secret(ctx context.Context, name string) ([]byte, error)
	Charts
}

// Charts are what campaigns and auctions are drawn from.
type Charts interface {
	SoldOrdinals(ctx context.Context, campaign uuid.UUID) ([]int, error)
	Bids(ctx context.Context, auction uuid.UUID, limit int) ([]operator.BidMark, error)
	LatestBids(ctx context.Context, auction uuid.UUID, before int64, limit int) ([]auction.Placed, error)
	RoundMarks(ctx context.Context, auction uuid.UUID, limit int) ([]operator.RoundMark, error)
}

// adminRoutes are those that the console reads beside the contract's own: the same things, newest first and narrowed.
func (s *Server) adminRoutes() []route {
	return []route{
		readRoute("/v1/admin/overview", accessAdmin, "Read what this process measured, and what waits in the whole system", s.overview, same[overviewView]),
		listRoute("/v1/admin/campaigns", accessAdmin, "List campaigns, newest first", newestFirst(), func(r *http.Request, before int64, limit int) ([]lottery.Campaign, error) {
			return s.Operator.Campaigns(r.Context(), lottery.Status(r.URL.Query().Get("status")), before, limit)
		}, as[campaignSummaryView], numberOfCampaign, withStatus("pending", "active", "drawing", "completed", "cancelled")),
		readRoute("/v1/admin/campaigns/{id}/map", accessAdmin, "Read which positions are sold", with(s.campaignOf, s.saleMap), same[saleMapView]),
		listRoute("/v1/admin/auctions", accessAdmin, "List auctions, newest first", newestFirst(), func(r *http.Request, before int64, limit int) ([]auction.Auction, error) {
			return s.Operator.Auctions(r.Context(), auction.Status(r.URL.Query().Get("status")), before, limit)
		}, as[auctionSummaryView], numberOfAuction, withStatus("pending", "active", "completed", "cancelled")),
		listRoute("/v1/admin/auctions/{id}/bids", accessAdmin, "List bids, newest first", newestFirst(),
			rowsWith(s.auctionOf, func(ctx context.Context, a *auction.Auction, before int64, limit int) ([]auction.Placed, error) {
				return s.Operator.LatestBids(ctx, a.ID, before, limit)
			}), as[placedBidView], seqOfBid),
		readRoute("/v1/admin/auctions/{id}/chart", accessAdmin, "Read bids and rounds for a chart: every bid, or an even sample of many", with(s.auctionOf, s.bidChart), same[bidChartView]),
		listRoute("/v1/admin/accounts", accessAdmin, "List accounts by id", byName(), func(r *http.Request, after string, limit int) ([]ledger.Account, error) {
			return s.Operator.Accounts(r.Context(), r.URL.Query().Get("prefix"), after, limit)
		}, as[accountView], func(a ledger.Account) string { return a.ID }, filter{"prefix", "only those whose id begins so", nil}),
		listRoute("/v1/admin/accounts/{id}/entries", accessAdmin, "List an account's entries, newest first", newestFirst(),
			rowsWith(systemAccount, func(ctx context.Context, account string, before int64, limit int) ([]ledger.Entry, error) {
				return s.Operator.Entries(ctx, account, before, limit)
			}), as[entryView], versionOfEntry),
		listRoute("/v1/admin/accounts/{id}/holds", accessAdmin, "List an account's open holds, newest first", newestIDs(),
			rowsWith(systemAccount, func(ctx context.Context, account string, before uuid.UUID, limit int) ([]ledger.Hold, error) {
				return s.Operator.OpenHolds(ctx, account, before, limit)
			}), as[openHoldView], func(h ledger.Hold) uuid.UUID { return h.ID }),
		listRoute("/v1/admin/transfers", accessAdmin, "List transfers, newest first", newestIDs(), func(r *http.Request, before uuid.UUID, limit int) ([]ledger.Transfer, error) {
			return s.Operator.Transfers(r.Context(), ledger.TransferStatus(r.URL.Query().Get("status")), before, limit)
		}, viewTransfer, func(t ledger.Transfer) uuid.UUID { return t.ID }, withStatus("pending", "completed", "failed")),
		listRoute("/v1/admin/audit", accessAdmin, "List administrative actions, newest first", newestIDs(), func(r *http.Request, before uuid.UUID, limit int) ([]operator.AuditRow, error) {
			q := r.URL.Query()
			return s.Operator.Audit(r.Context(), operator.AuditFilter{Action: q.Get("action"), Object: q.Get("object"), Principal: q.Get("principal")}, before, limit)
		}, as[auditView], func(a operator.AuditRow) uuid.UUID { return a.ID },
			filter{"action", "only this action, such as campaign.publish", nil}, filter{"object", "only those on the object with this id", nil},
			filter{"principal", "only those of this principal, such as key:ID", nil}),
		filtered(readRoute("/v1/admin/idempotency", accessAdmin, "Read what is kept under an idempotency key", s.keyRecord, as[keyRecordView]),
			"key", "the key", "method", "of the request, such as POST", "path", "of the request, such as /v1/transfers", "principal", "who sent it, such as key:ID or user:SUB"),
	}
}

// filtered documents a route with filters, given as name and description in turn.
func filtered(r route, filters ...string) route {
	for i := 0; i+1 < len(filters); i += 2 {
		r.doc.query = append(r.doc.query, parameter{name: filters[i], doc: filters[i+1], schema: reflect.TypeFor[string]()})
	}
	return r
}

// one reads a query parameter that may be given once. Control characters are in nothing that can be looked for.
func one(r *http.Request, name string) (string, error) {
	values := r.URL.Query()[name]
	if len(values) > 1 {
		return "", refuse("%s is given more than once", name)
	}
	if len(values) == 0 {
		return "", nil
	}
	var c checks
	c.text(name, values[0], 0, maxMemo)
	return values[0], c.err
}

// systemAccount reads an account's id from the path. Operators look at the house's own accounts too, whose ids have a slash.
func systemAccount(r *http.Request) (string, error) {
	id := r.PathValue("id")
	var c checks
	c.name("id", id)
	if c.err != nil {
		return "", &refusal{Kind: edge.NotFound, Detail: "there is no such account"}
	}
	return id, nil
}

// openHoldView is a hold with the part of the system that placed it.
type openHoldView struct {
	ID        uuid.UUID  `json:"id"`
	Account   string     `json:"account"`
	Amount    int64      `json:"amount"`
	Owner     string     `json:"owner" doc:"the part of the system that placed the hold, such as auction:ID; empty where a client did"`
	ExpiresAt *timestamp `json:"expires_at"`
	CreatedAt timestamp  `json:"created_at"`
}

type auditView struct {
	ID        uuid.UUID `json:"id"`
	At        timestamp `json:"at"`
	Principal string    `json:"principal" doc:"who did it: key:ID, or command line"`
	Action    string    `json:"action" example:"campaign.publish"`
	Object    string    `json:"object" doc:"the id of what was changed"`
	RequestID string    `json:"request_id"`
}

type keyRecordView struct {
	Execution uuid.UUID  `json:"execution" doc:"of the request that ran; all others were answered with its result"`
	Status    int        `json:"status" doc:"of the answer that is kept"`
	Body      storedJSON `json:"body" doc:"the answer that is kept"`
	CreatedAt timestamp  `json:"created_at"`
}

func (s *Server) keyRecord(r *http.Request) (record operator.KeyRecord, err error) {
	var key, method, path, principal string
	for name, into := range map[string]*string{"key": &key, "method": &method, "path": &path, "principal": &principal} {
		if *into, err = one(r, name); err != nil {
			return record, err
		}
		if *into == "" {
			return record, refuse("%s is needed: a key is scoped by principal, method and path", name)
		}
	}
	bare, err := idempotency.ParseKey(key)
	if err != nil {
		return record, refuse("key must be 1 to 255 visible ASCII characters")
	}
	return s.Operator.KeyRecord(r.Context(), idempotency.NewID(principal, method, path, bare))
}
