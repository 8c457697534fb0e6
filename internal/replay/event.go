package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MaxAmount is the largest amount of money that the contract knows, 2^53 − 1.
const MaxAmount = 1<<53 - 1

// Bounds of what is read, far above what any auction has: a number beyond them is a broken message.
const (
	maxCount = 1 << 40
	maxName  = 64
)

// ErrParse is returned when a message is not what the contract says; what is wrong is in the text.
var ErrParse = errors.New("message breaks the contract")

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
	Round, Winners, Extensions int
	Status                     string
	EndsAt                     *time.Time // nil before the round's start
}

// Bid is an accepted bid as its event tells it.
type Bid struct {
	Account                string
	Amount, PreviousAmount int64
	Round, Rank            int
}

// Extension is a round's new end.
type Extension struct {
	Round, Extensions int
	EndsAt            time.Time
}

// Close is the end of a round.
type Close struct {
	Round   int
	Winners []Payment // in order of rank
}

// Payment is what a winner pays.
type Payment struct {
	Account string
	Amount  int64
}

// Opening is the beginning of a round with so many places.
type Opening struct {
	Round, Winners int
	EndsAt         time.Time
}

// Carry is a loser's bid that stands in the next round.
type Carry struct {
	Account            string
	Amount             int64
	FromRound, ToRound int
}

// Countdown is how long the open round has left.
type Countdown struct {
	Round       int
	RemainingMS int64
	EndsAt      time.Time
}

// ParseEvent reads one message of a topic. It returns ErrParse for anything that the contract does not allow. Fields that
// it does not know are passed over, because the contract may grow.
func ParseEvent(message []byte) (Event, error) {
	r := readObject(message)
	e := Event{Topic: r.text("topic", maxName), Type: Type(r.text("type", maxName)), At: r.time("at")}
	if e.Type == CountdownTick {
		if seq, ok := r.fields["seq"]; ok && string(seq) != "null" && string(seq) != "0" {
			r.fail("a countdown has the sequence number %.40s", seq)
		}
	} else {
		e.Seq = r.number("seq", 1, maxCount)
	}
	d := r.object("data")
	switch e.Type {
	case AuctionStarted, AuctionCompleted, AuctionCancelled:
		e.Rounds = d.rounds()
	case BidPlaced:
		e.Bid = &Bid{
			Account: d.text("account", maxName), Amount: d.number("amount", 1, MaxAmount),
			PreviousAmount: d.number("previous_amount", 0, MaxAmount), Round: d.count("round", 1), Rank: d.count("rank", 1),
		}
	case RoundExtended:
		e.Extension = &Extension{Round: d.count("round", 1), Extensions: d.count("extensions", 1), EndsAt: d.time("ends_at")}
	case RoundCompleted:
		e.Close = &Close{Round: d.count("round", 1)}
		for _, w := range d.list("winners") {
			e.Close.Winners = append(e.Close.Winners, Payment{w.text("account", maxName), w.number("amount", 1, MaxAmount)})
			d.take(w)
		}
	case RoundStarted:
		e.Opening = &Opening{Round: d.count("round", 1), Winners: d.count("winners", 1), EndsAt: d.time("ends_at")}
	case BidCarriedOver:
		e.Carry = &Carry{
			Account: d.text("account", maxName), Amount: d.number("amount", 1, MaxAmount),
			FromRound: d.count("from_round", 1), ToRound: d.count("to_round", 1),
		}
	case CountdownTick:
		e.Countdown = &Countdown{
			Round: d.count("round", 1), RemainingMS: d.number("remaining_ms", 0, maxCount), EndsAt: d.time("ends_at"),
		}
	default:
		r.fail("unknown type %.80q", string(e.Type))
	}
	r.take(d)
	if r.err != nil {
		return Event{}, fmt.Errorf("%w: %w: %.300s", ErrParse, r.err, message)
	}
	return e, nil
}

// reader reads the fields of one JSON object and keeps the first thing that is wrong. Names are compared exactly.
type reader struct {
	fields map[string]json.RawMessage
	err    error
}

func readObject(text []byte) *reader {
	r := &reader{}
	if err := json.Unmarshal(text, &r.fields); err != nil {
		r.fail("not an object: %v", err)
	} else if r.fields == nil {
		r.fail("not an object: null")
	}
	return r
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// take takes over what was wrong in a part.
func (r *reader) take(part *reader) {
	if r.err == nil {
		r.err = part.err
	}
}

func (r *reader) decode(name string, v any) {
	field, ok := r.fields[name]
	switch {
	case !ok:
		r.fail("no %s", name)
	case string(field) == "null":
		r.fail("%s is null", name)
	default:
		if err := json.Unmarshal(field, v); err != nil {
			r.fail("%s: %v", name, err)
		}
	}
}

// text reads a string of 1 to most bytes; 0 allows the empty one and any length.
func (r *reader) text(name string, most int) string {
	var s string
	r.decode(name, &s)
	if most > 0 && (s == "" || len(s) > most) {
		r.fail("%s has %d bytes", name, len(s))
	}
	return s
}

func (r *reader) number(name string, least, most int64) int64 {
	var n int64
	r.decode(name, &n)
	if n < least || n > most {
		r.fail("%s is %d, not in %d … %d", name, n, least, most)
	}
	return n
}

func (r *reader) count(name string, least int64) int { return int(r.number(name, least, maxCount)) }

func (r *reader) flag(name string) bool {
	var b bool
	r.decode(name, &b)
	return b
}

// time reads a time of RFC 3339 in UTC, no finer than microseconds.
func (r *reader) time(name string) time.Time {
	var s string
	r.decode(name, &s)
	t, err := time.Parse(time.RFC3339Nano, s)
	switch _, offset := t.Zone(); {
	case err != nil:
		r.fail("%s: %v", name, err)
	case offset != 0:
		r.fail("%s is not in UTC: %s", name, s)
	case t.Nanosecond()%1000 != 0:
		r.fail("%s is finer than microseconds: %s", name, s)
	}
	return t.UTC()
}

// timeOrNull is a time that may be absent or null.
func (r *reader) timeOrNull(name string) *time.Time {
	if field, ok := r.fields[name]; !ok || string(field) == "null" {
		return nil
	}
	t := r.time(name)
	return &t
}

func (r *reader) object(name string) *reader {
	var field json.RawMessage
	r.decode(name, &field)
	if r.err != nil {
		return &reader{err: r.err}
	}
	return readObject(field)
}

func (r *reader) list(name string) []*reader {
	var items []json.RawMessage
	r.decode(name, &items)
	objects := make([]*reader, len(items))
	for i, item := range items {
		objects[i] = readObject(item)
	}
	return objects
}

func (r *reader) rounds() []RoundView {
	rounds := []RoundView{}
	for _, item := range r.list("rounds") {
		rounds = append(rounds, RoundView{
			Round: item.count("round", 1), Winners: item.count("winners", 1), Extensions: item.count("extensions", 0),
			Status: item.text("status", maxName), EndsAt: item.timeOrNull("ends_at"),
		})
		r.take(item)
	}
	return rounds
}
