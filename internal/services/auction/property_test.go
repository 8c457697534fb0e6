package auction_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// people bid; shop is the seller, usd has another currency, and nobody no account.
func people() []string {
	return []string{"ann", "ben", "cid", "dee", "eve", "fay", "poor", "shop", "usd", "nobody"}
}

func drawAuction(t *rapid.T) auction.Create {
	between := func(label string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, label) }
	create := auction.Create{
		Title: "lamp", Currency: "EUR", Seller: "shop",
		MinBid: between("min bid", 1, 4), MinIncrement: between("increment", 1, 3),
		Cooldown:      time.Duration(between("cooldown", 0, 2)) * 3 * time.Millisecond,
		UniqueAmounts: rapid.Bool().Draw(t, "unique"),
		AntiSnipe: auction.AntiSnipe{
			Window:        time.Duration(between("window", 0, 15)) * time.Millisecond,
			Extension:     time.Duration(between("extension", 0, 20)) * time.Millisecond,
			MaxExtensions: int(between("extensions", 0, 3)),
		},
	}
	for range between("rounds", 1, 3) {
		create.Rounds = append(create.Rounds, auction.NewRound{
			Winners: int(between("winners", 1, 3)), Duration: time.Duration(between("duration", 1, 40)) * time.Millisecond,
		})
	}
	return create
}

func drawOp(t *rapid.T, m *model) auction.Op {
	switch n := rapid.IntRange(0, 99).Draw(t, "op"); {
	case n == 0:
		return auction.Cancel{}
	case n < 5:
		return auction.Start{}
	case n < 25:
		return auction.CloseRound{
			Round: max(1, m.round+rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(t, "which")),
			Term:  rapid.SampledFrom([]int64{5, 5, 5, 6, 4}).Draw(t, "term"),
		}
	}
	return auction.PlaceBid{
		Account: rapid.SampledFrom(people()).Draw(t, "account"), Amount: rapid.Int64Range(1, 40).Draw(t, "amount"),
	}
}

// drawTime moves the clock: often to the edges of the round and of its window, sometimes back.
func drawTime(t *rapid.T, now time.Time, m *model) time.Time {
	switch kind := rapid.IntRange(0, 9).Draw(t, "time"); kind {
	case 0:
		return now.Add(-time.Duration(rapid.IntRange(1, 5000).Draw(t, "back")) * time.Microsecond)
	case 1, 2, 3, 4:
		edge := m.ends
		if kind == 4 {
			edge = edge.Add(-m.create.AntiSnipe.Window)
		}
		edge = edge.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "edge")) * time.Microsecond)
		if m.status == "active" && edge.After(now) {
			return edge
		}
	}
	return now.Add(time.Duration(rapid.IntRange(0, 6000).Draw(t, "forth")) * time.Microsecond)
}

// seen is everything about a state that can be observed between transactions.
type seen struct {
	Auction auction.Auction
	Order   []auction.Bid
	Taken   []int64
}

func look(s *auction.State) seen {
	v := seen{Auction: *s.Auction}
	v.Auction.Rounds = slices.Clone(s.Auction.Rounds)
	for _, b := range s.Standing.All() {
		v.Order = append(v.Order, b)
	}
	for amount := range int64(42) {
		if s.Standing.Taken(amount) {
			v.Taken = append(v.Taken, amount)
		}
	}
	return v
}

// TestAgainstModel plays random interleavings of bids, raises, closes, starts and cancellations, in batches, on a moving
// clock, with transactions that are undone and states that are dropped, or brought up to date with bids that another
// process has committed. Answers, events, money and order must be the model's.
func TestAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		create := drawAuction(rt)
		w := newWorld(t, create, "ann", "ben", "cid", "dee", "eve", "fay")
		w.open("poor", "EUR", 5)
		w.open("shop", "EUR", rapid.SampledFrom([]int64{0, 0, 0, math.MaxInt64 - 60}).Draw(rt, "shop"))
		m := newModel(create, w.now)
		for id, a := range w.accounts {
			m.money[id] = &modelMoney{currency: a.Currency, available: a.Available}
		}
		lagging, known := auction.NewState(w.copyRow(), nil), 0 // another process's, and how many bids it has seen
		for range rapid.IntRange(1, 50).Draw(rt, "batches") {
			w.now = drawTime(rt, w.now, m)
			var ops []auction.Op
			for range rapid.IntRange(1, 4).Draw(rt, "size") {
				ops = append(ops, drawOp(rt, m))
			}
			if rapid.IntRange(0, 2).Draw(rt, "undo") == 0 {
				tryAndUndo(t, rt, w, ops)
			}
			for i, o := range w.run(t, ops...) {
				if got, want := spoken(o), m.apply(ops[i], w.now); got != want {
					rt.Fatalf("%+v: %q, the model says %q", ops[i], got, want)
				}
			}
			compare(rt, w, m)
			lagging, known = followed(rt, w, lagging, known)
			if rapid.IntRange(0, 5).Draw(rt, "reload") == 0 {
				before := look(w.state)
				w.reload()
				if m.status == "active" && !reflect.DeepEqual(look(w.state), before) {
					rt.Fatalf("read again: %+v\nkept: %+v", look(w.state), before)
				}
			}
		}
	})
}

