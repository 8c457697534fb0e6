package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
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
