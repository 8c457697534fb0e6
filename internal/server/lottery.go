package server

import (
	"context"
	"encoding/hex"
	"io"
	"math"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

type createCampaignRequest struct {
	Name          string         `json:"name" minLength:"1" maxLength:"200"`
	BaseLength    *int           `json:"base_length,omitempty" minimum:"1" maximum:"1000" doc:"of a triangle: layer k has k positions"`
	Layers        []layerRequest `json:"layers,omitempty" doc:"explicit layers, instead of base_length"`
	Price         *int64         `json:"price,omitempty" minimum:"1" maximum:"9007199254740991" doc:"minor units; may be absent when every layer has its own"`
	Currency      string         `json:"currency" pattern:"^[A-Z][A-Z0-9]{2,11}$"`
	Beneficiary   string         `json:"beneficiary" doc:"the account that is paid at completion"`
	Prizes        []prizeRequest `json:"prizes" minItems:"1" maxItems:"1000"`
	PurchaseLimit *int           `json:"purchase_limit,omitempty" minimum:"1" doc:"positions an account may buy"`
	Draw          *string        `json:"draw,omitempty" enum:"instant,beacon" doc:"beacon: what is sold is sealed at sell-out, and a future round of a public beacon decides"`
	Witnesses     *int           `json:"witnesses,omitempty" minimum:"0" maximum:"15" doc:"how many witnesses of the public log must have cosigned the seal before the beacon's round; in beacon mode only"`
}

type layerRequest struct {
	Positions int    `json:"positions" minimum:"1"`
	Price     *int64 `json:"price,omitempty" minimum:"1" maximum:"9007199254740991"`
}

type prizeRequest struct {
	Name     string `json:"name" minLength:"1" maxLength:"200"`
	Layer    *int   `json:"layer,omitempty" minimum:"1" doc:"absent: positions of all layers can win it"`
	Quantity int    `json:"quantity" minimum:"1"`
}

type purchaseRequest struct {
	Account string `json:"account"`
	Layer   *int   `json:"layer,omitempty" minimum:"1" doc:"absent: a position of any layer"`
}

// op checks a campaign and makes the operation of it.
func (q *createCampaignRequest) op() (lottery.Op, error) {
	var c checks
	c.name("name", q.Name)
	c.currency("currency", q.Currency)
	c.id("beneficiary", q.Beneficiary)
	mode := or(q.Draw, lottery.DrawInstant)
	if mode != lottery.DrawInstant && mode != lottery.DrawBeacon {
		c.fail("draw must be \"instant\" or \"beacon\"")
	}
	witnesses := or(q.Witnesses, 0)
	switch {
	case witnesses < 0 || witnesses > lottery.MaxWitnesses:
		c.fail("witnesses must be from 0 to %d", lottery.MaxWitnesses)
	case witnesses > 0 && mode != lottery.DrawBeacon:
		c.fail("witnesses are for draw \"beacon\" alone: an instant draw follows its seal at once")
	}
	if q.Price != nil {
		c.amount("price", *q.Price)
	}
	if q.PurchaseLimit != nil {
		c.upTo("purchase_limit", *q.PurchaseLimit, math.MaxInt32)
	}
	q.checkLayers(&c)
	prizes := q.checkPrizes(&c)
	op := lottery.Create{
		Name: q.Name, BaseLength: q.BaseLength, Price: q.Price, Currency: q.Currency, Beneficiary: q.Beneficiary,
		Prizes: prizes, PurchaseLimit: q.PurchaseLimit, DrawMode: mode, Witnesses: witnesses,
	}
	for _, l := range q.Layers {
		op.Layers = append(op.Layers, lottery.NewLayer(l))
	}
	return op, c.err
}

func (q *createCampaignRequest) checkLayers(c *checks) {
	switch {
	case (q.BaseLength == nil) == (q.Layers == nil):
		c.fail("exactly one of base_length and layers is needed")
	case q.BaseLength != nil:
		c.upTo("base_length", *q.BaseLength, lottery.MaxBaseLength)
		if q.Price == nil {
			c.fail("price is needed")
		}
	}
	if c.err != nil {
		return
	}
	if q.BaseLength != nil {
		n := int64(*q.BaseLength)
		if *q.Price > math.MaxInt64/(n*(n+1)/2) {
			c.fail("the total of all prices is too large")
		}
		return
	}
	c.upTo("the number of layers", len(q.Layers), lottery.MaxLayers)
	positions, total := 0, int64(0)
	for _, l := range q.Layers {
		c.upTo("positions", l.Positions, lottery.MaxPositions)
		price := q.Price
		if l.Price != nil {
			c.amount("price", *l.Price)
			price = l.Price
		}
		if price == nil {
			c.fail("price is needed, or one in every layer")
		}
		if c.err != nil {
			return
		}
		positions += l.Positions
		if *price > (math.MaxInt64-total)/int64(l.Positions) {
			c.fail("the total of all prices is too large")
			return
		}
		total += *price * int64(l.Positions)
	}
	c.upTo("the number of positions", positions, lottery.MaxPositions)
}

func (q *createCampaignRequest) checkPrizes(c *checks) []lottery.Prize {
	c.upTo("the number of prizes", len(q.Prizes), lottery.MaxPrizes)
	seen := map[string]bool{}
	prizes := make([]lottery.Prize, 0, len(q.Prizes))
	for _, p := range q.Prizes {
		c.name("a prize's name", p.Name)
		if seen[p.Name] {
			c.fail("prize names must be unique")
		}
		seen[p.Name] = true
		c.upTo("a prize's quantity", p.Quantity, ledger.MaxAmount)
		prize := lottery.Prize{Name: p.Name, Quantity: p.Quantity}
		if p.Layer != nil {
			c.upTo("a prize's layer", *p.Layer, math.MaxInt32)
			prize.Layer = *p.Layer
		}
		if c.err != nil {
			return nil
		}
		prizes = append(prizes, prize)
	}
	return prizes
}

func (s *Server) lotteryRoutes() []route {
	act := func(verb, summary string, op lottery.Op) route {
		return actRoute("campaigns", verb, "campaign", summary, viewCampaign, s.Lottery.Execute, fixed(op))
	}
	return []route{
		commandRoute("/v1/campaigns", accessStaff, http.StatusCreated, "Make a campaign, pending", viewCampaign,
			mutation[createCampaignRequest, lottery.Op]{execute: s.Lottery.Create, op: plain((*createCampaignRequest).op)}),
		listRoute("/v1/campaigns", accessUser, "List campaigns, oldest first", oldestFirst(), func(r *http.Request, after int64, limit int) ([]lottery.Campaign, error) {
			return s.Lottery.Campaigns(r.Context(), after, limit, seesDrafts(infoOf(r).principal))
		}, as[campaignSummaryView], numberOfCampaign),
		readRoute("/v1/campaigns/{id}", accessUser, "Read a campaign", s.campaignOf, viewCampaign),
		act("publish", "Open the sale", lottery.Publish{}),
		act("cancel", "End a campaign that was not drawn, with refunds", lottery.Cancel{}),
		actRoute("campaigns", "draw", "campaign", "Ask for the draw: the same one for ever", viewDraw, s.Lottery.Execute, fixed[lottery.Op](lottery.AskDraw{})),
		hot(commandRoute("/v1/campaigns/{id}/purchases", accessUser, http.StatusCreated, "Buy a random free position", viewPurchase,
			mutation[purchaseRequest, lottery.Op]{
				what: "campaign", executeOn: s.Lottery.Execute, executeAll: s.Lottery.ExecuteAll,
				accounts: func(q *purchaseRequest) []string { return []string{q.Account} },
				op: func(from sender, q *purchaseRequest) (lottery.Op, error) {
					var c checks
					c.id("account", q.Account)
					op := lottery.Buy{Account: q.Account, User: !seesDrafts(from.principal)}
					if q.Layer != nil {
						c.upTo("layer", *q.Layer, math.MaxInt32)
						op.Layer = *q.Layer
					}
					return op, c.err
				},
			})),
		listRoute("/v1/campaigns/{id}/positions", accessUser, "List positions by layer and number", oldestFirst(), rowsWith(s.campaignOf, s.positions), viewPosition,
			func(p lottery.Purchase) int64 { return int64(p.Position.Ordinal) + 1 }),
		heavy(scanWeight, listRoute("/v1/campaigns/{id}/purchases", accessUser, "List purchases in the order of sale; to a user, its own", oldestFirst(), s.purchases, viewPurchase,
			func(p lottery.Purchase) int64 { return int64(p.Seq) })),
		s.ofAccount(listRoute("/v1/accounts/{id}/purchases", accessUser, "List an account's purchases in all campaigns, newest first", newestIDs(),
			rowsWith(s.existingAccount, s.accountPurchases), viewPurchase, func(p lottery.Purchase) uuid.UUID { return p.ID })),
		heavy(scanWeight, get("/v1/campaigns/{id}/draw", accessUser, doc[none, drawView]("Read the draw"), s.serveDocument("draw", s.writeDraw))),
		heavy(proofWeight, get("/v1/campaigns/{id}/proof", accessUser, doc[none, proofDocument]("Read the document that fairlead verify checks"),
			s.serveDocument("proof", s.writeProof))),
		heavy(scanWeight, get("/v1/campaigns/{id}/proof/positions/{position}", accessUser, doc[none, inclusionDocument]("Read the proof that a position was sealed"),
			shown(s.pathInclusion, same[*fairdraw.InclusionProof]))),
		heavy(scanWeight, readRoute("/v1/campaigns/{id}/statistics", accessUser, "Read what the sales add up to", with(s.campaignOf, s.statistics), same[statisticsView])),
	}
}

// campaignOf reads the campaign of the path.
func (s *Server) campaignOf(r *http.Request) (*lottery.Campaign, error) {
	id, err := pathID("campaign")(r)
	if err != nil {
		return nil, err
	}
	return s.campaign(r.Context(), infoOf(r).principal, id)
}

// campaign reads a campaign for somebody who may see it.
func (s *Server) campaign(ctx context.Context, p auth.Principal, id uuid.UUID) (*lottery.Campaign, error) {
	c, err := s.Lottery.Campaign(ctx, id)
	if err == nil {
		err = mayRead(p, c)
	}
	return c, err
}

// mayRead refuses a campaign that does not exist for somebody.
func mayRead(p auth.Principal, c *lottery.Campaign) error {
	if c.Draft() && !seesDrafts(p) {
		return &lottery.CampaignNotFoundError{ID: c.ID}
	}
	return nil
}

func numberOfCampaign(c lottery.Campaign) int64 { return c.Number }

// positions reads positions behind a place, which is the ordinal of the next one: it starts from 1 so that no cursor is 0.
func (s *Server) positions(ctx context.Context, c *lottery.Campaign, after int64, limit int) ([]lottery.Purchase, error) {
	from := int(min(after, int64(c.TotalPositions)))
	owners, err := s.Lottery.Owners(ctx, c.ID, from, min(from+limit, c.TotalPositions))
	rows := make([]lottery.Purchase, len(owners))
	for i, owner := range owners {
		rows[i] = lottery.Purchase{Account: owner, Position: c.Position(from + i)}
	}
	return rows, err
}

func viewPosition(p lottery.Purchase) positionView {
	v := positionView{ID: p.Position.ID, Layer: p.Position.Layer, Number: p.Position.Number, Status: "available"}
	if p.Account != "" {
		v.Status, v.Account = "sold", &p.Account
	}
	return v
}

// purchases reads purchases of the path's campaign. The index by account is not in the order of one campaign's sales, so those of one
// user are a scan of the campaign's.
func (s *Server) purchases(r *http.Request, after int64, limit int) ([]lottery.Purchase, error) {
	c, err := s.campaignOf(r)
	if err != nil {
		return nil, err
	}
	read := func(ctx context.Context) ([]lottery.Purchase, error) {
		return s.Lottery.Purchases(ctx, c.ID, infoOf(r).principal.Account, int(min(after, int64(c.TotalPositions))), limit)
	}
	if infoOf(r).principal.Role == auth.RoleUser {
		return bounded(r.Context(), s.scans, read)
	}
	return read(r.Context())
}

func (s *Server) accountPurchases(ctx context.Context, account string, before uuid.UUID, limit int) ([]lottery.Purchase, error) {
	return s.Lottery.AccountPurchases(ctx, account, before, limit)
}

func (s *Server) writeDraw(ctx context.Context, c *lottery.Campaign, w io.Writer) error {
	draw, _, err := s.Lottery.Result(ctx, c.ID)
	if err == nil {
		_, err = w.Write(mustMarshal(viewDraw(draw)))
	}
	return err
}

func (s *Server) pathInclusion(r *http.Request) (*fairdraw.InclusionProof, error) {
	c, err := s.sealedCampaign(r)
	if err != nil {
		return nil, err
	}
	position, err := sealedPosition(r, c)
	if err != nil {
		return nil, err
	}
	return s.inclusion(r.Context(), c, position)
}

// sealedPosition finds the position of the path in a campaign whose positions are sealed.
func sealedPosition(r *http.Request, c *lottery.Campaign) (position lottery.Position, err error) {
	id, err := pathUUID(r.PathValue("position"), "position")
	if err != nil {
		return position, err
	}
	position, ok := c.FindPosition(id)
	if !ok {
		return position, &lottery.PositionNotFoundError{ID: id}
	}
	// In beacon mode the list is closed before the draw: every entrant can see then that they are in it.
	if c.Status != lottery.StatusCompleted && (c.Beacon == nil || c.Beacon.Seal == nil) {
		return position, lottery.ErrNotDrawn
	}
	return position, nil
}

func (s *Server) statistics(ctx context.Context, c *lottery.Campaign) (statisticsView, error) {
	stats, err := bounded(ctx, s.scans, func(ctx context.Context) (lottery.Statistics, error) { return s.Lottery.Statistics(ctx, c.ID) })
	if err != nil {
		return statisticsView{}, err
	}
	return viewStatistics(c, stats), nil
}

type layerView struct {
	Layer     int   `json:"layer" from:"-" doc:"from 1"`
	Positions int   `json:"positions"`
	Sold      int   `json:"sold"`
	Price     int64 `json:"price" doc:"minor units"`
}

type prizeView struct {
	Name     string `json:"name"`
	Layer    *int   `json:"layer" doc:"null: positions of all layers can win it"`
	Quantity int    `json:"quantity"`
}

type campaignView struct {
	ID             uuid.UUID      `json:"id"`
	Name           string         `json:"name"`
	Status         lottery.Status `json:"status" enum:"pending,active,drawing,completed,cancelled"`
	Draw           string         `json:"draw" from:"DrawMode" enum:"instant,beacon"`
	BaseLength     *int           `json:"base_length" doc:"of a triangle, null with explicit layers"`
	Currency       string         `json:"currency"`
	Price          *int64         `json:"price" doc:"minor units, of layers without a price of their own"`
	Beneficiary    string         `json:"beneficiary"`
	PurchaseLimit  *int           `json:"purchase_limit"`
	TotalPositions int            `json:"total_positions"`
	SoldPositions  int            `json:"sold_positions"`
	Layers         []layerView    `json:"layers" from:"-"`
	Prizes         []prizeView    `json:"prizes"`
	Commitment     string         `json:"commitment" doc:"hex SHA-256 of the server seed"`
	Witnesses      int            `json:"witnesses" doc:"how many of the public log must have cosigned the seal before the beacon's round"`
	Version        int64          `json:"version"`
	CreatedAt      timestamp      `json:"created_at"`
	PublishedAt    *timestamp     `json:"published_at"`
	CompletedAt    *timestamp     `json:"completed_at"`
	CancelledAt    *timestamp     `json:"cancelled_at"`
	Beacon         *beaconView    `json:"beacon,omitempty" from:"-" doc:"absent in instant mode"`
}

func viewCampaign(c *lottery.Campaign) campaignView {
	v := as[campaignView](c)
	v.Layers, v.Beacon = viewLayers(c), viewBeacon(c)
	return v
}

func viewLayers(c *lottery.Campaign) []layerView {
	layers := as[[]layerView](c.Layers)
	for i := range layers {
		layers[i].Layer = i + 1
	}
	return layers
}

// campaignSummaryView is a campaign in a list.
type campaignSummaryView struct {
	ID             uuid.UUID      `json:"id"`
	Name           string         `json:"name"`
	Status         lottery.Status `json:"status" enum:"pending,active,drawing,completed,cancelled"`
	Currency       string         `json:"currency"`
	TotalPositions int            `json:"total_positions"`
	SoldPositions  int            `json:"sold_positions"`
	CreatedAt      timestamp      `json:"created_at"`
}

type placeView struct {
	ID     uuid.UUID `json:"id"`
	Layer  int       `json:"layer" doc:"from 1"`
	Number int       `json:"number" doc:"within the layer, from 1"`
}

func viewPlace(p lottery.Position) placeView {
	return placeView{ID: p.ID, Layer: p.Layer, Number: p.Number}
}

type purchaseView struct {
	ID       uuid.UUID `json:"id"`
	Campaign uuid.UUID `json:"campaign"`
	Account  string    `json:"account"`
	Position placeView `json:"position"`
	Price    int64     `json:"price" doc:"minor units"`
	At       timestamp `json:"at"`
}

func viewPurchase(p lottery.Purchase) purchaseView {
	return purchaseView{ID: p.ID, Campaign: p.Campaign, Account: p.Account, Position: viewPlace(p.Position), Price: p.Price, At: timestamp(p.At)}
}

type positionView struct {
	ID      uuid.UUID `json:"id"`
	Layer   int       `json:"layer"`
	Number  int       `json:"number"`
	Status  string    `json:"status" enum:"available,sold"`
	Account *string   `json:"account" doc:"null while available"`
}

type winnerView struct {
	Prize    string     `json:"prize"`
	Layer    int        `json:"layer" doc:"of the position"`
	Position winnerSpot `json:"position"`
	Account  string     `json:"account"`
}

type winnerSpot struct {
	ID     string `json:"id"`
	Layer  int    `json:"layer"`
	Number int    `json:"number"`
}

type drawView struct {
	Campaign    uuid.UUID    `json:"campaign"`
	Winners     []winnerView `json:"winners"`
	Root        string       `json:"root" doc:"hex root of the sealed positions"`
	CompletedAt timestamp    `json:"completed_at"`
}

func viewDraw(d *lottery.Draw) drawView {
	v := drawView{Campaign: d.Campaign, Winners: make([]winnerView, len(d.Winners)), Root: hex.EncodeToString(d.Root[:]), CompletedAt: timestamp(d.CompletedAt)}
	for i, w := range d.Winners {
		v.Winners[i] = viewWinner(w)
	}
	return v
}

func viewWinner(w fairdraw.Winner) winnerView {
	return winnerView{
		Prize: w.Prize, Layer: w.Position.Layer, Account: w.Position.Account,
		Position: winnerSpot{ID: w.Position.ID, Layer: w.Position.Layer, Number: w.Position.Number},
	}
}

type statisticsView struct {
	Campaign       uuid.UUID      `json:"campaign"`
	Status         lottery.Status `json:"status"`
	TotalPositions int            `json:"total_positions"`
	SoldPositions  int            `json:"sold_positions"`
	SoldShare      float64        `json:"sold_share" doc:"0 to 1"`
	Buyers         int            `json:"buyers" doc:"distinct accounts"`
	LargestBuyer   int            `json:"largest_buyer" doc:"most positions of one account"`
	Revenue        int64          `json:"revenue" doc:"prices of everything sold, minor units, refunded or not"`
	FirstSaleAt    *timestamp     `json:"first_sale_at"`
	LastSaleAt     *timestamp     `json:"last_sale_at"`
	Layers         []layerView    `json:"layers"`
}

func viewStatistics(c *lottery.Campaign, s lottery.Statistics) statisticsView {
	return statisticsView{
		Campaign: c.ID, Status: c.Status, TotalPositions: c.TotalPositions, SoldPositions: c.SoldPositions,
		SoldShare: float64(c.SoldPositions) / float64(c.TotalPositions), Buyers: s.Buyers, LargestBuyer: s.LargestSold,
		Revenue: s.Revenue, FirstSaleAt: (*timestamp)(s.FirstSaleAt), LastSaleAt: (*timestamp)(s.LastSaleAt),
		Layers: viewLayers(c),
	}
}

// beaconView is what is known of the round that decides a campaign: the chain from the campaign's creation on, the seal
// from the last sale on.
type beaconView struct {
	Status      string     `json:"status" from:"-" enum:"unsealed,waiting,delayed,drawn" doc:"delayed: the round is due and cannot be had; it is tried again until it can"`
	ChainHash   string     `json:"chain_hash" from:"-" doc:"hex"`
	Chain       string     `json:"chain" from:"Chain.BeaconID" doc:"the chain's name"`
	Scheme      string     `json:"scheme" from:"Chain.Scheme"`
	PublicKey   string     `json:"public_key" from:"Chain.PublicKey" doc:"the chain's, in hex"`
	Period      int        `json:"period" from:"Chain.PeriodSeconds" doc:"seconds between two rounds"`
	GenesisTime int64      `json:"genesis_time" from:"Chain.GenesisTime" doc:"when round 1 was due, Unix seconds"`
	Round       *int64     `json:"round" from:"-" doc:"the one that decides; null before everything is sold"`
	Root        *string    `json:"root" from:"-" doc:"hex root of the sealed positions; null before everything is sold"`
	SealedAt    *timestamp `json:"sealed_at" from:"-"`
	DueAt       *timestamp `json:"due_at" from:"-" doc:"when the round is to appear"`
	Attempts    int        `json:"attempts" doc:"to get the round in vain since it was due"`
	Failure     *string    `json:"failure" doc:"what the last attempt came to, in one word, such as not_published, timeout or bad_signature"`
	Seen        int        `json:"seen_by" from:"Seen" doc:"how many witnesses of the public log have cosigned the seal before the round was due"`
	Early       bool       `json:"early" doc:"the round was public before it was due by the database's clock: somebody may have known it in advance"`
}

func viewBeacon(c *lottery.Campaign) *beaconView {
	b := c.Beacon
	if b == nil {
		return nil
	}
	v := as[beaconView](b)
	v.Status, v.ChainHash = "unsealed", b.Chain.Hash()
	if b.Seal == nil {
		return &v
	}
	v.Round, v.Root = new(int64(b.Seal.Round)), new(hex.EncodeToString(b.Seal.Root[:])) //nolint:gosec // Below 2^53.
	v.SealedAt, v.DueAt = new(timestamp(b.Seal.SealedAt)), new(timestamp(b.Seal.DueAt))
	switch {
	case c.Status == lottery.StatusCompleted:
		v.Status = "drawn"
	case b.Delayed:
		v.Status = "delayed"
	default:
		v.Status = "waiting"
	}
	return &v
}
