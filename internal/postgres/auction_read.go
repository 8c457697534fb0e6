package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

const selectAuction = `SELECT ` + auctionFields + ` FROM auctions WHERE id = $1 ORDER BY chapter DESC LIMIT 1`

// Auction implements [auction.Reader]. The statements share a snapshot, so the rounds fit the auction.
func (s *Auctions) Auction(ctx context.Context, id uuid.UUID) (*auction.Auction, error) {
	var a *auctionRow
	err := s.db.reads.snapshot(ctx, "auction", readTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		a, err = readAuction(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &a.Auction, nil
}

// readAuction reads an auction's row and its rounds.
func readAuction(ctx context.Context, tx pgx.Tx, id uuid.UUID) (*auctionRow, error) {
	var (
		b    pgx.Batch
		read auctionReading
	)
	read.queue(&b, selectAuction, id)
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return nil, err
	}
	return read.auction(id)
}

// auctionReading is an auction's row, by a statement, and its rounds.
type auctionReading struct {
	found  []auctionRow
	rounds []auction.Round
}

func (r *auctionReading) queue(b *pgx.Batch, statement string, id uuid.UUID) {
	b.Queue(statement, id).Query(collect(&r.found, scanAuction))
	b.Queue(selectRounds, id).Query(collect(&r.rounds, scanRound))
}

func (r *auctionReading) auction(id uuid.UUID) (*auctionRow, error) {
	if len(r.found) == 0 {
		return nil, &auction.NotFoundError{ID: id}
	}
	r.found[0].Rounds = r.rounds
	return &r.found[0], nil
}

// Auctions implements [auction.Reader].
func (s *Auctions) Auctions(ctx context.Context, after int64, limit int, drafts bool) ([]auction.Auction, error) {
	return query(ctx, s.db.reads, scanListed,
		`SELECT `+auctionFields+` FROM auctions WHERE number > $1 AND ($3 OR started_at IS NOT NULL) ORDER BY number LIMIT $2`, after, limit, drafts)
}

func scanListed(row pgx.CollectableRow) (auction.Auction, error) {
	a, err := scanAuction(row)
	return a.Auction, err
}

// The order of the leaderboard: by amount, then by time, which the sequence numbers follow. A place's rank is how many come
// before it, so a page begins with an offset. Where amounts are unique they have an index as long as they
// are active, which gives the best of a million without a look at the others.
const (
	rankStanding = `SELECT (row_number() OVER () + $2 + $3)::integer, account, amount, row_number() OVER () + $2 + $3 <= $5 FROM (
			SELECT account, amount FROM auction_standing WHERE auction = $1 ORDER BY amount DESC, seq OFFSET $3 LIMIT $4) AS page`
	rankUnique = `SELECT (row_number() OVER () + $2 + $3)::integer, account, amount, row_number() OVER () + $2 + $3 <= $5 FROM (
			SELECT account, amount FROM auction_standing WHERE auction = $1 AND unique_amount IS NOT NULL
			ORDER BY unique_amount DESC OFFSET $3 LIMIT $4) AS page`
	rankWinners = `SELECT rank, account, amount, true FROM auction_winners WHERE auction = $1 AND round = $2 AND rank > $3 ORDER BY rank LIMIT $4`
)

// Leaderboard implements [auction.Reader]. While a round is open, every standing bid is active, and the best of them are
// winning; after the end the last round's winners come first, and behind them those that lost it.
func (s *Auctions) Leaderboard(ctx context.Context, id uuid.UUID, after, limit int) (places []auction.Ranked, round int, err error) {
	err = s.db.reads.snapshot(ctx, "leaderboard", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		places = nil
		a, err := readAuction(ctx, tx, id)
		if err != nil {
			return err
		}
		round = a.CurrentRound
		var (
			b                pgx.Batch
			winners, winning int
		)
		if a.Status == auction.StatusCompleted {
			if err := tx.QueryRow(ctx, `SELECT count(*) FROM auction_winners WHERE auction = $1 AND round = $2`, id, round).Scan(&winners); err != nil {
				return err
			}
			b.Queue(rankWinners, id, round, after, limit).Query(collect(&places, pgx.RowToStructByPos[auction.Ranked]))
		}
		rank := rankStanding
		if open := a.Open(); open != nil {
			if winning = open.Winners; a.UniqueAmounts {
				rank = rankUnique
			}
		}
		b.Queue(rank, id, winners, max(0, after-winners), limit, winning).Query(extend(&places, pgx.RowToStructByPos[auction.Ranked]))
		return pgkit.Send(ctx, tx, &b)
	})
	return places[:min(limit, len(places))], round, err
}

// Winners implements [auction.Reader].
func (s *Auctions) Winners(ctx context.Context, id uuid.UUID, afterRound, afterRank, limit int) ([]auction.Winner, error) {
	return query(ctx, s.db.reads, pgx.RowToStructByPos[auction.Winner], `SELECT round, rank, account, amount, transfer FROM auction_winners
		WHERE auction = $1 AND (round, rank) > ($2, $3) ORDER BY round, rank LIMIT $4`, id, afterRound, afterRank, limit)
}

