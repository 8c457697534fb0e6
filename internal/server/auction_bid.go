package server

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

type bidRequest struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units, of the whole bid and not of the raise"`
}

// bids are how bids are made, over HTTP and over the live stream.
func (s *Server) bids() mutation[bidRequest, auction.Op] {
	return mutation[bidRequest, auction.Op]{
		what: "auction", executeOn: s.Auction.Execute, answer: answered(http.StatusCreated, viewBid),
		account: func(q *bidRequest) string { return q.Account },
		op: func(from sender, q *bidRequest) (auction.Op, error) {
			var c checks
			c.id("account", q.Account)
			c.amount("amount", q.Amount)
			return auction.PlaceBid{Account: q.Account, Amount: q.Amount, User: !seesDrafts(from.principal)}, c.err
		},
	}
}

// placeBid bids for a principal as a request to the route would. key is what a client would send as Idempotency-Key, and
// names the same request here as there: who repeats a bid over the other protocol gets the first one's answer. The
// answer's body is the document of the bid, or of the problem that it was refused with; an error becomes a problem by
// problemOf.
func (s *Server) placeBid(ctx context.Context, p auth.Principal, requestID, id string, q bidRequest, key string) (command.Answer, error) {
	parsed, err := idempotency.ParseKey(key)
	if err != nil {
		return command.Answer{}, err
	}
	bids := s.bids()
	return bids.run(ctx, sender{
		principal: p, requestID: requestID, method: http.MethodPost, path: "/v1/auctions/" + id + "/bids", id: id, key: parsed,
	}, &q, nil)
}
