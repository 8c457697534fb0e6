//go:build unix

package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/audit"
)

// ErrModel is returned when the database is not what the clients were told.
var ErrModel = errors.New("database differs from what clients were told")

// Check compares a settled history with the database. It assumes that every command the database ever saw is in the
// history and that no more are under way, and reports every difference: a command without a final answer; an
// acknowledged effect that is absent, or there with another content; an effect that nobody was told of (with all keys
// settled that is a key with two effects); a balance or a campaign other than the clients' books say; a stored answer
// that no client got, or that is absent.
func (h *History) Check(ctx context.Context, db audit.Beginner) error {
	if err := h.CheckReplies(); err != nil {
		return err
	}
	b := keep(h.Ops())
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("check the history: %w", err)
	}
	for _, compare := range []func(context.Context, pgx.Tx) error{
		b.compareAccounts, b.compareMovements, b.compareHolds, b.compareCampaigns, b.comparePurchases, b.compareKeys,
	} {
		if err := compare(ctx, tx); err != nil {
			return errors.Join(fmt.Errorf("check the history: %w", err), tx.Rollback(context.WithoutCancel(ctx)))
		}
	}
	return errors.Join(append(b.wrong, tx.Rollback(ctx))...)
}

func (b *books) compareAccounts(ctx context.Context, tx pgx.Tx) error {
	// Escrows are the campaigns' own: no client opened them, and the auditor sees to their balance.
	rows, err := tx.Query(ctx, `SELECT id, currency, available, held FROM accounts
		WHERE id NOT IN (SELECT escrow FROM campaigns)`)
	if err != nil {
		return err
	}
	absent := map[string]bool{}
	for id := range b.accounts {
		absent[id] = true
	}
	var id string
	var found balance
	_, err = pgx.ForEachRow(rows, []any{&id, &found.currency, &found.available, &found.held}, func() error {
		told, ok := b.accounts[id]
		switch {
		case !ok:
			b.complain("account %s: no client was told of it", id)
		case *told != found:
			b.complain("account %s: database has %+v, clients %+v", id, found, *told)
		}
		delete(absent, id)
		return nil
	})
	for id := range absent {
		b.complain("account %s: acknowledged and absent", id)
	}
	return err
}

func (b *books) compareMovements(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT id::text, kind, source, destination, status, amount FROM transfers
		WHERE kind IN ('deposit', 'withdrawal', 'transfer')`)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var id string
	var found movement
	_, err = pgx.ForEachRow(rows, []any{&id, &found.kind, &found.from, &found.to, &found.status, &found.amount}, func() error {
		seen[id] = true
		told, ok := b.movements[id]
		switch {
		case !ok:
			b.complain("transfer %s: no client was told of it: %+v", id, found)
		case told != found:
			b.complain("transfer %s: database has %+v, clients %+v", id, found, told)
		}
		return nil
	})
	for id, told := range b.movements {
		if !seen[id] {
			b.complain("transfer %s: acknowledged and absent: %+v", id, told)
		}
	}
	return err
}

func (b *books) compareHolds(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT id::text, account, amount, captured, status FROM holds`)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var found Hold
	_, err = pgx.ForEachRow(rows, []any{&found.ID, &found.Account, &found.Amount, &found.Captured, &found.Status}, func() error {
		seen[found.ID] = true
		told, ok := b.holds[found.ID]
		switch {
		case !ok:
			b.complain("hold %s: no client was told of it: %+v", found.ID, found)
		case told != found:
			b.complain("hold %s: database has %+v, clients %+v", found.ID, found, told)
		}
		return nil
	})
	for id := range b.holds {
		if !seen[id] {
			b.complain("hold %s: acknowledged and absent", id)
		}
	}
	return err
}

func (b *books) compareCampaigns(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT c.id::text, c.status, c.total_positions, c.sold_positions,
		(SELECT count(*) FROM draws d WHERE d.campaign = c.id) FROM campaigns c`)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var id, status string
	var total, sold, draws int
	_, err = pgx.ForEachRow(rows, []any{&id, &status, &total, &sold, &draws}, func() error {
		seen[id] = true
		told, ok := b.campaigns[id]
		if !ok {
			b.complain("campaign %s: no client was told of it", id)
			return nil
		}
		wantDraws := 0
		if told.status() == "completed" {
			wantDraws = 1
		}
		if status != told.status() || total != told.total || sold != len(told.bought) || draws != wantDraws {
			b.complain("campaign %s: database has it %s with %d of %d sold and %d draws, clients %s with %d of %d",
				id, status, sold, total, draws, told.status(), len(told.bought), told.total)
		}
		return nil
	})
	for id := range b.campaigns {
		if !seen[id] {
			b.complain("campaign %s: acknowledged and absent", id)
		}
	}
	return err
}

func (b *books) comparePurchases(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT campaign::text, id::text, account, layer, number, price FROM purchases`)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var found Purchase
	_, err = pgx.ForEachRow(rows, []any{
		&found.Campaign, &found.ID, &found.Account, &found.Position.Layer, &found.Position.Number, &found.Price,
	}, func() error {
		seen[found.ID] = true
		var told Purchase
		var ok bool
		if s := b.campaigns[found.Campaign]; s != nil {
			told, ok = s.bought[found.ID]
		}
		told.Position.ID = ""
		switch {
		case !ok:
			b.complain("purchase %s: no client was told of it: %+v", found.ID, found)
		case told != found:
			b.complain("purchase %s: database has %+v, clients %+v", found.ID, found, told)
		}
		return nil
	})
	for _, s := range b.campaigns {
		for id, told := range s.bought {
			if !seen[id] {
				b.complain("purchase %s: acknowledged and absent: %+v", id, told)
			}
		}
	}
	return err
}

func (b *books) compareKeys(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT status, body FROM idempotency_keys`)
	if err != nil {
		return err
	}
	var status int
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&status, &body}, func() error {
		a := storedAnswer{status, sha256.Sum256(body)}
		b.keys[a]--
		if b.keys[a] < 0 {
			b.complain("stored answer %d %.200q was given to no client, or to fewer than it is stored for", status, body)
		}
		return nil
	})
	for a, n := range b.keys {
		if n > 0 {
			b.complain("an answer %d (sha256 %x) was given to clients and is not stored under %d of their keys", a.status, a.body, n)
		}
	}
	return err
}
