package server

import (
	"context"
	"net/http"
	"reflect"
	"slices"

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
		get("/v1/admin/overview", accessAdmin, doc[none, overviewView]("Read what this process measured, and what waits in the whole house"), shown(s.overview, same[overviewView])),
		get("/v1/admin/campaigns", accessAdmin, filtered(paged[campaignSummaryView]("List campaigns, newest first"), "status", "only those of this status"), s.getAdminCampaigns),
		readRoute("/v1/admin/campaigns/{id}/map", accessAdmin, "Read which positions are sold", with(s.campaignOf, s.saleMap), same[saleMapView]),
		get("/v1/admin/auctions", accessAdmin, filtered(paged[auctionSummaryView]("List auctions, newest first"), "status", "only those of this status"), s.getAdminAuctions),
		listRoute("/v1/admin/auctions/{id}/bids", accessAdmin, "List bids, newest first", newestFirst(), rowsWith(s.auctionOf, s.latestBids), viewPlacedBid, seqOfBid),
		readRoute("/v1/admin/auctions/{id}/chart", accessAdmin, "Read bids and rounds for a chart: every bid, or an even sample of many", with(s.auctionOf, s.bidChart), same[bidChartView]),
		get("/v1/admin/accounts", accessAdmin, filtered(paged[accountView]("List accounts by id"), "prefix", "only those whose id begins so"), s.getAdminAccounts),
		get("/v1/admin/accounts/{id}/entries", accessAdmin, paged[entryView]("List an account's entries, newest first"), s.getLatestEntries),
		get("/v1/admin/accounts/{id}/holds", accessAdmin, paged[openHoldView]("List an account's open holds, newest first"), s.getOpenHolds),
		get("/v1/admin/transfers", accessAdmin, filtered(paged[transferView]("List transfers, newest first"), "status", "only those of this status"), s.getAdminTransfers),
		get("/v1/admin/audit", accessAdmin, filtered(paged[auditView]("List administrative actions, newest first"),
			"action", "only this action, such as campaign.publish", "object", "only those on the object with this id", "principal", "only those of this principal, such as key:ID"), s.getAudit),
		get("/v1/admin/idempotency", accessAdmin, filtered(doc[none, keyRecordView]("Read what is kept under an idempotency key"),
			"key", "the key", "method", "of the request, such as POST", "path", "of the request, such as /v1/transfers", "principal", "who sent it, such as key:ID or user:SUB"),
			shown(s.keyRecord, viewKeyRecord)),
	}
}

