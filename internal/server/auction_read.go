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
	id, err := pathID(r, "auction")
	if err != nil {
		return nil, err
	}
	return s.auctionFor(r.Context(), infoOf(r).principal, id)
}

// auctionFor reads an auction for somebody who may see it.
func (s *Server) auctionFor(ctx context.Context, p auth.Principal, id uuid.UUID) (*auction.Auction, error) {
	a, err := s.Auction.Auction(ctx, id)
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
	return pathID(r, "auction")
}

func numberOfAuction(a auction.Auction) int64 { return a.Number }

func seqOfBid(b auction.Placed) int64 { return b.Seq }

// leaderboardDoc documents a list that has a member more.
func leaderboardDoc() operation {
	o := doc[none, leaderboardView]("List standing bids by rank: of the open round, or of the last one after the end")
	o.query = paged[rankView]("").query
	return o
}

// nearPlaces is how far down a leaderboard's page may begin and still cost no more than another list's: the places above it
// are counted.
const nearPlaces = 1000

func (s *Server) getLeaderboard(w http.ResponseWriter, r *http.Request) error {
	p, err := parsePage(r, r.URL.Path, maxLimit, oldestFirst())
	if err != nil {
		return err
	}
	id, err := s.auctionID(r)
	if err != nil {
		return err
	}
	leave := func() {}
	if p.after > nearPlaces {
		if leave, err = s.scans.enter(r.Context()); err != nil {
			return err
		}
	}
	places, round, err := s.Auction.Leaderboard(r.Context(), id, int(min(p.after, math.MaxInt32)), p.limit+1)
	leave()
	if err != nil {
		return err
	}
	l := newList(p, places, as[rankView], func(row auction.Ranked) int64 { return int64(row.Rank) })
	return writeView(w, leaderboardView{Items: l.Items, Round: round, Next: l.Next})
}

// rankBits is how much of a winner's place in the list is its rank, which is at most [auction.MaxWinners].
const rankBits = 16

func placeOfWinner(w auction.Winner) int64 { return int64(w.Round)<<rankBits | int64(w.Rank) }

func (s *Server) winners(ctx context.Context, a *auction.Auction, after int64, limit int) ([]auction.Winner, error) {
	round, rank := int(min(after>>rankBits, auction.MaxRounds+1)), int(after&(1<<rankBits-1))
	return s.Auction.Winners(ctx, a.ID, round, rank, limit)
}

func (s *Server) placed(ctx context.Context, a *auction.Auction, after int64, limit int) ([]auction.Placed, error) {
	return s.Auction.Bids(ctx, a.ID, after, limit)
}

func (s *Server) minWinningBid(r *http.Request) (v minWinningBidView, err error) {
	id, err := s.auctionID(r)
	if err == nil {
		v.Amount, err = s.Auction.Floor(r.Context(), id)
	}
	return v, err
}
