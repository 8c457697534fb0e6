package partitionstest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// The campaigns of a month that [Sales] adds, by their names.
const (
	Drawn     = "drawn"
	Cancelled = "cancelled"
)

// CampaignOf is the id of such a campaign.
func CampaignOf(month time.Time, name string) uuid.UUID {
	id := partitions.At(month.AddDate(0, 0, 2))
	id[6], id[8] = 0x70, 0x80
	copy(id[9:], name)
	return id
}

// Sales adds two campaigns to a month of [Month], whose sales are of its 28th day or later by so many months: one of two layers that is sold out, drawn and
// paid out, 2 positions for 3 and 3 for 2; and one that was cancelled after two of six sales, with its refunds.
func Sales(ctx context.Context, conn *pgx.Conn, month time.Time, later int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		s := &seller{ctx: ctx, tx: tx, at: month.AddDate(0, later, 27).Add(12 * time.Hour)}
		for _, c := range []*lottery.Campaign{
			{
				Name: Drawn, Status: lottery.StatusCompleted, TotalPositions: 5, SoldPositions: 5,
				Layers: []lottery.Layer{{Positions: 2, Sold: 2, Price: 3}, {Positions: 3, Sold: 3, Price: 2, First: 2}},
				Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}, {Name: "small", Layer: 2, Quantity: 2}},
			},
			{
				Name: Cancelled, Status: lottery.StatusCancelled, TotalPositions: 6, SoldPositions: 2,
				Layers: []lottery.Layer{{Positions: 6, Sold: 2, Price: 4}}, Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}},
			},
		} {
			c.ID = CampaignOf(month, c.Name)
			if err := s.sell(c, month); err != nil {
				return fmt.Errorf("campaign %s of %v: %w", c.Name, month.Month(), err)
			}
		}
		return nil
	})
}

// seller writes sales.
type seller struct {
	ctx context.Context
	tx  pgx.Tx
	at  time.Time
	ids int
}

func (s *seller) exec(sql string, args ...any) error {
	if _, err := s.tx.Exec(s.ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// id is the next one.
func (s *seller) id() uuid.UUID {
	s.ids++
	s.at = s.at.Add(time.Millisecond)
	id := partitions.At(s.at)
	id[6], id[8], id[15] = 0x70, 0x80, byte(s.ids) //nolint:gosec // Some dozens.
	return id
}

// move moves money between accounts.
func (s *seller) move(kind, from, to string, amount int64) (transfer uuid.UUID, err error) {
	transfer = s.id()
	err = s.exec(`INSERT INTO transfers VALUES ($1, $2, $3, $4, $5, 'SIM', 'completed', '', '', $6)`, transfer, kind, from, to, amount, s.at)
	for account, change := range map[string]int64{from: -amount, to: amount} {
		if err == nil {
			err = s.exec(`WITH moved AS (UPDATE accounts SET available = available + $2, version = version + 1 WHERE id = $1 RETURNING version)
				INSERT INTO entries (account, id, version, transfer, amount, currency, at, memo) SELECT $1, $3, version, $4, $2, 'SIM', $5, '' FROM moved`,
				account, change, s.id(), transfer, s.at)
		}
	}
	return transfer, err
}

func (s *seller) sell(c *lottery.Campaign, month time.Time) error {
	seed := fairdraw.Seed(sha256.Sum256(c.ID[:]))
	commitment := sha256.Sum256(seed[:])
	c.Escrow, c.Beneficiary = lottery.EscrowOf(c.ID), "old-11"
	made, opened := month.AddDate(0, 0, 2), s.at
	if err := s.exec(`INSERT INTO accounts VALUES ($1, 'SIM', 0, 0, 0, $2)`, c.Escrow, made); err != nil {
		return err
	}
	owners, positions := make([]string, c.TotalPositions), make([]lottery.Position, c.SoldPositions)
	for i := range positions {
		positions[i] = c.Position(len(owners) - 1 - i) // The last is sold first.
		owners[positions[i].Ordinal] = fmt.Sprintf("old-%02d", i%3)
	}
	paid := int64(0)
	var last uuid.UUID
	for i, p := range positions {
		price := c.Layers[p.Layer-1].Price
		transfer, err := s.move("purchase", owners[p.Ordinal], c.Escrow, price)
		if err != nil {
			return err
		}
		last = s.id()
		if err := s.exec(`INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			c.ID, i+1, last, owners[p.Ordinal], p.Layer, p.Number, p.Ordinal, price, transfer, s.at); err != nil {
			return err
		}
		paid += price
	}
	var completed, cancelled *time.Time
	var err error
	if c.Status == lottery.StatusCancelled {
		for _, p := range positions {
			if err == nil {
				_, err = s.move("refund", c.Escrow, owners[p.Ordinal], c.Layers[p.Layer-1].Price)
			}
		}
		cancelled = &s.at
	} else {
		_, err = s.move("payout", c.Escrow, c.Beneficiary, paid)
		completed = &s.at
	}
	if err != nil {
		return err
	}
	if err := s.exec(`INSERT INTO campaigns (id, name, status, draw_mode, currency, price, beneficiary, escrow, total_positions, sold_positions, commitment, version,
		created_at, published_at, draw_started_at, completed_at, cancelled_at, witnesses, last_sale)
		VALUES ($1, $2, $3, 'instant', 'SIM', NULL, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, 0, $14)`, c.ID, c.Name, c.Status, c.Beneficiary, c.Escrow, c.TotalPositions,
		c.SoldPositions, commitment[:], c.SoldPositions+2, made, opened, completed, cancelled, last); err != nil {
		return err
	}
	for i, l := range c.Layers {
		if err := s.exec(`INSERT INTO campaign_layers (campaign, layer, positions, price, sold) VALUES ($1, $2, $3, $4, $5)`, c.ID, i+1, l.Positions, l.Price, l.Sold); err != nil {
			return err
		}
	}
	for i, p := range c.Prizes {
		if err := s.exec(`INSERT INTO campaign_prizes (campaign, ordinal, name, layer, quantity) VALUES ($1, $2, $3, nullif($4::integer, 0), $5)`, c.ID, i, p.Name, p.Layer, p.Quantity); err != nil {
			return err
		}
	}
	if err := s.exec(`INSERT INTO campaign_seeds (campaign, seed) VALUES ($1, $2)`, c.ID, seed[:]); err != nil || c.Status != lottery.StatusCompleted {
		return err
	}
	draw, err := fairdraw.Draw(lottery.NewDrawInput(c, seed, owners))
	if err != nil {
		return err
	}
	winners, err := json.Marshal(draw.Winners)
	if err != nil {
		return err
	}
	return s.exec(`INSERT INTO draws (campaign, root, winners, completed_at) VALUES ($1, $2, $3, $4)`, c.ID, draw.Root[:], string(winners), s.at)
}
