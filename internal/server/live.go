package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

const livePath = "/v1/live"

// defaultMaxStreams bounds the open sockets and streams of a process: each takes some 20 KB.
const defaultMaxStreams = 20_000

// maxTopic is the longest name of a topic, in bytes, that is looked at.
const maxTopic = 200

// The problems of the live stream.
//
//nolint:gochecknoglobals // As the table of problems.
var (
	upgradeRequired = kind{status: http.StatusUpgradeRequired, code: "upgrade_required", title: "The path takes WebSocket handshakes"}
	eventsExpired   = kind{status: http.StatusGone, code: "events_expired", title: "The events are no longer kept"}
	tooManyStreams  = kind{status: http.StatusTooManyRequests, code: "too_many_streams", title: "The credential has as many live connections as it may have", retryable: true}
	tooManyTopics   = kind{status: http.StatusConflict, code: "too_many_subscriptions", title: "The connection has as many subscriptions as it may have"}
)

// LiveOptions are what the live stream is made of. Without a hub its routes answer 503.
type LiveOptions struct {
	Hub *live.Hub
	// AllowedOrigins are the origins, such as https://app.example.com, whose pages may open a socket, besides the server's
	// own.
	AllowedOrigins []string
	// MaxStreams bounds the open sockets and streams; 20,000 when 0.
	MaxStreams int
	// MaxPerPrincipal bounds those of one principal, a key or a user; 0: any number.
	MaxPerPrincipal int
}

// liveTimes are the live stream's times. Tests shorten them.
type liveTimes struct {
	write     time.Duration // for a batch of messages to be taken by the client's network
	linger    time.Duration // for a client that was too slow to take what it was given, and the news that it was
	ping      time.Duration // between two pings
	pong      time.Duration // for its answer
	recheck   time.Duration // between two looks at the credentials: a revoked key is refused within 5 s
	subscribe time.Duration // for the log to say where a topic is
	keepAlive time.Duration // between two comments in a stream of server-sent events
	goodbye   time.Duration // for the answers under way, and again for the close handshake, at the end
}

func defaultLiveTimes() liveTimes {
	return liveTimes{
		write: 10 * time.Second, linger: 30 * time.Second, ping: 30 * time.Second, pong: 20 * time.Second, recheck: time.Second,
		subscribe: 10 * time.Second, keepAlive: 15 * time.Second, goodbye: time.Second,
	}
}

// liveEdge serves the sockets and streams.
type liveEdge struct {
	s       *Server
	hub     *live.Hub
	origins map[string]struct{}
	most    int
	each    int // of one principal; 0: any number
	times   liveTimes

	livePools

	ctx    context.Context //nolint:containedctx // Ends all sockets, whose requests are long over.
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	clients map[*liveClient]struct{}
	streams map[string]int // by the principal's id
	warden  bool
}

// liveClient is an open socket or stream.
type liveClient struct {
	principal  auth.Principal
	credential string // as of an Authorization header
	ping       func() // nil for streams; guarded by liveEdge.mu
	done       chan struct{}
	once       sync.Once
	cause      atomic.Pointer[error]
}

// Reasons for which the server ends a connection.
var (
	errGoingAway  = errors.New("the server is going away")
	errTooSlow    = errors.New("the subscriber is too slow")
	errCredential = errors.New("the credential is no longer valid")
	errGone       = errors.New("the client is gone")
)

// end makes the connection's own goroutine end it. The first reason counts.
func (c *liveClient) end(cause error) {
	c.once.Do(func() {
		c.cause.Store(&cause)
		close(c.done)
	})
}

