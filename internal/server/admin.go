package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/desk"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// Desk is what the server reads for operators, and what they do otherwise than services. Places before which lists begin
// are exclusive.
type Desk interface {
	// ReleaseHold releases a hold with a row in the audit log; its operation is a [ledger.ReleaseHold].
	ReleaseHold(ctx context.Context, c command.Command[ledger.Op]) (command.Answer, error)
	Campaigns(ctx context.Context, status lottery.Status, before int64, limit int) ([]lottery.Campaign, error)
	Auctions(ctx context.Context, status auction.Status, before int64, limit int) ([]auction.Auction, error)
	Accounts(ctx context.Context, prefix, after string, limit int) ([]ledger.Account, error)
	Entries(ctx context.Context, account string, before int64, limit int) ([]ledger.Entry, error)
	OpenHolds(ctx context.Context, account string, before uuid.UUID, limit int) ([]ledger.Hold, error)
	Transfers(ctx context.Context, status ledger.TransferStatus, before uuid.UUID, limit int) ([]ledger.Transfer, error)
	Audit(ctx context.Context, f desk.AuditFilter, before uuid.UUID, limit int) ([]desk.AuditRow, error)
	KeyRecord(ctx context.Context, id idempotency.ID) (desk.KeyRecord, error)
	Backlog(ctx context.Context) (desk.Backlog, error)
	// Secret reads a secret that all servers share.
	Secret(ctx context.Context, name string) ([]byte, error)
	Charts
}

// Charts are what campaigns and auctions are drawn from.
type Charts interface {
	SoldOrdinals(ctx context.Context, campaign uuid.UUID) ([]int, error)
	Bids(ctx context.Context, auction uuid.UUID, limit int) ([]desk.BidMark, error)
	LatestBids(ctx context.Context, auction uuid.UUID, before int64, limit int) ([]auction.Placed, error)
	RoundMarks(ctx context.Context, auction uuid.UUID, limit int) ([]desk.RoundMark, error)
}

