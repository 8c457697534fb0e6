package server

import (
	"context"
	"encoding/base64"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// Limits of what is drawn.
const (
	// maxMapped is the size up to which a campaign is drawn position by position. Above it a position would be less than a
	// pixel, and layers are drawn by how much of them is sold.
	maxMapped = 20_000
	// maxBidMarks is how many bids a chart shows: more do not fit on a screen.
	maxBidMarks = 600
	// maxRoundMarks bounds the starts and extensions of rounds on a chart.
	maxRoundMarks = 400
)

// saleMapView says which positions are sold.
type saleMapView struct {
	Campaign       uuid.UUID      `json:"campaign"`
	Status         lottery.Status `json:"status"`
	TotalPositions int            `json:"total_positions"`
	SoldPositions  int            `json:"sold_positions"`
	Layers         []layerView    `json:"layers"`
	Sold           *string        `json:"sold" doc:"a bit a position in campaign order, the first in the highest bit, base64; null in campaigns of over 20,000"`
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
