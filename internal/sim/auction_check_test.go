//go:build unix

package sim_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// checkBids compares the answers to all bids on one auction with its events: every acknowledged bid is there exactly as
// it was answered, every event was answered to the one command that caused it, and no refused bid is there. All bids on the
// auction must be among the commands and settled; it reports those that are not.
func checkBids(ops []*sim.Op, auction string, out *replay.Outcome) error {
	placed := map[int64]replay.PlacedBid{}
	for _, b := range out.Bids {
		placed[b.Seq] = b
	}
	var wrong []error
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%w: "+format, append([]any{sim.ErrModel}, args...)...))
	}
	told := map[int64]bool{}
	for _, op := range ops {
		if op.Kind != sim.KindBid || op.Path != "/v1/auctions/"+auction+"/bids" {
			continue
		}
		final, ok := op.Final()
		var a client.Bid
		switch {
		case !ok:
			complain("%s has no final answer: %v", op, op.Answers())
			continue
		case final.Status != http.StatusCreated:
			continue
		}
		if err := final.JSON(&a); err != nil {
			complain("%s: %w", op, err)
			continue
		}
		if told[a.Seq] {
			complain("event %d was told to two commands, the second is %s", a.Seq, op)
		}
		told[a.Seq] = true
		b := placed[a.Seq]
		known := client.Bid{
			Auction: auction, Account: b.Account, Amount: b.Amount, PreviousAmount: b.PreviousAmount, Round: int64(b.Round),
			RoundEndsAt: b.RoundEndsAt.UTC(), Rank: int64(b.Rank), Seq: b.Seq,
		}
		if a.RoundEndsAt = a.RoundEndsAt.UTC(); a != known {
			complain("%s: was told %+v, by the events it is %+v", op, a, known)
		}
	}
	for seq, b := range placed {
		if !told[seq] {
			complain("event %d, a bid of %d by %s, was told to no command", seq, b.Amount, b.Account)
		}
	}
	return errors.Join(wrong...)
}

// TestCheckBidsNoticesTampering plays an auction of which one round is closed, changes what clients were told of bids, and
// wants each change to be noticed.
func TestCheckBidsNoticesTampering(t *testing.T) {
	beside(t)
	accounts := []string{"ann", "bob", "cyd"}
	h := openHouse(t, 1, append(accounts, "gallery"), 1000)
	b := h.launch(t, "tamper", accounts, replay.Rules{
		Seller: "gallery", UniqueAmounts: true, Window: time.Hour, Extension: time.Millisecond, MaxExtensions: 2,
		Rounds: []replay.RoundRule{{Winners: 1, Duration: 4 * time.Second}, {Winners: 1, Duration: time.Hour}},
	})
	bid := func(account string, amount int64) {
		op := sim.NewBid(fmt.Sprintf("tamper-%s-%d", account, amount), b.id, account, amount)
		if a, err := h.client.Settle(testwait.Context(t, patience), op); err != nil || a.Status != http.StatusCreated {
			t.Fatalf("%s: %v %v", op, a, err)
		}
	}
	bid("ann", 100)
	bid("bob", 50)
	bid("bob", 60)
	b.await(t, patience, "the second round", func(e replay.Event) bool { return e.Opening != nil && e.Opening.Round == 2 })
	bid("cyd", 70)
	bid("bob", 80)
	b.act(t, "cancel")
	out := b.finish(t, patience)
	for what, alter := range map[string]func(*replay.Outcome){
		"amount":      func(o *replay.Outcome) { o.Bids[1].Amount++ },
		"account":     func(o *replay.Outcome) { o.Bids[1].Account = "cyd" },
		"previous":    func(o *replay.Outcome) { o.Bids[1].PreviousAmount++ },
		"round":       func(o *replay.Outcome) { o.Bids[1].Round++ },
		"rank":        func(o *replay.Outcome) { o.Bids[1].Rank++ },
		"end":         func(o *replay.Outcome) { o.Bids[1].RoundEndsAt = o.Bids[1].RoundEndsAt.Add(time.Millisecond) },
		"number":      func(o *replay.Outcome) { o.Bids[1].Seq += 100 },
		"lost bid":    func(o *replay.Outcome) { o.Bids = o.Bids[1:] },
		"foreign bid": func(o *replay.Outcome) { o.Bids = append(o.Bids, replay.PlacedBid{Seq: 1000}) },
	} {
		altered := *out
		altered.Bids = slices.Clone(out.Bids)
		alter(&altered)
		if err := checkBids(h.history.Ops(), b.id, &altered); !errors.Is(err, sim.ErrModel) {
			t.Errorf("%s: not noticed: %v", what, err)
		}
	}
	h.close(t, 1)
}