func newLiveEdge(s *Server, o LiveOptions) *liveEdge {
	e := &liveEdge{
		s: s, hub: o.Hub, origins: map[string]struct{}{}, most: o.MaxStreams, each: o.MaxPerPrincipal, times: defaultLiveTimes(),
		clients: map[*liveClient]struct{}{}, streams: map[string]int{},
	}
	if e.most <= 0 {
		e.most = defaultMaxStreams
	}
	e.batches.New, e.buffers.New = newBatch, newBuffer
	for _, origin := range o.AllowedOrigins {
		e.origins[strings.ToLower(strings.TrimSuffix(origin, "/"))] = struct{}{}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// routes are the live stream's.
func (e *liveEdge) routes() []route {
	socket := get(livePath, accessUser, doc[none, none]("Events as they happen, and bids, over a WebSocket"), e.getSocket)
	socket.status = http.StatusSwitchingProtocols
	events := doc[none, none]("Events as they happen, as server-sent events")
	events.query = []parameter{
		{name: "topic", doc: "auction:ID, campaign:ID or multidraw:ID", schema: reflect.TypeFor[string]()},
		{name: "since", doc: "replay the events above this number first; the header Last-Event-ID goes before it", schema: reflect.TypeFor[int64]()},
	}
	return []route{socket, get("/v1/events", accessUser, events, e.getEvents)}
}

// close ends all sockets and streams and waits for them, up to ctx. No new ones are taken.
func (e *liveEdge) close(ctx context.Context) error {
	e.mu.Lock()
	e.cancel()
	e.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.work.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("server: live connections were still open: %w", ctx.Err())
	}
}

// admit makes a client of a request that was authenticated. It must leave in the end.
func (e *liveEdge) admit(r *http.Request) (*liveClient, error) {
	credential, err := credentialOf(r)
	if err != nil {
		return nil, err
	}
	c := &liveClient{principal: infoOf(r).principal, credential: credential, done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.hub == nil:
		return nil, &refusal{kind: unavailable, detail: "this server has no live stream"}
	case e.ctx.Err() != nil:
		return nil, &refusal{kind: shuttingDown, detail: "the server is shutting down"}
	case len(e.clients) >= e.most:
		return nil, &refusal{kind: overloaded, detail: "the server has as many live connections as it may have"}
	case e.each > 0 && e.streams[c.principal.ID] >= e.each:
		return nil, &refusal{kind: tooManyStreams, detail: fmt.Sprintf("this credential has its %d live connections already", e.each)}
	}
	e.clients[c] = struct{}{}
	e.streams[c.principal.ID]++
	e.work.Add(1)
	if !e.warden {
		e.warden = true
		e.work.Go(e.watch)
	}
	return c, nil
}

func (e *liveEdge) leave(c *liveClient) {
	e.mu.Lock()
	delete(e.clients, c)
	if e.streams[c.principal.ID]--; e.streams[c.principal.ID] <= 0 {
		delete(e.streams, c.principal.ID)
	}
	e.mu.Unlock()
	e.work.Done()
}

// watch looks after all clients, as long as there are any: whether their credentials are still good, and whether they are
// still there. One goroutine does it, so that a quiet client costs no timers.
func (e *liveEdge) watch() {
	tick := time.NewTicker(e.times.recheck)
	defer tick.Stop()
	pinged := time.Now()
	for {
		select {
		case <-e.ctx.Done():
			return
		case now := <-tick.C:
			e.mu.Lock()
			if len(e.clients) == 0 {
				e.warden = false
				e.mu.Unlock()
				return
			}
			ping := now.Sub(pinged) >= e.times.ping
			clients := make([]*liveClient, 0, len(e.clients))
			for c := range e.clients {
				clients = append(clients, c)
				if ping && c.ping != nil {
					e.work.Go(c.ping)
				}
			}
			e.mu.Unlock()
			if ping {
				pinged = now
			}
			e.recheck(clients)
		}
	}
}

// recheck ends the clients whose credential was revoked or has expired. One that cannot be checked now stays.
func (e *liveEdge) recheck(clients []*liveClient) {
	verdicts := map[string]error{}
	for _, c := range clients {
		err, known := verdicts[c.credential]
		if !known {
			ctx, cancel := context.WithTimeout(e.ctx, e.times.recheck)
			_, err = e.s.identify(ctx, c.credential)
			cancel()
			verdicts[c.credential] = err
		}
		if errors.Is(err, auth.ErrBadCredential) {
			c.end(errCredential)
		}
	}
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

// checkOrigin refuses a page of somebody else. Programs that are no browsers send no Origin.
func (e *liveEdge) checkOrigin(r *http.Request) error {
	values := r.Header["Origin"]
	if len(values) == 0 {
		return nil
	}
	if len(values) == 1 {
		origin := strings.ToLower(values[0])
		if _, ok := e.origins[origin]; ok {
			return nil
		}
		u, err := url.Parse(origin)
		web := err == nil && (u.Scheme == "http" || u.Scheme == "https")
		if web && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
			return nil
		}
	}
	return &refusal{kind: forbidden, detail: "this origin may not open a live connection"}
}

// liveError makes refusals of the hub's errors.
func liveError(err error) error {
	expired, ok := errors.AsType[*live.ExpiredError](err)
	switch {
	case ok:
		return &refusal{kind: eventsExpired, detail: expired.Error()}
	case errors.Is(err, live.ErrNoTopic):
		return &refusal{kind: notFound, detail: live.ErrNoTopic.Error()}
	case errors.Is(err, live.ErrTooManyTopics):
		return &refusal{kind: tooManyTopics, detail: live.ErrTooManyTopics.Error()}
	case errors.Is(err, live.ErrClosed):
		return &refusal{kind: shuttingDown, detail: "the server is shutting down"}
	}
	return err
}

// mayAsk counts something that a live client asks for against its rate.
func (e *liveEdge) mayAsk(p auth.Principal) error {
	if e.s.limiter == nil || e.s.limiter.Allow(p).Allowed {
		return nil
	}
	return &refusal{kind: rateLimited, detail: "the rate limit of this credential is used up"}
}

type purchaseMadeView struct {
	Account  string    `json:"account"`
	Position placeView `json:"position"`
}

// PurchaseMade is the data of the event purchase.made.
func PurchaseMade(p lottery.Purchase) json.RawMessage {
	return mustMarshal(purchaseMadeView{Account: p.Account, Position: viewPlace(p.Position)})
}

// DrawCompleted is the data of the event draw.completed: the draw as its route shows it.
func DrawCompleted(d *lottery.Draw) json.RawMessage { return mustMarshal(viewDraw(d)) }
