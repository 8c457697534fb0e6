//go:build unix

package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// arrival is an event as a receiver got it.
type arrival struct {
	id, topic, body string
	seq             int64
}

// porch is a receiver that keeps all that arrives, in order.
type porch struct {
	*httptest.Server

	mu       sync.Mutex
	arrivals []arrival
	hold     func(arrival) // called before the answer
}

func newPorch(t *testing.T) *porch {
	t.Helper()
	p := &porch{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Topic string `json:"topic"`
			Seq   int64  `json:"seq"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		a := arrival{r.Header.Get("webhook-id"), e.Topic, string(body), e.Seq}
		p.arrivals = append(p.arrivals, a)
		hold := p.hold
		p.mu.Unlock()
		if hold != nil {
			hold(a)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// of are the arrivals of a topic.
func (p *porch) of(topic string) (out []arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.arrivals {
		if a.topic == topic {
			out = append(out, a)
		}
	}
	return out
}

// patientArgs are those of servers whose leader is replaced late, so that few are that live.
func patientArgs() []string {
	return []string{"--allow-private-targets", "--retry-backoff", "20ms", "--leader-ttl", "5s"}
}

// holding has a function called before each answer.
func (p *porch) holding(hold func(arrival)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = hold
}

// reports tells whether a server's metrics have this line.
func reports(t *testing.T, server *sim.Server, line string) bool {
	t.Helper()
	return bytes.Contains(metricsOf(t, server), []byte("\n"+line+"\n"))
}

// target makes a target at the porch, which waits long for an answer.
func (p *porch) target(t *testing.T, server *sim.Server, name string) (id string) {
	t.Helper()
	return post(t, clientOf(t, server), "/v1/targets", fmt.Sprintf(`{"name":%q,"kind":"webhook","url":%q,"config":{"timeout":"1m"}}`, name, p.URL)).ID
}

// lot is an auction with events, on which one account bids.
type lot struct {
	id, topic string
	last      int64 // number of the last event
	amount    int
}

func newLot(t *testing.T, server *sim.Server, bids int) *lot {
	t.Helper()
	c, who := clientOf(t, server), uuid.NewString()
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), c, []string{who}, 1_000_000))
	l := &lot{id: post(t, c, "/v1/auctions", fmt.Sprintf(`{"title":"lot","currency":"SIM","seller":%q,"cooldown":"0s","rounds":[{"winners":1,"duration":"24h"}]}`, who)).ID}
	l.topic = "auction:" + l.id
	post(t, c, "/v1/auctions/"+l.id+"/start", `{}`)
	l.bid(t, server, bids)
	return l
}

// bid makes events.
func (l *lot) bid(t *testing.T, server *sim.Server, n int) {
	t.Helper()
	c, who := clientOf(t, server), uuid.NewString()
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), c, []string{who}, 1_000_000))
	for range n {
		l.amount++
		l.last = post(t, c, "/v1/auctions/"+l.id+"/bids", fmt.Sprintf(`{"account":%q,"amount":%d}`, who, l.amount)).Seq
	}
}

// progress is what a server says of a subscription's topic, its place alone where it has none yet.
func progress(t *testing.T, server *sim.Server, subscription, topic string) (state string, seq int64, lastError string) {
	t.Helper()
	var found made
	testwait.Must(t, clientOf(t, server).GetJSON(testwait.Context(t, patience), "/v1/subscriptions/"+subscription+"/topics", &found))
	for _, item := range found.Items {
		if item.Topic == topic {
			return item.State, item.Seq, string(item.LastError)
		}
	}
	return "", 0, ""
}

// placeOf is a subscription's place in a topic, and the term of the leader that has moved it.
func placeOf(t *testing.T, database, subscription, topic string) (seq, term int64) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	row := conn.QueryRow(t.Context(), `SELECT seq, term FROM subscription_topics WHERE subscription = $1 AND topic = $2`, subscription, topic)
	testwait.Must(t, row.Scan(&seq, &term))
	testwait.Check(t, conn.Close(t.Context()))
	return seq, term
}

// awaitCurrent waits until a server says that all of a topic is delivered.
func awaitCurrent(t *testing.T, server *sim.Server, subscription string, l *lot) {
	t.Helper()
	testwait.Eventually(t, patience, fmt.Sprintf("%s is delivered up to %d", l.topic, l.last), func() bool {
		state, seq, _ := progress(t, server, subscription, l.topic)
		return state == "current" && seq == l.last
	})
}

// elected is how often a server was elected to deliver the events of subscriptions.
func elected(server *sim.Server) int {
	return strings.Count(server.Log(), "msg=elected election=subscriptions ")
}

// wantArrivals wants the events with these numbers, in this order, and each repeat as its first delivery was. Where there may be more
// repeats, as when there were more elections than the test has asked for because the machine stood still for the TTL, any may come twice
// in a row.
func wantArrivals(t *testing.T, got []arrival, want []int64, moreRepeats bool) {
	t.Helper()
	seqs := make([]int64, len(got))
	known, ids := map[int64]arrival{}, map[string]int64{}
	for i, a := range got {
		seqs[i] = a.seq
		first, again := known[a.seq]
		if !again {
			known[a.seq] = a
			if other, used := ids[a.id]; used {
				t.Errorf("events %d and %d have the id %s", other, a.seq, a.id)
			}
			ids[a.id] = a.seq
		} else if first != a {
			t.Errorf("came as %+v, and again as %+v", first, a)
		}
	}
	if moreRepeats {
		seqs, want = slices.Compact(seqs), slices.Compact(want)
	}
	if !slices.Equal(seqs, want) {
		t.Errorf("events %v came, not %v", seqs, want)
	}
}

// upTo are the numbers from first to last.
func upTo(first, last int64) (seqs []int64) {
	for seq := first; seq <= last; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}
