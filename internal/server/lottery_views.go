package server

import (
	"encoding/hex"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

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
