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
	told := map[int64]*Op{}
	for _, op := range ops {
		if op.Kind != KindBid || op.Path != "/v1/auctions/"+auction+"/bids" {
			continue
		}
		final, ok := op.Final()
		if !ok {
			complain("%s has no final answer: %v", op, op.Answers())
			continue
		}
		if final.Status != http.StatusCreated {
			continue
		}
		var a client.Bid
		if err := final.JSON(&a); err != nil {
			complain("%s: %w", op, err)
			continue
		}
		if other := told[a.Seq]; other != nil {
			complain("event %d was told to two commands: %s and %s", a.Seq, other, op)
		}
		told[a.Seq] = op
		b, ok := placed[a.Seq]
		if !ok {
			complain("acknowledged bid is not among the events: %s: %s", op, final.Body)
			continue
		}
		known := client.Bid{
			Auction: auction, Account: b.Account, Amount: b.Amount, PreviousAmount: b.PreviousAmount, Round: int64(b.Round),
			RoundEndsAt: b.RoundEndsAt, Rank: int64(b.Rank), Seq: b.Seq,
		}
		if !known.RoundEndsAt.Equal(a.RoundEndsAt) {
			complain("%s: was told that the round ends at %v, by the events it is %v", op, a.RoundEndsAt, known.RoundEndsAt)
		}
		a.RoundEndsAt = known.RoundEndsAt
		if a != known {
			complain("%s: was told %+v, by the events it is %+v", op, a, known)
		}
	}
	for seq, b := range placed {
		if told[seq] == nil {
			complain("event %d, a bid of %d by %s, was told to no command", seq, b.Amount, b.Account)
		}
	}
	return errors.Join(wrong...)
}
