package server

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

type bidRequest struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units, of the whole bid and not of the raise"`
}

// op says what is wrong with a bid before any state is looked at.
func (q *bidRequest) op(p auth.Principal) (auction.Op, error) {
	var c checks
	c.id("account", q.Account)
	c.amount("amount", q.Amount)
	return auction.PlaceBid{Account: q.Account, Amount: q.Amount, User: !seesDrafts(p)}, c.err
}

// bidRoute is the one hot route of an auction.
func (s *Server) bidRoute() route {
	return hot(commandRoute("/v1/auctions/{id}/bids", accessUser, http.StatusCreated, "Bid, or raise the account's bid", viewBid,
		mutation[bidRequest, auction.Op]{
			what: "auction", executeOn: s.Auction.Execute,
			account: func(q *bidRequest) string { return q.Account },
			op:      func(r *http.Request, q *bidRequest) (auction.Op, error) { return q.op(infoOf(r).principal) },
		}))
}

// placeBid bids for a principal as a request to that route would. key is what a client would send as Idempotency-Key, and
// names the same request here as there: who repeats a bid over the other protocol gets the first one's answer. The
// answer's body is the document of the bid, or of the problem that it was refused with; an error becomes a problem by
// problemOf.
func (s *Server) placeBid(ctx context.Context, p auth.Principal, requestID string, id uuid.UUID, q bidRequest, key string) (command.Answer, error) {
	parsed, err := idempotency.ParseKey(key)
	if err != nil {
		return command.Answer{}, err
	}
	op, err := q.op(p)
	if err != nil {
		return command.Answer{}, err
	}
	if err := actFor(p, q.Account); err != nil {
		return command.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, edge.CommandTimeout)
	defer cancel()
	path := "/v1/auctions/" + id.String() + "/bids"
	return s.Auction.Execute(ctx, id, newCommand(op, &q, p, idempotency.NewID(p.ID, http.MethodPost, path, parsed), requestID, answered(http.StatusCreated, viewBid)))
}
