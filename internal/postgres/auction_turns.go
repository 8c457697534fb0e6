package postgres

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
)

// refresh reads, without a lock, what other processes have bid since this one worked on an auction, at the beginning of a turn. Where that fails,
// or more has happened than bids, nothing is remembered any more, and the next transaction reads under the auction's lock. Nothing rests on
// what is read here unless the guards of a transaction find it to be so.
func (s *Auctions) refresh(ctx context.Context, id uuid.UUID) {
	t := s.memory.Enter(id)
	defer s.memory.Leave(id, t)
	known := s.memory.Lock(ctx, t, s.db.spec.Accounts.Patience)
	defer func() { s.memory.Unlock(t, known) }()
	if known == nil || !known.Settled || known.Last.Seq == 0 {
		known = nil
		return
	}
	var (
		b    pgx.Batch
		read auctionReading
		news []speculation.LastBid
	)
	read.queue(&b, selectAuction, id)
	b.Queue(selectNewBids, id, known.Last.Seq, known.Auction.Seq).Query(collect(&news, pgx.RowToStructByPos[speculation.LastBid]))
	if err := s.db.refreshed(ctx, &b); err != nil || len(read.found) == 0 {
		known = nil
		return
	}
	row, _ := read.auction(id) // It was found.
	if known.Revision == row.revision && known.Auction.Version == row.Version {
		return
	}
	s.db.metAnother(known.Auction.Topic())
	news = slices.DeleteFunc(news, func(b speculation.LastBid) bool { return b.Seq > row.Seq }) // What came between the statements.
	if !canCatchUp(known, row) || !catchUp(known, row, news) {
		known = nil
	}
}
