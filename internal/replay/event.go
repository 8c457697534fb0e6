package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// MaxAmount is the largest amount of money that the contract knows, 2^53 − 1.
const MaxAmount = 1<<53 - 1

// maxName is the longest text that is read, in bytes.
const maxName = 64

// ErrParse is returned when a message is not what the contract says; what is wrong is in the text.
var ErrParse = errors.New("message breaks the contract")

var errAbsent = errors.New("absent")

// Type is the type of an event.
type Type string

// The types of events.
const (
	AuctionStarted   Type = "auction.started"
	AuctionCompleted Type = "auction.completed"
	AuctionCancelled Type = "auction.cancelled"
	BidPlaced        Type = "bid.placed"
	RoundExtended    Type = "round.extended"
	RoundCompleted   Type = "round.completed"
	RoundStarted     Type = "round.started"
	BidCarriedOver   Type = "bid.carried_over"
	CountdownTick    Type = "countdown"
)

// Event is one message of an auction's topic. Seq is 0 for a countdown alone. Exactly one of the pointers, or Rounds, is
// set, by the type.
type Event struct {
	Topic string
	Seq   int64
	Type  Type
	At    time.Time

	Rounds    []RoundView // auction.*
	Bid       *Bid        // bid.placed
	Extension *Extension  // round.extended
	Close     *Close      // round.completed
	Opening   *Opening    // round.started
	Carry     *Carry      // bid.carried_over
	Countdown *Countdown  // countdown
}

// RoundView is a round as the server shows it.
type RoundView struct {
	Round      int        `json:"round"`
	Winners    int        `json:"winners"`
	Extensions int        `json:"extensions" least:"0"`
	Status     string     `json:"status"`
	EndsAt     *time.Time `json:"ends_at"` // nil before the round's start
}

// Bid is an accepted bid as its event tells it.
type Bid struct {
	Account        string `json:"account"`
	Amount         int64  `json:"amount"`
	PreviousAmount int64  `json:"previous_amount" least:"0"`
	Round          int    `json:"round"`
	Rank           int    `json:"rank"`
	// Outbid are those whose standing bid lost a winning place by this one; nil where the server did not record them, see
	// [Rules]. MinWinning is then the least new bid that would win, and nil where nobody lost a place.
	Outbid     *[]Outbid `json:"outbid"`
	MinWinning *int64    `json:"min_winning_bid"`
}

// Outbid is a standing bid that lost its winning place, with its new rank.
type Outbid struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
	Rank    int    `json:"rank"`
}

// Extension is a round's new end.
type Extension struct {
	Round      int       `json:"round"`
	Extensions int       `json:"extensions"`
	EndsAt     time.Time `json:"ends_at"`
}

// Close is the end of a round.
type Close struct {
	Round   int       `json:"round"`
	Winners []Payment `json:"winners"` // in order of rank
}

// Payment is what a winner pays.
type Payment struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

// Opening is the beginning of a round with so many places.
type Opening struct {
	Round   int       `json:"round"`
	Winners int       `json:"winners"`
	EndsAt  time.Time `json:"ends_at"`
}

// Carry is a loser's bid that stands in the next round.
type Carry struct {
	Account   string `json:"account"`
	Amount    int64  `json:"amount"`
	FromRound int    `json:"from_round"`
	ToRound   int    `json:"to_round"`
}

// Countdown is how long the open round has left.
type Countdown struct {
	Round       int       `json:"round"`
	RemainingMS int64     `json:"remaining_ms" least:"0"`
	EndsAt      time.Time `json:"ends_at"`
}

// ParseEvent reads one message of a topic. It returns ErrParse for anything that the contract does not allow. Fields that
// it does not know are passed over, because the contract may grow.
func ParseEvent(message []byte) (Event, error) {
	var m struct {
		Topic string          `json:"topic"`
		Seq   *int64          `json:"seq" least:"0"`
		Type  Type            `json:"type"`
		At    time.Time       `json:"at"`
		Data  json.RawMessage `json:"data"`
	}
	err := read(message, reflect.ValueOf(&m).Elem())
	e := Event{Topic: m.Topic, Type: m.Type, At: m.At}
	if m.Seq != nil {
		e.Seq = *m.Seq
	}
	if err == nil && (e.Seq == 0) != (e.Type == CountdownTick) {
		err = fmt.Errorf("an event of type %s has the sequence number %d", e.Type, e.Seq)
	}
	var rounds struct {
		Rounds []RoundView `json:"rounds"`
	}
	var data any
	switch e.Type {
	case AuctionStarted, AuctionCompleted, AuctionCancelled:
		data = &rounds
	case BidPlaced:
		e.Bid = new(Bid)
		data = e.Bid
	case RoundExtended:
		e.Extension = new(Extension)
		data = e.Extension
	case RoundCompleted:
		e.Close = new(Close)
		data = e.Close
	case RoundStarted:
		e.Opening = new(Opening)
		data = e.Opening
	case BidCarriedOver:
		e.Carry = new(Carry)
		data = e.Carry
	case CountdownTick:
		e.Countdown = new(Countdown)
		data = e.Countdown
	default:
		err = errors.Join(err, fmt.Errorf("unknown type %.80q", string(e.Type)))
	}
	if err == nil {
		err = read(m.Data, reflect.ValueOf(data).Elem())
	}
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w: %.300s", ErrParse, err, message)
	}
	e.Rounds = rounds.Rounds
	return e, nil
}

// read decodes an object into a struct. Names are compared exactly. Every field must be there and not null, but for pointers.
func read(text []byte, into reflect.Value) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return fmt.Errorf("not an object: %.40s", text)
	}
	for f, v := range into.Fields() {
		name := f.Tag.Get("json")
		field, ok := fields[name]
		absent := !ok || string(field) == "null"
		if v.Kind() == reflect.Pointer && absent {
			continue
		}
		err := errAbsent
		if !absent {
			err = decode(field, v, f.Tag.Get("least"))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// decode decodes one value, which must be within its bounds: a text of 1 to 64 bytes, a number from least (1 where that is
// empty) to [MaxAmount], a time in UTC and no finer than microseconds.
func decode(field json.RawMessage, v reflect.Value, least string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return decode(field, v.Elem(), least)
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct {
		var items []json.RawMessage
		if err := json.Unmarshal(field, &items); err != nil {
			return err
		}
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
		for i, item := range items {
			if err := read(item, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := json.Unmarshal(field, v.Addr().Interface()); err != nil {
		return err
	}
	ok := true
	switch t, isTime := reflect.TypeAssert[*time.Time](v.Addr()); {
	case isTime:
		_, offset := t.Zone()
		*t, ok = t.UTC(), offset == 0 && t.Nanosecond()%1000 == 0
	case v.Kind() == reflect.String:
		ok = v.Len() > 0 && v.Len() <= maxName
	case v.CanInt():
		ok = v.Int() <= MaxAmount && (v.Int() > 0 || v.Int() == 0 && least == "0")
	}
	if !ok {
		return fmt.Errorf("%.80s is out of bounds", field)
	}
	return nil
}
