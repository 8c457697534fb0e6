// Package live serves the live stream over HTTP: WebSockets, over which clients follow topics and bid, and server-sent
// events, which follow one topic. The events are those of a hub of internal/live; the rest of the server is known by [Server].
//
// One goroutine looks after all connections: it pings them, and ends those whose credential is no longer good. A client that
// reads too slowly gets a notice and is dropped; nobody waits for it.
package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/auth"
	hub "github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// defaultMaxStreams bounds the open sockets and streams of a process: each takes some 20 KB.
const defaultMaxStreams = 20_000

// maxTopic is the longest name of a topic, in bytes, that is looked at.
const maxTopic = 200

// The problems of the live stream.
//
//nolint:gochecknoglobals // As the table of problems.
var (
	upgradeRequired = edge.Kind{Status: http.StatusUpgradeRequired, Code: "upgrade_required", Title: "The path takes WebSocket handshakes"}
	eventsExpired   = edge.Kind{Status: http.StatusGone, Code: "events_expired", Title: "The events are no longer kept"}
	unknownSeq      = edge.Kind{Status: http.StatusGone, Code: "unknown_seq", Title: "The number is not of this history"}
	tooManyStreams  = edge.Kind{Status: http.StatusTooManyRequests, Code: "too_many_streams", Title: "The credential has as many live connections as it may have", Retryable: true}
	tooManyTopics   = edge.Kind{Status: http.StatusConflict, Code: "too_many_subscriptions", Title: "The connection has as many subscriptions as it may have"}
)

// Problems lists them for the catalogue.
func Problems() []edge.Kind {
	return []edge.Kind{upgradeRequired, eventsExpired, unknownSeq, tooManyStreams, tooManyTopics}
}

// Server is what the live stream needs of the server whose routes it serves.
type Server interface {
	// Caller finds the credential of a request, and who it was found to be of.
	Caller(r *http.Request) (credential string, p auth.Principal, err error)
	// Identify finds out, again, who a credential is of.
	Identify(ctx context.Context, credential string) (auth.Principal, error)
	// Count counts something that was asked for against the principal's rate, and refuses what is over it.
	Count(p auth.Principal) error
	// MayFollow refuses the topics that a principal may not see, and knows nothing of others.
	MayFollow(ctx context.Context, p auth.Principal, topic string) error
	// Bid bids under a key.
	Bid(ctx context.Context, p auth.Principal, auction, account string, amount int64, key string) (Result, error)
	// Commands executes the body of a POST /v1/commands that was counted as one request, and returns the document of the results.
	Commands(ctx context.Context, p auth.Principal, body []byte) (results []byte, err error)
	// Problem makes the problem that an error is. A request that is keyed is carried out once under its key.
	Problem(p auth.Principal, err error, keyed bool) (status int, body []byte)
}

// Result is the answer to what was to be done. It is replayed where it is that to an earlier request under the key.
type Result struct {
	Status   int
	Body     []byte
	Replayed bool
}

// Options are what the live stream is made of. Without a hub its routes answer 503.
type Options struct {
	Hub *hub.Hub
	// AllowedOrigins are the origins, such as https://app.example.com, whose pages may open a socket, besides the server's
	// own.
	AllowedOrigins  []string
	MaxStreams      int // bounds the open sockets and streams; 20,000 when 0
	MaxPerPrincipal int // bounds those of one principal, a key or a user; 0: any number
	Logger          *slog.Logger
	Times           *Times // nil for the usual ones
}

// Times are the live stream's times. Tests change them.
type Times struct {
	Write     time.Duration // for a batch of messages to be taken by the client's network
	Linger    time.Duration // for a client that was too slow to take what it was given, and the news that it was
	Ping      time.Duration // between two pings
	Pong      time.Duration // for its answer
	Recheck   time.Duration // between two looks at the credentials: a revoked key is refused within 5 s
	Subscribe time.Duration // for the log to say where a topic is
	KeepAlive time.Duration // between two comments in a stream of server-sent events
	Goodbye   time.Duration // for the answers under way, and again for the close handshake, at the end
}

// DefaultTimes are the usual ones.
func DefaultTimes() *Times {
	return &Times{
		Write: 10 * time.Second, Linger: 30 * time.Second, Ping: 30 * time.Second, Pong: 20 * time.Second, Recheck: time.Second,
		Subscribe: 10 * time.Second, KeepAlive: 15 * time.Second, Goodbye: time.Second,
	}
}

// Edge serves the sockets and streams.
type Edge struct {
	Options

	s       Server
	origins map[string]struct{}

	pools

	ctx    context.Context //nolint:containedctx // Ends all sockets, whose requests are long over.
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	clients map[*client]struct{}
	streams map[string]int // by the principal's id
	watched bool           // by the goroutine that looks after all clients
}

