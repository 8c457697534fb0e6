package replay

import (
	"fmt"
	"time"
)

// Difference is the first thing that the server says otherwise than the auditor recomputes it. Returned by everything
// that compares.
type Difference struct {
	// Seq is the event's sequence number; 0 for an answer that is no event.
	Seq int64
	// What names the field or the rule.
	What string
	// Said is what the server says, Recomputed what it should be.
	Said, Recomputed string
}

// Error tells the difference in one line.
func (d *Difference) Error() string {
	where := "answer"
	if d.Seq > 0 {
		where = fmt.Sprintf("event %d", d.Seq)
	}
	return fmt.Sprintf("%s: %s: the server says %s, recomputed %s", where, d.What, d.Said, d.Recomputed)
}

// differ keeps the first difference of one comparison.
type differ struct {
	seq   int64
	first *Difference
}

func (d *differ) note(what, said, recomputed string) {
	if d.first == nil {
		d.first = &Difference{Seq: d.seq, What: what, Said: said, Recomputed: recomputed}
	}
}

// err is the difference as an error, and a true nil where there is none.
func (d *differ) err() error {
	if d.first == nil {
		return nil
	}
	return d.first
}

func same[T comparable](d *differ, what string, said, recomputed T) {
	if said != recomputed {
		d.note(what, fmt.Sprintf("%+v", said), fmt.Sprintf("%+v", recomputed))
	}
}

func sameTime(d *differ, what string, said, recomputed time.Time) {
	if !said.Equal(recomputed) {
		wrongTime(d, what, said, recomputed)
	}
}

// wrongTime notes a time that is on the wrong side of a bound, which it may be equal to.
func wrongTime(d *differ, what string, said, bound time.Time) {
	d.note(what, said.Format(time.RFC3339Nano), bound.Format(time.RFC3339Nano))
}

// sameList compares two lists of what is called so.
func sameList[T comparable](d *differ, what string, said, recomputed []T) {
	same(d, "number of "+what+"s", len(said), len(recomputed))
	for i := range min(len(said), len(recomputed)) {
		same(d, fmt.Sprintf("%s %d", what, i+1), said[i], recomputed[i])
	}
}

func sameRounds(d *differ, said, recomputed []RoundView) {
	same(d, "number of rounds", len(said), len(recomputed))
	for i := range min(len(said), len(recomputed)) {
		s, r := said[i], recomputed[i]
		where := fmt.Sprintf(" of round %d", i+1)
		same(d, "number"+where, s.Round, r.Round)
		same(d, "winners"+where, s.Winners, r.Winners)
		same(d, "status"+where, s.Status, r.Status)
		same(d, "extensions"+where, s.Extensions, r.Extensions)
		same(d, "presence of the end"+where, s.EndsAt != nil, r.EndsAt != nil)
		if s.EndsAt != nil && r.EndsAt != nil {
			sameTime(d, "end"+where, *s.EndsAt, *r.EndsAt)
		}
	}
}

// compareEvents compares an event with the one that the transaction under way must tell next.
func compareEvents(d *differ, said, recomputed Event) {
	same(d, "type", said.Type, recomputed.Type)
	sameTime(d, "time", said.At, recomputed.At)
	if d.first != nil {
		return
	}
	switch said.Type { //nolint:exhaustive // Only these follow from another event.
	case RoundExtended:
		same(d, "round", said.Extension.Round, recomputed.Extension.Round)
		same(d, "extensions", said.Extension.Extensions, recomputed.Extension.Extensions)
		sameTime(d, "end of the round", said.Extension.EndsAt, recomputed.Extension.EndsAt)
	case RoundStarted:
		same(d, "round", said.Opening.Round, recomputed.Opening.Round)
		same(d, "winners", said.Opening.Winners, recomputed.Opening.Winners)
		sameTime(d, "end of the round", said.Opening.EndsAt, recomputed.Opening.EndsAt)
	case BidCarriedOver:
		same(d, "bid carried over", *said.Carry, *recomputed.Carry)
	case AuctionCompleted:
		sameRounds(d, said.Rounds, recomputed.Rounds)
	}
}
