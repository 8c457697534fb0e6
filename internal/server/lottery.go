package server

import (
	"math"
	"net/http"

	"github.com/fairlead-dev/fairlead/fairdraw"
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
	mode := lottery.DrawInstant
	if q.Draw != nil {
		mode = *q.Draw
	}
	if mode != lottery.DrawInstant && mode != lottery.DrawBeacon {
		c.fail("draw must be \"instant\" or \"beacon\"")
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
		Prizes: prizes, PurchaseLimit: q.PurchaseLimit, DrawMode: mode,
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
				what: "campaign", executeOn: s.Lottery.Execute, account: func(q *purchaseRequest) string { return q.Account },
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
		listRoute("/v1/campaigns/{id}/purchases", accessUser, "List purchases in the order of sale", oldestFirst(), rowsWith(s.campaignOf, s.purchases), viewPurchase,
			func(p lottery.Purchase) int64 { return int64(p.Seq) }),
		heavy(scanWeight, get("/v1/campaigns/{id}/draw", accessUser, doc[none, drawView]("Read the draw"), s.serveDocument("draw", s.writeDraw))),
		heavy(proofWeight, get("/v1/campaigns/{id}/proof", accessUser, doc[none, proofDocument]("Read the document that fairlead verify checks"),
			s.serveDocument("proof", s.Lottery.WriteProof))),
		heavy(scanWeight, get("/v1/campaigns/{id}/proof/positions/{position}", accessUser, doc[none, inclusionDocument]("Read the proof that a position was sealed"),
			shown(s.pathInclusion, same[*fairdraw.InclusionProof]))),
		heavy(scanWeight, readRoute("/v1/campaigns/{id}/statistics", accessUser, "Read what the sales add up to", with(s.campaignOf, s.statistics), same[statisticsView])),
	}
}
