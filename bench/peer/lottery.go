package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// maxBaseLength keeps a campaign under about half a million positions.
const maxBaseLength = 1000

type position struct {
	ID      string `json:"id"`
	Layer   int    `json:"layer"`
	Number  int    `json:"number"`
	ordinal int
}

type campaign struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	Status      string    `json:"status"`
	Total       int       `json:"total_positions"`
	Sold        int       `json:"sold_positions"`
	Price       int64     `json:"price"`
	Currency    string    `json:"currency"`
	Beneficiary string    `json:"beneficiary"`
	lockID      int64
	escrow      string
}

type winner struct {
	Prize    string   `json:"prize"`
	Layer    int      `json:"layer"`
	Position position `json:"position"`
	Account  string   `json:"account"`
}

func positionID(campaign uuid.UUID, ordinal int) string {
	return fmt.Sprintf("%s:%d", campaign, ordinal)
}

func parseID(text string) (id uuid.UUID, ok bool) {
	id, err := uuid.Parse(text)
	return id, err == nil
}

const selectCampaign = `SELECT id, name, status, total_positions, sold_positions, price, currency, beneficiary,
	lock_id, escrow FROM campaigns WHERE id = $1`

// readCampaign queues the query for a campaign; suffix is the lock clause, if any.
func (s *session) readCampaign(into *campaign, found *bool, id uuid.UUID, suffix string) {
	s.row(found, selectCampaign+suffix, []any{id}, &into.ID, &into.Name, &into.Status, &into.Total, &into.Sold,
		&into.Price, &into.Currency, &into.Beneficiary, &into.lockID, &into.escrow)
}

