package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestOrder puts bids in and takes them out at random, beside a list that is sorted anew each time.
func TestOrder(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var o order
	var list []*standing
	grow := 4
	for step := range 20_000 {
		if step == 10_000 {
			grow = 1 // It shrinks again, so that blocks become empty.
		}
		if len(list) == 0 || rng.IntN(5) < grow {
			s := &standing{amount: rng.Int64N(50), at: time.Unix(rng.Int64N(3), 0), seq: int64(step)}
			place, _ := slices.BinarySearchFunc(list, s, (*standing).compare)
			list = slices.Insert(list, place, s)
			if rank := o.insert(s); rank != place+1 {
				t.Fatalf("seed %d, step %d: inserted at rank %d, not %d", seed, step, rank, place+1)
			}
		} else {
			i := rng.IntN(len(list))
			if s := o.at(i + 1); s != list[i] {
				t.Fatalf("seed %d, step %d: another bid has rank %d", seed, step, i+1)
			}
			if rank := o.remove(list[i]); rank != i+1 {
				t.Fatalf("seed %d, step %d: removed from rank %d, not %d", seed, step, rank, i+1)
			}
			list = slices.Delete(list, i, i+1)
		}
		if step%997 == 0 || len(list) < 3 {
			i := 0
			for rank, s := range o.all() {
				if rank != i+1 || s != list[i] {
					t.Fatalf("seed %d, step %d: another bid is at %d", seed, step, i)
				}
				i++
			}
			if i != len(list) || o.count != len(list) {
				t.Fatalf("seed %d, step %d: %d bids, counted %d, not %d", seed, step, i, o.count, len(list))
			}
		}
	}
}

// BenchmarkStream plays a million bids of a hundred thousand bidders.
func BenchmarkStream(b *testing.B) {
	const bids, bidders = 1_000_000, 100_000
	b.ReportAllocs()
	for b.Loop() {
		at := time.Unix(1_700_000_000, 0).UTC()
		s := Begin(Rules{Seller: "s", Rounds: []RoundRule{{Winners: 100, Duration: time.Hour}}, FundsUnknown: true, OutbidOptional: true}, nil)
		s.out.Status, s.out.CurrentRound = "active", 1
		s.out.Rounds[0].EndsAt = at.Add(time.Hour)
		rng := rand.New(rand.NewPCG(1, 2))
		last := make([]int64, bidders)
		names := make([]string, bidders)
		for i := range names {
			names[i] = fmt.Sprintf("%032x", i)
		}
		for i := range bids {
			who := rng.IntN(bidders)
			amount := last[who] + 1 + rng.Int64N(1000)
			// Its rank is the order's own, so only the work is measured.
			old := &standing{account: names[who], amount: amount, at: at, seq: int64(i) + 1}
			_, _, rank := s.order.search(old)
			if before := s.standing[names[who]]; before != nil {
				rank = min(rank, s.order.count)
			}
			e := Event{Topic: "auction:1", Seq: int64(i) + 1, Type: BidPlaced, At: at, Bid: &Bid{
				Account: names[who], Amount: amount, PreviousAmount: last[who], Round: 1, Rank: rank,
			}}
			testwait.Must(b, s.Apply(e))
			last[who] = amount
		}
	}
}
