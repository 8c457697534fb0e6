package server

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/top"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// Operator is what the server reads for operators. Places before which lists begin are exclusive.
type Operator interface {
	Campaigns(ctx context.Context, status lottery.Status, before int64, limit int) ([]lottery.Campaign, error)
	Auctions(ctx context.Context, status auction.Status, before int64, limit int) ([]auction.Auction, error)
	Accounts(ctx context.Context, prefix, after string, limit int) ([]ledger.Account, error)
	Entries(ctx context.Context, account string, before operator.EntryPlace, limit int) ([]operator.Entry, error)
	Multidraws(ctx context.Context, before int64, limit int) ([]multidraw.Operation, error)
	Publications(ctx context.Context, f operator.PublicationFilter, before int64, limit int) ([]publish.Publication, error)
	Purchases(ctx context.Context, campaign uuid.UUID, account string, before int64, limit int) ([]lottery.Purchase, error)
	// Sagas finds the transfers between ledgers from or to an account.
	Sagas(ctx context.Context, ledger, account string, before int64, limit int) ([]uuid.UUID, error)
	Attempts(ctx context.Context, publication uuid.UUID, before int64, limit int) ([]publish.Attempt, error)
	Targets(ctx context.Context, before int64, limit int) ([]publish.Target, error)
	Automations(ctx context.Context, before int64, limit int) ([]publish.Automation, error)
	Firings(ctx context.Context, automation uuid.UUID, before int64, limit int) ([]publish.Firing, error)
	// Find looks ids up, and Search everything else that is typed.
	Find(ctx context.Context, ids []uuid.UUID) ([]operator.Found, error)
	FindPosition(ctx context.Context, id uuid.UUID) (operator.Position, bool, error)
	Search(ctx context.Context, text string, limit int) ([]operator.Found, error)
	Transfers(ctx context.Context, status ledger.TransferStatus, before uuid.UUID, limit int) ([]ledger.Transfer, error)
	Audit(ctx context.Context, f operator.AuditFilter, before uuid.UUID, limit int) ([]operator.AuditRow, error)
	KeyRecord(ctx context.Context, id idempotency.ID) (operator.KeyRecord, error)
	Backlog(ctx context.Context) (operator.Backlog, error)
	// Secret reads a secret that all servers share.
	Secret(ctx context.Context, name string) ([]byte, error)
	// What campaigns and auctions are drawn from.
	SoldOrdinals(ctx context.Context, campaign uuid.UUID) ([]int, error)
	Bids(ctx context.Context, auction uuid.UUID, limit int) ([]operator.BidMark, error)
	LatestBids(ctx context.Context, auction uuid.UUID, account string, before int64, limit int) ([]auction.Placed, error)
	RoundMarks(ctx context.Context, auction uuid.UUID, limit int) ([]operator.RoundMark, error)
	Sales(ctx context.Context, campaign uuid.UUID, numbers []int) ([]operator.SaleMark, error)
	Balances(ctx context.Context, account string, since time.Duration, limit int) (operator.Balances, error)
}

