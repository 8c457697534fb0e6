//go:build unix

package faults_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// hook is the webhook of a subscription to the events of one auction. It is out of order until it is mended.
type hook struct {
	*server
	auction, subscription string

	mu     sync.Mutex
	mended bool
	seqs   []int64 // of the events that it has taken
}

// newHook makes it, the auction, and the subscription.
func newHook(t *testing.T, s *server) *hook {
	t.Helper()
	h := &hook{server: s}
	in := httptest.NewServer(h)
	t.Cleanup(in.Close)
	s.accounts(t, "seller", "bidder")
	var made thing
	s.posts(t, "/v1/auctions", `{"title":"lot","currency":"SIM","seller":"seller","cooldown":"0s","rounds":[{"winners":1,"duration":"24h"}]}`, &made)
	h.auction = made.ID
	s.posts(t, "/v1/auctions/"+h.auction+"/start", ``, nil)
	s.posts(t, "/v1/targets", fmt.Sprintf(`{"name":"hook","kind":"webhook","url":%q}`, in.URL), nil)
	s.posts(t, "/v1/subscriptions", fmt.Sprintf(`{"name":"lot","target":"hook","topics":["auction:%s"],"from":"start"}`, h.auction), &made)
	h.subscription = made.ID
	return h
}

// ServeHTTP implements [http.Handler].
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e struct {
		Seq int64 `json:"seq"`
	}
	err := json.NewDecoder(r.Body).Decode(&e)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || !h.mended {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.seqs = append(h.seqs, e.Seq)
}

func (h *hook) mend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mended = true
}

// bids makes an event, and returns its number.
func (h *hook) bids(t *testing.T, amount int) (seq int64) {
	t.Helper()
	var bid struct {
		Seq int64 `json:"seq"`
	}
	h.posts(t, "/v1/auctions/"+h.auction+"/bids", fmt.Sprintf(`{"account":"bidder","amount":%d}`, amount), &bid)
	return bid.Seq
}

// gets waits until the hook has taken an event, and wants those from the first to it, each once and in order.
func (h *hook) gets(t *testing.T, first, last int64) {
	t.Helper()
	var want, got []int64
	for seq := first; seq <= last; seq++ {
		want = append(want, seq)
	}
	testwait.Eventually(t, patience, fmt.Sprintf("event %d", last), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		got = slices.Clone(h.seqs)
		return slices.Contains(got, last)
	})
	if !slices.Equal(got, want) {
		t.Errorf("events %v came, not %v", got, want)
	}
}

// shows runs the commands by which the section looks, and wants to be told of a state, and why. It returns what the last one said.
func (h *hook) shows(t *testing.T, o operator, s section, state, why string) (said string) {
	t.Helper()
	if said = o.runs(t, s, "curl"); !strings.Contains(said, h.subscription) {
		t.Errorf("the list is without %s", h.subscription)
	}
	said = o.runs(t, s, `curl -s -H "Authorization: Bearer $FAIRLEAD_KEY" "$FAIRLEAD_URL/v1/subscriptions/ID`, "ID", h.subscription)
	if !strings.Contains(said, fmt.Sprintf(`"state":%q`, state)) || !strings.Contains(said, why) {
		t.Errorf("the topic is not %s because of %s", state, why)
	}
	return said
}

// TestSubscriptionBehind has a receiver fail. Its subscription is paused, which ends the alert, and resumed, and then the receiver is mended.
func TestSubscriptionBehind(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	server := newServer(t, database, "--allow-private-targets", "--retry-backoff", "50ms")
	s := newStage(t, database, server)
	s.breaks()
	h := newHook(t, server)
	last := h.bids(t, 1)
	s.fires("FairleadSubscriptionBehind")
	section := sectionOf(t, "FairleadSubscriptionBehind")
	h.shows(t, s.operator, section, "retrying", `"status_code":503`)
	section.says(t, "Pause the subscription if the receiver stays away")
	s.operator.runs(t, section, "curl -s -X POST", "ID", h.subscription)
	s.ends("FairleadSubscriptionBehind", "the subscription was paused")

	server.posts(t, "/v1/subscriptions/"+h.subscription+"/resume", ``, nil)
	s.breaks()
	s.fires("FairleadSubscriptionBehind")
	section.says(t, "mend the receiver; what waits is delivered then, in order")
	h.mend()
	s.ends("FairleadSubscriptionBehind", "the receiver was mended")
	h.gets(t, 1, last)
}

// oldestKept is in the error of a topic that is stopped.
var oldestKept = regexp.MustCompile(`the oldest event that is kept has number (\d+)`)

// TestSubscriptionStopped has a receiver fail for longer than events are kept.
func TestSubscriptionStopped(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	server := newServer(t, database, "--allow-private-targets", "--retry-backoff", "50ms", "--leader-ttl", "1s")
	h := newHook(t, server)
	h.bids(t, 1)
	s := newStage(t, database, server)
	s.breaks()
	// What takes a week is given here. Who is started looks for what is too old at once.
	execute(t, database, `UPDATE auctions SET created_at = created_at - interval '8 days'`,
		`UPDATE auction_events SET at = at - interval '8 days'`, `UPDATE auction_bids SET at = at - interval '8 days'`)
	server.kill(t)
	server.start(t)
	s.fires("FairleadSubscriptionStopped")
	first := h.bids(t, 2)
	section := sectionOf(t, "FairleadSubscriptionStopped")
	kept := oldestKept.FindStringSubmatch(h.shows(t, s.operator, sectionOf(t, "FairleadSubscriptionBehind"), "stopped", `"cause":"expired"`))
	if kept == nil || kept[1] != strconv.FormatInt(first, 10) {
		t.Fatalf("the oldest event that is kept is %d, not %v", first, kept)
	}
	h.mend()
	section.says(t, "`after` is the first number that is kept, minus one")
	s.operator.runs(t, section, "curl", "auction:ID", "auction:"+h.auction, "ID", h.subscription, "NUMBER", strconv.FormatInt(first-1, 10))
	s.ends("FairleadSubscriptionStopped", "the topic was replayed after what is gone")
	h.gets(t, first, h.bids(t, 3))
}
