package archive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// Purchases leave by campaigns, whose sales may last for long: those of a month stay as long as one of its campaigns has not ended, and the rest of the
// month leaves without them. So an archive may have the purchases of several months before, or none.

const (
	selectSelling  = `SELECT id FROM campaigns WHERE status IN ('pending', 'active', 'drawing') AND id >= $1 AND id < $2 ORDER BY id LIMIT 1`
	selectUnlogged = `SELECT id FROM log_topics WHERE kind = 1 AND open AND id >= $1 AND id < $2 ORDER BY id LIMIT 1`
	// selectSold reads the next campaign that has sold something.
	selectSold = `SELECT c.id, c.status, c.escrow, c.total_positions, c.sold_positions, coalesce(d.root, b.root),
			(SELECT array_agg(positions ORDER BY layer) FROM campaign_layers WHERE campaign = c.id),
			(SELECT array_agg(sold ORDER BY layer) FROM campaign_layers WHERE campaign = c.id),
			(SELECT array_agg(price ORDER BY layer) FROM campaign_layers WHERE campaign = c.id)
		FROM campaigns AS c LEFT JOIN draws AS d ON d.campaign = c.id LEFT JOIN campaign_beacons AS b ON b.campaign = c.id
		WHERE c.id >= $1 AND c.id < $2 AND c.sold_positions > 0 ORDER BY c.id LIMIT 1`
	selectPayments = `SELECT id::text, source, amount::text, destination FROM transfers WHERE id = ANY ($1) AND kind = 'purchase' AND status = 'completed'`
)

// selling returns why the purchases of campaigns stay: one of them has not ended. Empty: all have.
func selling(ctx context.Context, q partitions.Querier, from, upto uuid.UUID) (why string, err error) {
	for _, look := range []struct{ sql, what string }{
		{selectSelling, "campaign %s has not ended"},
		{selectUnlogged, "campaign %s is not in the public log to its end"},
	} {
		rows, err := q.Query(ctx, look.sql, from, upto)
		if err != nil {
			return "", err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return fmt.Sprintf("the purchases before %s stay: "+look.what, partitions.Time(upto).Format(time.RFC3339), found[0]), nil
		}
	}
	return "", nil
}

// addPurchases adds the purchases of the oldest months whose campaigns have all ended.
func (p *period) addPurchases(ctx context.Context, q partitions.Querier, all []partitions.Partition) error {
	for _, piece := range all {
		if piece.Rest || less(p.upto, piece.To) || !less(p.sales, piece.To) {
			continue
		}
		why, err := selling(ctx, q, p.sales, piece.To)
		if err != nil || why != "" {
			p.stay = why
			return err
		}
		p.sales = piece.To
		p.pieces = append(p.pieces, piece)
	}
	return nil
}

// staying says why purchases stay that are as old as what was archived, where there is no further archive for them.
func (p *period) staying(ctx context.Context, q partitions.Querier, all []partitions.Partition) error {
	archived := period{upto: p.from, sales: p.salesFrom}
	err := archived.addPurchases(ctx, q, all)
	p.stay = archived.stay
	if p.stay == "" && archived.sales != p.salesFrom {
		p.stay = fmt.Sprintf("the purchases before %s leave with the next archive", partitions.Time(archived.sales).Format(time.RFC3339))
	}
	return err
}

// inOrderOfSales copies a partition of purchases in the order of the campaigns and of their sales.
func (r *runner) inOrderOfSales(ctx context.Context, a *record, f File, part func(where string, header bool) error) error {
	type place struct {
		Campaign uuid.UUID
		Seq      int
	}
	selectEnd := fmt.Sprintf(`SELECT campaign, seq FROM %s WHERE (campaign, seq) > ($1, $2) ORDER BY campaign, seq OFFSET $3 LIMIT 1`, f.Partition)
	from, header := place{}, true
	pace := r.resting(ctx)
	for {
		rows, err := r.pool.Query(ctx, selectEnd, from.Campaign, from.Seq, rowsAtOnce-1)
		if err != nil {
			return err
		}
		ends, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
		if err != nil {
			return err
		}
		upto := place{uuid.Max, 0}
		if len(ends) > 0 {
			upto = ends[0]
		}
		if err := part(fmt.Sprintf(`(campaign, seq) > ('%s', %d) AND (campaign, seq) <= ('%s', %d) ORDER BY campaign, seq`,
			from.Campaign, from.Seq, upto.Campaign, upto.Seq), header); err != nil {
			return err
		}
		r.tell(a, "copying "+f.Table, 0, 0)
		if len(ends) == 0 {
			return nil
		}
		from, header = upto, false
		if err := pace(); err != nil {
			return err
		}
	}
}

