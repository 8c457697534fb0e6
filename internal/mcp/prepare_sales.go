package mcp

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

// timeFormat is how times stand in words.
const timeFormat = time.RFC3339

// at fills a path's gaps with ids.
func at(format string, ids ...id) string {
	escaped := make([]any, len(ids))
	for i, name := range ids {
		escaped[i] = url.PathEscape(string(name))
	}
	return fmt.Sprintf(format, escaped...)
}

type purchaseInput struct {
	Campaign id    `json:"campaign" jsonschema:"the campaign's id"`
	Account  id    `json:"account" jsonschema:"the account that buys and pays"`
	Layer    int64 `json:"layer,omitzero" jsonschema:"the layer to buy in, from 1; any layer when absent"`
}

type layerInput struct {
	Positions int64  `json:"positions" jsonschema:"how many positions the layer has"`
	Price     amount `json:"price,omitzero" jsonschema:"of one position, in minor units; the campaign's price when absent"`
}

type prizeInput struct {
	Name     string `json:"name" jsonschema:"unique in the campaign"`
	Quantity int64  `json:"quantity" jsonschema:"how many are drawn"`
	Layer    int64  `json:"layer,omitzero" jsonschema:"only positions of this layer can win it; all when absent"`
}

type campaignInput struct {
	Name          string       `json:"name" jsonschema:"shown to buyers"`
	Currency      string       `json:"currency" jsonschema:"such as EUR"`
	Beneficiary   id           `json:"beneficiary" jsonschema:"the account that is paid when the campaign completes; it must have the currency"`
	Price         amount       `json:"price,omitzero" jsonschema:"of one position, in minor units; may be absent when each layer has its own"`
	BaseLength    int64        `json:"base_length,omitzero" jsonschema:"of a triangle: layer k has k positions. Either this or layers"`
	Layers        []layerInput `json:"layers,omitzero" jsonschema:"explicit layers in place of base_length"`
	Prizes        []prizeInput `json:"prizes" jsonschema:"what is drawn among the sold positions"`
	PurchaseLimit int64        `json:"purchase_limit,omitzero" jsonschema:"most positions of one account; no limit when absent"`
	Draw          drawMode     `json:"draw,omitzero" jsonschema:"instant (when absent): with a seed committed to now. beacon: with public randomness of a moment after the sale"`
}

type campaignStepInput struct {
	Campaign id           `json:"campaign" jsonschema:"the campaign's id"`
	Step     campaignStep `json:"step" jsonschema:"publish: open it for sale. cancel: end it and refund all buyers. draw: ask for the draw of a sold-out campaign"`
}

// addSales adds the tools that prepare what happens in lottery campaigns.
func (s *service) addSales(b *builder) {
	addPrepare(s, b, "campaign", "Prepare a new campaign", "Prepares making a lottery campaign, which is not on sale until it is published.", describeCampaign)
	addPrepare(s, b, "campaign_step", "Prepare a campaign's next step", "Prepares publishing, cancelling or drawing a campaign.", describeCampaignStep)
	addPrepare(s, b, "purchase", "Prepare a purchase", "Prepares buying one random free position of a campaign that is on sale.", describePurchase)
}

func describeCampaign(ctx context.Context, p *plan, in campaignInput) error {
	q := client.CreateCampaignRequest{
		Name: in.Name, Currency: in.Currency, Beneficiary: string(in.Beneficiary), Price: int64(in.Price), BaseLength: in.BaseLength,
		PurchaseLimit: in.PurchaseLimit, Draw: client.CreateCampaignRequestDraw(in.Draw), Prizes: []client.PrizeRequest{},
	}
	if (in.BaseLength == 0) == (len(in.Layers) == 0) {
		return wrongArguments("give base_length or layers, and not both")
	}
	positions := in.BaseLength * (in.BaseLength + 1) / 2
	for _, l := range in.Layers {
		q.Layers = append(q.Layers, client.LayerRequest{Positions: l.Positions, Price: int64(l.Price)})
		positions += l.Positions
	}
	prizes := int64(0)
	for _, prize := range in.Prizes {
		q.Prizes = append(q.Prizes, client.PrizeRequest{Name: prize.Name, Quantity: prize.Quantity, Layer: prize.Layer})
		prizes += prize.Quantity
	}
	if err := p.receiver(ctx, in.Beneficiary, in.Currency); err != nil {
		return err
	}
	p.summary = fmt.Sprintf("Make a campaign named %q of %d positions with %d prizes, whose proceeds go to %s. It is not on sale until it is published.", in.Name, positions, prizes, in.Beneficiary)
	p.path, p.body = "/v1/campaigns", q
	p.may("too_many_prizes", "a prize has more winners than positions that can win it")
	return nil
}

