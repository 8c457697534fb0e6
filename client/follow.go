package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// streamSilence is how long a stream may say nothing. The server sends a comment every 15 s.
	streamSilence = 45 * time.Second
	// maxEvent is the longest line of a stream: an event of a round with a thousand winners takes some 100 kB.
	maxEvent = 16 << 20
	// FromNow is the place from which [Client.Follow] gives the events to come, and none of those before.
	FromNow = -1
)

// Event is one event of a topic.
type Event struct {
	Topic string          `json:"topic"`
	Seq   int64           `json:"seq"` // 1, 2, 3, …; 0: a message without a number, such as a countdown, which may get lost
	Type  string          `json:"type"`
	At    time.Time       `json:"at"`
	Data  json.RawMessage `json:"data"`
}

// Follow gives the events of a topic, auction:ID, campaign:ID, multidraw:ID or account:ID, each once and in order: those with a
// number above since, which is 0 or more, or [FromNow]. It does not end by itself. When its connection breaks, or says nothing
// for 45 s, it connects again after a growing pause with jitter, at most 5 s, and goes on where it was.
//
// It ends with a *[Problem] that is not retryable, such as not_found, or events_expired where the server keeps the events no more;
// and when [Retry] is used up by connections in a row that were not accepted.
func (c *Client) Follow(ctx context.Context, topic string, since int64, opts ...CallOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &follower{client: c, topic: topic, last: since, opts: opts, yield: yield}
		if err := f.run(ctx); err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}
}

// follower is one iteration of [Client.Follow].
type follower struct {
	client *Client
	topic  string
	last   int64 // the number of the last event, or [FromNow] as long as none is known
	opts   []CallOption
	yield  func(Event, error) bool

	accepted, moved bool // by the connection under way: it was accepted, and gave events
}

var (
	// errLeft ends an iteration whose caller takes no more events.
	errLeft   = errors.New("client: the caller takes no more events")
	errSilent = errors.New("client: the stream was silent for too long")
)

func (f *follower) run(ctx context.Context) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstPause, maxPause
	limits := f.client.retry
	refused, since := 0, time.Now()
	for {
		f.accepted, f.moved = false, false
		err := f.connect(ctx)
		if errors.Is(err, errLeft) {
			return err
		}
		if f.accepted {
			refused, since = 0, time.Now()
		} else {
			refused++
		}
		if f.moved {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		if p, ok := errors.AsType[*Problem](err); ok {
			if !p.Retryable {
				return err
			}
			pause += p.RetryAfter
		}
		if refused >= limits.Attempts || time.Since(since)+pause > limits.Limit && refused > 0 || !wait.For(ctx, pause) {
			return err
		}
	}
}

// connect follows the topic over one connection, to its end.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opts := f.opts
	if f.last >= 0 {
		opts = append([]CallOption{Header("Last-Event-ID", strconv.FormatInt(f.last, 10))}, opts...)
	}
	opts = append([]CallOption{Header("Accept", "text/event-stream")}, opts...)
	silence := time.AfterFunc(streamSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	resp, err := f.client.Open(ctx, "/v1/events?topic="+url.QueryEscape(f.topic), opts...)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	f.accepted = true
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	var data []byte
	for lines.Scan() {
		silence.Reset(streamSilence)
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(lines.Bytes()) == 0:
			if err := f.event(data); err != nil {
				return err
			}
			data = nil
		case len(name) == 0:
			f.subscribed(value)
		case string(name) == "data":
			data = bytes.Clone(value)
		}
	}
	return &UnansweredError{Attempts: 1, Err: errors.Join(lines.Err(), context.Cause(ctx), io.ErrUnexpectedEOF)}
}

// subscribed reads the comment that tells the topic's last number: from there a subscription without a place goes on.
func (f *follower) subscribed(comment []byte) {
	var seq int64
	if _, err := fmt.Sscanf(string(comment), "subscribed %d", &seq); err == nil && f.last < 0 {
		f.last = seq
	}
}

// event hands an event on. An empty line without data ends nothing.
func (f *follower) event(data []byte) error {
	if data == nil {
		return nil
	}
	var e Event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	if e.Type == "" {
		return nil // That the connection was too slow: it ends now, and the next one goes on.
	}
	if e.Seq > 0 {
		if e.Seq <= f.last {
			return nil
		}
		f.last, f.moved = e.Seq, true
	}
	if !f.yield(e, nil) {
		return errLeft
	}
	return nil
}
