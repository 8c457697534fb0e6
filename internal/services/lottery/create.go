package lottery

import (
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Create makes a campaign, pending. Result: *[Campaign]. The edge has validated its fields: names and currency are
// well-formed, numbers are within the limits, prize names are unique, every layer has a price, and the total of all
// prices fits 64 bits.
type Create struct {
	Name          string
	BaseLength    *int       // of a triangle, or nil
	Layers        []NewLayer // explicit ones, or nil
	Price         *int64
	Currency      string
	Beneficiary   string
	Prizes        []Prize
	PurchaseLimit *int
	DrawMode      string          // empty means DrawInstant
	Witnesses     int             // of the log, that must have seen the seal before its round
	Asked         int             // witnesses that the service asks
	Seed          fairdraw.Seed   // chosen by the service; the request does not contain it
	Chain         *fairdraw.Chain // the beacon of campaigns in beacon mode: the service's, nil where it has none
}

// NewLayer is an explicit layer; a nil price means the campaign's.
type NewLayer struct {
	Positions int
	Price     *int64
}

// Creation is what the transaction that makes campaigns works on: the beneficiaries' accounts, and the campaigns made.
type Creation struct {
	Book      *ledger.Book
	Campaigns []NewCampaign
}

// NewCampaign is a campaign to be written, with its seed.
type NewCampaign struct {
	Campaign *Campaign
	Seed     fairdraw.Seed
}

// DecideCreate makes a campaign and its escrow account. It returns [ledger.AccountNotFoundError] or
// [ledger.ErrCurrencyMismatch] for the beneficiary, [LayerNotFoundError], [ErrTooManyPrizes], [ErrNoBeacon] and [WitnessesError].
func DecideCreate(cr *Creation, op Create) (*Campaign, error) {
	beneficiary, err := cr.Book.Account(op.Beneficiary)
	if err != nil {
		return nil, err
	}
	if beneficiary.Currency != op.Currency {
		return nil, ledger.ErrCurrencyMismatch
	}
	id := cr.Book.NewID()
	c := &Campaign{
		ID: id, Name: op.Name, Status: StatusPending, DrawMode: DrawInstant, BaseLength: op.BaseLength,
		Currency: op.Currency, Price: op.Price, Beneficiary: op.Beneficiary, Escrow: EscrowOf(id),
		PurchaseLimit: op.PurchaseLimit, Version: 1, CreatedAt: cr.Book.Now(), Prizes: op.Prizes,
	}
	c.Commitment = commitmentOf(op.Seed)
	if op.DrawMode == DrawBeacon {
		if op.Chain == nil {
			return nil, ErrNoBeacon
		}
		c.DrawMode, c.Beacon = DrawBeacon, &Beacon{Chain: *op.Chain}
		if c.Witnesses = op.Witnesses; op.Witnesses > op.Asked {
			return nil, &WitnessesError{Required: op.Witnesses, Asked: op.Asked}
		}
	}
	for _, l := range op.layers() {
		price := op.Price
		if l.Price != nil {
			price = l.Price
		}
		c.Layers = append(c.Layers, Layer{Positions: l.Positions, Price: *price, First: c.TotalPositions})
		c.TotalPositions += l.Positions
	}
	if err := c.checkPrizes(); err != nil {
		return nil, err
	}
	if _, err := cr.Book.Open(c.Escrow, c.Currency); err != nil {
		return nil, err
	}
	cr.Campaigns = append(cr.Campaigns, NewCampaign{Campaign: c, Seed: op.Seed})
	return c, nil
}

// layers spells out the triangle: layer k has k positions.
func (op *Create) layers() []NewLayer {
	if op.BaseLength == nil {
		return op.Layers
	}
	triangle := make([]NewLayer, *op.BaseLength)
	for k := range triangle {
		triangle[k].Positions = k + 1
	}
	return triangle
}

func (c *Campaign) checkPrizes() error {
	winners := 0
	for _, p := range c.Prizes {
		eligible := c.TotalPositions
		if p.Layer > len(c.Layers) {
			return &LayerNotFoundError{Layer: p.Layer}
		}
		if p.Layer > 0 {
			eligible = c.Layers[p.Layer-1].Positions
		}
		winners += p.Quantity
		if p.Quantity > eligible || winners > MaxWinners {
			return ErrTooManyPrizes
		}
	}
	return nil
}

// EscrowOf names a campaign's escrow account. The slash keeps it apart from every name that a client may choose.
func EscrowOf(campaign uuid.UUID) string { return "escrow/" + campaign.String() }