// receiver looks at the account that will be paid in a currency.
func (p *plan) receiver(ctx context.Context, account id, currency string) error {
	a, err := p.account(ctx, string(account))
	if err != nil {
		return err
	}
	if a.Currency != "" && a.Currency != currency {
		p.refuse("currency_mismatch", "%s has %s, not %s", account, a.Currency, currency)
	}
	return nil
}

func describeCampaignStep(ctx context.Context, p *plan, in campaignStepInput) error {
	c, err := p.s.client.GetCampaign(ctx, string(in.Campaign))
	if err != nil {
		return err
	}
	is := string(c.Status)
	switch in.Step {
	case "publish":
		p.summary = fmt.Sprintf("Open campaign %q (%s) for sale: %d positions.", c.Name, c.ID, c.TotalPositions)
		p.needs("bad_transition", "the campaign", is, string(client.CampaignStatusPending))
		p.note("Its terms can't be changed after that. The commitment to the draw's seed is %s.", c.Commitment)
	case "cancel":
		sales, err := p.s.client.Statistics(ctx, c.ID)
		if err != nil {
			return err
		}
		p.summary = fmt.Sprintf("Cancel campaign %q (%s) for good, and refund %s for %d positions to %d buyers.", c.Name, c.ID, money(sales.Revenue, c.Currency), sales.SoldPositions, sales.Buyers)
		p.needs("bad_transition", "the campaign", is, string(client.CampaignStatusPending), string(client.CampaignStatusActive))
		p.note("It can't be undone.")
	default: // draw
		p.summary = fmt.Sprintf("Ask for the draw of campaign %q (%s): the one that there is, or the one that is due.", c.Name, c.ID)
		p.needs("not_sold_out", "the campaign", is, string(client.CampaignStatusDrawing), string(client.CampaignStatusCompleted))
		p.note("The last sale draws by itself. Asking again returns the same draw for ever.")
	}
	p.path = at("/v1/campaigns/%s/"+string(in.Step), in.Campaign)
	p.may("bad_transition", "its status changes before")
	return nil
}

func describePurchase(ctx context.Context, p *plan, in purchaseInput) error {
	c, err := p.s.client.GetCampaign(ctx, string(in.Campaign))
	if err != nil {
		return err
	}
	buyer, err := p.account(ctx, string(in.Account))
	if err != nil {
		return err
	}
	switch c.Status {
	case client.CampaignStatusActive:
	case client.CampaignStatusDrawing, client.CampaignStatusCompleted:
		p.refuse("sold_out", "the campaign is sold out")
	default:
		p.refuse("not_active", "the campaign is %s, and not on sale", c.Status)
	}
	least, most, free := prices(c, in.Layer)
	if free == 0 && c.Status == client.CampaignStatusActive {
		p.refuse("sold_out", "no position of layer %d is free", in.Layer)
	}
	if in.Layer < 0 || in.Layer > int64(len(c.Layers)) {
		p.refuse("not_found", "the campaign has layers 1 to %d", len(c.Layers))
	}
	where, price := "any layer", money(most, c.Currency)
	if in.Layer > 0 {
		where = fmt.Sprintf("layer %d", in.Layer)
	}
	if least < most {
		price = fmt.Sprintf("%d to %s", least, price)
		p.note("The price depends on the layer of the position, which chance picks. The change below is the highest one.")
	}
	if buyer.Currency != "" && buyer.Currency != c.Currency {
		p.refuse("currency_mismatch", "%s has %s, and the campaign is in %s", in.Account, buyer.Currency, c.Currency)
	}
	p.spend(buyer, most)
	p.summary = fmt.Sprintf("Buy a random free position in %s of campaign %q (%s) for %s, for %s.", where, c.Name, c.ID, in.Account, price)
	p.path, p.body = at("/v1/campaigns/%s/purchases", in.Campaign), client.PurchaseRequest{Account: string(in.Account), Layer: in.Layer}
	p.note("%d of %d positions are sold. The sale of the last one draws the winners.", c.SoldPositions, c.TotalPositions)
	if c.PurchaseLimit > 0 {
		p.may("purchase_limit", fmt.Sprintf("the account has bought %d positions of this campaign, which is the most", c.PurchaseLimit))
	}
	p.may("sold_out", "others buy what is free before", "not_active", "the campaign is cancelled before", "insufficient_funds", fundsDetail)
	return nil
}

// prices are what a free position can cost, in one layer or, with 0, in all of them, and how many are free.
func prices(c *client.Campaign, layer int64) (least, most, free int64) {
	for _, l := range c.Layers {
		left := l.Positions - l.Sold
		if layer != 0 && l.Layer != layer || left == 0 {
			continue
		}
		if free == 0 || l.Price < least {
			least = l.Price
		}
		most = max(most, l.Price)
		free += left
	}
	return least, most, free
}
