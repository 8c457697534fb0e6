package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// maxBidID is the longest id of a bid's answer, in bytes of JSON.
const maxBidID = 200

// What a client asks for over a socket.
type (
	subscribeRequest struct {
		Op    string `json:"op"`
		Topic string `json:"topic"`
		Since *int64 `json:"since"`
	}
	unsubscribeRequest struct {
		Op    string `json:"op"`
		Topic string `json:"topic"`
	}
	liveBidRequest struct {
		Op      string         `json:"op"`
		ID      jsontext.Value `json:"id"`
		Auction string         `json:"auction"`
		Account string         `json:"account"`
		Amount  int64          `json:"amount"`
		Key     string         `json:"key"`
	}
)

// liveAnswer is what a client is told beside events.
type liveAnswer struct {
	Op       string         `json:"op"`
	ID       jsontext.Value `json:"id,omitempty"`
	Topic    string         `json:"topic,omitempty"`
	Seq      *int64         `json:"seq,omitempty"`
	LastSeq  *int64         `json:"last_seq,omitempty"`
	FirstSeq *int64         `json:"first_seq,omitempty"` // the oldest event that is kept, with events_expired
	Status   int            `json:"status,omitzero"`
	Data     jsontext.Value `json:"data,omitempty"`
	Problem  jsontext.Value `json:"problem,omitempty"`
}

// execute does what a message asks for.
func (s *socket) execute(data []byte) {
	var head struct {
		Op    string         `json:"op"`
		ID    jsontext.Value `json:"id"`
		Topic jsontext.Value `json:"topic"`
		Rest  jsontext.Value `json:",unknown"`
	}
	err := json.Unmarshal(data, &head)
	if len(head.ID) > maxBidID {
		head.ID = nil
	}
	// Whatever was sent is an operation, and counts.
	if over := s.edge.mayAsk(s.principal); over != nil {
		if head.Op == "bid" { // It has a key, or ought to have one.
			s.refuseKeyed(liveAnswer{Op: "bid", ID: head.ID.Clone()}, "unread", over)
		} else {
			s.refuse(liveAnswer{}, over)
		}
		return
	}
	if err != nil {
		s.refuse(liveAnswer{}, refuse("%s", describe(err)))
		return
	}
	switch head.Op {
	case "subscribe":
		s.subscribe(data)
	case "unsubscribe":
		s.unsubscribe(data)
	case "bid":
		s.bid(data, head.ID)
	default:
		s.refuse(liveAnswer{}, refuse("op must be subscribe, unsubscribe or bid"))
	}
}

// answer hands a message to the writer.
func (s *socket) answer(a liveAnswer) {
	select {
	case s.answers <- mustMarshal(a):
	case <-s.done:
	}
}

// refuse answers with the problem that an error is: a bid's as the bid's answer, any other as an error.
func (s *socket) refuse(a liveAnswer, err error) {
	s.refuseKeyed(a, "", err)
}

// refuseKeyed is refuse for what has a key, unless that is empty.
func (s *socket) refuseKeyed(a liveAnswer, key string, err error) {
	requestID := uuid.Must(uuid.NewV7()).String()
	if _, _, known := classify(err); !known {
		s.edge.s.logger.ErrorContext(s.edge.ctx, "live request failed", "request_id", requestID, "principal", s.principal.ID, "error", err)
	}
	p := problemOf(err, requestID)
	if key != "" {
		p.beforeKey(err)
	}
	if a.Op == "" {
		a.Op = "error"
	} else {
		a.Status = p.Status
	}
	a.Problem = mustMarshal(p)
	s.answer(a)
}

func (s *socket) subscribe(data []byte) {
	var q subscribeRequest
	if err := decode(data, &q); err != nil {
		s.refuse(liveAnswer{}, err)
		return
	}
	a := liveAnswer{Topic: q.Topic}
	if len(q.Topic) > maxTopic {
		a.Topic = ""
	}
	if q.Since != nil && (*q.Since < 0 || *q.Since > ledger.MaxAmount) {
		s.refuse(a, refuse("since must be an integer from 0 to %d", int64(ledger.MaxAmount)))
		return
	}
	if err := mayFollow(s.principal, q.Topic); err != nil {
		s.refuse(a, err)
		return
	}
	// That it worked is told as the subscription's first message, by the writer.
	if err := s.edge.subscribe(s.edge.ctx, s.principal, s.sub, q.Topic, q.Since); err != nil {
		if expired, ok := errors.AsType[*live.ExpiredError](err); ok {
			a.FirstSeq = &expired.First
		}
		s.refuse(a, liveError(err))
	}
}

func (e *liveEdge) subscribe(ctx context.Context, p auth.Principal, sub *live.Subscriber, topic string, since *int64) error {
	if len(topic) > maxTopic {
		return live.ErrNoTopic
	}
	ctx, cancel := context.WithTimeout(ctx, e.times.subscribe)
	defer cancel()
	if !seesDrafts(p) {
		if err := e.s.checkTopic(ctx, p, topic); err != nil && !errors.Is(err, live.ErrNoTopic) {
			return err // Other topics are the hub's to know.
		}
	}
	_, err := sub.Subscribe(ctx, topic, since)
	return err
}

func (s *socket) unsubscribe(data []byte) {
	var q unsubscribeRequest
	if err := decode(data, &q); err != nil {
		s.refuse(liveAnswer{}, err)
		return
	}
	if !s.sub.Unsubscribe(q.Topic) {
		s.refuse(liveAnswer{}, &refusal{kind: notFound, detail: "there is no such subscription"})
		return
	}
	s.answer(liveAnswer{Op: "unsubscribed", Topic: q.Topic})
}

// bid executes a bid beside others. Their answers come in any order and name their request.
func (s *socket) bid(data []byte, id jsontext.Value) {
	a := liveAnswer{Op: "bid", ID: id.Clone()}
	var q liveBidRequest
	if err := decode(data, &q); err != nil {
		s.refuse(a, err)
		return
	}
	if k := q.ID.Kind(); len(q.ID) > maxBidID || len(q.ID) > 0 && k != '"' && k != '0' && k != 'n' {
		s.refuse(a, refuse("id must be a string or a number of at most %d bytes", maxBidID))
		return
	}
	auctionID, err := pathUUID(q.Auction, "auction")
	if err != nil {
		s.refuseKeyed(a, q.Key, err)
		return
	}
	select {
	case s.bids <- struct{}{}:
	case <-s.done:
		return
	}
	s.edge.work.Go(func() {
		defer func() { <-s.bids }()
		s.guard(func() {
			// A bid that was begun is finished, whatever becomes of its socket.
			answer, err := s.edge.s.placeBid(context.Background(), s.principal, uuid.Must(uuid.NewV7()).String(), auctionID,
				bidRequest{Account: q.Account, Amount: q.Amount}, q.Key)
			if err != nil {
				s.refuseKeyed(a, q.Key, err)
				return
			}
			if a.Status = answer.Status; a.Status < http.StatusBadRequest {
				a.Data = answer.Body
			} else {
				a.Problem = answer.Body
			}
			s.answer(a)
		})
	})
}
