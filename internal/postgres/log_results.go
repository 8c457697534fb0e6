package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// compareResults compares what the tables have of a topic's results, and its leaves have not: whose positions were sold, who holds those that won, the
// second copy of an auction's winners, and the numbers of a multi-draw. The leaves are those that the tables make.
func (l *Log) compareResults(ctx context.Context, n logkeeper.News) (difference string, err error) {
	switch n.Kind {
	case logkeeper.KindCampaign:
		difference, err = l.redraw(ctx, n.ID)
		if _, archived := errors.AsType[*lottery.SalesNotFoundError](err); archived {
			return "", nil // The archive's own check draws from the file.
		}
	case logkeeper.KindAuction:
		difference, err = l.compareWinners(ctx, n.ID)
	case logkeeper.KindMultidraw:
		difference, err = l.compareNumbers(ctx, n.ID)
	case logkeeper.KindBooks:
	}
	if difference != "" {
		difference = n.String() + ": " + difference
	}
	return difference, err
}

// redraw makes the draw of a campaign anew, or the root of one that is sealed and was not drawn.
func (l *Log) redraw(ctx context.Context, id uuid.UUID) (difference string, err error) {
	c, err := l.lottery.Campaign(ctx, id)
	if err != nil {
		return "", err
	}
	if _, sealed := c.Sealed(); !sealed {
		return "", nil
	}
	positions, err := lottery.ReadPositions(ctx, l.lottery, c)
	if err != nil {
		return "", err
	}
	if c.Status != lottery.StatusCompleted {
		switch root, err := fairdraw.Root(id.String(), positions); {
		case err != nil:
			difference = "its root can't be made again: " + err.Error()
		case root != c.Beacon.Seal.Root:
			difference = fmt.Sprintf("the root %x was sealed, and its purchases have the root %x", c.Beacon.Seal.Root, root)
		}
		return difference, nil
	}
	draw, seed, err := l.lottery.Result(ctx, id)
	if err != nil {
		return "", err
	}
	in := lottery.NewDrawInput(c, seed, nil)
	in.Positions = positions
	if draw.Round != nil {
		in.Beacon = draw.Round.Signature
	}
	made, err := fairdraw.Draw(in)
	switch {
	case err != nil:
		return "its draw can't be made again: " + err.Error(), nil //nolint:nilerr // That is the difference.
	case made.Root != draw.Root:
		return fmt.Sprintf("it was drawn from the root %x, and its purchases have the root %x", draw.Root, made.Root), nil
	case !slices.Equal(made.Winners, draw.Winners):
		return fmt.Sprintf("its draw has the winners %.400v, and follows from its purchases with %.400v", draw.Winners, made.Winners), nil
	}
	return "", nil
}

// wonPlace is a place that was won, as the event and the table of winners have it.
type wonPlace struct {
	Round, Rank int
	Account     string
	Amount      int64
}

// compareWinners compares the winners of rounds whose event is kept with those that lists show.
func (l *Log) compareWinners(ctx context.Context, id uuid.UUID) (difference string, err error) {
	events, err := query(ctx, l.db, pgx.RowTo[[]byte], `SELECT data FROM auction_events WHERE auction = $1 AND type = $2 ORDER BY seq`,
		id, string(auction.EventRoundCompleted))
	if err != nil {
		return "", err
	}
	var told []wonPlace
	rounds := make([]int, len(events))
	for i, event := range events {
		var d auction.RoundCompletedData
		if err := json.Unmarshal(event, &d); err != nil {
			return "", err
		}
		rounds[i] = d.Round
		for rank, w := range d.Winners {
			told = append(told, wonPlace{d.Round, rank + 1, w.Account, w.Amount})
		}
	}
	listed, err := query(ctx, l.db, pgx.RowToStructByPos[wonPlace], `SELECT round, rank, account, amount FROM auction_winners
		WHERE auction = $1 AND round = ANY ($2::integer[]) ORDER BY round, rank`, id, rounds)
	if err == nil && !slices.Equal(told, listed) {
		difference = fmt.Sprintf("its rounds were won by %.400v, and its list of winners has %.400v", told, listed)
	}
	return difference, err
}

// numbersAtOnce is how many bytes of a multi-draw's numbers are read at once, where a checkpoint has no more.
const numbersAtOnce = 1 << 20

// compareNumbers compares the digest of a multi-draw that was completed with what was drawn.
func (l *Log) compareNumbers(ctx context.Context, id uuid.UUID) (difference string, err error) {
	o, err := l.draws.Operation(ctx, id)
	if err != nil || o.Status != multidraw.StatusCompleted {
		return "", err
	}
	digest, err := o.DigestOf(l.checkpoints(ctx, o))
	lacks, corrupt := errors.AsType[*multidraw.CorruptError](err)
	switch {
	case corrupt:
		difference = lacks.Error()
	case err != nil:
		return "", err
	case digest != o.Digest:
		difference = fmt.Sprintf("its numbers have the digest %x, and those that were drawn had %x", digest, o.Digest)
	default:
		return "", nil
	}
	if now, err := l.draws.Operation(ctx, id); err != nil || now.Status != o.Status { // It was rolled back meanwhile.
		return "", err
	}
	return difference, nil
}

// checkpoints reads what was saved at each checkpoint.
func (l *Log) checkpoints(ctx context.Context, o *multidraw.Operation) iter.Seq2[[]byte, error] {
	bytes := o.Every * o.Spec.Width() // of a checkpoint
	draws := int64(o.Every) * int64(max(1, numbersAtOnce/bytes))
	return func(yield func([]byte, error) bool) {
		for from := int64(0); from < o.Completed; from += draws {
			saved, err := l.draws.Saved(ctx, o, from, from+draws)
			if err != nil {
				yield(nil, err)
				return
			}
			for checkpoint := range slices.Chunk(saved, bytes) {
				if !yield(checkpoint, nil) {
					return
				}
			}
		}
	}
}
