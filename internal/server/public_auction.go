package server

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// publicAuction reads the auction of the path if the public may see it: not before it has begun.
func (s *Server) publicAuction(r *http.Request) (*auction.Auction, error) {
	a, err := s.auctionOf(r)
	if err == nil && !s.PublicPages {
		return nil, &auction.NotFoundError{ID: a.ID}
	}
	return a, err
}

// publicAuctionView is an auction as anybody may see it.
type publicAuctionView struct {
	ID            uuid.UUID        `json:"id"`
	Title         string           `json:"title"`
	Status        auction.Status   `json:"status" enum:"active,completed,cancelled"`
	Currency      string           `json:"currency"`
	CurrentRound  int              `json:"current_round"`
	Rounds        []roundView      `json:"rounds"`
	AntiSnipe     antiSnipeView    `json:"anti_snipe"`
	MinIncrement  int64            `json:"min_increment"`
	TotalBids     int64            `json:"total_bids"`
	Seq           int64            `json:"seq" doc:"of the last event"`
	Leaderboard   []publicRankView `json:"leaderboard" from:"-" doc:"the best 100 standing bids"`
	Winners       []publicWonView  `json:"winners" from:"-" doc:"of rounds that ended, the first 200"`
	MinWinningBid *int64           `json:"min_winning_bid" from:"-" doc:"the least new bid that would now win; null when no round is open"`
	Chart         bidChartView     `json:"chart" from:"-"`
	Now           timestamp        `json:"now" from:"-" doc:"the server's time"`
}

type publicRankView struct {
	Rank    int    `json:"rank"`
	Alias   string `json:"alias" doc:"of the bidder's account, who finds it at /v1/accounts/{id}/aliases"`
	Amount  int64  `json:"amount"`
	Winning bool   `json:"winning"`
}

type publicWonView struct {
	Round  int    `json:"round"`
	Rank   int    `json:"rank"`
	Alias  string `json:"alias"`
	Amount int64  `json:"amount"`
}

func (s *Server) publicAuctionState(r *http.Request) (any, error) {
	a, err := s.publicAuction(r)
	if err != nil {
		return nil, err
	}
	v := as[publicAuctionView](a)
	v.Now = timestamp(time.Now())
	name, err := s.aliasesIn(r.Context(), a.Topic())
	if err != nil {
		return nil, err
	}
	places, _, err := s.Auction.Leaderboard(r.Context(), a.ID, 0, publicPlaces)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		v.Leaderboard = append(v.Leaderboard, publicRankView{Rank: p.Rank, Alias: name(p.Account).Alias, Amount: p.Amount, Winning: p.Winning})
	}
	winners, err := s.Auction.Winners(r.Context(), a.ID, 0, 0, maxLimit)
	if err != nil {
		return nil, err
	}
	for _, won := range winners {
		v.Winners = append(v.Winners, publicWonView{Round: won.Round, Rank: won.Rank, Alias: name(won.Account).Alias, Amount: won.Amount})
	}
	if a.Status == auction.StatusActive {
		if floor, err := s.Auction.Floor(r.Context(), a.ID); err == nil {
			v.MinWinningBid = &floor
		}
	}
	v.Chart, err = s.bidChart(r.Context(), a)
	return v, err
}
