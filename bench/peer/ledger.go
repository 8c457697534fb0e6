package main

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

type account struct {
	ID        string    `json:"id"`
	Currency  string    `json:"currency"`
	Available int64     `json:"available"`
	Held      int64     `json:"held"`
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
}

type transferAnswer struct {
	ID       uuid.UUID `json:"id"`
	From     string    `json:"from"`
	To       string    `json:"to"`
	Amount   int64     `json:"amount"`
	Currency string    `json:"currency"`
	Status   string    `json:"status"`
}

// movement is money on its way between two accounts whose rows the transaction holds.
type movement struct {
	id       uuid.UUID
	kind     string
	from, to *account
	amount   int64
	memo     string
}

const insertTransfer = `INSERT INTO transfers
	(id, kind, source, destination, amount, currency, status, reason, memo, created_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

// move queues the intent with its outcome, both entries and both balances. From nil, the money comes from outside.
func (s *session) move(m movement, now time.Time) {
	source, sourceVersion := "outside/"+m.to.Currency, int64(0)
	if m.from != nil {
		source, sourceVersion = m.from.ID, m.from.Version+1
	}
	s.exec(insertTransfer, m.id, m.kind, source, m.to.ID, m.amount, m.to.Currency, "completed", "", m.memo, now)
	s.exec(`INSERT INTO entries (account, id, version, transfer, amount, currency, at, memo)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $4, $12, $6, $7, $8)`,
		source, newID(), sourceVersion, m.id, -m.amount, m.to.Currency, now, m.memo,
		m.to.ID, newID(), m.to.Version+1, m.amount)
	changed := int64(1)
	if m.from != nil {
		changed = 2
	}
	// One statement for both rows; an absent source matches none.
	s.execRows(changed, `UPDATE accounts SET available = available + CASE id WHEN $1 THEN -$3::bigint ELSE $3::bigint END,
		version = version + 1 WHERE id IN ($1, $2)`, source, m.to.ID, m.amount)
	if m.from != nil {
		m.from.Available, m.from.Version = m.from.Available-m.amount, m.from.Version+1
	}
	m.to.Available, m.to.Version = m.to.Available+m.amount, m.to.Version+1
}

// lockAccounts queues the query that locks the accounts in order of their ids and fills the map.
func (s *session) lockAccounts(into map[string]*account, ids ...string) {
	s.query(func(rows pgx.Rows) error {
		a := &account{}
		if err := rows.Scan(&a.ID, &a.Currency, &a.Available, &a.Held, &a.Version); err != nil {
			return err
		}
		into[a.ID] = a
		return nil
	}, `SELECT id, currency, available, held, version FROM accounts WHERE id = ANY($1) ORDER BY id FOR UPDATE`, ids)
}

func newID() uuid.UUID {
	id, err := uuid.NewV7()
	if err != nil {
		panic("no randomness: " + err.Error())
	}
	return id
}

func (s *server) transfer(ctx context.Context, c *command) (result answer, err error) {
	var in struct {
		From   string `json:"from"`
		To     string `json:"to"`
		Amount int64  `json:"amount"`
		Memo   string `json:"memo"`
	}
	if !decode(c.body, &in) || in.Amount <= 0 || in.Amount > 1<<53-1 || in.From == "" || in.To == "" {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	if in.From == in.To {
		return problem(http.StatusUnprocessableEntity, "same_account"), nil
	}
	err = inTransaction(ctx, s.transfers, s.pipelined, func(tx *session) error {
		var key keyRow
		accounts := make(map[string]*account, 2)
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		tx.lockAccounts(accounts, in.From, in.To)
		if err := tx.run(ctx); err != nil {
			return err
		}
		from, to := accounts[in.From], accounts[in.To]
		id := newID()
		switch {
		case key.found:
			result = key.answer(c)
			return tx.abandon(ctx)
		case from == nil || to == nil:
			result = problem(http.StatusNotFound, "not_found")
			return tx.abandon(ctx)
		case from.Currency != to.Currency:
			result = problem(http.StatusUnprocessableEntity, "currency_mismatch")
		case from.Available < in.Amount:
			result = problem(http.StatusPaymentRequired, "insufficient_funds")
			tx.exec(insertTransfer, id, "transfer", in.From, in.To, in.Amount, from.Currency, "failed",
				"insufficient_funds", in.Memo, c.now)
		default:
			result = jsonAnswer(http.StatusCreated,
				transferAnswer{id, in.From, in.To, in.Amount, from.Currency, "completed"})
			tx.move(movement{id, "transfer", from, to, in.Amount, in.Memo}, c.now)
		}
		return tx.finish(ctx, c, result)
	})
	return result, err
}

func (s *server) createAccount(ctx context.Context, c *command) (result answer, err error) {
	var in struct {
		ID       string `json:"id"`
		Currency string `json:"currency"`
	}
	if !decode(c.body, &in) || in.ID == "" || in.Currency == "" {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	err = inTransaction(ctx, s.transfers, s.pipelined, func(tx *session) error {
		var key keyRow
		var inserted bool
		a := account{Currency: in.Currency, CreatedAt: c.now}
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		tx.row(&inserted, `INSERT INTO accounts (id, currency, available, held, version, created_at)
			VALUES ($1, $2, 0, 0, 0, $3) ON CONFLICT (id) DO NOTHING RETURNING id`,
			[]any{in.ID, in.Currency, c.now}, &a.ID)
		if err := tx.run(ctx); err != nil {
			return err
		}
		if key.found {
			result = key.answer(c)
			return tx.abandon(ctx)
		}
		result = jsonAnswer(http.StatusCreated, a)
		if !inserted {
			result = problem(http.StatusConflict, "account_exists")
		}
		return tx.finish(ctx, c, result)
	})
	return result, err
}

func (s *server) deposit(ctx context.Context, c *command) (result answer, err error) {
	var in struct {
		Account string `json:"account"`
		Amount  int64  `json:"amount"`
		Memo    string `json:"memo"`
	}
	if !decode(c.body, &in) || in.Amount <= 0 || in.Amount > 1<<53-1 {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	err = inTransaction(ctx, s.transfers, s.pipelined, func(tx *session) error {
		var key keyRow
		accounts := make(map[string]*account, 1)
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		tx.lockAccounts(accounts, in.Account)
		if err := tx.run(ctx); err != nil {
			return err
		}
		to := accounts[in.Account]
		switch {
		case key.found:
			result = key.answer(c)
			return tx.abandon(ctx)
		case to == nil:
			result = problem(http.StatusNotFound, "not_found")
			return tx.abandon(ctx)
		}
		id := newID()
		tx.move(movement{id, "deposit", nil, to, in.Amount, in.Memo}, c.now)
		result = jsonAnswer(http.StatusCreated, map[string]any{
			"id": id, "account": to.ID, "amount": in.Amount, "currency": to.Currency, "available": to.Available,
		})
		return tx.finish(ctx, c, result)
	})
	return result, err
}

// getIntegrity recomputes the books from the entries, and what is held from the bids.
func (s *server) getIntegrity(w http.ResponseWriter, r *http.Request) {
	var valid bool
	err := s.transfers.QueryRow(r.Context(), `SELECT
		(SELECT coalesce(sum(amount), 0) FROM entries) = 0
		AND NOT EXISTS (SELECT 1 FROM entries GROUP BY transfer HAVING sum(amount) <> 0)
		AND NOT EXISTS (SELECT 1 FROM accounts a WHERE a.available + a.held <>
			(SELECT coalesce(sum(amount), 0) FROM entries e WHERE e.account = a.id))
		AND NOT EXISTS (SELECT 1 FROM accounts a WHERE a.held <>
			(SELECT coalesce(sum(amount), 0) FROM bids b WHERE b.account = a.id))
		AND NOT EXISTS (SELECT 1 FROM auctions a WHERE (a.seq, a.total_bids) <>
			(SELECT count(*), count(*) FILTER (WHERE type = 'bid.placed') FROM auction_events e WHERE e.auction = a.id))
		`).Scan(&valid)
	if err != nil {
		send(w, problem(http.StatusInternalServerError, "internal"))
		return
	}
	send(w, jsonAnswer(http.StatusOK, map[string]any{"valid": valid}))
}
