package live

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairlead-dev/fairlead/internal/auth"
	hub "github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
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
	bidRequest struct {
		Op      string         `json:"op"`
		ID      jsontext.Value `json:"id"`
		Auction string         `json:"auction"`
		Account string         `json:"account"`
		Amount  int64          `json:"amount"`
		Key     string         `json:"key"`
	}
	commandsRequest struct {
		Op       string         `json:"op"`
		ID       jsontext.Value `json:"id"`
		Commands jsontext.Value `json:"commands"`
	}
)

// answer is a message to a client that is no event.
type answer struct {
	Op       string         `json:"op"`
	ID       jsontext.Value `json:"id,omitempty"`
	Topic    string         `json:"topic,omitempty"`
	Seq      *int64         `json:"seq,omitempty"`
	LastSeq  *int64         `json:"last_seq,omitempty"`  // the last that was given; with unknown_seq the last that there is
	FirstSeq *int64         `json:"first_seq,omitempty"` // the oldest event that is kept, with events_expired
	Status   int            `json:"status,omitzero"`
	Replayed bool           `json:"replayed,omitzero"` // of a bid
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
	if over := s.edge.s.Count(s.principal); over != nil {
		if head.Op == "bid" || head.Op == "commands" { // It has a key, or ought to have one.
			s.refuseKeyed(answer{Op: head.Op, ID: head.ID.Clone()}, "unread", over)
		} else {
			s.refuse(answer{}, over)
		}
		return
	}
	if err != nil {
		s.refuse(answer{}, edge.Refuse("%s", edge.Describe(err)))
		return
	}
	switch head.Op {
	case "subscribe":
		s.subscribe(data)
	case "unsubscribe":
		s.unsubscribe(data)
	case "bid":
		s.bid(data, head.ID)
	case "commands":
		s.commands(data, head.ID)
	default:
		s.refuse(answer{}, edge.Refuse("op must be subscribe, unsubscribe, bid or commands"))
	}
}

// answer hands a message to the writer.
func (s *socket) answer(a answer) {
	select {
	case s.answers <- edge.Marshal(a):
	case <-s.done:
	}
}

// refuse answers with the problem that an error is: a bid's as the bid's answer, any other as an error.
func (s *socket) refuse(a answer, err error) {
	s.refuseKeyed(a, "", err)
}

// refuseKeyed is refuse for what has a key, unless that is empty.
func (s *socket) refuseKeyed(a answer, key string, err error) {
	status, problem := s.edge.s.Problem(s.principal, err, key != "")
	if a.Op == "" {
		a.Op = "error"
	} else {
		a.Status = status
	}
	a.Problem = problem
	s.answer(a)
}

func (s *socket) subscribe(data []byte) {
	var q subscribeRequest
	if err := edge.Decode(data, &q); err != nil {
		s.refuse(answer{}, err)
		return
	}
	a := answer{Topic: q.Topic}
	if len(q.Topic) > maxTopic {
		a.Topic = ""
	}
	if q.Since != nil && (*q.Since < 0 || *q.Since > ledger.MaxAmount) {
		s.refuse(a, edge.Refuse("since must be an integer from 0 to %d", int64(ledger.MaxAmount)))
		return
	}
	// The writer confirms it with the subscription's first message.
	if err := s.edge.subscribe(s.edge.ctx, s.principal, s.sub, q.Topic, q.Since); err != nil {
		if expired, ok := errors.AsType[*hub.ExpiredError](err); ok {
			a.FirstSeq = &expired.First
		}
		if ahead, ok := errors.AsType[*hub.AheadError](err); ok {
			a.LastSeq = &ahead.Last
		}
		s.refuse(a, refusalOf(err))
	}
}

func (e *Edge) subscribe(ctx context.Context, p auth.Principal, sub *hub.Subscriber, topic string, since *int64) error {
	ctx, cancel := context.WithTimeout(ctx, e.Times.Subscribe)
	defer cancel()
	if err := e.s.MayFollow(ctx, p, topic); err != nil {
		return err
	}
	if len(topic) > maxTopic {
		return hub.ErrNoTopic
	}
	_, err := sub.Subscribe(ctx, topic, since)
	return err
}

func (s *socket) unsubscribe(data []byte) {
	var q unsubscribeRequest
	if err := edge.Decode(data, &q); err != nil {
		s.refuse(answer{}, err)
		return
	}
	if !s.sub.Unsubscribe(q.Topic) {
		s.refuse(answer{}, &edge.Refusal{Kind: edge.NotFound, Detail: "there is no such subscription"})
		return
	}
	s.answer(answer{Op: "unsubscribed", Topic: q.Topic})
}

// bid executes a bid beside others.
func (s *socket) bid(data []byte, id jsontext.Value) {
	a := answer{Op: "bid", ID: id.Clone()}
	var q bidRequest
	if err := edge.Decode(data, &q); err != nil {
		s.refuse(a, err)
		return
	}
	s.beside(a, q.ID, q.Key, func(ctx context.Context) (Result, error) {
		return s.edge.s.Bid(ctx, s.principal, q.Auction, q.Account, q.Amount, q.Key)
	})
}

// commands executes a batch of commands beside others.
func (s *socket) commands(data []byte, id jsontext.Value) {
	a := answer{Op: "commands", ID: id.Clone()}
	var q commandsRequest
	if err := edge.Decode(data, &q); err != nil {
		s.refuse(a, err)
		return
	}
	body := edge.Marshal(struct {
		Commands jsontext.Value `json:"commands,omitempty"`
	}{q.Commands})
	s.beside(a, q.ID, "", func(ctx context.Context) (Result, error) {
		results, err := s.edge.s.Commands(ctx, s.principal, body)
		return Result{Status: http.StatusOK, Body: results}, err
	})
}

// beside executes a request beside others, up to maxBids of them at a time. Their answers come in any order and name their requests by
// id. key is that of the request, if it has one.
func (s *socket) beside(a answer, id jsontext.Value, key string, execute func(context.Context) (Result, error)) {
	if k := id.Kind(); len(id) > maxBidID || len(id) > 0 && k != '"' && k != '0' && k != 'n' {
		s.refuse(a, edge.Refuse("id must be a string or a number of at most %d bytes", maxBidID))
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
			// What was begun is finished, whatever becomes of its socket.
			done, err := execute(context.Background())
			if err != nil {
				s.refuseKeyed(a, key, err)
				return
			}
			if a.Status, a.Replayed = done.Status, done.Replayed; a.Status < http.StatusBadRequest {
				a.Data = done.Body
			} else {
				a.Problem = done.Body
			}
			s.answer(a)
		})
	})
}
