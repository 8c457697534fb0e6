package live

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// watcher is a subscriber with what it must have been given: every event above its starting point, once, in order.
type watcher struct {
	hub  *Hub
	s    *Subscriber
	last map[string]int64 // the last number given, of the topics that it subscribes to
	said map[string]bool  // that it is subscribed
}

// take pulls once, checks, and comes back where it was dropped.
func (w *watcher) take(t *rapid.T, room int) (some bool) {
	got, err := w.s.Pull(t.Context(), make([]Message, 0, room))
	testwait.Must(t, err)
	for _, m := range got {
		last, subscribed := w.last[m.Topic]
		switch {
		case !subscribed:
			t.Fatalf("%+v of a topic that is not subscribed to", m)
		case m.Kind == KindSubscribed:
			w.said[m.Topic] = true
		case !w.said[m.Topic]:
			t.Fatalf("%+v before subscribed", m)
		case m.Kind == KindDropped:
			if m.Seq != last {
				t.Fatalf("dropped at %d, but was given up to %d", m.Seq, last)
			}
			w.subscribe(t, m.Topic, &last)
		case m.Seq == 0: // May be lost, and come at any place.
		case m.Seq != last+1:
			t.Fatalf("%s: event %d after %d", m.Topic, m.Seq, last)
		default:
			w.last[m.Topic] = m.Seq
		}
	}
	return len(got) > 0
}

func (w *watcher) subscribe(t *rapid.T, topic string, since *int64) {
	head, err := w.s.Subscribe(t.Context(), topic, since)
	testwait.Must(t, err)
	w.said[topic] = false
	w.last[topic] = head
	if since != nil {
		w.last[topic] = *since
	}
}

// TestEachSubscriberIsGivenExactlyTheSequence interleaves commits that are told to their own process, late, out of order,
// twice or not at all, hints to the other process that meet the same fates, polls, subscriptions anywhere, and readers
// that read now and then, in any order. In the end every watcher has every event.
func TestEachSubscriberIsGivenExactlyTheSequence(t *testing.T) {
	t.Parallel()
	topics := []string{"auction:1", "campaign:2"}
	rapid.Check(t, func(t *rapid.T) {
		r := newRecord(topics...)
		o := Options{
			Log: r, Buffer: rapid.IntRange(1, 20).Draw(t, "buffer"), Page: rapid.IntRange(1, 8).Draw(t, "page"), LogReads: 2,
			Grace: time.Nanosecond,
		}
		hubs := []*Hub{New(o), New(o)}
		var watchers []*watcher
		defer func() {
			for _, w := range watchers {
				w.s.Close()
			}
			hubs[0].Close()
			hubs[1].Close()
		}()
		var late []func() // what is to be told later, or never
		topic := func() string { return rapid.SampledFrom(topics).Draw(t, "topic") }
		hub := func() *Hub { return rapid.SampledFrom(hubs).Draw(t, "hub") }
		watcherOf := func() *watcher {
			if len(watchers) == 0 {
				t.Skip("nobody watches")
			}
			return rapid.SampledFrom(watchers).Draw(t, "watcher")
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				name, h := topic(), hub()
				made := r.commit(name, rapid.IntRange(1, 30).Draw(t, "events"))
				last := made[len(made)-1].Seq
				tell := func() { h.Committed(name, last, func() []Event { return made }) }
				hint := func() {
					for _, other := range hubs {
						other.hear(Hint{From: "someone", Topic: name, Seq: last})
					}
				}
				for _, f := range []func(){tell, hint} {
					switch rapid.SampledFrom([]string{"now", "late", "lost", "twice"}).Draw(t, "fate") {
					case "now":
						f()
					case "twice":
						f()
						late = append(late, f)
					case "late":
						late = append(late, f)
					}
				}
			},
			"tell": func(t *rapid.T) {
				if len(late) == 0 {
					t.Skip("nothing is late")
				}
				rapid.SampledFrom(late).Draw(t, "what")()
			},
			"lie":       func(*rapid.T) { hub().hear(Hint{Topic: topic(), Seq: 1 << 40}) },
			"broadcast": func(*rapid.T) { hub().Broadcast(topic(), Event{Type: "countdown"}) },
			"poll":      func(t *rapid.T) { hub().poll(t.Context()) },
			"forget":    func(*rapid.T) { hub().forget(time.Now()) },
			"join": func(t *rapid.T) {
				h := hub()
				watchers = append(watchers, &watcher{hub: h, s: h.NewSubscriber(), last: map[string]int64{}, said: map[string]bool{}})
			},
			"subscribe": func(t *rapid.T) {
				w, name := watcherOf(), topic()
				var since *int64
				if rapid.Bool().Draw(t, "replay") {
					heads, _ := r.Heads(context.Background(), []string{name})
					n := rapid.Int64Range(0, heads[name]).Draw(t, "since")
					since = &n
				}
				w.subscribe(t, name, since)
			},
			"unsubscribe": func(*rapid.T) {
				w, name := watcherOf(), topic()
				if _, ok := w.last[name]; ok != w.s.Unsubscribe(name) {
					t.Fatal("unsubscribe is mistaken")
				}
				delete(w.last, name)
			},
			"read": func(t *rapid.T) { watcherOf().take(t, rapid.IntRange(1, 40).Draw(t, "room")) },
		})
		heads, _ := r.Heads(context.Background(), topics)
		for _, h := range hubs {
			h.poll(t.Context())
		}
		for _, w := range watchers {
			w.finish(t, heads)
		}
	})
}

// finish reads what is left, and no more.
func (w *watcher) finish(t *rapid.T, heads map[string]int64) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	done := func() bool {
		for topic, last := range w.last {
			if last != heads[topic] || !w.said[topic] {
				return false
			}
		}
		return true
	}
	for !done() {
		if w.take(t, 16) {
			continue
		}
		select {
		case <-w.s.Ready():
		case <-deadline.C:
			t.Fatalf("it was given up to %v of %v", w.last, heads)
		}
	}
	w.take(t, 16)
	if !done() {
		t.Fatalf("it was given up to %v of %v", w.last, heads)
	}
}
