package audit

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
)

// Limits of auctions.
const (
	maxRounds   = 1000
	maxDuration = 366 * 24 * time.Hour
)

// auction plays the leaves of one auction, by package replay.
type auction struct {
	stream *replay.Stream
	topic  string
	counts *Counts
}

func (a *auction) apply(l *leaf) (over bool, p *problem) {
	o := newObject(l.data)
	if a.stream == nil {
		if l.kind != auctionCreated {
			return false, &problem{"order", l.kind, auctionCreated}
		}
		rules := readRules(o)
		if o.problem() == nil {
			a.counts.Auctions++
			a.stream, a.topic = replay.Begin(rules, nil), l.topic.String()
		}
		return false, o.problem()
	}
	if l.kind == auctionCreated {
		return false, &problem{"order", l.kind, "an event of the auction"}
	}
	event := replay.Event{Topic: a.topic, Seq: l.seq, Type: replay.Type(l.kind), At: l.at}
	if readEvent(o, &event); o.problem() != nil {
		return false, o.problem()
	}
	if err := a.stream.Apply(event); err != nil {
		var d *replay.Difference
		if !errors.As(err, &d) {
			return false, &problem{"event", err.Error(), "another one"}
		}
		return false, &problem{d.What, d.Said, d.Recomputed}
	}
	switch l.kind {
	case bidPlaced:
		a.counts.Bids++
	case roundCompleted:
		a.counts.Rounds++
		a.counts.Sold += int64(len(event.Close.Winners))
	case auctionStarted, auctionCompleted, auctionCancelled:
		p = a.starts(o)
	}
	status := a.stream.Status()
	over = a.stream.Missing() == "" && (status == "completed" || status == "cancelled")
	if over {
		a.counts.Settled++
	}
	return over, p
}

// starts compares when rounds started, which replay passes over.
func (a *auction) starts(o object) *problem {
	rounds := a.stream.Rounds()
	for i, view := range o.objects("rounds") {
		said, want := view.timeOrNull("started_at"), rounds[i].StartedAt
		if (said == nil) != want.IsZero() || said != nil && !said.Equal(want) {
			view.wrong("started_at", instant(said), instant(&want))
		}
	}
	return o.problem()
}

func instant(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "null"
	}
	return stamp(*t)
}

func readRules(o object) replay.Rules {
	o.str("title")
	o.str("currency")
	duration := func(o object, name string, least int64) time.Duration {
		return time.Duration(o.integer(name, least, maxDuration.Microseconds())) * time.Microsecond
	}
	rules := replay.Rules{
		Seller: o.alias("seller"), MinBid: o.amount("min_bid", 1), MinIncrement: o.amount("min_increment", 1),
		Window: duration(o, "window", 0), Extension: duration(o, "extension", 0), MaxExtensions: o.number("max_extensions", 0),
		Cooldown: duration(o, "cooldown", 0), UniqueAmounts: o.boolean("unique_amounts"), FundsUnknown: true, OutbidOptional: true,
	}
	for i, round := range o.objects("rounds") {
		rules.Rounds = append(rules.Rounds, replay.RoundRule{Winners: round.number("winners", 1), Duration: duration(round, "duration", 1)})
		if i >= maxRounds {
			round.wrong("", "one more", fmt.Sprintf("at most %d", maxRounds))
			break
		}
	}
	if len(rules.Rounds) == 0 {
		o.wrong("rounds", "none", "at least one")
	}
	return rules
}

// readEvent reads the data of an event.
func readEvent(o object, e *replay.Event) {
	switch e.Type {
	case replay.BidPlaced:
		e.Bid = readBid(o)
	case replay.BidCarriedOver:
		e.Carry = &replay.Carry{
			Account: o.alias("account"), Amount: o.amount("amount", 1), FromRound: o.number("from_round", 1), ToRound: o.number("to_round", 1),
		}
	case replay.RoundExtended:
		e.Extension = &replay.Extension{Round: o.number("round", 1), EndsAt: o.time("ends_at"), Extensions: o.number("extensions", 1)}
	case replay.RoundStarted:
		e.Opening = &replay.Opening{Round: o.number("round", 1), EndsAt: o.time("ends_at"), Winners: o.number("winners", 1)}
	case replay.RoundCompleted:
		e.Close = &replay.Close{Round: o.number("round", 1)}
		for _, w := range o.objects("winners") {
			e.Close.Winners = append(e.Close.Winners, replay.Payment{Account: w.alias("account"), Amount: w.amount("amount", 1)})
		}
	default: // auction.started, auction.completed and auction.cancelled; a countdown is no leaf.
		for _, r := range o.objects("rounds") {
			e.Rounds = append(e.Rounds, replay.RoundView{
				Round: r.number("round", 1), Winners: r.number("winners", 1), Extensions: r.number("extensions", 0),
				Status: r.str("status"), EndsAt: r.timeOrNull("ends_at"),
			})
		}
	}
}

// readBid reads a bid. Whose bid lost its place by it follows, and is in no leaf.
func readBid(o object) *replay.Bid {
	return &replay.Bid{
		Account: o.alias("account"), Amount: o.amount("amount", 1), PreviousAmount: o.amount("previous_amount", 0),
		Round: o.number("round", 1), Rank: o.number("rank", 1),
	}
}
