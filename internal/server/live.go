package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	hub "github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/server/live"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/multidraw"
)

const livePath = "/v1/live"

// LiveOptions are what the live stream is made of. Without a hub its routes answer 503.
type LiveOptions = live.Options

// liveRoutes are the live stream's.
func liveRoutes(e *live.Edge) []route {
	socket := get(livePath, accessUser, doc[none, none]("Events as they happen, and bids, over a WebSocket"), e.Socket)
	socket.status = http.StatusSwitchingProtocols
	events := doc[none, none]("Events as they happen, as server-sent events")
	events.query = []parameter{
		{name: "topic", doc: "auction:ID, campaign:ID, multidraw:ID or account:ID", schema: reflect.TypeFor[string]()},
		{name: "since", doc: "replay the events above this number first; the header Last-Event-ID goes before it", schema: reflect.TypeFor[int64]()},
	}
	return []route{socket, get("/v1/events", accessUser, events, func(w http.ResponseWriter, r *http.Request) error {
		err := e.Events(w, r)
		infoOf(r).untimed = err == nil // It was a stream.
		return err
	})}
}

// liveServer is the server as its live stream sees it.
type liveServer struct{ *Server }

var _ live.Server = liveServer{}

// Caller implements [live.Server].
func (liveServer) Caller(r *http.Request) (string, auth.Principal, error) {
	credential, err := credentialOf(r)
	return credential, infoOf(r).principal, err
}

// Identify implements [live.Server].
func (s liveServer) Identify(ctx context.Context, credential string) (auth.Principal, error) {
	return s.identify(ctx, credential)
}

// Count implements [live.Server].
func (s liveServer) Count(p auth.Principal) error {
	if s.Limiter == nil {
		return nil
	}
	if d := s.Limiter.Allow(p); !d.Allowed {
		return errRate(d)
	}
	return nil
}

// MayFollow implements [live.Server]. Users are refused the events of what they may not read. Whether there is an account is looked up
// here, because its topic has no log that would know.
func (s liveServer) MayFollow(ctx context.Context, p auth.Principal, topic string) error {
	if p.Role == auth.RoleUser && strings.HasPrefix(topic, multidraw.TopicPrefix) {
		return &refusal{Kind: edge.Forbidden, Detail: "this topic is not open to users"}
	}
	if account, ok := strings.CutPrefix(topic, ledger.TopicPrefix); ok {
		err := actFor(p, account)
		if err == nil {
			_, err = pathAccount(account)
		}
		if err == nil {
			_, err = s.Ledger.Account(ctx, account)
		}
		return err
	}
	if seesDrafts(p) {
		return nil
	}
	if err := s.checkTopic(ctx, p, topic); !errors.Is(err, hub.ErrNoTopic) {
		return err
	}
	return nil // Other topics are the hub's to know.
}

// Bid implements [live.Server].
func (s liveServer) Bid(ctx context.Context, p auth.Principal, auction, account string, amount int64, key string) (live.Result, error) {
	a, err := s.placeBid(ctx, p, uuid.Must(uuid.NewV7()).String(), auction, bidRequest{Account: account, Amount: amount}, key)
	return live.Result{Status: a.Status, Body: a.Body, Replayed: a.Replayed}, err
}

// Commands implements [live.Server].
func (s liveServer) Commands(ctx context.Context, p auth.Principal, body []byte) (results []byte, err error) {
	return s.commands(ctx, p, uuid.Must(uuid.NewV7()).String(), http.Header{}, body)
}

// Problem implements [live.Server].
func (s liveServer) Problem(by auth.Principal, err error, keyed bool) (status int, body []byte) {
	p := s.problem(context.Background(), err, uuid.Must(uuid.NewV7()).String(), keyed, "principal", by.ID)
	return p.Status, mustMarshal(p)
}

// credentialOf finds a request's credential. Browsers cannot set a header on a WebSocket, so its handshake may carry it
// in the list of subprotocols; the header goes before.
func credentialOf(r *http.Request) (string, error) {
	credential, err := auth.Authorization(r.Header)
	if errors.Is(err, auth.ErrNoCredential) && r.URL.Path == livePath {
		credential, err = auth.SubprotocolAuthorization(r.Header)
	}
	if errors.Is(err, auth.ErrNoCredential) {
		if session := sessionOf(r); session != "" {
			return session, nil
		}
	}
	return credential, err
}

type purchaseMadeView struct {
	Account  string    `json:"account"`
	Position placeView `json:"position"`
}

// PurchaseMade is the data of the event purchase.made.
func PurchaseMade(p lottery.Purchase) json.RawMessage {
	return edge.Marshal(purchaseMadeView{Account: p.Account, Position: viewPlace(p.Position)})
}

// DrawCompleted is the data of the event draw.completed: the draw as its route shows it.
func DrawCompleted(d *lottery.Draw) json.RawMessage { return edge.Marshal(viewDraw(d)) }