// Bids implements [auction.Reader].
func (s *Auctions) Bids(ctx context.Context, id uuid.UUID, after int64, limit int) ([]auction.Placed, error) {
	return query(ctx, s.db.reads, func(row pgx.CollectableRow) (p auction.Placed, err error) {
		err = row.Scan(&p.Auction, &p.Account, &p.Amount, &p.PreviousAmount, &p.Round, &p.Rank, &p.Seq, &p.At, &p.Hold)
		return p, err
	}, `SELECT auction, account, amount, previous_amount, round, rank, seq, at, hold FROM auction_bids
		WHERE auction = $1 AND seq > $2 ORDER BY seq LIMIT $3`, id, after, limit)
}

// standingOf joins the account $1's standing bid in the active auction a, as s: by its account where amounts may repeat; where they are unique
// it has no entry by account (ADR 0019), and all bids of the auction are gone through.
const standingOf = `CROSS JOIN LATERAL (
			SELECT amount, seq FROM auction_standing WHERE a.unique_amounts AND auction = a.id AND unique_amount > 0 AND account || '' = $1
			UNION ALL
			SELECT amount, seq FROM auction_standing
			WHERE NOT a.unique_amounts AND auction::text = a.id::text AND account = $1 AND coalesce(unique_amount, 0) = 0 AND active
			OFFSET 0) AS s`

// selectAccountBids finds the auctions by the account's open holds. The bids before its own are counted.
const selectAccountBids = `SELECT a.number, a.id, r.round, s.amount, b.rank, b.rank <= r.winners, r.ends_at
	FROM (SELECT a.number, a.id, a.current_round, a.unique_amounts FROM hold_rows AS h JOIN auctions AS a ON a.id = h.auction
			WHERE h.account = $1 AND h.status = 'open' AND a.number > $2 AND a.status || '' = 'active' ORDER BY a.number LIMIT $3) AS a
		JOIN auction_rounds AS r ON r.auction = a.id AND r.round = a.current_round
		` + standingOf + `
		CROSS JOIN LATERAL (SELECT 1 + CASE WHEN a.unique_amounts
			THEN (SELECT count(*) FROM auction_standing WHERE auction = a.id AND unique_amount > s.amount)
			ELSE (SELECT count(*) FROM auction_standing WHERE auction = a.id AND active AND (amount > s.amount OR amount = s.amount AND seq < s.seq))
			END::integer AS rank) AS b
	ORDER BY a.number`

// AccountBids implements [auction.Reader]. The statement is one snapshot, so the ranks are those of one moment.
func (s *Auctions) AccountBids(ctx context.Context, account string, after int64, limit int) ([]auction.AccountBid, error) {
	return query(ctx, s.db.reads, pgx.RowToStructByPos[auction.AccountBid], selectAccountBids, account, after, limit)
}

// countTaken counts the amounts from $2 on that follow each other without a gap.
const countTaken = `SELECT count(*) FROM (SELECT unique_amount - row_number() OVER (ORDER BY unique_amount) AS above
	FROM auction_standing WHERE auction = $1 AND unique_amount >= $2 ORDER BY unique_amount LIMIT $3) AS taken WHERE above = $2 - 1`

// Floor implements [auction.Reader].
func (s *Auctions) Floor(ctx context.Context, id uuid.UUID) (floor auction.Floor, err error) {
	err = s.db.reads.snapshot(ctx, "floor", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		a, err := readAuction(ctx, tx, id)
		if err != nil {
			return err
		}
		floor = auction.Floor{Least: a.MinBid, Free: a.MinBid}
		open := a.Open()
		switch {
		case a.Status == auction.StatusPending:
			return nil
		case open == nil:
			return auction.ErrNotActive
		}
		lowest, err := pgkit.Rows(ctx, tx, pgx.RowTo[int64], `SELECT amount FROM auction_standing WHERE auction = $1 AND active
			ORDER BY amount DESC, seq OFFSET $2 LIMIT 1`, id, open.Winners-1)
		if err != nil {
			return err
		}
		if len(lowest) == 1 {
			floor.Least = lowest[0] + 1
		}
		taken := int64(0)
		if a.UniqueAmounts { // Fewer have such an amount than there are places.
			err = tx.QueryRow(ctx, countTaken, id, floor.Least, open.Winners).Scan(&taken)
		}
		floor.Free = floor.Least + taken
		return err
	})
	return floor, err
}

// Running implements [auction.Reader].
func (s *Auctions) Running(ctx context.Context) (open []auction.Running, now time.Time, err error) {
	open, err = query(ctx, s.db, func(row pgx.CollectableRow) (r auction.Running, err error) {
		err = row.Scan(&r.Auction, &r.Round, &r.EndsAt, &now)
		return r, err
	}, `SELECT auction, round, ends_at, clock_timestamp() FROM auction_rounds WHERE status = 'active' ORDER BY ends_at`)
	return open, now, err
}
