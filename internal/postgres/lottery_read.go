package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// Campaign implements [lottery.Reader]. The three statements share a snapshot, so the layers sum up to the campaign.
func (l *Lottery) Campaign(ctx context.Context, id uuid.UUID) (*lottery.Campaign, error) {
	var c *lottery.Campaign
	err := l.db.reads.snapshot(ctx, "campaign", readTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		var b pgx.Batch
		read := queueCampaign(&b, selectCampaign, id)
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		if c, err = read(); err != nil {
			return err
		}
		return loadBeacon(ctx, tx, c)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Campaigns implements [lottery.Reader].
func (l *Lottery) Campaigns(ctx context.Context, after int64, limit int, drafts bool) ([]lottery.Campaign, error) {
	return query(ctx, l.db.reads, scanCampaign,
		`SELECT `+campaignFields+` FROM campaigns WHERE number > $1 AND ($3 OR published_at IS NOT NULL) ORDER BY number LIMIT $2`, after, limit, drafts)
}

// Owners implements [lottery.Reader].
func (l *Lottery) Owners(ctx context.Context, campaign uuid.UUID, from, to int) ([]string, error) {
	type sale struct {
		Ordinal int
		Account string
	}
	sales, err := query(ctx, l.db.reads, pgx.RowToStructByPos[sale],
		`SELECT ordinal, account FROM purchases WHERE campaign = $1 AND ordinal >= $2 AND ordinal < $3`, campaign, from, to)
	if sales, err = unlessArchived(ctx, l.db, campaign, sales, err); err != nil {
		return nil, err
	}
	owners := make([]string, to-from)
	for _, s := range sales {
		owners[s.Ordinal-from] = s.Account
	}
	return owners, nil
}

// Purchases implements [lottery.Reader].
func (l *Lottery) Purchases(ctx context.Context, campaign uuid.UUID, account string, after, limit int) ([]lottery.Purchase, error) {
	found, err := query(ctx, l.db.reads, scanPurchase, `SELECT `+purchaseFields+` FROM purchases
		WHERE campaign = $1 AND seq > $2 AND ($4 = '' OR account = $4) ORDER BY seq LIMIT $3`, campaign, after, limit, account)
	return unlessArchived(ctx, l.db, campaign, found, err)
}

// AccountPurchases implements [lottery.Reader].
func (l *Lottery) AccountPurchases(ctx context.Context, account string, before uuid.UUID, limit int) ([]lottery.Purchase, error) {
	return query(ctx, l.db.reads, scanPurchase,
		`SELECT `+purchaseFields+` FROM purchases WHERE account = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, account, before, limit)
}

const purchaseFields = `id, campaign, seq, account, layer, number, ordinal, price, transfer, at`

func scanPurchase(row pgx.CollectableRow) (p lottery.Purchase, err error) {
	err = row.Scan(&p.ID, &p.Campaign, &p.Seq, &p.Account, &p.Position.Layer, &p.Position.Number, &p.Position.Ordinal,
		&p.Price, &p.Transfer, &p.At)
	p.Position.ID = lottery.PositionID(p.Campaign, p.Position.Ordinal)
	return p, err
}

// Result implements [lottery.Reader]. The join gives the seed away only together with the result.
func (l *Lottery) Result(ctx context.Context, campaign uuid.UUID) (*lottery.Draw, fairdraw.Seed, error) {
	draw, err := queryOne(ctx, l.db.reads, lottery.ErrNotDrawn, scanResult, selectResult, campaign)
	if err != nil {
		return nil, fairdraw.Seed{}, err
	}
	seed, err := queryOne(ctx, l.db.reads, errEmpty, pgx.RowTo[digest],
		`SELECT seed FROM campaign_seeds JOIN draws USING (campaign) WHERE campaign = $1`, campaign)
	return &draw, fairdraw.Seed(seed), err
}

// Statistics implements [lottery.Reader].
func (l *Lottery) Statistics(ctx context.Context, campaign uuid.UUID) (lottery.Statistics, error) {
	const sumSales = `
		WITH buyers AS (SELECT count(*) AS bought, sum(price) AS paid, min(at) AS first, max(at) AS last
			FROM purchases WHERE campaign = $1 GROUP BY account)
		SELECT count(*), coalesce(sum(paid), 0)::bigint, min(first), max(last), coalesce(max(bought), 0) FROM buyers`
	out, err := queryOne(ctx, l.db.reads, errEmpty, pgx.RowToStructByPos[lottery.Statistics], sumSales, campaign)
	if err == nil && out.Buyers == 0 {
		_, err = unlessArchived[lottery.Purchase](ctx, l.db, campaign, nil, nil)
	}
	return out, err
}

// watchLimit is how many stuck campaigns one sweep looks at.
const watchLimit = 100

// countAlarms counts what the constraints make impossible, which is why it is worth looking: campaigns in sale or drawing that
// have sold more than they have, and campaigns that were drawn more than once, or would be. The latter are those with two
// results of which one is less than a day old, and those in sale or drawing that have a result already. What is completed was
// checked by its own transaction, and a ledger of many years must not make the sweep slow.
const countAlarms = `SELECT (SELECT count(*)::integer FROM campaigns AS c WHERE status IN ('active', 'drawing') AND (
			sold_positions > total_positions
			OR (SELECT max(seq) FROM purchases WHERE campaign = c.id) > total_positions
			OR EXISTS (SELECT FROM campaign_layers WHERE campaign = c.id AND sold > positions))),
		(SELECT count(*) FROM (SELECT campaign FROM draws
			WHERE campaign IN (SELECT campaign FROM draws WHERE completed_at > clock_timestamp() - interval '1 day')
			GROUP BY campaign HAVING count(*) > 1) AS twice)::integer
		+ (SELECT count(*) FROM campaigns AS c WHERE status IN ('active', 'drawing')
			AND EXISTS (SELECT FROM draws WHERE campaign = c.id))::integer,
		waiting.* FROM (` + countWaiting + `) AS waiting`

// Watch implements [lottery.Reader].
func (l *Lottery) Watch(ctx context.Context, stuckAfter time.Duration) (lottery.Watch, error) {
	stuck, err := query(ctx, l.db, pgx.RowTo[uuid.UUID], `SELECT id FROM campaigns WHERE status = 'drawing'
		AND coalesce(draw_started_at, '-infinity') NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp() ORDER BY id LIMIT $2`, stuckAfter, watchLimit)
	if err != nil {
		return lottery.Watch{}, err
	}
	return queryOne(ctx, l.db, errEmpty, func(row pgx.CollectableRow) (lottery.Watch, error) {
		w := lottery.Watch{Stuck: stuck}
		var overdue float64
		err := row.Scan(&w.Oversold, &w.Duplicates, &w.Waiting, &overdue)
		w.Overdue = time.Duration(overdue * float64(time.Second))
		return w, err
	}, countAlarms)
}
