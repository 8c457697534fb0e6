//go:build unix

package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Limits of a subscriber.
const (
	dialLimit       = 2 * time.Second
	maxLiveMessage  = 16 << 20
	reconnectPause  = 10 * time.Millisecond
	reconnectLimit  = 200 * time.Millisecond
	subscribedLimit = 10 * time.Second
)

// ErrStream is returned when a live stream breaks the contract: a gap, a double, a message that can't be read, a refused
// subscription. A lost connection is not such a breach; it is resumed.
var ErrStream = errors.New("live stream breaks the contract")

// Tick is a countdown as it arrived.
type Tick struct {
	replay.Countdown
	At         time.Time // by the clock of the database, as the server knows it
	Arrived    time.Time
	Connection int // from 1; ticks of one connection came without a break
}

// Subscriber follows one topic over WebSocket. After any loss of its connection it connects again, to the next of its
// targets in turn, and resumes after the last event that it has. It checks as it goes that events come in order without
// gap or double. It is safe for concurrent use.
type Subscriber struct {
	targets []Target
	topic   string
	cancel  context.CancelFunc
	done    chan struct{}

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced when anything below changes
	events      []replay.Event
	ticks       []Tick
	last        int64
	connections int
	dropped     int
	err         error
}

// Subscribe follows a topic from the event after since, until Close or the end of ctx.
func Subscribe(ctx context.Context, topic string, since int64, targets ...Target) *Subscriber {
	ctx, cancel := context.WithCancel(ctx)
	s := &Subscriber{
		targets: targets, topic: topic, last: since, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
	return s
}

// Close ends the subscription and returns what was wrong with it.
func (s *Subscriber) Close() error {
	s.cancel()
	<-s.done
	return s.Err()
}

// Err returns the breach of contract that ended the subscription, an ErrStream, or nil.
func (s *Subscriber) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Events returns the events so far, which the caller must not change.
func (s *Subscriber) Events() []replay.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.events)
}

// Ticks returns the countdowns so far.
func (s *Subscriber) Ticks() []Tick {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.ticks)
}

// Connections tells how many subscriptions were accepted so far, and how many of them ended because the server called
// the subscriber too slow.
func (s *Subscriber) Connections() (accepted, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections, s.dropped
}

// Await waits for the first event that matches, past ones included. It returns an error when the subscription or ctx
// ended before. It calls match under the lock: match must not ask the subscriber anything.
func (s *Subscriber) Await(ctx context.Context, what string, match func(replay.Event) bool) (found replay.Event, err error) {
	seen := 0
	err = s.await(ctx, what, func() bool {
		for ; seen < len(s.events); seen++ {
			if match(s.events[seen]) {
				found = s.events[seen]
				return true
			}
		}
		return false
	})
	return found, err
}

// AwaitConnection waits until n subscriptions were accepted.
func (s *Subscriber) AwaitConnection(ctx context.Context, n int) error {
	return s.await(ctx, fmt.Sprintf("subscription %d", n), func() bool { return s.connections >= n })
}

// AwaitTicks waits until n countdowns have come.
func (s *Subscriber) AwaitTicks(ctx context.Context, n int) error {
	return s.await(ctx, fmt.Sprintf("countdown %d", n), func() bool { return len(s.ticks) >= n })
}

// await waits until reached, which is asked under the lock, and asked once more after the end: what came last and the
// end of the subscription are often noticed at once.
func (s *Subscriber) await(ctx context.Context, what string, reached func() bool) error {
	for ended := false; ; {
		s.mu.Lock()
		ok, changed, err, events, last := reached(), s.changed, s.err, len(s.events), s.last
		s.mu.Unlock()
		switch {
		case ok || err != nil:
			return err
		case ended:
			return fmt.Errorf("%s of %s: the subscription was closed", what, s.topic)
		}
		select {
		case <-changed:
		case <-s.done:
			ended = true
		case <-ctx.Done():
			return fmt.Errorf("%s of %s: %w after %d events, the last has number %d", what, s.topic, context.Cause(ctx), events, last)
		}
	}
}

