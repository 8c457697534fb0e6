package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	serverlive "github.com/fairlead-dev/fairlead/internal/server/live"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// liveEnv is the live stream over a server's database, on a listener of its own.
type liveEnv struct {
	*env

	edge *serverlive.Edge
	hub  *live.Hub
	url  string
	http *http.Client
}

// newLiveEnv has a hub that follows the database by polling alone; adjust may be nil.
func newLiveEnv(t *testing.T, e *env, o live.Options, adjust func(*LiveOptions)) *liveEnv {
	t.Helper()
	return newHastyLiveEnv(t, e, o, adjust, patience)
}

// newHastyLiveEnv has a listener that gives requests so long to be read, and again to be answered, as any server does.
func newHastyLiveEnv(t *testing.T, e *env, o live.Options, adjust func(*LiveOptions), limit time.Duration) *liveEnv {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 4, Patience: patience, UnavailableAfter: patience})
	must(t, err)
	events := postgres.NewEvents(db, postgres.EventViews{Purchase: PurchaseMade, Draw: DrawCompleted})
	o.Log, o.Notices = events, events.Notices()
	o.PollEvery = 5 * time.Millisecond
	l := &liveEnv{env: e, hub: live.New(o)}
	options := LiveOptions{Hub: l.hub, AllowedOrigins: []string{"https://App.example/"}, Logger: e.server.Logger, Times: serverlive.DefaultTimes()}
	options.Times.Pong, options.Times.Subscribe = patience, patience // A machine that stalls is no client that is gone.
	if adjust != nil {
		adjust(&options)
	}
	l.edge = serverlive.New(liveServer{e.server}, options)
	handler := e.server.outermost(e.server.mux(liveRoutes(l.edge)))
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if credential, err := credentialOf(r); err == nil {
			r.Header.Set("Authorization", credential)
		}
		handler.ServeHTTP(w, r)
	}))
	listener.Config.ReadTimeout, listener.Config.WriteTimeout = limit, limit
	listener.Start()
	l.url = listener.URL
	transport := &http.Transport{}
	l.http = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.hub.Run(ctx) })
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ending, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		testwait.Check(t, l.edge.Close(ending))
		listener.Close()
		cancel()
		l.hub.Close()
		running.Wait()
		db.Close()
	})
	return l
}

// dial opens a socket; header is added to the credential of e.as.
func (l *liveEnv) dial(header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	l.t.Helper()
	h := http.Header{}
	if l.as != "" {
		h.Set("Authorization", "Bearer "+l.as)
	}
	maps.Copy(h, header)
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	return websocket.Dial(ctx, l.url+livePath, &websocket.DialOptions{HTTPClient: l.http, HTTPHeader: h, Subprotocols: protocols})
}

// wsClient is a client of the tests.
type wsClient struct {
	t  testing.TB
	ws *websocket.Conn
}

func (l *liveEnv) connect() *wsClient {
	l.t.Helper()
	ws, _, err := l.dial(nil)
	must(l.t, err)
	ws.SetReadLimit(1 << 20)
	l.t.Cleanup(func() { _ = ws.CloseNow() })
	return &wsClient{t: l.t, ws: ws}
}

func (c *wsClient) say(format string, args ...any) {
	c.t.Helper()
	must(c.t, c.ws.Write(c.t.Context(), websocket.MessageText, fmt.Appendf(nil, format, args...)))
}

// heard is any message of the server.
type heard struct {
	Op       string
	ID       any
	Topic    string
	Seq      *int64
	LastSeq  *int64 `json:"last_seq"`
	FirstSeq *int64 `json:"first_seq"`
	Type     string
	At       string
	Status   int
	Replayed bool
	Data     map[string]any
	Problem  *Problem
}

func (c *wsClient) hear() heard {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, raw, err := c.ws.Read(ctx)
	must(c.t, err)
	var h heard
	must(c.t, json.Unmarshal(raw, &h))
	return h
}

// ended reads until the connection ends, and returns its close code and the last message.
func (c *wsClient) ended() (websocket.StatusCode, heard) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var last heard
	for {
		_, raw, err := c.ws.Read(ctx)
		if err != nil {
			return websocket.CloseStatus(err), last
		}
		last = heard{}
		must(c.t, json.Unmarshal(raw, &last))
	}
}

func (c *wsClient) subscribe(topic, more string) int64 {
	c.t.Helper()
	c.say(`{"op":"subscribe","topic":%q%s}`, topic, more)
	h := c.hear()
	if h.Op != "subscribed" || h.Topic != topic || h.Seq == nil {
		c.t.Fatalf("subscribe %s: %+v, problem %+v", topic, h, h.Problem)
	}
	return *h.Seq
}

// event hears the event of this number and type.
func (c *wsClient) event(seq int64, kind string) heard {
	c.t.Helper()
	h := c.hear()
	if h.Seq == nil || *h.Seq != seq || h.Type != kind || h.Op != "" {
		c.t.Fatalf("want %s %d, got %+v", kind, seq, h)
	}
	if at, err := time.Parse(time.RFC3339, h.At); err != nil || !strings.HasSuffix(h.At, "Z") || time.Since(at) > time.Hour {
		c.t.Errorf("at %q", h.At)
	}
	return h
}

// grow commits n cheap events of an auction at once, as another process would: bids, whose rows are the events.
func (l *liveEnv) grow(id string, n int) {
	l.t.Helper()
	conn := l.env.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	_, err := conn.Exec(l.t.Context(), `WITH a AS (UPDATE auctions SET seq = seq + $2, version = version + 1, revision = gen_random_uuid() WHERE id = $1 RETURNING seq)
		INSERT INTO auction_events (auction, seq, type, at, data)
		SELECT $1, a.seq - $2 + i, 'test', clock_timestamp(), '{"filler":"' || repeat('x', 400) || '"}' FROM a, generate_series(1, $2) AS i`, id, n)
	must(l.t, err)
}
