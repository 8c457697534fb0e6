//go:build unix

package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/audit"
)

// ErrModel is returned when the database differs from the answers that clients got.
var ErrModel = errors.New("database differs from what clients were told")

// Check compares a settled history with the database. It assumes that every command the database ever saw is in the history and
// that no more are under way, and reports every difference: a command without a final answer; an acknowledged effect that is
// absent, or there with another content; an effect in no answer (with all keys settled that is a key with two
// effects); a balance or a campaign other than the clients' books say; a stored answer that no client got, or that is absent.
func (h *History) Check(ctx context.Context, db audit.Beginner) error {
	if err := h.CheckReplies(); err != nil {
		return err
	}
	b := keep(h.Ops())
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("check the history: %w", err)
	}
	for _, compare := range []func(context.Context, pgx.Tx) error{b.compareMoney, b.compareCampaigns, b.compareKeys} {
		if err := compare(ctx, tx); err != nil {
			return errors.Join(fmt.Errorf("check the history: %w", err), tx.Rollback(context.WithoutCancel(ctx)))
		}
	}
	return errors.Join(append(b.wrong, tx.Rollback(ctx))...)
}

// compare reads rows, each an id and the columns of a T, and complains of every difference from the clients' answers.
func compare[T comparable](ctx context.Context, tx pgx.Tx, b *books, what, sql string, told map[string]T, columns func(*T) []any) error {
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return err
	}
	var (
		id     string
		found  T
		absent = maps.Clone(told)
	)
	_, err = pgx.ForEachRow(rows, append([]any{&id}, columns(&found)...), func() error {
		delete(absent, id)
		switch want, ok := told[id]; {
		case !ok:
			b.complain("%s %s: no client was told of it: %+v", what, id, found)
		case want != found:
			b.complain("%s %s: database has %+v, clients %+v", what, id, found, want)
		}
		return nil
	})
	for id, want := range absent {
		b.complain("%s %s: acknowledged and absent: %+v", what, id, want)
	}
	return err
}

func (b *books) compareMoney(ctx context.Context, tx pgx.Tx) error {
	accounts := make(map[string]balance, len(b.accounts))
	for id, a := range b.accounts {
		accounts[id] = *a
	}
	return errors.Join(
		// No client opened the campaigns' escrows. The auditor checks their balances.
		compare(ctx, tx, b, "account", `SELECT id, currency, available, held FROM accounts WHERE id NOT IN (SELECT escrow FROM campaigns)`,
			accounts, func(a *balance) []any { return []any{&a.currency, &a.available, &a.held} }),
		compare(ctx, tx, b, "transfer", `SELECT id::text, kind, source, destination, status, amount FROM transfers
			WHERE kind IN ('deposit', 'withdrawal', 'transfer')`,
			b.movements, func(m *movement) []any { return []any{&m.kind, &m.from, &m.to, &m.status, &m.amount} }),
		compare(ctx, tx, b, "hold", `SELECT id::text, id::text, account, amount, captured, status FROM holds`,
			b.holds, func(h *client.Hold) []any { return []any{&h.ID, &h.Account, &h.Amount, &h.Captured, &h.Status} }),
	)
}

func (b *books) compareCampaigns(ctx context.Context, tx pgx.Tx) error {
	type campaign struct {
		status             string
		total, sold, draws int
	}
	campaigns, purchases := map[string]campaign{}, map[string]client.Purchase{}
	for id, s := range b.campaigns {
		c := campaign{status: s.status(), total: s.total, sold: len(s.bought)}
		if c.status == "completed" {
			c.draws = 1
		}
		campaigns[id] = c
		for id, p := range s.bought {
			purchases[id] = p
		}
	}
	return errors.Join(
		compare(ctx, tx, b, "campaign", `SELECT c.id::text, c.status, c.total_positions, c.sold_positions,
			(SELECT count(*) FROM draws d WHERE d.campaign = c.id) FROM campaigns c`,
			campaigns, func(c *campaign) []any { return []any{&c.status, &c.total, &c.sold, &c.draws} }),
		compare(ctx, tx, b, "purchase", `SELECT id::text, id::text, campaign::text, account, layer, number, price FROM purchases`,
			purchases, func(p *client.Purchase) []any {
				return []any{&p.ID, &p.Campaign, &p.Account, &p.Position.Layer, &p.Position.Number, &p.Price}
			}),
	)
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