func (s *Subscriber) lastSeq() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// update changes what others look at.
func (s *Subscriber) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Subscriber) run(ctx context.Context) {
	pause := reconnectPause
	for attempt := 0; ctx.Err() == nil; attempt++ {
		before, _ := s.Connections()
		err := s.follow(ctx, s.targets[attempt%len(s.targets)].URL())
		if errors.Is(err, ErrStream) {
			s.update(func() { s.err = err })
			return
		}
		if after, _ := s.Connections(); after > before {
			pause = reconnectPause
		}
		if !wait.For(ctx, pause) {
			return
		}
		pause = min(2*pause, reconnectLimit)
	}
}

// follow subscribes once and reads until the connection is lost, which is any error that is no ErrStream.
func (s *Subscriber) follow(ctx context.Context, base string) error {
	dialCtx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, resp, err := websocket.Dial(dialCtx, "ws"+strings.TrimPrefix(base, "http")+"/v1/live", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + AdminKey}},
	})
	if resp != nil && resp.Body != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	if err != nil {
		if resp != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) {
			return fmt.Errorf("%w: refused with %d", ErrStream, resp.StatusCode)
		}
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxLiveMessage)
	// The field is always there, since its absence means something else than zero.
	request := fmt.Sprintf(`{"op":"subscribe","topic":%q,"since":%d}`, s.topic, s.lastSeq())
	if err := conn.Write(dialCtx, websocket.MessageText, []byte(request)); err != nil {
		return err
	}
	answerBy := time.AfterFunc(subscribedLimit, func() { _ = conn.CloseNow() })
	defer answerBy.Stop()
	for subscribed := false; ; {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			if code := websocket.CloseStatus(err); code == websocket.StatusPolicyViolation || code == websocket.StatusMessageTooBig {
				return fmt.Errorf("%w: %w", ErrStream, err)
			}
			return err
		}
		if kind != websocket.MessageText {
			return fmt.Errorf("%w: a message that is no text: %.100q", ErrStream, message)
		}
		var head struct {
			Op      string `json:"op"`
			Topic   string `json:"topic"`
			LastSeq int64  `json:"last_seq"`
		}
		if err := json.Unmarshal(message, &head); err != nil {
			return fmt.Errorf("%w: %w: %.300q", ErrStream, err, message)
		}
		switch {
		case head.Op == "subscribed" && head.Topic == s.topic && !subscribed:
			answerBy.Stop()
			subscribed = true
			s.update(func() { s.connections++ })
		case head.Op == "dropped" && head.Topic == s.topic && subscribed:
			if err := s.takeDrop(head.LastSeq); err != nil {
				return err
			}
		case head.Op == "" && subscribed:
			if err := s.take(message); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: unexpected message: %.300q", ErrStream, message)
		}
	}
}

func (s *Subscriber) takeDrop(lastSeq int64) error {
	if last := s.lastSeq(); lastSeq != last {
		return fmt.Errorf("%w: dropped after %d by the server's word, %d was the last to come", ErrStream, lastSeq, last)
	}
	s.update(func() { s.dropped++ })
	return nil
}

// take takes one event or countdown.
func (s *Subscriber) take(message []byte) error {
	arrived := time.Now()
	e, err := replay.ParseEvent(bytes.TrimSpace(message))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrStream, err)
	case e.Topic != s.topic:
		return fmt.Errorf("%w: an event of another topic: %.300s", ErrStream, message)
	case e.Countdown != nil:
		s.update(func() { s.ticks = append(s.ticks, Tick{*e.Countdown, e.At, arrived, s.connections}) })
		return nil
	}
	switch last := s.lastSeq(); {
	case e.Seq <= last:
		return fmt.Errorf("%w: event %d came after %d: a double, or out of order: %.300s", ErrStream, e.Seq, last, message)
	case e.Seq > last+1:
		return fmt.Errorf("%w: event %d came after %d: a gap: %.300s", ErrStream, e.Seq, last, message)
	}
	s.update(func() { s.events, s.last = append(s.events, e), e.Seq })
	return nil
}
