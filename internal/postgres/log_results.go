package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
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
		if difference, err = l.compareWinners(ctx, n.ID); err == nil && difference == "" {
			difference, err = l.compareRounds(ctx, n.ID)
		}
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
	case draw.CompletedAt.After(*c.CompletedAt) || c.DrawStartedAt != nil && draw.CompletedAt.Before(*c.DrawStartedAt):
		return fmt.Sprintf("it was drawn from %v to %v, and its draw is of %v", c.DrawStartedAt, *c.CompletedAt, draw.CompletedAt), nil
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

// compareRounds compares what an auction's row and its rounds say with what its events do. Where the first of them are not kept any more, the one at the
// auction's end says it all.
func (l *Log) compareRounds(ctx context.Context, id uuid.UUID) (difference string, err error) {
	type round struct {
		Round      int        `json:"round"`
		Winners    int        `json:"winners"`
		Status     string     `json:"status"`
		EndsAt     *time.Time `json:"ends_at"`
		Extensions int        `json:"extensions"`
	}
	type event struct {
		Type auction.EventType
		Data []byte
	}
	var (
		status       string
		events       []event
		rounds, told []round
	)
	err = l.db.reads.snapshot(ctx, "rounds", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(`SELECT status FROM auctions WHERE id = $1`, id).QueryRow(func(row pgx.Row) error { return row.Scan(&status) })
		b.Queue(`SELECT round, winners, status, ends_at, extensions FROM auction_rounds WHERE auction = $1 ORDER BY round`, id).
			Query(collect(&rounds, pgx.RowToStructByPos[round]))
		b.Queue(`SELECT type, data FROM auction_events WHERE auction = $1 AND type = ANY ($2) ORDER BY seq`, id, []auction.EventType{
			auction.EventAuctionStarted, auction.EventRoundStarted, auction.EventRoundExtended, auction.EventRoundCompleted,
			auction.EventAuctionCompleted, auction.EventAuctionCancelled,
		}).Query(collect(&events, pgx.RowToStructByPos[event]))
		return pgkit.Send(ctx, tx, &b)
	})
	if err != nil {
		return "", err
	}
	said := ""
	for _, e := range events {
		switch e.Type {
		case auction.EventAuctionStarted, auction.EventAuctionCompleted, auction.EventAuctionCancelled:
			all := struct {
				Rounds *[]round `json:"rounds"`
			}{&told}
			told = nil
			if err := json.Unmarshal(e.Data, &all); err != nil {
				return "", err
			}
			said = map[auction.EventType]string{
				auction.EventAuctionStarted: string(auction.StatusActive), auction.EventAuctionCompleted: string(auction.StatusCompleted),
				auction.EventAuctionCancelled: string(auction.StatusCancelled),
			}[e.Type]
		default:
			var one struct { // Of a round that ends, the winners are a list.
				Round      int        `json:"round"`
				EndsAt     *time.Time `json:"ends_at"`
				Extensions int        `json:"extensions"`
			}
			if err := json.Unmarshal(e.Data, &one); err != nil {
				return "", err
			}
			if said == "" || one.Round < 1 || one.Round > len(told) {
				continue // The auction's start is not kept.
			}
			switch r := &told[one.Round-1]; e.Type { //nolint:exhaustive // As above.
			case auction.EventRoundStarted:
				r.Status, r.EndsAt = string(auction.RoundActive), one.EndsAt
			case auction.EventRoundExtended:
				r.EndsAt, r.Extensions = one.EndsAt, one.Extensions
			case auction.EventRoundCompleted:
				r.Status = string(auction.RoundCompleted)
			}
		}
	}
	same := func(a, b round) bool {
		return a.Round == b.Round && a.Winners == b.Winners && a.Status == b.Status && a.Extensions == b.Extensions &&
			(a.EndsAt == nil) == (b.EndsAt == nil) && (a.EndsAt == nil || a.EndsAt.Equal(*b.EndsAt))
	}
	switch {
	case said == "":
	case said != status:
		difference = fmt.Sprintf("it is %s, and %s by its events", status, said)
	case !slices.EqualFunc(rounds, told, same):
		difference = fmt.Sprintf("its rounds are %.400s, and by its events %.400s", shown(rounds), shown(told))
	}
	return difference, nil
}

// shown is a value as a message has it.
func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
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
