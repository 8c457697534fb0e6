package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// duration is a time.Duration that JSON holds as text ("24h").
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// newAuction is the body that makes an auction. The peers have auctions of one round with unique amounts: what the
// benchmark needs, and no more.
type newAuction struct {
	Title    string `json:"title"`
	Currency string `json:"currency"`
	Seller   string `json:"seller"`
	Rounds   []struct {
		Winners  int      `json:"winners"`
		Duration duration `json:"duration"`
	} `json:"rounds"`
	MinBid       int64 `json:"min_bid"`
	MinIncrement int64 `json:"min_increment"`
	AntiSnipe    struct {
		Window        duration `json:"window"`
		Extension     duration `json:"extension"`
		MaxExtensions int      `json:"max_extensions"`
	} `json:"anti_snipe"`
	Cooldown      duration `json:"cooldown"`
	UniqueAmounts *bool    `json:"unique_amounts"`
}

func (n *newAuction) read(body []byte) (ok bool) {
	return decode(body, n) && n.Seller != "" && n.Currency != "" && len(n.Rounds) == 1 && n.Rounds[0].Winners > 0 &&
		n.Rounds[0].Duration > 0 && n.MinBid > 0 && n.MinIncrement > 0 && n.Cooldown >= 0
}

// auction is one with its only round.
type auction struct {
	ID        uuid.UUID  `json:"id"`
	Title     string     `json:"title"`
	Status    string     `json:"status"`
	Currency  string     `json:"currency"`
	Seller    string     `json:"seller"`
	Round     int        `json:"current_round"`
	EndsAt    *time.Time `json:"ends_at"`
	TotalBids int64      `json:"total_bids"`
	Seq       int64      `json:"seq"`

	duration                    time.Duration
	extensions                  int
	minBid, minIncrement        int64
	snipeWindow, snipeExtension time.Duration
	snipeMax                    int
	cooldown                    time.Duration
}

const selectAuction = `SELECT id, title, status, currency, seller, round, ends_at, total_bids, seq, duration, extensions,
	min_bid, min_increment, snipe_window, snipe_extension, snipe_max, cooldown FROM auctions WHERE id = $1`

func (a *auction) fields() []any {
	return []any{
		&a.ID, &a.Title, &a.Status, &a.Currency, &a.Seller, &a.Round, &a.EndsAt, &a.TotalBids, &a.Seq, &a.duration,
		&a.extensions, &a.minBid, &a.minIncrement, &a.snipeWindow, &a.snipeExtension, &a.snipeMax, &a.cooldown,
	}
}

func (s *server) createAuction(ctx context.Context, c *command) (result answer, err error) {
	var in newAuction
	if !in.read(c.body) || (in.UniqueAmounts != nil && !*in.UniqueAmounts) {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	a := auction{ID: newID(), Title: in.Title, Status: "pending", Currency: in.Currency, Seller: in.Seller}
	err = inTransaction(ctx, s.transfers, true, func(tx *session) error {
		var key keyRow
		var sellerFound bool
		var sellerCurrency string
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		tx.row(&sellerFound, `SELECT currency FROM accounts WHERE id = $1`, []any{in.Seller}, &sellerCurrency)
		if err := tx.run(ctx); err != nil {
			return err
		}
		switch {
		case key.found:
			result = key.answer(c)
			return tx.abandon(ctx)
		case !sellerFound:
			result = problem(http.StatusNotFound, "not_found")
			return tx.abandon(ctx)
		case sellerCurrency != in.Currency:
			result = problem(http.StatusUnprocessableEntity, "currency_mismatch")
			return tx.abandon(ctx)
		}
		tx.exec(`INSERT INTO auctions (id, title, status, currency, seller, winners, duration, round, extensions, min_bid,
			min_increment, snipe_window, snipe_extension, snipe_max, cooldown, total_bids, seq, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, $9, $10, $11, $12, $13, 0, 0, $14)`,
			a.ID, a.Title, a.Status, a.Currency, a.Seller, in.Rounds[0].Winners, int64(in.Rounds[0].Duration), in.MinBid,
			in.MinIncrement, int64(in.AntiSnipe.Window), int64(in.AntiSnipe.Extension), in.AntiSnipe.MaxExtensions,
			int64(in.Cooldown), c.now)
		result = jsonAnswer(http.StatusCreated, a)
		return tx.finish(ctx, c, result)
	})
	return result, err
}

func (s *server) startAuction(ctx context.Context, c *command) (result answer, err error) {
	id, ok := parseID(c.entity)
	if !ok {
		return problem(http.StatusNotFound, "not_found"), nil
	}
	err = inTransaction(ctx, s.transfers, true, func(tx *session) error {
		var key keyRow
		var found bool
		var a auction
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		tx.row(&found, selectAuction+" FOR UPDATE", []any{id}, a.fields()...)
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
		case a.Status != "pending":
			result = problem(http.StatusConflict, "not_pending")
			return tx.finish(ctx, c, result)
		}
		now := time.Now()
		endsAt := now.Add(a.duration)
		a.Status, a.Round, a.EndsAt, a.Seq = "active", 1, &endsAt, 1
		tx.execRows(1, `UPDATE auctions SET status = $2, round = $3, ends_at = $4, seq = $5 WHERE id = $1`,
			a.ID, a.Status, a.Round, endsAt, a.Seq)
		tx.exec(`INSERT INTO auction_events (auction, seq, type, at, data) VALUES ($1, $2, 'auction.started', $3, '{}')`,
			a.ID, a.Seq, now)
		result = jsonAnswer(http.StatusOK, a)
		return tx.finish(ctx, c, result)
	})
	return result, err
}