// adminRoutes are those that the console reads beside the contract's own: the same things, newest first and narrowed.
func (s *Server) adminRoutes() []route {
	return []route{
		get("/v1/admin/overview", accessAdmin, doc[none, overviewView]("Read what this process measured, and what waits in the whole house"), s.getOverview),
		get("/v1/admin/campaigns", accessAdmin, filtered(paged[campaignSummaryView]("List campaigns, newest first"), "status", "only those of this status"), s.getAdminCampaigns),
		get("/v1/admin/campaigns/{id}/map", accessAdmin, doc[none, saleMapView]("Read which positions are sold"), s.getSaleMap),
		get("/v1/admin/auctions", accessAdmin, filtered(paged[auctionSummaryView]("List auctions, newest first"), "status", "only those of this status"), s.getAdminAuctions),
		get("/v1/admin/auctions/{id}/bids", accessAdmin, paged[placedBidView]("List bids, newest first"), s.getLatestBids),
		get("/v1/admin/auctions/{id}/chart", accessAdmin, doc[none, bidChartView]("Read bids and rounds for a chart: every bid, or an even sample of many"), s.getBidChart),
		get("/v1/admin/accounts", accessAdmin, filtered(paged[accountView]("List accounts by id"), "prefix", "only those whose id begins so"), s.getAdminAccounts),
		get("/v1/admin/accounts/{id}/entries", accessAdmin, paged[entryView]("List an account's entries, newest first"), s.getLatestEntries),
		get("/v1/admin/accounts/{id}/holds", accessAdmin, paged[openHoldView]("List an account's open holds, newest first"), s.getOpenHolds),
		get("/v1/admin/transfers", accessAdmin, filtered(paged[transferView]("List transfers, newest first"), "status", "only those of this status"), s.getAdminTransfers),
		get("/v1/admin/audit", accessAdmin, filtered(paged[auditView]("List administrative actions, newest first"),
			"action", "only this action, such as campaign.publish", "object", "only those on the object with this id", "principal", "only those of this principal, such as key:ID"), s.getAudit),
		get("/v1/admin/idempotency", accessAdmin, filtered(doc[none, keyRecordView]("Read what is kept under an idempotency key"),
			"key", "the key", "method", "of the request, such as POST", "path", "of the request, such as /v1/transfers", "principal", "who sent it, such as key:ID or user:SUB"), s.getKeyRecord),
	}
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

// narrowed is the request as one for a list of its own: a cursor of one filter is none of another.
func narrowed(r *http.Request, name, value string) *http.Request {
	if value == "" {
		return r
	}
	return &http.Request{URL: &url.URL{Path: r.URL.Path + "?" + name + "=" + value, RawQuery: r.URL.RawQuery}}
}

// statusOf reads ?status=, one of those known.
func statusOf[S ~string](r *http.Request, known ...S) (S, error) {
	value, err := one(r, "status")
	if err == nil && value != "" && !slices.Contains(known, S(value)) {
		err = refuse("status must be one of %v", known)
	}
	return S(value), err
}

func (s *Server) getAdminCampaigns(w http.ResponseWriter, r *http.Request) {
	status, err := statusOf(r, lottery.StatusPending, lottery.StatusActive, lottery.StatusDrawing, lottery.StatusCompleted, lottery.StatusCancelled)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	of := narrowed(r, "status", string(status))
	p, err := parsePage(of)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.desk.Campaigns(r.Context(), status, p.before(), p.limit+1)
	answer(s, w, r, func(rows []lottery.Campaign) list[campaignSummaryView] {
		return newList(of, rows, p.limit, viewCampaignSummary, func(c lottery.Campaign) int64 { return c.Number })
	})(rows, err)
}

func (s *Server) getAdminAuctions(w http.ResponseWriter, r *http.Request) {
	status, err := statusOf(r, auction.StatusPending, auction.StatusActive, auction.StatusCompleted, auction.StatusCancelled)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	of := narrowed(r, "status", string(status))
	p, err := parsePage(of)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.desk.Auctions(r.Context(), status, p.before(), p.limit+1)
	answer(s, w, r, func(rows []auction.Auction) list[auctionSummaryView] {
		return newList(of, rows, p.limit, viewAuctionSummary, func(a auction.Auction) int64 { return a.Number })
	})(rows, err)
}

func (s *Server) getAdminAccounts(w http.ResponseWriter, r *http.Request) {
	prefix, err := one(r, "prefix")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	of := narrowed(r, "prefix", prefix)
	p, err := parseTextPage(of)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.desk.Accounts(r.Context(), prefix, p.after, p.limit+1)
	answer(s, w, r, func(rows []ledger.Account) list[accountView] {
		return newTextList(of, rows, p.limit, viewAccount, func(a ledger.Account) string { return a.ID })
	})(rows, err)
}

// systemAccount reads an account's id from the path. Operators look at the house's own accounts too, whose ids have a slash.
func systemAccount(r *http.Request) (string, error) {
	id := r.PathValue("id")
	var c checks
	c.name("id", id)
	if c.err != nil {
		return "", &refusal{kind: notFound, detail: "there is no such account"}
	}
	return id, nil
}

func (s *Server) getLatestEntries(w http.ResponseWriter, r *http.Request) {
	id, err := systemAccount(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.desk.Entries(r.Context(), id, p.before(), p.limit+1)
	answer(s, w, r, func(rows []ledger.Entry) list[entryView] {
		return newList(r, rows, p.limit, viewEntry, func(e ledger.Entry) int64 { return e.Version })
	})(rows, err)
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

func (s *Server) getOpenHolds(w http.ResponseWriter, r *http.Request) {
	id, err := systemAccount(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	p, err := parseIDPage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.desk.OpenHolds(r.Context(), id, p.before(), p.limit+1)
	answer(s, w, r, func(rows []ledger.Hold) list[openHoldView] {
		return newTextList(r, rows, p.limit, viewOpenHold, func(h ledger.Hold) string { return h.ID.String() })
	})(rows, err)
}

func (s *Server) getAdminTransfers(w http.ResponseWriter, r *http.Request) {
	status, err := statusOf(r, ledger.TransferPending, ledger.TransferCompleted, ledger.TransferFailed)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	of := narrowed(r, "status", string(status))
	p, err := parseIDPage(of)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.desk.Transfers(r.Context(), status, p.before(), p.limit+1)
	answer(s, w, r, func(rows []ledger.Transfer) list[transferView] {
		return newTextList(of, rows, p.limit, viewTransfer, func(t ledger.Transfer) string { return t.ID.String() })
	})(rows, err)
}

type auditView struct {
	ID        uuid.UUID `json:"id"`
	At        timestamp `json:"at"`
	Principal string    `json:"principal" doc:"who did it: key:ID, or command line"`
	Action    string    `json:"action" example:"campaign.publish"`
	Object    string    `json:"object" doc:"the id of what was changed"`
	RequestID string    `json:"request_id"`
}

func viewAudit(a desk.AuditRow) auditView {
	return auditView{ID: a.ID, At: timestamp(a.At), Principal: a.Principal, Action: a.Action, Object: a.Object, RequestID: a.RequestID}
}

func (s *Server) getAudit(w http.ResponseWriter, r *http.Request) {
	var (
		f     desk.AuditFilter
		of    = r
		given int
	)
	for name, into := range map[string]*string{"action": &f.Action, "object": &f.Object, "principal": &f.Principal} {
		value, err := one(r, name)
		if err == nil && value != "" {
			if given++; given > 1 {
				err = refuse("the log is narrowed by one of action, object and principal")
			}
			*into, of = value, narrowed(r, name, value)
		}
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
	}
	p, err := parseIDPage(of)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.desk.Audit(r.Context(), f, p.before(), p.limit+1)
	answer(s, w, r, func(rows []desk.AuditRow) list[auditView] {
		return newTextList(of, rows, p.limit, viewAudit, func(a desk.AuditRow) string { return a.ID.String() })
	})(rows, err)
}

type keyRecordView struct {
	Execution uuid.UUID  `json:"execution" doc:"of the request that ran; all others were answered with its result"`
	Status    int        `json:"status" doc:"of the answer that is kept"`
	Body      storedJSON `json:"body" doc:"the answer that is kept"`
	CreatedAt timestamp  `json:"created_at"`
}

func (s *Server) getKeyRecord(w http.ResponseWriter, r *http.Request) {
	var key, method, path, principal string
	for name, into := range map[string]*string{"key": &key, "method": &method, "path": &path, "principal": &principal} {
		value, err := one(r, name)
		if err == nil && value == "" {
			err = refuse("%s is needed: a key is scoped by principal, method and path", name)
		}
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		*into = value
	}
	bare, err := idempotency.ParseKey(key)
	if err != nil {
		s.writeProblem(w, r, refuse("key must be 1 to 255 visible ASCII characters"))
		return
	}
	record, err := s.desk.KeyRecord(r.Context(), idempotency.NewID(principal, method, path, bare))
	answer(s, w, r, func(k desk.KeyRecord) keyRecordView {
		body := storedJSON(k.Body)
		if len(body) == 0 {
			body = storedJSON("null") // A 204 has none.
		}
		return keyRecordView{Execution: k.Execution, Status: k.Status, Body: body, CreatedAt: timestamp(k.CreatedAt)}
	})(record, err)
}