// client is an open socket or stream.
type client struct {
	principal  auth.Principal
	credential string // as of an Authorization header
	ping       func() // nil for streams; guarded by Edge.mu
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
func (c *client) end(cause error) {
	c.once.Do(func() {
		c.cause.Store(&cause)
		close(c.done)
	})
}

// New makes the edge of a server's live stream. Its owner closes it.
func New(s Server, o Options) *Edge {
	if o.Times == nil {
		o.Times = DefaultTimes()
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	e := &Edge{Options: o, s: s, origins: map[string]struct{}{}, clients: map[*client]struct{}{}, streams: map[string]int{}}
	e.batches.New, e.buffers.New = newBatch, newBuffer
	for _, origin := range o.AllowedOrigins {
		if origin, err := ParseOrigin(origin); err == nil {
			e.origins[origin] = struct{}{}
		}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Close ends all sockets and streams and waits for them, up to ctx. No new ones are taken.
func (e *Edge) Close(ctx context.Context) error {
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

// Connections is how many sockets and streams are open.
func (e *Edge) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.clients)
}

// admit makes a client of a request that was authenticated. It must leave in the end.
func (e *Edge) admit(r *http.Request) (*client, error) {
	credential, principal, err := e.s.Caller(r)
	if err != nil {
		return nil, err
	}
	c := &client{principal: principal, credential: credential, done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.Hub == nil:
		return nil, &edge.Refusal{Kind: edge.Unavailable, Detail: "this server has no live stream"}
	case e.ctx.Err() != nil:
		return nil, &edge.Refusal{Kind: edge.ShuttingDown, Detail: "the server is shutting down"}
	case len(e.clients) >= e.MaxStreams:
		return nil, &edge.Refusal{Kind: edge.Overloaded, Detail: "the server has as many live connections as it may have"}
	case e.MaxPerPrincipal > 0 && e.streams[c.principal.ID] >= e.MaxPerPrincipal:
		return nil, &edge.Refusal{Kind: tooManyStreams, Detail: fmt.Sprintf("this credential has its %d live connections already", e.MaxPerPrincipal)}
	}
	e.clients[c] = struct{}{}
	e.streams[c.principal.ID]++
	e.work.Add(1)
	if !e.watched {
		e.watched = true
		e.work.Go(e.watch)
	}
	return c, nil
}

func (e *Edge) leave(c *client) {
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
func (e *Edge) watch() {
	tick := time.NewTicker(e.Times.Recheck)
	defer tick.Stop()
	pinged := time.Now()
	for {
		select {
		case <-e.ctx.Done():
			return
		case now := <-tick.C:
			e.mu.Lock()
			if len(e.clients) == 0 {
				e.watched = false
				e.mu.Unlock()
				return
			}
			ping := now.Sub(pinged) >= e.Times.Ping
			clients := make([]*client, 0, len(e.clients))
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
func (e *Edge) recheck(clients []*client) {
	verdicts := map[string]error{}
	for _, c := range clients {
		err, known := verdicts[c.credential]
		if !known {
			ctx, cancel := context.WithTimeout(e.ctx, e.Times.Recheck)
			_, err = e.s.Identify(ctx, c.credential)
			cancel()
			verdicts[c.credential] = err
		}
		if errors.Is(err, auth.ErrBadCredential) {
			c.end(errCredential)
		}
	}
}

// checkOrigin refuses a page of somebody else. Programs that are no browsers send no Origin.
func (e *Edge) checkOrigin(r *http.Request) error {
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
	return &edge.Refusal{Kind: edge.Forbidden, Detail: "this origin may not open a live connection"}
}

// refusalOf makes refusals of the hub's errors.
func refusalOf(err error) error {
	expired, ok := errors.AsType[*hub.ExpiredError](err)
	ahead, unknown := errors.AsType[*hub.AheadError](err)
	switch {
	case unknown:
		return &edge.Refusal{Kind: unknownSeq, Detail: ahead.Error()}
	case ok:
		return &edge.Refusal{Kind: eventsExpired, Detail: expired.Error()}
	case errors.Is(err, hub.ErrNoTopic):
		return &edge.Refusal{Kind: edge.NotFound, Detail: hub.ErrNoTopic.Error()}
	case errors.Is(err, hub.ErrTooManyTopics):
		return &edge.Refusal{Kind: tooManyTopics, Detail: hub.ErrTooManyTopics.Error()}
	case errors.Is(err, hub.ErrClosed):
		return &edge.Refusal{Kind: edge.ShuttingDown, Detail: "the server is shutting down"}
	}
	return err
}