// getAuction reads an auction without a lock.
func (s *server) getAuction(w http.ResponseWriter, r *http.Request) {
	id, ok := parseID(r.PathValue("id"))
	if !ok {
		send(w, problem(http.StatusNotFound, "not_found"))
		return
	}
	var a auction
	switch err := s.transfers.QueryRow(r.Context(), selectAuction, id).Scan(a.fields()...); {
	case errors.Is(err, pgx.ErrNoRows):
		send(w, problem(http.StatusNotFound, "not_found"))
	case err != nil:
		send(w, problem(http.StatusInternalServerError, "internal"))
	default:
		send(w, jsonAnswer(http.StatusOK, a))
	}
}

type bidBody struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

func (b *bidBody) read(body []byte) (ok bool) {
	return decode(body, b) && b.Account != "" && b.Amount > 0 && b.Amount <= 1<<53-1
}

type bidAnswer struct {
	Auction        uuid.UUID `json:"auction"`
	Account        string    `json:"account"`
	Amount         int64     `json:"amount"`
	PreviousAmount int64     `json:"previous_amount"`
	Round          int       `json:"round"`
	RoundEndsAt    time.Time `json:"round_ends_at"`
	Rank           int       `json:"rank"`
	Seq            int64     `json:"seq"`
}

// placed is the event bid.placed.
type placed struct {
	Account        string `json:"account"`
	Amount         int64  `json:"amount"`
	PreviousAmount int64  `json:"previous_amount"`
	Round          int    `json:"round"`
	Rank           int    `json:"rank"`
}

// book is what one bid needs to know of the others. It is read after the auction's row was locked, in a statement of
// its own: only such a statement sees what the bid before committed.
type book struct {
	previous   int64
	previousAt *time.Time
	taken      bool
	ahead      int
}

const selectBook = `SELECT coalesce(own.amount, 0), own.at,
	EXISTS (SELECT 1 FROM bids WHERE auction = $1 AND amount = $3 AND account <> $2),
	(SELECT count(*) FROM bids WHERE auction = $1 AND amount > $3 AND account <> $2)
	FROM (SELECT) AS one LEFT JOIN bids AS own ON own.auction = $1 AND own.account = $2`