// saleColumns are those that are read of purchases.
func saleColumns() []string {
	return []string{"campaign", "seq", "account", "layer", "number", "ordinal", "price", "transfer"}
}

// sales are the purchases in files, one campaign after the other. The files are in that order.
type sales struct {
	q         partitions.Querier
	next      uuid.UUID // the campaigns from here on were not read yet
	campaigns int64
	c         *soldCampaign // whose purchases are read; nil: there is none
}

// soldCampaign is a campaign that has sold something, and what was read of its purchases.
type soldCampaign struct {
	lottery.Campaign

	root   []byte   // nil: it was not sealed
	owners []string // by ordinal
	sold   []int    // by layer
	read   int
}

// open goes on with the next campaign before one that has sold something.
func (s *sales) open(ctx context.Context, upto uuid.UUID) error {
	rows, err := s.q.Query(ctx, selectSold, s.next, upto)
	if err != nil {
		return &askedError{err}
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*soldCampaign, error) {
		var (
			c               soldCampaign
			positions, sold []int
			prices          []int64
		)
		err := row.Scan(&c.ID, &c.Status, &c.Escrow, &c.TotalPositions, &c.SoldPositions, &c.root, &positions, &sold, &prices)
		first := 0
		for i := range positions {
			c.Layers = append(c.Layers, lottery.Layer{Positions: positions[i], Sold: sold[i], Price: prices[i], First: first})
			first += positions[i]
		}
		c.owners, c.sold = make([]string, first), make([]int, len(positions))
		return &c, err
	})
	s.c = nil
	if err != nil {
		return &askedError{err}
	}
	if len(found) > 0 {
		s.c = found[0]
	}
	return nil
}

// close compares the campaign whose purchases were read with them.
func (s *sales) close() error {
	c := s.c
	switch {
	case c == nil:
		return nil
	case c.read != c.SoldPositions:
		return fmt.Errorf("campaign %s has sold %d positions, and %d purchases are in the file", c.ID, c.SoldPositions, c.read)
	case !c.Ended():
		return fmt.Errorf("campaign %s is %s", c.ID, c.Status)
	}
	for i, l := range c.Layers {
		if c.sold[i] != l.Sold {
			return fmt.Errorf("campaign %s has sold %d positions of layer %d, and %d are in the file", c.ID, l.Sold, i+1, c.sold[i])
		}
	}
	if c.root == nil && c.Status == lottery.StatusCompleted {
		return fmt.Errorf("campaign %s was completed without a draw", c.ID)
	}
	if c.root != nil {
		root, err := fairdraw.Root(c.ID.String(), lottery.SealedPositions(&c.Campaign, c.owners))
		if err != nil {
			return err
		}
		if string(root[:]) != string(c.root) {
			return fmt.Errorf("campaign %s has the sealed root %x, and its purchases in the file have the root %x", c.ID, c.root, root)
		}
	}
	s.campaigns++
	s.next = after(c.ID)
	s.c = nil
	return nil
}

