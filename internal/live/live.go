package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Event is one message of a topic. Seq is 0 for a message without a sequence number, such as a countdown.
type Event struct {
	Seq  int64           `json:"seq,omitempty"`
	Type string          `json:"type"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data"`
}

// Log is the durable record of the topics' events.
type Log interface {
	// Events returns up to limit events of a topic with sequence numbers above after, contiguous and in order. It returns
	// [ErrNoTopic] when there is no such topic, and [ExpiredError] when some event after the given one is no longer kept.
	Events(ctx context.Context, topic string, after int64, limit int) ([]Event, error)
	// Heads returns the last sequence number of each topic that exists, 0 where it has no event yet.
	Heads(ctx context.Context, topics []string) (map[string]int64, error)
}

// Hint tells other processes that a topic has grown, or carries a message that is in no log.
type Hint struct {
	From  string `json:"from,omitempty"` // the hub that sent it, which needs no hint of its own
	Topic string `json:"topic"`
	Seq   int64  `json:"seq,omitempty"`   // the topic's last, where it has grown
	Event *Event `json:"event,omitempty"` // without a sequence number
}

// Wire carries hints between processes, this one included. Hints may be lost: the hub polls, too.
type Wire interface {
	// Publish sends hints. It is called by one goroutine, after the commits they tell of.
	Publish(ctx context.Context, hints []Hint) error
	// Receive calls f with each hint that arrives, until ctx ends, which is when it returns nil. Any other return is a lost
	// connection; it is called again. It calls f for nothing that was sent before it was called.
	Receive(ctx context.Context, f func(Hint)) error
}

// The errors of this package. Callers test for them with [errors.Is].
var (
	// ErrNoTopic is returned when there is no such topic.
	ErrNoTopic = errors.New("there is no such topic")
	// ErrTooManyTopics is returned when a subscriber asks for more topics at a time than it may have.
	ErrTooManyTopics = errors.New("the connection has as many subscriptions as it may have")
	// ErrClosed is returned once the hub, or the subscriber, is closed.
	ErrClosed = errors.New("the live stream is closed")
)

// ExpiredError is returned when events are asked for that are no longer kept.
type ExpiredError struct{ First int64 } // the oldest sequence number that is kept

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("the oldest event that is kept has number %d", e.First)
}

// AheadError is returned when events are asked for after a number that the topic has not come to. Whoever asks has it from
// another history of the topic, which a restore or a failover has ended.
type AheadError struct{ Last int64 } // the topic's last sequence number

func (e *AheadError) Error() string {
	return fmt.Sprintf("the number is not of this history: the topic's last event has number %d", e.Last)
}

// timeLayout is RFC 3339 with microseconds, which is the contract's form of a time.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// Kind tells what a [Message] is.
type Kind int

// The kinds of messages.
const (
	// KindEvent is an event of the topic.
	KindEvent Kind = iota
	// KindSubscribed comes before a subscription's first event. Seq is the topic's last one at that moment.
	KindSubscribed
	// KindDropped ends a subscription that the log cannot or will not serve any more. Seq is the last one that the
	// subscriber was given: it may subscribe anew from there. No message of the subscription follows.
	KindDropped
)

// Message is what a subscriber is given.
type Message struct {
	Kind  Kind
	Topic string
	Seq   int64  // 0 for an event without a sequence number
	Type  string // of an event
	// JSON is an event as the contract has it, on one line. It is shared by all subscribers: read it only.
	JSON []byte
}

// JSON is an event as the contract has it, on one line: what subscribers of the topic are given.
func JSON(topic string, e Event) []byte { return encode(topic, e).JSON }

// FormatTime spells a time as the contract does.
func FormatTime(t time.Time) string { return t.UTC().Truncate(time.Microsecond).Format(timeLayout) }

// encode makes the message of an event: {"topic","seq","type","at","data"}, without seq where it has none.
func encode(topic string, e Event) Message {
	b := make([]byte, 0, len(topic)+len(e.Type)+len(e.Data)+96)
	b = append(b, `{"topic":`...)
	b = quote(b, topic)
	if e.Seq > 0 {
		b = append(b, `,"seq":`...)
		b = strconv.AppendInt(b, e.Seq, 10)
	}
	b = append(b, `,"type":`...)
	b = quote(b, e.Type)
	b = append(b, `,"at":"`...)
	b = e.At.UTC().Truncate(time.Microsecond).AppendFormat(b, timeLayout)
	b = append(b, `","data":`...)
	b = appendData(b, e.Data)
	b = append(b, '}')
	return Message{Kind: KindEvent, Topic: topic, Seq: e.Seq, Type: e.Type, JSON: b}
}

// appendData keeps a message on one line, which the stream of server-sent events needs.
func appendData(b []byte, data json.RawMessage) []byte {
	if len(data) == 0 {
		return append(b, "null"...)
	}
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(b, data...)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, data); err != nil {
		return append(b, "null"...)
	}
	return append(b, line.Bytes()...)
}

// quote appends s as a JSON string; what is no UTF-8 is replaced.
func quote(b []byte, s string) []byte {
	out, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return append(b, `""`...)
	}
	return out
}
