package live

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

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
