package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// letters are notices in memory: the event n of a source is for "box:" and the source's readers in turn.
type letters struct {
	*record

	mu      sync.Mutex
	sources map[string]map[string]int64 // of each box: since which number the source concerns it
	fail    error
	asked   int
}

func (l *letters) options() *Notices {
	return &Notices{
		Prefix: "box:",
		Sources: func(ctx context.Context, topics []string) (found []Source, err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.asked++
			for _, box := range topics {
				for source := range l.sources[box] {
					heads, err := l.Heads(ctx, []string{source})
					if err != nil {
						return nil, err
					}
					found = append(found, Source{For: box, Topic: source, Head: heads[source]})
				}
			}
			return found, l.fail
		},
		Since: func(_ context.Context, s Source) (int64, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.sources[s.For][s.Topic], nil
		},
		Make: func(m Message) (made []Notice) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for box, sources := range l.sources {
				if since, ok := sources[m.Topic]; ok && m.Seq > since {
					data := json.RawMessage(fmt.Sprintf(`{"of":%q,"n":%d}`, m.Topic, m.Seq))
					made = append(made, Notice{Topic: box, Event: Event{Type: "letter", At: time.Unix(m.Seq, 0), Data: data}})
				}
			}
			return made
		},
	}
}

// concerns says that what comes to a source from now on is for a box.
func (l *letters) concerns(box, source string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	heads, _ := l.Heads(context.Background(), []string{source})
	if l.sources[box] == nil {
		l.sources[box] = map[string]int64{}
	}
	l.sources[box][source] = heads[source]
}

func (l *letters) setFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

func newLetters(t *testing.T, o Options, topics ...string) (*letters, *Hub) {
	t.Helper()
	l := &letters{record: newRecord(topics...), sources: map[string]map[string]int64{}}
	o.Log, o.Notices = l, l.options()
	if o.PollEvery == 0 {
		o.PollEvery = 2 * time.Millisecond
	}
	return l, newHub(t, o)
}

// letter pulls the next one and wants it to be that of the n-th event.
func (s *Subscriber) letter(t *testing.T, source string, n int) {
	t.Helper()
	got := s.next(t, make([]Message, 0, 1))
	if want := fmt.Sprintf(`"type":"letter","at":%q,"data":{"of":%q,"n":%d}}`, time.Unix(int64(n), 0).UTC().Format(timeLayout), source, n); got[0].Seq != 0 ||
		!strings.HasSuffix(string(got[0].JSON), want) || strings.Contains(string(got[0].JSON), `"seq"`) {
		t.Fatalf("got %+v %s, want %s", got[0], got[0].JSON, want)
	}
}