// after is the next id.
func after(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// end has all campaigns before one be read.
func (s *sales) end(ctx context.Context, upto uuid.UUID) error {
	if err := s.close(); err != nil {
		return err
	}
	if err := s.open(ctx, upto); err != nil {
		return err
	}
	if s.c != nil {
		return fmt.Errorf("campaign %s has sold %d positions, and none is in the files", s.c.ID, s.c.SoldPositions)
	}
	s.next = upto
	return nil
}

// add adds a purchase. It returns its campaign.
func (s *sales) add(ctx context.Context, row []string) (*soldCampaign, error) {
	id, err := uuid.Parse(row[0])
	if err != nil {
		return nil, err
	}
	if s.c == nil || s.c.ID != id {
		if err := s.close(); err != nil {
			return nil, err
		}
		if err := s.open(ctx, uuid.Max); err != nil {
			return nil, err
		}
		if s.c == nil || s.c.ID != id {
			return nil, fmt.Errorf("a purchase of campaign %s, which is not the next one that has sold something", id)
		}
	}
	c := s.c
	var numbers [5]int
	for i, column := range []int{1, 3, 4, 5, 6} {
		if numbers[i], err = strconv.Atoi(row[column]); err != nil {
			return nil, err
		}
	}
	seq, layer, number, ordinal, price := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	switch {
	case seq != c.read+1:
		return nil, fmt.Errorf("sale %d of campaign %s comes after sale %d", seq, id, c.read)
	case ordinal < 0 || ordinal >= len(c.owners) || row[2] == "":
		return nil, fmt.Errorf("sale %d of campaign %s is of position %d to %q", seq, id, ordinal, row[2])
	case c.owners[ordinal] != "":
		return nil, fmt.Errorf("position %d of campaign %s was sold twice", ordinal, id)
	}
	if p := c.Position(ordinal); p.Layer != layer || p.Number != number || int64(price) != c.Layers[layer-1].Price {
		return nil, fmt.Errorf("sale %d of campaign %s is of position %d in layer %d, number %d, for %d", seq, id, ordinal, layer, number, price)
	}
	c.read, c.owners[ordinal] = seq, row[2]
	c.sold[layer-1]++
	return c, nil
}

// ErrNotArchived is returned for a campaign whose purchases are in the tables.
var ErrNotArchived = errors.New("its purchases are not archived: the servers have its proof")

// Owners reads who has bought the positions of a campaign whose purchases are archived, by ordinal, from the archives in a directory. It returns
// [ErrNotArchived] where they are in the tables, and a [Damaged] error where the file is not what was written.
func Owners(ctx context.Context, pool *pgxpool.Pool, directory string, c *lottery.Campaign) ([]string, error) {
	all, err := left(ctx, pool)
	if err != nil {
		return nil, err
	}
	for i := range all {
		for _, f := range all[i].Files {
			if f.Table != partitions.Purchases || !less(c.ID, f.Upto) { // The files are in order: it is in the first that goes beyond it.
				continue
			}
			owners := make([]string, c.TotalPositions)
			err := f.read(ctx, filepath.Join(directory, all[i].name()), []string{"campaign", "account", "ordinal"}, unpaced, func(row []string) error {
				if row[0] != c.ID.String() {
					return nil
				}
				ordinal, err := strconv.Atoi(row[2])
				switch {
				case err != nil:
					return err
				case ordinal < 0 || ordinal >= len(owners) || owners[ordinal] != "":
					return fmt.Errorf("position %d of campaign %s was sold twice, or is not there", ordinal, c.ID)
				}
				owners[ordinal] = row[1]
				return nil
			})
			return owners, err
		}
	}
	return nil, ErrNotArchived
}

// paymentsAtOnce are looked up in one statement.
const paymentsAtOnce = 1000

// addSale adds a purchase, and what it says of transfers.
func (c *contents) addSale(ctx context.Context, row []string) error {
	sold, err := c.sales.add(ctx, row)
	if err != nil {
		return err
	}
	transfer, err := uuid.Parse(row[7])
	if err != nil {
		return err
	}
	err = c.payments.add(row[7], row[2], row[6], sold.Escrow, -1)
	if sold.Status == lottery.StatusCancelled {
		err = errors.Join(err, c.refunds.addTimes(sold.Escrow, row[2], row[6], -1))
	}
	if c.upto != uuid.Nil && !less(transfer, c.upto) {
		c.later = append(c.later, transfer)
	}
	if err == nil && len(c.later) >= paymentsAtOnce {
		err = c.paid(ctx)
		if err != nil {
			err = &askedError{err}
		}
	}
	return err
}

// paid adds the transfers of purchases in the files that are in the tables.
func (c *contents) paid(ctx context.Context) error {
	if len(c.later) == 0 {
		return nil
	}
	rows, err := c.sales.q.Query(ctx, selectPayments, c.later)
	if err != nil {
		return err
	}
	var id, source, amount, destination string
	_, err = pgx.ForEachRow(rows, []any{&id, &source, &amount, &destination}, func() error { return c.payments.add(id, source, amount, destination, 1) })
	c.later = c.later[:0]
	return err
}
