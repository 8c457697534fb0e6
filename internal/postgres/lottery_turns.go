package postgres

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// refresh reads, without a lock, what other processes have sold since this one sold in a campaign: see [Auctions.refresh].
func (l *Lottery) refresh(ctx context.Context, id uuid.UUID) {
	t := l.memory.Enter(id)
	defer l.memory.Leave(id, t)
	known := l.memory.Lock(ctx, t, l.db.spec.Accounts.Patience)
	defer func() { l.memory.Unlock(t, known) }()
	if known == nil || known.campaign == nil || known.Sold() == 0 {
		known = nil
		return
	}
	var (
		b    pgx.Batch
		last []uuid.UUID
		news []sale
	)
	read := queueCampaign(&b, selectCampaign, id)
	b.Queue(selectLastSale, id, known.Sold()).Query(collect(&last, pgx.RowTo[uuid.UUID]))
	b.Queue(selectNewSales, id, known.Sold()).Query(collect(&news, pgx.RowToStructByPos[sale]))
	err := l.db.refreshed(ctx, &b)
	c, missing := read()
	if err != nil || missing != nil || !slices.Equal(last, []uuid.UUID{known.last}) {
		known = nil
		return
	}
	if len(news) > 0 {
		l.db.metAnother(lottery.Topic(id))
	}
	if c.Status != known.campaign.Status || known.Sold()+len(news) != c.SoldPositions { // Somebody sold between the statements, too.
		known = nil
		return
	}
	for i := range news {
		known.sell(&news[i])
	}
	c.Beacon = known.campaign.Beacon
	known.campaign = c
}