// adminRoutes are those that the console reads beside the contract's own: the same things, newest first and narrowed.
func (s *Server) adminRoutes() []route {
	return append(s.findRoutes(), []route{
		readRoute("/v1/admin/overview", accessAdmin, "Read what this process measured, and what waits in the whole system", s.overview, same[overviewView]),
		listRoute("/v1/admin/campaigns", accessAdmin, "List campaigns, newest first", newestFirst(), rowsWith(asked[lottery.Status]("status"), s.Operator.Campaigns),
			as[campaignSummaryView], numberOfCampaign, withStatus("pending", "active", "drawing", "completed", "cancelled")),
		readRoute("/v1/admin/campaigns/{id}/map", accessAdmin, "Read which positions are sold", with(s.campaignOf, s.saleMap), same[saleMapView]),
		listRoute("/v1/admin/auctions", accessAdmin, "List auctions, newest first", newestFirst(), rowsWith(asked[auction.Status]("status"), s.Operator.Auctions),
			as[auctionSummaryView], numberOfAuction, withStatus("pending", "active", "completed", "cancelled")),
		listRoute("/v1/admin/auctions/{id}/bids", accessAdmin, "List bids, newest first", newestFirst(), s.newestBids, as[placedBidView], seqOfBid,
			filter{name: "account", doc: "only those of this account, which are looked for among all of the auction"}),
		readRoute("/v1/admin/auctions/{id}/chart", accessAdmin, "Read bids and rounds for a chart: every bid, or an even sample of many", with(s.auctionOf, s.bidChart), same[bidChartView]),
		listRoute("/v1/admin/accounts", accessAdmin, "List accounts by id", byName(), rowsWith(asked[string]("prefix"), s.Operator.Accounts),
			as[accountView], func(a ledger.Account) string { return a.ID }, filter{name: "prefix", doc: "only those whose id begins with this"}),
		listRoute("/v1/admin/accounts/{id}/holds", accessAdmin, "List an account's open holds, newest first", newestIDs(),
			rowsWith(systemAccount, s.Ledger.OpenHolds), as[openHoldView], idOfHold),
		listRoute("/v1/admin/transfers", accessAdmin, "List transfers, newest first", newestIDs(), rowsWith(asked[ledger.TransferStatus]("status"), s.Operator.Transfers),
			viewTransfer, func(t ledger.Transfer) uuid.UUID { return t.ID }, withStatus("pending", "completed", "failed")),
		fresh(listRoute("/v1/admin/audit", accessAdmin, "List administrative actions, newest first", newestIDs(), rowsWith(func(r *http.Request) (operator.AuditFilter, error) {
			q := r.URL.Query()
			return operator.AuditFilter{Action: q.Get("action"), Object: q.Get("object"), Principal: q.Get("principal")}, nil
		}, s.Operator.Audit), as[auditView], func(a operator.AuditRow) uuid.UUID { return a.ID },
			filter{name: "action", doc: "only this action, such as campaign.publish"}, filter{name: "object", doc: "only those on the object with this id"},
			filter{name: "principal", doc: "only those of this principal, such as key:ID"})),
		filtered(readRoute("/v1/admin/idempotency", accessAdmin, "Read what is kept under an idempotency key", s.keyRecord, as[keyRecordView]),
			"key", "the key", "method", "of the request, such as POST", "path", "of the request, such as /v1/transfers", "principal", "who sent it, such as key:ID or user:SUB"),
	}...)
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

// systemAccount reads an account's id from the path. Operators look at the system's own accounts too, whose ids have a slash.
func systemAccount(r *http.Request) (string, error) {
	id := r.PathValue("id")
	var c checks
	c.name("id", id)
	if c.err != nil {
		return "", noSuch("account")
	}
	return id, nil
}

// openHoldView is a hold with the part of the system that placed it.
type openHoldView struct {
	ID        uuid.UUID         `json:"id"`
	Account   string            `json:"account"`
	Amount    int64             `json:"amount"`
	Captured  int64             `json:"captured"`
	Status    ledger.HoldStatus `json:"status" enum:"open"`
	Owner     string            `json:"owner" doc:"the part of the system that placed the hold, such as auction:ID; empty where a client did"`
	ExpiresAt *timestamp        `json:"expires_at"`
	CreatedAt timestamp         `json:"created_at"`
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

// bucketView is a bucket of a histogram.
type bucketView struct {
	Le    float64 `json:"le" doc:"its upper bound; the last bucket has none, and is the count"`
	Count uint64  `json:"count" doc:"of observations up to the bound"`
}

// histogramView is a histogram since the process began.
type histogramView struct {
	Count   uint64       `json:"count"`
	Sum     float64      `json:"sum"`
	Buckets []bucketView `json:"buckets"`
}

// laneStatsView is what a service's lanes have done since the process began.
type laneStatsView struct {
	Service string        `json:"service" example:"ledger"`
	Batch   histogramView `json:"batch" doc:"commands a commit; their sum is the commands"`
	Commit  histogramView `json:"commit" doc:"seconds from a batch's start to its commit"`
	Wait    histogramView `json:"wait" doc:"seconds that the oldest command of a batch had waited"`
	Queue   float64       `json:"queue" doc:"commands that waited when a batch was last taken"`
	Refused float64       `json:"refused" doc:"commands refused because their lane was full"`
}

type backlogView struct {
	CampaignsActive     int        `json:"campaigns_active"`
	CampaignsDrawing    int        `json:"campaigns_drawing"`
	OldestDrawing       *timestamp `json:"oldest_drawing" doc:"since when the oldest of them is drawing"`
	DrawsDelayed        int        `json:"draws_delayed" doc:"campaigns that are drawing, and whose draw should have been there 10 s ago"`
	AuctionsActive      int        `json:"auctions_active"`
	RoundsOverdue       int        `json:"rounds_overdue" doc:"auctions' rounds that were over 10 s ago and are not closed"`
	PublicationsDue     int        `json:"publications_due"`
	OldestDue           *timestamp `json:"oldest_due"`
	PublicationsRunning int        `json:"publications_running"`
	OldestClaim         *timestamp `json:"oldest_claim" doc:"the last sign of life of the oldest claim"`
	PublicationsLate    int        `json:"publications_late" doc:"of those due, for longer than a minute, although their targets are neither paused nor slowed down"`
	PublicationsFailed  int        `json:"publications_failed"`
	LocksHeld           int        `json:"locks_held"`
	LocksWaited         int        `json:"locks_waited" doc:"requests that wait"`
	TransfersPending    int        `json:"transfers_pending"`
	SagasPending        int        `json:"sagas_pending"`
	SagasStuck          int        `json:"sagas_stuck" doc:"of them, the stuck ones"`
	MultidrawsRunning   int        `json:"multidraws_running"`
	MultidrawsStopped   int        `json:"multidraws_interrupted"`
}

// overviewView is the whole system at a glance: two of them, a while apart, give rates.
type overviewView struct {
	At       timestamp       `json:"at" doc:"when it was measured"`
	Version  string          `json:"version"`
	Requests float64         `json:"requests" doc:"answered by this process"`
	Failures float64         `json:"failures" doc:"of them, with a status of 500 or more"`
	Latency  histogramView   `json:"latency" doc:"seconds from a request's header to the end of its answer, without streams of events and requests for locks with a wait"`
	Lanes    []laneStatsView `json:"lanes" doc:"of this process"`
	Streams  float64         `json:"streams" doc:"live subscribers of this process"`
	Backlog  backlogView     `json:"backlog" doc:"of the whole system; counts end at 1,000"`
	Shared   []sharedView    `json:"shared_targets" doc:"auctions and campaigns that this process works on in turns with others, which costs both; up to 20"`
}

// sharedView is a target that several servers work on.
type sharedView struct {
	Target  string  `json:"target" doc:"auction: or campaign: and its id"`
	Changes float64 `json:"changes_per_second" doc:"by other processes, as this one finds them"`
}

func (s *Server) overview(r *http.Request) (v overviewView, err error) {
	backlog, err := bounded(r.Context(), s.scans, s.Operator.Backlog)
	if err != nil {
		return v, err
	}
	families, err := s.Registry.Gather()
	const requests, lane = "fairlead_http_requests_total", "fairlead_lane_"
	m := top.Read(slices.Values(families))
	v = overviewView{
		At: timestamp(time.Now()), Version: s.Version, Backlog: as[backlogView](backlog), Requests: m.Sum(requests), Failures: m.Sum(requests + " 5xx"),
		Latency: viewHistogram(m.Spread("fairlead_http_request_duration_seconds")), Streams: m.Sum("fairlead_live_subscribers"),
	}
	v.Shared = []sharedView{}
	for _, t := range m.Shared() {
		v.Shared = append(v.Shared, sharedView(t))
	}
	for _, service := range m.Services() {
		v.Lanes = append(v.Lanes, laneStatsView{
			Service: service, Batch: viewHistogram(m.Spread(lane + "batch_size " + service)), Commit: viewHistogram(m.Spread(lane + "flush_duration_seconds " + service)),
			Wait: viewHistogram(m.Spread(lane + "wait_duration_seconds " + service)), Queue: m.Sum(lane + "queue_depth " + service), Refused: m.Sum(lane + "refused_total " + service),
		})
	}
	return v, err
}

func viewHistogram(h top.Histogram) histogramView {
	v := histogramView{Count: uint64(h.Count), Sum: h.Sum}
	for _, b := range h.Buckets {
		v.Buckets = append(v.Buckets, bucketView{Le: b.Bound, Count: uint64(b.Count)})
	}
	return v
}

// Limits of what is drawn.
const (
	// maxMapped is the size up to which a campaign is drawn position by position. Above it a position would be less than a
	// pixel, and layers are drawn by how much of them is sold.
	maxMapped     = 20_000
	maxBidMarks   = 600 // bids on a chart: more do not fit on a screen
	maxRoundMarks = 400 // starts and extensions of rounds on a chart
)

// saleMapView says which positions are sold.
type saleMapView struct {
	Campaign       uuid.UUID      `json:"campaign"`
	Status         lottery.Status `json:"status"`
	TotalPositions int            `json:"total_positions"`
	SoldPositions  int            `json:"sold_positions"`
	Layers         []layerView    `json:"layers"`
	Sold           *string        `json:"sold" doc:"a bit a position in campaign order, the first in the highest bit, base64; null in campaigns of over 20,000, and where the purchases are archived"`
}

// newSaleMap draws the map of a campaign. Sales that commit while it is read may be among the sold positions and not yet in
// the counts; who follows the sales goes on after the last one that is counted.
func newSaleMap(c *lottery.Campaign, ordinals []int) saleMapView {
	v := saleMapView{
		Campaign: c.ID, Status: c.Status, TotalPositions: c.TotalPositions, SoldPositions: c.SoldPositions, Layers: viewLayers(c),
	}
	if c.TotalPositions <= maxMapped {
		const byteBits = 8
		bits := make([]byte, (c.TotalPositions+byteBits-1)/byteBits)
		for _, o := range ordinals {
			bits[o/byteBits] |= 0x80 >> (o % byteBits)
		}
		sold := base64.StdEncoding.EncodeToString(bits)
		v.Sold = &sold
	}
	return v
}

// saleMap reads the map of a campaign.
func (s *Server) saleMap(ctx context.Context, c *lottery.Campaign) (saleMapView, error) {
	if c.TotalPositions > maxMapped {
		return newSaleMap(c, nil), nil
	}
	ordinals, err := bounded(ctx, s.scans, func(ctx context.Context) ([]int, error) { return s.Operator.SoldOrdinals(ctx, c.ID) })
	if _, archived := errors.AsType[*lottery.SalesNotFoundError](err); archived { // How many were sold is known still.
		v := newSaleMap(c, nil)
		v.Sold = nil
		return v, nil
	}
	if err != nil {
		return saleMapView{}, err
	}
	return newSaleMap(c, ordinals), nil
}

type bidMarkView struct {
	Seq    int64     `json:"seq"`
	Amount int64     `json:"amount"`
	Round  int       `json:"round"`
	At     timestamp `json:"at"`
}

type roundMarkView struct {
	Seq  int64      `json:"seq"`
	Type string     `json:"type" enum:"round.started,round.extended"`
	At   timestamp  `json:"at"`
	Data storedJSON `json:"data" doc:"the event's"`
}

// bidChartView is what a chart of an auction is drawn from.
type bidChartView struct {
	Bids      []bidMarkView   `json:"bids" doc:"oldest first, 600 at most"`
	Marks     []roundMarkView `json:"marks" doc:"starts and extensions of rounds, oldest first, the newest 400"`
	TotalBids int64           `json:"total_bids"`
}

func (s *Server) bidChart(ctx context.Context, a *auction.Auction) (bidChartView, error) {
	v := bidChartView{TotalBids: a.TotalBids}
	if a.Seq == 0 {
		return v, nil
	}
	leave, err := s.scans.enter(ctx)
	if err != nil {
		return v, err
	}
	defer leave()
	bids, err := s.Operator.Bids(ctx, a.ID, maxBidMarks)
	if err != nil {
		return v, err
	}
	marks, err := s.Operator.RoundMarks(ctx, a.ID, maxRoundMarks)
	if err != nil {
		return v, err
	}
	v.Bids, v.Marks = as[[]bidMarkView](bids), as[[]roundMarkView](marks)
	return v, nil
}

// createKeyRequest carries the SHA-256 of a secret that its owner made: the server never sees the secret, so neither a
// stored answer nor a log can give it away.
type createKeyRequest struct {
	Role string `json:"role" enum:"admin,service,reader"`
	Name string `json:"name" minLength:"1" maxLength:"200"`
	Hash string `json:"hash" doc:"lower-case hex SHA-256 of the secret" pattern:"^[0-9a-f]{64}$"`
}

type keyView struct {
	ID        string     `json:"id"`
	Role      auth.Role  `json:"role"`
	Name      string     `json:"name"`
	CreatedAt timestamp  `json:"created_at"`
	RevokedAt *timestamp `json:"revoked_at"`
}

func (q *createKeyRequest) op() (auth.KeyOp, error) {
	var c checks
	role := auth.Role(q.Role)
	if !role.KeyRole() {
		c.fail("role must be admin, service or reader")
	}
	c.name("name", q.Name)
	hash, err := hex.DecodeString(q.Hash)
	if err != nil || len(hash) != 32 || hex.EncodeToString(hash) != q.Hash {
		c.fail("hash must be the SHA-256 of a secret that you made, as 64 lower-case hexadecimal digits")
	}
	if c.err != nil {
		return auth.KeyOp{}, c.err
	}
	return auth.KeyOp{Create: &auth.Key{
		ID: uuid.Must(uuid.NewV7()).String(), Role: role, Name: q.Name, Hash: [32]byte(hash), CreatedAt: time.Now().UTC(),
	}}, nil
}

func (s *Server) keyRoutes() []route {
	return []route{
		fresh(listRoute("/v1/keys", accessAdmin, "List API keys, oldest first", oldestFirst(), s.listKeys,
			as[keyView], func(k keyAt) int64 { return k.place })),
		fresh(listRoute("/v1/admin/keys", accessAdmin, "List API keys, newest first", newestFirst(), s.newestKeys,
			as[keyView], func(k keyAt) int64 { return k.place })),
		commandRoute("/v1/keys", accessAdmin, http.StatusCreated, "Register an API key by the hash of its secret", as[keyView, auth.Key],
			mutation[createKeyRequest, auth.KeyOp]{execute: s.Keys.Execute, op: plain((*createKeyRequest).op)}),
		deleted(commandRoute("/v1/keys/{id}", accessAdmin, http.StatusOK, "Revoke an API key; in force everywhere within 5 s", as[keyView, auth.Key],
			mutation[noFields, auth.KeyOp]{
				execute: s.Keys.Execute,
				op: func(from sender, _ *noFields) (auth.KeyOp, error) {
					id, err := pathUUID(from.id, "key")
					return auth.KeyOp{Revoke: id.String()}, err
				},
			})),
	}
}

// keyAt is a key and its place in the list, from 1.
type keyAt struct {
	auth.Key

	place int64
}

// allKeys lists keys, oldest first. None is ever deleted and they come in the order of their making, so a place in the list stays
// what it is.
func (s *Server) allKeys(ctx context.Context) ([]keyAt, error) {
	keys, err := s.Keys.Keys(ctx)
	rows := make([]keyAt, len(keys))
	for i, k := range keys {
		rows[i] = keyAt{Key: k, place: int64(i) + 1}
	}
	return rows, err
}

func (s *Server) listKeys(r *http.Request, after int64, _ int) ([]keyAt, error) {
	rows, err := s.allKeys(r.Context())
	return rows[min(after, int64(len(rows))):], err
}

func (s *Server) newestKeys(r *http.Request, before int64, _ int) ([]keyAt, error) {
	rows, err := s.allKeys(r.Context())
	rows = rows[:min(max(before-1, 0), int64(len(rows)))]
	slices.Reverse(rows)
	return rows, err
}
