package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const patience = testwait.Patience

// record is a log in memory, which is also the model: what it holds is what subscribers must be given.
type record struct {
	mu     sync.Mutex
	events map[string][]Event
	first  map[string]int64 // the oldest that is kept; 1 where absent
	fail   error
	reads  int
}

func newRecord(topics ...string) *record {
	r := &record{events: map[string][]Event{}, first: map[string]int64{}}
	for _, t := range topics {
		r.events[t] = nil
	}
	return r
}

// commit appends n events and returns them.
func (r *record) commit(topic string, n int) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var made []Event
	for range n {
		seq := int64(len(r.events[topic])) + 1
		e := Event{Seq: seq, Type: "made", At: time.Unix(seq, 0), Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, seq))}
		r.events[topic] = append(r.events[topic], e)
		made = append(made, e)
	}
	return made
}

func (r *record) Events(_ context.Context, topic string, after int64, limit int) ([]Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	all, ok := r.events[topic]
	if r.fail != nil {
		return nil, r.fail
	}
	if !ok {
		return nil, ErrNoTopic
	}
	if first := r.first[topic]; after+1 < first {
		return nil, &ExpiredError{First: first}
	}
	from := min(after, int64(len(all)))
	return all[from:min(int(from)+limit, len(all))], nil
}

func (r *record) Heads(_ context.Context, topics []string) (map[string]int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	out := map[string]int64{}
	for _, t := range topics {
		if events, ok := r.events[t]; ok {
			out[t] = int64(len(events))
		}
	}
	return out, nil
}

func newHub(t *testing.T, o Options) *Hub {
	t.Helper()
	h := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	t.Cleanup(func() { cancel(); h.Close(); running.Wait() })
	return h
}

// told calls Committed as a service does.
func told(h *Hub, topic string, events []Event) {
	h.Committed(topic, events[len(events)-1].Seq, func() []Event { return events })
}

func (s *Subscriber) mustSubscribe(t *testing.T, topic string, since ...int64) int64 {
	t.Helper()
	var from *int64
	if len(since) > 0 {
		from = &since[0]
	}
	head, err := s.Subscribe(t.Context(), topic, from)
	testwait.Must(t, err)
	return head
}

// next pulls until there is something.
func (s *Subscriber) next(t *testing.T, buf []Message) []Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		got, err := s.Pull(ctx, buf)
		testwait.Must(t, err)
		if len(got) > 0 {
			return got
		}
		select {
		case <-s.Ready():
		case <-ctx.Done():
			t.Fatal("nothing came")
		}
	}
}

// expect pulls exactly the events from first to last of one topic, in order.
func (s *Subscriber) expect(t *testing.T, first, last int64) {
	t.Helper()
	for seq := first; seq <= last; {
		for _, m := range s.next(t, make([]Message, 0, 7)) {
			if m.Kind != KindEvent || m.Seq != seq {
				t.Fatalf("got kind %d number %d, want event %d", m.Kind, m.Seq, seq)
			}
			seq++
		}
	}
}

func (s *Subscriber) expectKind(t *testing.T, kind Kind, seq int64) {
	t.Helper()
	got := s.next(t, make([]Message, 0, 1))
	if got[0].Kind != kind || got[0].Seq != seq {
		t.Fatalf("got %+v, want kind %d number %d", got[0], kind, seq)
	}
}