// TestNotices makes notices of events that other processes commit, in topics that are found at once or by a later poll.
func TestNotices(t *testing.T) {
	t.Parallel()
	l, h := newLetters(t, Options{}, "a", "b")
	l.commit("a", 3)
	l.concerns("box:x", "a")
	x, y := h.NewSubscriber(), h.NewSubscriber()
	defer x.Close()
	defer y.Close()
	for _, s := range []*Subscriber{x, y} {
		if head := s.mustSubscribe(t, "box:"+map[*Subscriber]string{x: "x", y: "y"}[s]); head != 0 {
			t.Errorf("head %d", head)
		}
		if m := s.next(t, make([]Message, 0, 1)); m[0].Kind != KindSubscribed || m[0].Seq != 0 {
			t.Errorf("%+v", m[0])
		}
	}
	for range 5 {
		l.commit("a", 1)
	}
	for n := 4; n <= 8; n++ {
		x.letter(t, "a", n)
	}
	// What concerns a box between two polls is found late, and nothing of it is missed.
	l.commit("b", 10)
	l.concerns("box:y", "b")
	told(h, "b", l.commit("b", 300))
	for n := 11; n <= 310; n++ {
		y.letter(t, "b", n)
	}
	l.concerns("box:y", "a")
	l.commit("a", 1)
	x.letter(t, "a", 9)
	y.letter(t, "a", 9)
	// Who comes later is given what comes later, and shares the feed.
	z := h.NewSubscriber()
	defer z.Close()
	z.mustSubscribe(t, "box:x")
	l.commit("a", 1)
	z.next(t, make([]Message, 0, 1))
	z.letter(t, "a", 10)
	x.letter(t, "a", 10)

	one := int64(1)
	if _, err := z.Subscribe(t.Context(), "box:x", &one); !errors.As(err, new(*AheadError)) {
		t.Errorf("since 1: %v", err)
	}
	if s := h.Stats(); s.Subscribers != 3 || s.Subscriptions != 3 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// TestNoticesEndWithTheirSubscribers: sources are let go, and nobody asks for them any more.
func TestNoticesEndWithTheirSubscribers(t *testing.T) {
	t.Parallel()
	l, h := newLetters(t, Options{Grace: time.Nanosecond}, "a")
	l.concerns("box:x", "a")
	s := h.NewSubscriber()
	s.mustSubscribe(t, "box:x")
	testwait.Eventually(t, patience, "the source is followed", func() bool { return h.Stats().Topics == 2 })
	l.mu.Lock()
	delete(l.sources, "box:x")
	l.mu.Unlock()
	testwait.Eventually(t, patience, "it is let go", func() bool { return h.Stats().Topics == 1 })
	s.Close()
	testwait.Eventually(t, patience, "the goroutine is over", func() bool {
		h.notices.mu.Lock()
		defer h.notices.mu.Unlock()
		return !h.notices.running && h.Stats().Topics == 0
	})
	// Another one begins again, also after the history was lost.
	l.concerns("box:x", "a")
	for range 2 {
		s = h.NewSubscriber()
		s.mustSubscribe(t, "box:x")
		s.next(t, make([]Message, 0, 1))
		testwait.Eventually(t, patience, "a letter", func() bool {
			l.commit("a", 1)
			m, err := s.Pull(t.Context(), make([]Message, 0, 8))
			return err == nil && len(m) > 0
		})
		h.Reset()
		if _, err := s.Pull(t.Context(), make([]Message, 0, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("after a reset: %v", err)
		}
	}
}

// TestSlowSubscriberOfNotices: the others go on, and it is told that it was dropped.
func TestSlowSubscriberOfNotices(t *testing.T) {
	t.Parallel()
	l, h := newLetters(t, Options{Buffer: 8}, "a")
	l.concerns("box:x", "a")
	slow, quick := h.NewSubscriber(), h.NewSubscriber()
	defer slow.Close()
	defer quick.Close()
	for _, s := range []*Subscriber{slow, quick} {
		s.mustSubscribe(t, "box:x")
		s.next(t, make([]Message, 0, 1))
	}
	l.commit("a", 1)
	slow.letter(t, "a", 1)
	quick.letter(t, "a", 1)
	for n := range 40 {
		told(h, "a", l.commit("a", 1))
		quick.letter(t, "a", n+2)
	}
	if m := slow.next(t, make([]Message, 0, 1)); m[0].Kind != KindDropped || m[0].Topic != "box:x" || m[0].Seq != 0 {
		t.Errorf("%+v", m[0])
	}
	if s := h.Stats(); s.Dropped != 1 || s.Subscriptions != 1 {
		t.Errorf("%+v", s)
	}
}

// TestNoticesWithoutADatabase: a subscription is refused, one that stands goes on when the log is back, and no event asks the log for
// sources.
func TestNoticesWithoutADatabase(t *testing.T) {
	t.Parallel()
	l, h := newLetters(t, Options{PollEvery: time.Hour}, "a")
	away := errors.New("away")
	l.setFailure(away)
	s := h.NewSubscriber()
	defer s.Close()
	if _, err := s.Subscribe(t.Context(), "box:x", nil); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	l.setFailure(nil)
	l.concerns("box:x", "a")
	s.mustSubscribe(t, "box:x")
	s.next(t, make([]Message, 0, 1))
	l.setFailure(away)
	l.mu.Lock()
	before := l.asked
	l.mu.Unlock()
	for n := range 100 {
		told(h, "a", l.commit("a", 1))
		s.letter(t, "a", n+1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != before {
		t.Errorf("asked %d times for 100 events", l.asked-before)
	}
}