// tryAndUndo decides and takes back: nothing may be left, and the same transaction must be decided alike again.
func tryAndUndo(tb testing.TB, rt *rapid.T, w *world, ops []auction.Op) {
	tb.Helper()
	before, ids, now := look(w.state), w.ids, w.now
	// What was undone was perhaps decided later than what follows, and must not have moved the auction's time.
	w.now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ahead")) * time.Microsecond)
	first, changed := w.decide(tb, ops...), w.state.Changed()
	events := slices.Clone(w.state.Events)
	for range rapid.IntRange(1, 2).Draw(rt, "undos") {
		w.state.Undo()
	}
	if after := look(w.state); !reflect.DeepEqual(after, before) {
		rt.Fatalf("undone: %+v\nbefore: %+v", after, before)
	}
	added, raised, removed := w.state.StandingChanges()
	if w.state.Changed() || len(w.state.ChangedRounds())+len(added)+len(raised)+len(removed)+len(w.state.Events) > 0 {
		rt.Fatal("something is left to be written after an undo")
	}
	w.ids = ids
	again := w.decide(tb, ops...)
	if !alike(first, again) || !reflect.DeepEqual(events, w.state.Events) || changed != w.state.Changed() {
		rt.Fatalf("decided %+v, and after an undo %+v", first, again)
	}
	w.state.Undo()
	w.ids, w.now = ids, now
}

// alike reports whether two runs were answered the same.
func alike(a, b []outcome) bool {
	return slices.EqualFunc(a, b, func(a, b outcome) bool {
		return spoken(a) == spoken(b) && reflect.DeepEqual(a.result, b.result)
	})
}

// followed brings another process's state up to date: by the bids it has not seen, where nothing else has happened.
func followed(rt *rapid.T, w *world, s *auction.State, known int) (*auction.State, int) {
	if rapid.Bool().Draw(rt, "behind") {
		return s, known
	}
	if w.row.Status == auction.StatusActive && s.Auction.Status == w.row.Status && s.Auction.CurrentRound == w.row.CurrentRound {
		from := rapid.IntRange(0, known).Draw(rt, "overlap") // Bids that are known already do no harm.
		var bids []auction.Bid
		for _, p := range w.placed[from:] {
			bids = append(bids, auction.Bid{Account: p.Account, Amount: p.Amount, Round: p.Round, Seq: p.Seq, At: p.At, Hold: p.Hold})
		}
		s.CatchUp(w.copyRow(), bids)
	} else {
		var bids []auction.Bid
		for _, b := range w.standing {
			bids = append(bids, b)
		}
		s = auction.NewState(w.copyRow(), bids)
	}
	if got, want := look(s), look(w.state); w.row.Status == auction.StatusActive && !reflect.DeepEqual(got, want) {
		rt.Fatalf("caught up: %+v\nkept: %+v", got, want)
	}
	return s, len(w.placed)
}