func (s *Subscriber) expectNothing(t *testing.T) {
	t.Helper()
	got, err := s.Pull(t.Context(), make([]Message, 0, 8))
	if err != nil || len(got) > 0 {
		t.Fatalf("got %+v, %v, want nothing", got, err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testwait.Eventually(t, patience, what, ok)
}

func TestReplayThenLive(t *testing.T) {
	t.Parallel()
	r := newRecord("a")
	r.commit("a", 700)
	h := newHub(t, Options{Log: r, Page: 50})
	all, some, live := h.NewSubscriber(), h.NewSubscriber(), h.NewSubscriber()
	for s, since := range map[*Subscriber][]int64{all: {0}, some: {650}, live: nil} {
		if head := s.mustSubscribe(t, "a", since...); head != 700 {
			t.Errorf("head %d", head)
		}
		s.expectKind(t, KindSubscribed, 700)
	}
	all.expect(t, 1, 700)
	some.expect(t, 651, 700)
	live.expectNothing(t)
	told(h, "a", r.commit("a", 3))
	for _, s := range []*Subscriber{all, some, live} {
		s.expect(t, 701, 703)
		s.expectNothing(t)
		s.Close()
	}
	if st := h.Stats(); st.Subscribers != 0 || st.Subscriptions != 0 || st.Topics != 1 {
		t.Errorf("%+v", st)
	}
}

func TestAMessageIsTheContractsDocument(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 9, 0, 0, 120000, time.FixedZone("x", 3600))
	for want, e := range map[string]Event{
		`{"topic":"a","seq":7,"type":"bid.placed","at":"2026-11-21T08:00:00.000120Z","data":{"x":1}}`: {Seq: 7, Type: "bid.placed", At: at, Data: json.RawMessage(`{"x":1}`)},
		`{"topic":"a","type":"countdown","at":"2026-11-21T08:00:00.000120Z","data":{"x":1}}`:          {Type: "countdown", At: at, Data: json.RawMessage("{\n\"x\":1\r\n}")},
		`{"topic":"a","seq":1,"type":"odd \"\n","at":"2026-11-21T08:00:00.000120Z","data":null}`:      {Seq: 1, Type: "odd \"\n", At: at},
	} {
		if got := string(encode("a", e).JSON); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestWhatCannotBeSubscribedTo(t *testing.T) {
	t.Parallel()
	r := newRecord("a", "b", "c")
	r.commit("a", 10)
	r.first["a"] = 5
	h := newHub(t, Options{Log: r, MaxTopics: 2})
	s := h.NewSubscriber()
	defer s.Close()
	since := int64(3)
	if _, err := s.Subscribe(t.Context(), "x", nil); !errors.Is(err, ErrNoTopic) {
		t.Errorf("no such topic: %v", err)
	}
	if _, err := s.Subscribe(t.Context(), "a", &since); err == nil || err.Error() != (&ExpiredError{First: 5}).Error() {
		t.Errorf("expired: %v", err)
	}
	if n := h.Stats(); n.Subscriptions != 0 || h.find("x") != nil {
		t.Errorf("refused subscriptions left something: %+v", n)
	}
	s.mustSubscribe(t, "a", 4)
	s.mustSubscribe(t, "b")
	if _, err := s.Subscribe(t.Context(), "c", nil); !errors.Is(err, ErrTooManyTopics) {
		t.Errorf("a third topic: %v", err)
	}
	s.mustSubscribe(t, "a", 8) // In place of the older one.
	if !s.Unsubscribe("b") || s.Unsubscribe("b") {
		t.Error("unsubscribe tells whether there was one")
	}
	s.mustSubscribe(t, "c")
	r.fail = errors.New("away")
	if _, err := s.Subscribe(t.Context(), "a", nil); !errors.Is(err, r.fail) {
		t.Errorf("log away: %v", err)
	}
	h.Close()
	if _, err := s.Subscribe(t.Context(), "a", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := s.Pull(t.Context(), make([]Message, 0, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestASecondSubscriptionTakesThePlaceOfTheFirst(t *testing.T) {
	t.Parallel()
	r := newRecord("a")
	r.commit("a", 10)
	h := newHub(t, Options{Log: r})
	s := h.NewSubscriber()
	defer s.Close()
	s.mustSubscribe(t, "a", 0)
	s.mustSubscribe(t, "a", 7)
	s.expectKind(t, KindSubscribed, 10)
	s.expect(t, 8, 10)
	s.expectNothing(t)
	if n := h.Stats().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions", n)
	}
}

func TestASlowSubscriberIsDroppedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	r := newRecord("a")
	h := newHub(t, Options{Log: r, Buffer: 100})
	slow, quick := h.NewSubscriber(), h.NewSubscriber()
	defer slow.Close()
	defer quick.Close()
	for _, s := range []*Subscriber{slow, quick} {
		s.mustSubscribe(t, "a")
		s.expectKind(t, KindSubscribed, 0)
		s.expectNothing(t)
	}
	told(h, "a", r.commit("a", 5))
	slow.expect(t, 1, 5) // And is now busy writing these.
	quick.expect(t, 1, 5)
	for i := range int64(11) {
		told(h, "a", r.commit("a", 10))
		quick.expect(t, 6+10*i, 15+10*i)
	}
	slow.expectKind(t, KindDropped, 5)
	slow.expectNothing(t)
	quick.expectNothing(t)
	if st := h.Stats(); st.Dropped != 1 || st.Subscriptions != 1 {
		t.Errorf("%+v", st)
	}
	slow.mustSubscribe(t, "a", 5)
	slow.expectKind(t, KindSubscribed, 115)
	slow.expect(t, 6, 115)
}

// TestABurstIsNotSlowness commits more than the buffer while the subscriber waits for news.
func TestABurstIsNotSlowness(t *testing.T) {
	t.Parallel()
	r := newRecord("a")
	h := newHub(t, Options{Log: r, Buffer: 10, Page: 4})
	s := h.NewSubscriber()
	defer s.Close()
	s.mustSubscribe(t, "a")
	s.expectKind(t, KindSubscribed, 0)
	s.expectNothing(t)
	told(h, "a", r.commit("a", 500))
	eventually(t, "the feed grows", func() bool { return h.find("a").view.Load().head() == 500 })
	s.expect(t, 1, 500)
	s.expectNothing(t)
	if n := h.Stats().Dropped; n != 0 {
		t.Errorf("%d dropped", n)
	}
}

func TestBehindGivesUpWhatIsLate(t *testing.T) {
	t.Parallel()
	r := newRecord("a", "b")
	h := newHub(t, Options{Log: r})
	s := h.NewSubscriber()
	defer s.Close()
	for _, topic := range []string{"a", "b"} {
		s.mustSubscribe(t, topic)
		s.expectKind(t, KindSubscribed, 0)
	}
	told(h, "a", r.commit("a", 1))
	eventually(t, "the feed grows", func() bool { return h.find("a").view.Load().head() == 1 })
	got := s.Behind()
	if len(got) != 1 || got[0].Kind != KindDropped || got[0].Topic != "a" || got[0].Seq != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestMessagesWithoutANumber(t *testing.T) {
	t.Parallel()
	r := newRecord("a")
	h := newHub(t, Options{Log: r})
	s, other := h.NewSubscriber(), h.NewSubscriber()
	defer s.Close()
	defer other.Close()
	s.mustSubscribe(t, "a")
	s.expectKind(t, KindSubscribed, 0)
	for i := range 3 * maxMessages {
		h.Broadcast("a", Event{Type: "countdown", Data: json.RawMessage(fmt.Sprint(i))})
	}
	h.Broadcast("nobody", Event{Type: "countdown"})
	eventually(t, "the last one is there", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := len(s.queue)
		return n == 1 && len(s.queue[0].messages) == maxMessages && lastData(t, s.queue[0].messages) == "23"
	})
	got := s.next(t, make([]Message, 0, 100))
	if len(got) != maxMessages || got[0].Seq != 0 || got[0].Type != "countdown" {
		t.Errorf("got %d messages, %+v", len(got), got[0])
	}
	s.expectNothing(t)
}

func lastData(t *testing.T, messages []Message) string {
	t.Helper()
	var doc struct{ Data json.RawMessage }
	testwait.Must(t, json.Unmarshal(messages[len(messages)-1].JSON, &doc))
	return string(doc.Data)
}

func TestALogThatIsAwayDelaysAndLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRecord("a")
	// The buffer holds all events: the feed may read every page between two pulls, and a subscriber that lags by more is dropped.
	h := newHub(t, Options{Log: r, PollEvery: 5 * time.Millisecond, Page: 10, Buffer: 40})
	s := h.NewSubscriber()
	defer s.Close()
	s.mustSubscribe(t, "a")
	s.expectKind(t, KindSubscribed, 0)
	r.mu.Lock()
	r.fail = errors.New("away")
	r.mu.Unlock()
	made := r.commit("a", 40)
	h.Committed("a", 20, nil) // A hint only: the log must be read.
	told(h, "a", made[30:])   // And a commit after a gap.
	eventually(t, "the log was asked", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.reads > 0 })
	r.mu.Lock()
	r.fail = nil
	r.mu.Unlock()
	s.expect(t, 1, 40)
}

// TestNothingIsDoneWhereNobodySubscribes keeps the cost of a commit away from those without an audience.
//
//nolint:paralleltest // It counts allocations.
func TestNothingIsDoneWhereNobodySubscribes(t *testing.T) {
	r := newRecord("a")
	h := newHub(t, Options{Log: r, PollEvery: time.Millisecond, Grace: time.Millisecond})
	encoded := false
	h.Committed("a", 1, func() []Event { encoded = true; return nil })
	s := h.NewSubscriber()
	s.mustSubscribe(t, "a")
	s.Close()
	eventually(t, "the topic is forgotten", func() bool { return h.Stats().Topics == 0 })
	h.Committed("a", 1, func() []Event { encoded = true; return nil })
	if encoded {
		t.Error("events were asked for that nobody subscribes to")
	}
	if allocs := testing.AllocsPerRun(100, func() { h.Committed("a", 1, nil) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
