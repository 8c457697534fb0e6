package server

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

type bidRequest struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units, of the whole bid and not of the raise"`
}

// postBid serves the one hot route of an auction. The order of its checks is that of every mutation.
func (s *Server) postBid(w http.ResponseWriter, r *http.Request) {
	i := infoOf(r)
	key, err := parseKey(r.Header)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	var q bidRequest
	if err := decode(body, &q); err != nil {
		s.writeProblem(w, r, err)
		return
	}
	if err := q.check(i.principal); err != nil {
		s.writeProblem(w, r, err)
		return
	}
	id, err := pathUUID(r.PathValue("id"), "auction")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	a, err := s.executeBid(r.Context(), i.principal, i.requestID, id, q, key)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	writeAnswer(w, r, a)
}

// placeBid bids for a principal, whatever the request came by. key is what a client would send as Idempotency-Key, and
// names the same request here as there: who repeats a bid over the other protocol gets the first one's answer. The
// answer's body is the document of the bid, or of the problem that it was refused with; an error becomes a problem by
// problemOf.
func (s *Server) placeBid(ctx context.Context, p auth.Principal, requestID string, auctionID uuid.UUID, req bidRequest, key string) (command.Answer, error) {
	parsed, err := idempotency.ParseKey(key)
	if err != nil {
		return command.Answer{}, err
	}
	if err := req.check(p); err != nil {
		return command.Answer{}, err
	}
	return s.executeBid(ctx, p, requestID, auctionID, req, parsed)
}

// check says what is wrong with a bid before any state is looked at.
func (q *bidRequest) check(p auth.Principal) error {
	var c checks
	c.id("account", q.Account)
	c.amount("amount", q.Amount)
	if c.err != nil {
		return c.err
	}
	return actFor(p, q.Account)
}

func (s *Server) executeBid(ctx context.Context, p auth.Principal, requestID string, id uuid.UUID, q bidRequest, key string) (command.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return s.auction.Execute(ctx, id, command.Command[auction.Op]{
		Op: auction.PlaceBid{Account: q.Account, Amount: q.Amount, User: !seesDrafts(p)},
		Key: &idempotency.Request{
			ID:          idempotency.NewID(p.ID, http.MethodPost, "/v1/auctions/"+id.String()+"/bids", key),
			Fingerprint: idempotency.NewFingerprint(mustMarshal(&q)),
			Execution:   uuid.Must(uuid.NewV7()),
		},
		Render:    renderer(http.StatusCreated, of(viewBid), requestID),
		Principal: p.ID,
		RequestID: requestID,
	})
}
