//go:build unix

package sim

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
)

// CheckBids compares the answers to all bids on one auction with its events: every acknowledged bid is there exactly as
// it was answered, every event was answered to the one command that caused it, and no refused bid is there. All bids on the
// auction must be among the commands and settled; it reports those that are not.
func CheckBids(ops []*Op, auction string, out *replay.Outcome) error {
	placed := map[int64]replay.PlacedBid{}
	for _, b := range out.Bids {
		placed[b.Seq] = b
	}
	var wrong []error
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%w: "+format, append([]any{ErrModel}, args...)...))
	}
	told := map[int64]bool{}
	for _, op := range ops {
		if op.Kind != KindBid || op.Path != "/v1/auctions/"+auction+"/bids" {
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