// bid decides and applies one bid in one transaction. The bidder's row is locked before the auction's, so that the lock
// that all bids want is held for as short a time as it can be.
func (s *server) bid(ctx context.Context, c *command) (result answer, err error) {
	var in bidBody
	id, ok := parseID(c.entity)
	if !ok {
		return problem(http.StatusNotFound, "not_found"), nil
	}
	if !in.read(c.body) {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	err = inTransaction(ctx, s.bids, s.pipelined, func(tx *session) error {
		var (
			key       keyRow
			a         auction
			others    book
			found, ok bool
		)
		accounts := make(map[string]*account, 1)
		tx.exec("begin")
		tx.lookUpKey(c, &key)
		tx.lockAccounts(accounts, in.Account)
		tx.row(&found, selectAuction+" FOR UPDATE", []any{id}, a.fields()...)
		tx.row(&ok, selectBook, []any{id, in.Account, in.Amount},
			&others.previous, &others.previousAt, &others.taken, &others.ahead)
		if err := tx.run(ctx); err != nil {
			return err
		}
		bidder := accounts[in.Account]
		switch {
		case key.found:
			result = key.answer(c)
			return tx.abandon(ctx)
		case !found || bidder == nil:
			result = problem(http.StatusNotFound, "not_found")
			return tx.abandon(ctx)
		}
		now := time.Now() // After the wait for the locks: a bid that waited past the end came too late.
		if refusal := a.refuse(&in, bidder, &others, now); refusal.status != 0 {
			result = refusal
			return tx.finish(ctx, c, result)
		}
		result = tx.place(&a, &in, &others, now)
		return tx.finish(ctx, c, result)
	})
	return result, err
}

// refuse checks all that a bid must fulfil; a zero answer means that it does.
func (a *auction) refuse(in *bidBody, bidder *account, others *book, now time.Time) answer {
	switch {
	case a.Status != "active" || a.EndsAt == nil || !now.Before(*a.EndsAt):
		return problem(http.StatusConflict, "not_active")
	case a.Seller == in.Account:
		return problem(http.StatusConflict, "own_auction")
	case bidder.Currency != a.Currency:
		return problem(http.StatusUnprocessableEntity, "currency_mismatch")
	case others.previousAt != nil && now.Before(others.previousAt.Add(a.cooldown)):
		return problem(http.StatusTooManyRequests, "cooldown")
	case in.Amount < a.minBid, others.previous > 0 && in.Amount < others.previous+a.minIncrement:
		return problem(http.StatusUnprocessableEntity, "bid_too_low")
	case others.taken:
		return problem(http.StatusConflict, "amount_taken")
	case bidder.Available+others.previous < in.Amount:
		return problem(http.StatusPaymentRequired, "insufficient_funds")
	}
	return answer{}
}

// place queues the writes of an accepted bid.
func (s *session) place(a *auction, in *bidBody, others *book, now time.Time) answer {
	event := placed{in.Account, in.Amount, others.previous, a.Round, others.ahead + 1}
	data, err := json.Marshal(event)
	if err != nil {
		panic("an event that can't be marshalled: " + err.Error())
	}
	a.Seq++
	s.exec(`INSERT INTO bids (auction, account, amount, round, seq, at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (auction, account) DO UPDATE SET amount = excluded.amount, round = excluded.round, seq = excluded.seq,
		at = excluded.at`, a.ID, in.Account, in.Amount, a.Round, a.Seq, now)
	s.execRows(1, `UPDATE accounts SET available = available - $2, held = held + $2, version = version + 1 WHERE id = $1`,
		in.Account, in.Amount-others.previous)
	s.exec(`INSERT INTO auction_events (auction, seq, type, at, data) VALUES ($1, $2, 'bid.placed', $3, $4)`,
		a.ID, a.Seq, now, string(data))
	result := bidAnswer{
		a.ID, in.Account, in.Amount, others.previous, a.Round, *a.EndsAt, others.ahead + 1, a.Seq,
	}
	if a.EndsAt.Sub(now) <= a.snipeWindow && a.snipeExtension > 0 && a.extensions < a.snipeMax {
		endsAt := a.EndsAt.Add(a.snipeExtension)
		a.EndsAt, a.extensions, a.Seq = &endsAt, a.extensions+1, a.Seq+1
		result.RoundEndsAt = endsAt
		s.exec(`INSERT INTO auction_events (auction, seq, type, at, data) VALUES ($1, $2, 'round.extended', $3, $4)`,
			a.ID, a.Seq, now, fmt.Sprintf(`{"round":%d,"ends_at":%q,"extensions":%d}`, a.Round,
				endsAt.UTC().Format(time.RFC3339Nano), a.extensions))
	}
	s.execRows(1, `UPDATE auctions SET total_bids = total_bids + 1, seq = $2, ends_at = $3, extensions = $4 WHERE id = $1`,
		a.ID, a.Seq, *a.EndsAt, a.extensions)
	return jsonAnswer(http.StatusCreated, result)
}
