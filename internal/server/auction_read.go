package server

import (
	"context"
	"math"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// auctionOf reads the auction of the path.
func (s *Server) auctionOf(r *http.Request) (*auction.Auction, error) {
	id, err := pathUUID(r.PathValue("id"), "auction")
	if err != nil {
		return nil, err
	}
	return s.auctionFor(r.Context(), infoOf(r).principal, id)
}

// auctionFor reads an auction for somebody who may see it.
func (s *Server) auctionFor(ctx context.Context, p auth.Principal, id uuid.UUID) (*auction.Auction, error) {
	a, err := s.auction.Auction(ctx, id)
	if err == nil && a.Draft() && !seesDrafts(p) {
		return nil, &auction.NotFoundError{ID: id}
	}
	return a, err
}

// auctionID reads the id of an auction that whoever asks may see. Staff may see all: what is asked of it next tells whether
// there is one.
func (s *Server) auctionID(r *http.Request) (uuid.UUID, error) {
	if !seesDrafts(infoOf(r).principal) {
		a, err := s.auctionOf(r)
		if err != nil {
			return uuid.UUID{}, err
		}
		return a.ID, nil
	}
	return pathUUID(r.PathValue("id"), "auction")
}

func (s *Server) getAuctions(w http.ResponseWriter, r *http.Request) {
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	auctions, err := s.auction.Auctions(r.Context(), p.after, p.limit+1, seesDrafts(infoOf(r).principal))
	answer(s, w, r, func(rows []auction.Auction) list[auctionSummaryView] {
		return newList(r, rows, p.limit, viewAuctionSummary, func(a auction.Auction) int64 { return a.Number })
	})(auctions, err)
}

func (s *Server) getAuction(w http.ResponseWriter, r *http.Request) {
	answer(s, w, r, viewAuction)(s.auctionOf(r))
}

// auctionPage reads the auction of the path and the page that is asked for.
func (s *Server) auctionPage(r *http.Request) (*auction.Auction, page, error) {
	p, err := parsePage(r)
	if err != nil {
		return nil, p, err
	}
	a, err := s.auctionOf(r)
	return a, p, err
}

// leaderboardDoc documents a list that has a member more.
func leaderboardDoc() operation {
	o := doc[none, leaderboardView]("List standing bids by rank: of the open round, or of the last one after the end")
	o.query = paged[rankView]("").query
	return o
}

// nearPlaces is how far down a leaderboard's page may begin and still cost no more than another list's: the places above it
// are counted.
const nearPlaces = 1000

func (s *Server) getLeaderboard(w http.ResponseWriter, r *http.Request) {
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	id, err := s.auctionID(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	leave := func() {}
	if p.after > nearPlaces {
		if leave, err = s.scans.enter(r.Context()); err != nil {
			s.writeProblem(w, r, err)
			return
		}
	}
	places, round, err := s.auction.Leaderboard(r.Context(), id, int(min(p.after, math.MaxInt32)), p.limit+1)
	leave()
	answer(s, w, r, func(rows []auction.Ranked) leaderboardView {
		l := newList(r, rows, p.limit, viewRank, func(row auction.Ranked) int64 { return int64(row.Rank) })
		return leaderboardView{Items: l.Items, Round: round, Next: l.Next}
	})(places, err)
}

// rankBits is how much of a winner's place in the list is its rank, which is at most [auction.MaxWinners].
const rankBits = 16

func (s *Server) getWinners(w http.ResponseWriter, r *http.Request) {
	a, p, err := s.auctionPage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	round, rank := int(min(p.after>>rankBits, auction.MaxRounds+1)), int(p.after&(1<<rankBits-1))
	winners, err := s.auction.Winners(r.Context(), a.ID, round, rank, p.limit+1)
	answer(s, w, r, func(rows []auction.Winner) list[auctionWinnerView] {
		return newList(r, rows, p.limit, viewAuctionWinner, func(row auction.Winner) int64 { return int64(row.Round)<<rankBits | int64(row.Rank) })
	})(winners, err)
}

func (s *Server) getBids(w http.ResponseWriter, r *http.Request) {
	a, p, err := s.auctionPage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	bids, err := s.auction.Bids(r.Context(), a.ID, p.after, p.limit+1)
	answer(s, w, r, func(rows []auction.Placed) list[placedBidView] {
		return newList(r, rows, p.limit, viewPlacedBid, func(row auction.Placed) int64 { return row.Seq })
	})(bids, err)
}

func (s *Server) getMinWinningBid(w http.ResponseWriter, r *http.Request) {
	id, err := s.auctionID(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	answer(s, w, r, func(amount int64) minWinningBidView { return minWinningBidView{Amount: amount} })(s.auction.Floor(r.Context(), id))
}