func (s *server) createCampaign(ctx context.Context, c *command) (result answer, err error) {
	var in struct {
		Name        string `json:"name"`
		BaseLength  int    `json:"base_length"`
		Price       int64  `json:"price"`
		Currency    string `json:"currency"`
		Beneficiary string `json:"beneficiary"`
		Prizes      []struct {
			Name     string `json:"name"`
			Quantity int    `json:"quantity"`
		} `json:"prizes"`
	}
	if !decode(c.body, &in) || in.BaseLength <= 0 || in.BaseLength > maxBaseLength || in.Price <= 0 {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	err = inTransaction(ctx, s.transfers, true, func(tx *session) error {
		n := in.BaseLength
		created := campaign{
			ID: newID(), Name: in.Name, Status: "pending", Total: n * (n + 1) / 2, Price: in.Price,
			Currency: in.Currency, Beneficiary: in.Beneficiary,
		}
		created.escrow = "escrow/" + created.ID.String()
		var key keyRow
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		if err := tx.run(ctx); err != nil {
			return err
		}
		if key.found {
			result = key.answer(c)
			return tx.abandon(ctx)
		}
		tx.exec(`INSERT INTO accounts (id, currency, available, held, version, created_at) VALUES ($1, $2, 0, 0, 0, $3)`,
			created.escrow, in.Currency, c.now)
		tx.exec(`INSERT INTO campaigns (id, name, status, currency, price, beneficiary, escrow, total_positions,
			sold_positions, version, created_at) VALUES ($1, $2, 'pending', $3, $4, $5, $6, $7, 0, 0, $8)`,
			created.ID, in.Name, in.Currency, in.Price, in.Beneficiary, created.escrow, created.Total, c.now)
		tx.exec(`INSERT INTO campaign_layers (campaign, layer, positions, sold)
			SELECT $1, k, k, 0 FROM generate_series(1, $2::int) k`, created.ID, n)
		tx.exec(`INSERT INTO positions (campaign, ordinal, layer, number, status)
			SELECT $1, k * (k - 1) / 2 + i - 1, k, i, 'available'
			FROM generate_series(1, $2::int) k, generate_series(1, k) i`, created.ID, n)
		for i, prize := range in.Prizes {
			tx.exec(`INSERT INTO campaign_prizes (campaign, ordinal, name, quantity) VALUES ($1, $2, $3, $4)`,
				created.ID, i, prize.Name, prize.Quantity)
		}
		result = jsonAnswer(http.StatusCreated, created)
		return tx.finish(ctx, c, result)
	})
	return result, err
}

func (s *server) publish(ctx context.Context, c *command) (result answer, err error) {
	id, ok := parseID(c.entity)
	if !ok {
		return problem(http.StatusNotFound, "not_found"), nil
	}
	err = inTransaction(ctx, s.transfers, true, func(tx *session) error {
		var key keyRow
		var published bool
		var p campaign
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		tx.readCampaign(&p, &published, id, " AND status = 'pending' FOR UPDATE")
		if err := tx.run(ctx); err != nil {
			return err
		}
		switch {
		case key.found:
			result = key.answer(c)
			return tx.abandon(ctx)
		case !published:
			result = problem(http.StatusConflict, "bad_transition")
		default:
			tx.exec(`UPDATE campaigns SET status = 'active', version = version + 1 WHERE id = $1`, id)
			p.Status = "active"
			result = jsonAnswer(http.StatusOK, p)
		}
		return tx.finish(ctx, c, result)
	})
	return result, err
}

// refusal says why a campaign can't be bought from, or gives an empty code when it can.
func (p *campaign) refusal() string {
	switch {
	case p.Status == "completed", p.Status == "drawing", p.Status == "active" && p.Sold == p.Total:
		return "sold_out"
	case p.Status != "active":
		return "not_active"
	}
	return ""
}

func (s *server) purchase(ctx context.Context, c *command) (result answer, err error) {
	var in struct {
		Account string `json:"account"`
		Layer   *int   `json:"layer"`
	}
	if !decode(c.body, &in) || in.Account == "" {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	id, ok := parseID(c.entity)
	if !ok {
		return problem(http.StatusNotFound, "not_found"), nil
	}
	err = inTransaction(ctx, s.purchases, s.pipelined, func(tx *session) error {
		var key keyRow
		var found bool
		var p campaign
		if s.pipelined {
			// Sold out is final, so it may be seen without the lock; buyers who see it don't queue for the lock.
			tx.exec("begin")
			tx.lookUpKey(c, &key)
			tx.readCampaign(&p, &found, id, "")
			if err := tx.run(ctx); err != nil {
				return err
			}
			switch {
			case key.found:
				result = key.answer(c)
				return tx.abandon(ctx)
			case found && p.refusal() == "sold_out":
				result = problem(http.StatusConflict, "sold_out")
				return tx.finish(ctx, c, result)
			}
		} else {
			tx.exec("begin")
		}
		tx.exec(`SELECT pg_advisory_xact_lock(lock_id) FROM campaigns WHERE id = $1`, id)
		tx.lookUpKey(c, &key)
		tx.readCampaign(&p, &found, id, " FOR UPDATE")
		if err := tx.run(ctx); err != nil {
			return err
		}
		switch {
		case key.found:
			result = key.answer(c)
			return tx.abandon(ctx)
		case !found:
			result = problem(http.StatusNotFound, "not_found")
			return tx.abandon(ctx)
		case p.refusal() != "":
			result = problem(http.StatusConflict, p.refusal())
			return tx.finish(ctx, c, result)
		}
		result, err = tx.sell(ctx, c, &p, in.Account, in.Layer)
		return err
	})
	return result, err
}

// sell takes a position, moves the money and, after the last position, draws; then it commits.
func (s *session) sell(ctx context.Context, c *command, p *campaign, buyerID string, layer *int) (answer, error) {
	var free bool
	pos := position{}
	accounts := make(map[string]*account, 2)
	s.row(&free, `SELECT ordinal, layer, number FROM positions
		WHERE campaign = $1 AND status = 'available' AND ($2::int IS NULL OR layer = $2)
		ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED`, []any{p.ID, layer}, &pos.ordinal, &pos.Layer, &pos.Number)
	s.lockAccounts(accounts, buyerID, p.escrow)
	if err := s.run(ctx); err != nil {
		return answer{}, err
	}
	buyer, escrow := accounts[buyerID], accounts[p.escrow]
	var result answer
	switch {
	case buyer == nil:
		return problem(http.StatusNotFound, "not_found"), s.abandon(ctx)
	case !free:
		result = problem(http.StatusConflict, "sold_out")
		return result, s.finish(ctx, c, result)
	case buyer.Available < p.Price:
		result = problem(http.StatusPaymentRequired, "insufficient_funds")
		return result, s.finish(ctx, c, result)
	}
	pos.ID = positionID(p.ID, pos.ordinal)
	transferID, purchaseID := newID(), newID()
	s.move(movement{transferID, "purchase", buyer, escrow, p.Price, ""}, c.now)
	s.exec(`INSERT INTO purchases (campaign, seq, id, account, ordinal, price, transfer, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		p.ID, p.Sold+1, purchaseID, buyerID, pos.ordinal, p.Price, transferID, c.now)
	s.execRows(1, `UPDATE positions SET status = 'sold', account = $3
		WHERE campaign = $1 AND ordinal = $2 AND status = 'available'`, p.ID, pos.ordinal, buyerID)
	s.execRows(1, `UPDATE campaign_layers SET sold = sold + 1 WHERE campaign = $1 AND layer = $2`, p.ID, pos.Layer)
	s.execRows(1, `UPDATE campaigns SET sold_positions = sold_positions + 1, version = version + 1
		WHERE id = $1 AND status = 'active'`, p.ID)
	if p.Sold+1 == p.Total {
		if err := s.draw(ctx, p, escrow, c.now); err != nil {
			return answer{}, err
		}
	}
	result = jsonAnswer(http.StatusCreated, map[string]any{
		"id": purchaseID, "campaign": p.ID, "account": buyerID, "position": pos, "price": p.Price,
	})
	return result, s.finish(ctx, c, result)
}

// draw selects the winners within the last sale's transaction: guarded transition, one result row, pay-out.
func (s *session) draw(ctx context.Context, p *campaign, escrow *account, now time.Time) error {
	type prize struct {
		name     string
		quantity int
	}
	var prizes []prize
	beneficiary := make(map[string]*account, 1)
	s.execRows(1, `UPDATE campaigns SET status = 'drawing', draw_started_at = $2, version = version + 1
		WHERE id = $1 AND status = 'active' AND sold_positions = total_positions`, p.ID, now)
	s.query(func(rows pgx.Rows) error {
		var z prize
		err := rows.Scan(&z.name, &z.quantity)
		prizes = append(prizes, z)
		return err
	}, `SELECT name, quantity FROM campaign_prizes WHERE campaign = $1 ORDER BY ordinal`, p.ID)
	s.lockAccounts(beneficiary, p.Beneficiary)
	if err := s.run(ctx); err != nil {
		return err
	}
	winners := []winner{}
	for _, z := range prizes {
		s.query(func(rows pgx.Rows) error {
			w := winner{Prize: z.name}
			if err := rows.Scan(&w.Position.ordinal, &w.Position.Layer, &w.Position.Number, &w.Account); err != nil {
				return err
			}
			w.Layer, w.Position.ID = w.Position.Layer, positionID(p.ID, w.Position.ordinal)
			winners = append(winners, w)
			return nil
		}, `SELECT ordinal, layer, number, account FROM positions WHERE campaign = $1 AND status = 'sold'
			ORDER BY random() LIMIT $2`, p.ID, z.quantity)
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	text, err := json.Marshal(winners)
	if err != nil {
		return fmt.Errorf("marshal the winners: %w", err)
	}
	to, ok := beneficiary[p.Beneficiary]
	if !ok {
		return fmt.Errorf("beneficiary %q is gone", p.Beneficiary)
	}
	s.move(movement{newID(), "payout", escrow, to, escrow.Available, ""}, now)
	s.exec(`INSERT INTO draws (campaign, winners, completed_at) VALUES ($1, $2, $3)`, p.ID, string(text), now)
	s.execRows(1, `UPDATE campaigns SET status = 'completed', completed_at = $2, version = version + 1
		WHERE id = $1 AND status = 'drawing'`, p.ID, now)
	return nil
}

func (s *server) getCampaign(w http.ResponseWriter, r *http.Request) {
	if !authenticated(r, s.adminKey) {
		send(w, problem(http.StatusUnauthorized, "unauthorized"))
		return
	}
	var p campaign
	err := s.transfers.QueryRow(r.Context(), selectCampaign, r.PathValue("id")).Scan(&p.ID, &p.Name, &p.Status, &p.Total,
		&p.Sold, &p.Price, &p.Currency, &p.Beneficiary, &p.lockID, &p.escrow)
	if err != nil {
		send(w, problem(http.StatusNotFound, "not_found"))
		return
	}
	send(w, jsonAnswer(http.StatusOK, p))
}

func (s *server) getDraw(w http.ResponseWriter, r *http.Request) {
	if !authenticated(r, s.adminKey) {
		send(w, problem(http.StatusUnauthorized, "unauthorized"))
		return
	}
	var winners string
	var at time.Time
	err := s.transfers.QueryRow(r.Context(), `SELECT winners, completed_at FROM draws WHERE campaign = $1`,
		r.PathValue("id")).Scan(&winners, &at)
	if err != nil {
		send(w, problem(http.StatusNotFound, "not_drawn"))
		return
	}
	send(w, jsonAnswer(http.StatusOK, map[string]any{
		"campaign": r.PathValue("id"), "winners": json.RawMessage(winners), "completed_at": at,
	}))
}