// filtered documents a route with filters, given as name and description in turn.
func filtered(o operation, filters ...string) operation {
	for i := 0; i+1 < len(filters); i += 2 {
		o.query = append(o.query, parameter{name: filters[i], doc: filters[i+1], schema: reflect.TypeFor[string]()})
	}
	return o
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

// statusOf reads ?status=, one of those known, and gives the path of the list that is narrowed to it.
func statusOf[S ~string](r *http.Request, known ...S) (status S, path string, err error) {
	value, err := one(r, "status")
	if err == nil && value != "" && !slices.Contains(known, S(value)) {
		err = refuse("status must be one of %v", known)
	}
	return S(value), narrowed(r.URL.Path, "status", value), err
}

func (s *Server) getAdminCampaigns(w http.ResponseWriter, r *http.Request) error {
	status, path, err := statusOf(r, lottery.StatusPending, lottery.StatusActive, lottery.StatusDrawing, lottery.StatusCompleted, lottery.StatusCancelled)
	if err != nil {
		return err
	}
	return writePage(w, r, path, newestFirst(), func(before int64, limit int) ([]lottery.Campaign, error) {
		return s.operator.Campaigns(r.Context(), status, before, limit)
	}, viewCampaignSummary, numberOfCampaign)
}

func (s *Server) getAdminAuctions(w http.ResponseWriter, r *http.Request) error {
	status, path, err := statusOf(r, auction.StatusPending, auction.StatusActive, auction.StatusCompleted, auction.StatusCancelled)
	if err != nil {
		return err
	}
	return writePage(w, r, path, newestFirst(), func(before int64, limit int) ([]auction.Auction, error) {
		return s.operator.Auctions(r.Context(), status, before, limit)
	}, viewAuctionSummary, numberOfAuction)
}

func (s *Server) getAdminAccounts(w http.ResponseWriter, r *http.Request) error {
	prefix, err := one(r, "prefix")
	if err != nil {
		return err
	}
	return writePage(w, r, narrowed(r.URL.Path, "prefix", prefix), byName(), func(after string, limit int) ([]ledger.Account, error) {
		return s.operator.Accounts(r.Context(), prefix, after, limit)
	}, viewAccount, func(a ledger.Account) string { return a.ID })
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

func (s *Server) getLatestEntries(w http.ResponseWriter, r *http.Request) error {
	id, err := systemAccount(r)
	if err != nil {
		return err
	}
	return writePage(w, r, r.URL.Path, newestFirst(), func(before int64, limit int) ([]ledger.Entry, error) {
		return s.operator.Entries(r.Context(), id, before, limit)
	}, viewEntry, versionOfEntry)
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

func viewOpenHold(h ledger.Hold) openHoldView {
	return openHoldView{ID: h.ID, Account: h.Account, Amount: h.Amount, Owner: h.Owner, ExpiresAt: optionalTime(h.ExpiresAt), CreatedAt: timestamp(h.CreatedAt)}
}

func (s *Server) getOpenHolds(w http.ResponseWriter, r *http.Request) error {
	id, err := systemAccount(r)
	if err != nil {
		return err
	}
	return writePage(w, r, r.URL.Path, newestIDs(), func(before uuid.UUID, limit int) ([]ledger.Hold, error) {
		return s.operator.OpenHolds(r.Context(), id, before, limit)
	}, viewOpenHold, func(h ledger.Hold) uuid.UUID { return h.ID })
}

func (s *Server) getAdminTransfers(w http.ResponseWriter, r *http.Request) error {
	status, path, err := statusOf(r, ledger.TransferPending, ledger.TransferCompleted, ledger.TransferFailed)
	if err != nil {
		return err
	}
	return writePage(w, r, path, newestIDs(), func(before uuid.UUID, limit int) ([]ledger.Transfer, error) {
		return s.operator.Transfers(r.Context(), status, before, limit)
	}, viewTransfer, func(t ledger.Transfer) uuid.UUID { return t.ID })
}

type auditView struct {
	ID        uuid.UUID `json:"id"`
	At        timestamp `json:"at"`
	Principal string    `json:"principal" doc:"who did it: key:ID, or command line"`
	Action    string    `json:"action" example:"campaign.publish"`
	Object    string    `json:"object" doc:"the id of what was changed"`
	RequestID string    `json:"request_id"`
}

func viewAudit(a operator.AuditRow) auditView {
	return auditView{ID: a.ID, At: timestamp(a.At), Principal: a.Principal, Action: a.Action, Object: a.Object, RequestID: a.RequestID}
}

func (s *Server) getAudit(w http.ResponseWriter, r *http.Request) error {
	var f operator.AuditFilter
	path, given := r.URL.Path, 0
	for name, into := range map[string]*string{"action": &f.Action, "object": &f.Object, "principal": &f.Principal} {
		value, err := one(r, name)
		if err != nil {
			return err
		}
		if value == "" {
			continue
		}
		if given++; given > 1 {
			return refuse("the log is narrowed by one of action, object and principal")
		}
		*into, path = value, narrowed(r.URL.Path, name, value)
	}
	return writePage(w, r, path, newestIDs(), func(before uuid.UUID, limit int) ([]operator.AuditRow, error) {
		return s.operator.Audit(r.Context(), f, before, limit)
	}, viewAudit, func(a operator.AuditRow) uuid.UUID { return a.ID })
}

type keyRecordView struct {
	Execution uuid.UUID  `json:"execution" doc:"of the request that ran; all others were answered with its result"`
	Status    int        `json:"status" doc:"of the answer that is kept"`
	Body      storedJSON `json:"body" doc:"the answer that is kept"`
	CreatedAt timestamp  `json:"created_at"`
}

func viewKeyRecord(k operator.KeyRecord) keyRecordView {
	body := storedJSON(k.Body)
	if len(body) == 0 {
		body = storedJSON("null") // A 204 has none.
	}
	return keyRecordView{Execution: k.Execution, Status: k.Status, Body: body, CreatedAt: timestamp(k.CreatedAt)}
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
	return s.operator.KeyRecord(r.Context(), idempotency.NewID(principal, method, path, bare))
}
