package auction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestStandingAgainstSorting works on sets large enough for many blocks, and compares them with a map that is sorted.
func TestStandingAgainstSorting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := map[string]Bid{}
		seq := int64(0)
		next := func(account string, amount int64) Bid {
			seq++
			return Bid{Account: account, Amount: amount, Seq: seq}
		}
		var bids []Bid
		for i := range rapid.IntRange(0, 3*maxBlock).Draw(t, "bidders") {
			b := next(fmt.Sprint("a", i), int64(i*7919%1000))
			rows[b.Account] = b
			bids = append(bids, b)
		}
		s := newStanding(bids)
		for range rapid.IntRange(1, 8).Draw(t, "transactions") {
			before := maps.Clone(rows)
			// Many at once, close together, so that blocks are split, drained and merged.
			n, first := rapid.IntRange(1, 2*maxBlock).Draw(t, "changes"), rapid.IntRange(0, 1000).Draw(t, "first")
			step, amount := rapid.IntRange(1, 3).Draw(t, "step"), rapid.Int64Range(0, 1000).Draw(t, "amount")
			removing := rapid.IntRange(0, 2).Draw(t, "removing") == 0
			for i := range n {
				account := fmt.Sprint("a", first+i*step)
				if _, ok := rows[account]; removing && ok {
					s.remove(account)
					delete(rows, account)
				} else if !removing {
					b := next(account, amount+int64(i%9))
					rank := s.put(b)
					if block, i := s.search(b.Amount, b.Seq); rank != s.rank(block, i) {
						t.Fatalf("placed at rank %d, want %d", rank, s.rank(block, i))
					}
					rows[account] = b
				}
			}
			checkStanding(t, s, rows)
			checkNet(t, s, before, rows)
			if rapid.Bool().Draw(t, "undo") {
				s.undo()
				rows = before
				checkStanding(t, s, rows)
			} else {
				s.begin()
			}
			if len(s.nodes) != len(rows) {
				t.Fatalf("%d nodes for %d bids", len(s.nodes), len(rows))
			}
		}
	})
}

// TestOutbidAgainstSorting compares whose bid loses a winning place with who was among the first before, and is not after.
func TestOutbidAgainstSorting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, places, rows := newStanding(nil), rapid.IntRange(1, 4).Draw(t, "places"), map[string]Bid{}
		order := func() []Bid {
			return slices.SortedFunc(maps.Values(rows), func(a, b Bid) int { return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.Seq, b.Seq)) })
		}
		for seq := range int64(rapid.IntRange(5, 40).Draw(t, "bids")) {
			account := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "account")
			bid := Bid{Account: account, Amount: rows[account].Amount + rapid.Int64Range(1, 20).Draw(t, "more"), Seq: seq + 1}
			before := order()
			rank, out, floor := s.putAmong(bid, places)
			rows[account] = bid
			after := order()
			if after[rank-1] != bid {
				t.Fatalf("rank %d of %+v", rank, after)
			}
			var lost []Bid
			for _, b := range before[:min(places, len(before))] {
				if i := slices.IndexFunc(after, func(other Bid) bool { return other.Account == b.Account }); i >= places {
					lost = append(lost, b)
				}
			}
			switch {
			case len(lost) > 1:
				t.Fatalf("%d lost their places", len(lost))
			case len(lost) == 0 && (out != nil || floor != 0):
				t.Fatalf("nobody lost a place by %+v, not %+v: before %+v, floor %d", bid, out, before, floor)
			case len(lost) == 1 && (out == nil || *out != lost[0] || after[places] != lost[0] || floor != after[places-1].Amount+1):
				t.Fatalf("%+v lost its place by %+v, not %+v; floor %d, after %+v", lost[0], bid, out, floor, after)
			}
		}
	})
}

func checkStanding(t *rapid.T, s *Standing, rows map[string]Bid) {
	var want []Bid
	for _, b := range rows {
		want = append(want, b)
	}
	slices.SortFunc(want, func(a, b Bid) int { return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.Seq, b.Seq)) })
	if s.Len() != len(want) {
		t.Fatalf("%d bids, want %d", s.Len(), len(want))
	}
	for rank, b := range s.All() {
		block, i := s.search(b.Amount, b.Seq)
		if b != want[rank-1] || s.rank(block, i) != rank || s.at(rank) != &s.blocks[block][i] || s.blocks[block][i].node.bid != b {
			t.Fatalf("rank %d: %+v, want %+v", rank, b, want[rank-1])
		}
		if !s.Taken(b.Amount) {
			t.Fatalf("%d is not taken", b.Amount)
		}
	}
	if s.Taken(5000) {
		t.Fatal("something is there that should not be")
	}
	for i, block := range s.blocks {
		if len(block) == 0 || len(block) >= maxBlock || cap(block) != maxBlock {
			t.Fatalf("block %d has %d places of %d", i, len(block), cap(block))
		}
	}
}

func checkNet(t *rapid.T, s *Standing, before, rows map[string]Bid) {
	added, raised, removed := s.changes()
	byAccount := func(a, b Bid) int { return cmp.Compare(a.Account, b.Account) }
	raiseByAccount := func(a, b Raise) int { return cmp.Compare(a.Account, b.Account) }
	if !slices.IsSortedFunc(added, byAccount) || !slices.IsSortedFunc(raised, raiseByAccount) || !slices.IsSorted(removed) {
		t.Fatal("changes are not in order of account")
	}
	copied := maps.Clone(before)
	for _, account := range removed {
		delete(copied, account)
	}
	for _, r := range raised {
		if was := copied[r.Account]; was == r.Bid || was.Account == "" || was.Amount != r.Before {
			t.Fatalf("%s was not raised from %d", r.Account, r.Before)
		}
		copied[r.Account] = r.Bid
	}
	for _, b := range added {
		if _, ok := before[b.Account]; ok {
			t.Fatalf("%s was not added", b.Account)
		}
		copied[b.Account] = b
	}
	if len(copied) != len(rows) {
		t.Fatalf("the changes lead to %d bids, want %d", len(copied), len(rows))
	}
	for k, b := range rows {
		if copied[k] != b {
			t.Fatalf("the changes lead to %+v, want %+v", copied[k], b)
		}
	}
}
