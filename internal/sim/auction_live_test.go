//go:build unix

package sim_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// script is a live server that says, on its n-th connection, the n-th list of messages, and then breaks the connection
// off. After the last it says nothing more.
type script struct {
	server *httptest.Server
	plays  [][]string

	mu    sync.Mutex
	asked []string // the subscriptions
}

// URL implements [sim.Target].
func (s *script) URL() string { return s.server.URL }

func newScript(t *testing.T, plays ...[]string) *script {
	t.Helper()
	s := &script{plays: plays}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.server.Close)
	return s
}

func (s *script) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/live" || r.Header.Get("Authorization") != "Bearer "+sim.AdminKey {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	_, request, err := conn.Read(r.Context())
	if err != nil {
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, string(request))
	n := len(s.asked)
	s.mu.Unlock()
	if n > len(s.plays) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _, _ = conn.Read(r.Context())
		return
	}
	for _, message := range s.plays[n-1] {
		if conn.Write(r.Context(), websocket.MessageText, []byte(message)) != nil {
			return
		}
	}
}

func (s *script) subscriptions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

const (
	subscribed = `{"op":"subscribed","topic":"auction:1","seq":9}`
	tickNow    = `{"topic":"auction:1","type":"countdown","at":"2026-03-01T12:00:00Z","data":{"round":1,"remaining_ms":5000,"ends_at":"2026-03-01T12:00:05Z"}}`
)

func liveBid(seq int) string {
	return fmt.Sprintf(`{"topic":"auction:1","seq":%d,"type":"bid.placed","at":"2026-03-01T12:00:00Z","data":`+
		`{"account":"ann","amount":5,"previous_amount":0,"round":1,"rank":1}}`, seq)
}

// TestSubscriberResumes loses connections, some of them in odd moments, and has every event once.
func TestSubscriberResumes(t *testing.T) {
	s := newScript(t,
		[]string{subscribed, liveBid(3), tickNow, liveBid(4)},
		nil,
		[]string{subscribed},
		[]string{subscribed, liveBid(5), `{"op":"dropped","topic":"auction:1","last_seq":5}`},
		[]string{subscribed, tickNow, liveBid(6)},
	)
	sub := sim.Subscribe(t.Context(), "auction:1", 2, s)
	testwait.Must(t, testwait.Err(sub.Await(testwait.Context(t, patience), "event 6", func(e replay.Event) bool { return e.Seq == 6 })))
	testwait.Must(t, sub.Close())
	accepted, dropped := sub.Connections()
	if len(sub.Events()) != 4 || len(sub.Ticks()) != 2 || accepted != 4 || dropped != 1 {
		t.Errorf("%d events, %d countdowns, %d connections, %d drops", len(sub.Events()), len(sub.Ticks()), accepted, dropped)
	}
	since := []string{"2", "4", "4", "4", "5"}
	for i, asked := range s.subscriptions()[:len(since)] {
		if want := `{"op":"subscribe","topic":"auction:1","since":` + since[i] + `}`; asked != want {
			t.Errorf("subscription %d: %s, want %s", i, asked, want)
		}
	}
}

// TestSubscriberNoticesBreaches plays streams that break the contract.
func TestSubscriberNoticesBreaches(t *testing.T) {
	tests := map[string]struct {
		plays [][]string
		says  string
	}{
		"gap":                      {[][]string{{subscribed, liveBid(1), liveBid(3)}}, "a gap"},
		"double":                   {[][]string{{subscribed, liveBid(1), liveBid(1)}}, "a double"},
		"gap over a resumption":    {[][]string{{subscribed, liveBid(1)}, {subscribed, liveBid(3)}}, "a gap"},
		"double over a resumption": {[][]string{{subscribed, liveBid(1)}, {subscribed, liveBid(1)}}, "a double"},
		"event unasked":            {[][]string{{liveBid(1)}}, "unexpected message"},
		"another topic":            {[][]string{{subscribed, strings.Replace(liveBid(1), "auction:1", "auction:2", 1)}}, "another topic"},
		"no event":                 {[][]string{{subscribed, `{"topic":"auction:1","seq":1,"type":"bid.placed"}`}}, "breaks the contract"},
		"no JSON":                  {[][]string{{subscribed, `hello`}}, "invalid character"},
		"refused subscription":     {[][]string{{`{"op":"error","topic":"auction:1"}`}}, "unexpected message"},
		"drop of what came":        {[][]string{{subscribed, liveBid(1), `{"op":"dropped","topic":"auction:1","last_seq":2}`}}, "was the last to come"},
		"countdown with a number":  {[][]string{{subscribed, strings.Replace(tickNow, `"type"`, `"seq":1,"type"`, 1)}}, "sequence number"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sub := sim.Subscribe(t.Context(), "auction:1", 0, newScript(t, test.plays...))
			_, err := sub.Await(testwait.Context(t, patience), "the breach", func(replay.Event) bool { return false })
			if !errors.Is(err, sim.ErrStream) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want a breach that says %q", err, test.says)
			}
			if err := sub.Close(); !errors.Is(err, sim.ErrStream) {
				t.Errorf("closed with %v", err)
			}
		})
	}
}