// compare checks the world against the model, and the invariants that need no model.
func compare(rt *rapid.T, w *world, m *model) {
	if len(w.events) != len(m.lines) || w.row.Seq != int64(len(m.lines)) || w.row.TotalBids != int64(m.total) {
		rt.Fatalf("%d events, seq %d, %d bids; the model has %d and %d", len(w.events), w.row.Seq, w.row.TotalBids, len(m.lines), m.total)
	}
	var at time.Time
	for i, e := range w.events {
		if told(e) != m.lines[i] {
			rt.Fatalf("event %q, the model says %q", told(e), m.lines[i])
		}
		if e.At.Before(at) {
			rt.Fatalf("event %d is earlier than the one before", e.Seq)
		}
		at = e.At
	}
	var total int64
	for id, a := range w.accounts {
		if want := m.money[id]; a.Available != want.available || a.Held != want.held {
			rt.Fatalf("%s has %d and %d, the model says %d and %d", id, a.Available, a.Held, want.available, want.held)
		}
		if id != "shop" {
			total += a.Available + a.Held
		}
	}
	captures := map[uuid.UUID]int64{}
	for _, h := range w.holds {
		if h.Status == ledger.HoldCaptured {
			captures[*h.Transfer] = h.Captured
		}
	}
	var paid int64
	for _, winner := range w.winners {
		if paid += winner.Amount; captures[winner.Transfer] != winner.Amount {
			rt.Fatalf("no hold was captured for %+v", winner)
		}
	}
	if total+paid != 6*1000+5+1000 {
		rt.Fatalf("money was made or lost: %d with %d paid", total, paid)
	}
	checkHolds(rt, w)
	checkOrder(rt, w, m)
	checkRounds(rt, w)
}

func checkHolds(rt *rapid.T, w *world) {
	held := map[string]int64{}
	for _, h := range w.holds {
		if h.Status == ledger.HoldOpen {
			held[h.Account] += h.Amount
		}
	}
	for id, a := range w.accounts {
		standing := w.standing[id].Amount
		if w.row.Status != auction.StatusActive {
			standing = 0
		}
		if a.Held != standing || held[id] != standing {
			rt.Fatalf("%s holds %d, its holds are %d, its standing bid is %d", id, a.Held, held[id], standing)
		}
	}
}

// checkOrder compares the kept set with the model's order and with the rows that were written change by change.
func checkOrder(rt *rapid.T, w *world, m *model) {
	if w.row.Status != auction.StatusActive {
		return
	}
	ranking := m.ranking()
	if w.state.Standing.Len() != len(ranking) || len(w.standing) != len(ranking) {
		rt.Fatalf("%d stand, %d rows, the model has %d", w.state.Standing.Len(), len(w.standing), len(ranking))
	}
	amounts := map[int64]bool{}
	for rank, b := range w.state.Standing.All() {
		want := ranking[rank-1]
		if b.Account != want.account || b.Amount != want.amount || !b.At.Equal(want.at) || w.standing[b.Account] != b {
			rt.Fatalf("rank %d: %+v, the row is %+v, the model says %+v", rank, b, w.standing[b.Account], want)
		}
		if m.create.UniqueAmounts && amounts[b.Amount] {
			rt.Fatalf("two bids of %d", b.Amount)
		}
		amounts[b.Amount] = true
	}
}

func checkRounds(rt *rapid.T, w *world) {
	if got := fmt.Sprint(w.state.Auction.Rounds); got != fmt.Sprint(w.row.Rounds) {
		rt.Fatalf("rounds %s, written %+v", got, w.row.Rounds)
	}
	open := 0
	for _, r := range w.row.Rounds {
		if r.Status == auction.RoundActive {
			open++
		}
		if r.StartedAt == nil {
			continue
		}
		want := r.StartedAt.Add(r.Duration + time.Duration(r.Extensions)*w.row.AntiSnipe.Extension)
		if !r.EndsAt.Equal(want) || r.Extensions > w.row.AntiSnipe.MaxExtensions {
			rt.Fatalf("round %d ends at %s after %d extensions, want %s", r.Number, r.EndsAt, r.Extensions, want)
		}
		if r.EndedAt != nil && r.EndedAt.Before(*r.EndsAt) && w.row.Status != auction.StatusCancelled {
			rt.Fatalf("round %d was closed at %s, before %s", r.Number, r.EndedAt, r.EndsAt)
		}
	}
	if active := w.row.Status == auction.StatusActive; active != (open == 1) || open > 1 {
		rt.Fatalf("%d rounds are open in an auction that is %s", open, w.row.Status)
	}
	for _, p := range w.placed {
		if r := w.row.Rounds[p.Round-1]; !p.At.Before(*r.EndsAt) {
			rt.Fatalf("a bid of %s in a round that ended at %s", p.At, r.EndsAt)
		}
	}
}
