package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// check audits the database by itself, and against what the clients were told. Nothing may be under way.
func (w *world) check() {
	w.Helper()
	// A connection of its own: the server's have no hash joins.
	auditDatabase(w.T, w.url)
	w.checkKeys()
	for _, a := range w.auctions {
		w.replay(a)
	}
	sent := w.spans()
	conn, err := w.around.pool.Acquire(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Release()
	complainOfLateBids(w.T, conn.Conn(), sent)
}

func (w *world) spans() *spans {
	sent := &spans{}
	for _, o := range w.ops {
		if o.answer != nil && o.answer.Status == 201 && o.span != nil && o.money == nil {
			sent.add(bidID{o.auction, told(o.answer).Seq}, *o.span)
		}
	}
	return sent
}

// checkKeys compares every answer with its record, and every effect with its answer: what was told as done is there once,
// and what is there was told.
func (w *world) checkKeys() {
	w.Helper()
	records := w.keys()
	effects := map[string]string{} // what an answer says was done, and the command
	for _, o := range w.ops {
		id := idempotency.NewID("tester", "POST", "/", o.key)
		record, there := records[id]
		delete(records, id)
		switch {
		case stored(o.answer) != there:
			w.Errorf("%v: answered %v, a record is there: %t", o, o.answer, there)
			continue
		case !there:
			continue
		case record.Status != o.answer.Status || !bytes.Equal(record.Body, o.answer.Body):
			w.Errorf("%v: told %d %s, recorded is %d %s", o, o.answer.Status, o.answer.Body, record.Status, record.Body)
		}
		if done := told(&record); record.Status == 201 || done.Transfer != "" {
			effect := done.ID
			switch {
			case done.Transfer != "":
				effect = done.Transfer
			case o.money == nil:
				effect = fmt.Sprintf("%s/%d", done.Auction, done.Seq)
			}
			switch o.money.(type) {
			case ledger.CaptureHold, ledger.ReleaseHold:
				continue // It names the hold.
			}
			if other, twice := effects[effect]; twice {
				w.Errorf("%v and %s were told of one effect, %s", o, other, effect)
			}
			effects[effect] = o.String()
		}
	}
	for id := range records {
		w.Errorf("a record of key %x, under which nobody was answered", id)
	}
	there := ask[[]string](w.T, w.around, `SELECT array_agg(effect) FROM (
		SELECT auction || '/' || seq AS effect FROM auction_bids
		UNION ALL SELECT id::text FROM transfers WHERE kind IN ('deposit', 'withdrawal', 'transfer') AND memo <> 'raw'
			AND NOT EXISTS (SELECT FROM transfer_legs WHERE part = transfers.id AND part <> transfer) -- The first leg's is the whole's.
		UNION ALL SELECT id::text FROM hold_rows WHERE owner = ''
		UNION ALL SELECT id FROM accounts) AS e`)
	for _, effect := range there {
		if _, ok := effects[effect]; !ok {
			w.Errorf("%s is there, and nobody was told", effect)
		}
		delete(effects, effect)
	}
	for effect, o := range effects {
		w.Errorf("%s: %s is not there", o, effect)
	}
}

// replay plays an auction again from its events, one after the other, and compares the ranking and the winners. Money
// comes and goes by other ways too, so it is the audit that looks after that.
func (w *world) replay(a *modelAuction) {
	w.Helper()
	rules := replay.Rules{
		Seller: "seller", MinBid: a.rules.MinBid, MinIncrement: a.rules.MinIncrement, UniqueAmounts: a.rules.UniqueAmounts,
		Window: a.rules.AntiSnipe.Window, Extension: a.rules.AntiSnipe.Extension, MaxExtensions: a.rules.AntiSnipe.MaxExtensions,
		Cooldown: a.rules.Cooldown,
	}
	for _, r := range a.rules.Rounds {
		rules.Rounds = append(rules.Rounds, replay.RoundRule{Winners: r.Winners, Duration: r.Duration})
	}
	funds := map[string]int64{}
	for n := range w.named {
		funds[fmt.Sprintf("a%03d", n+1)] = replay.MaxAmount
	}
	var events []replay.Event
	log := NewEvents(w.around, EventViews{})
	for {
		page, err := log.Events(w.Context(), auction.Topic(a.id), int64(len(events)), 1000)
		if err != nil {
			w.Errorf("auction %s: %v", a.id, err)
			return
		}
		for _, e := range page {
			raw, err := json.Marshal(map[string]any{
				"topic": auction.Topic(a.id), "seq": e.Seq, "type": e.Type, "at": e.At.Format(time.RFC3339Nano), "data": e.Data,
			})
			if err != nil {
				w.Fatal(err)
			}
			event, err := replay.ParseEvent(raw)
			if err != nil {
				w.Fatal(err)
			}
			events = append(events, event)
		}
		if len(page) == 0 {
			break
		}
	}
	out, err := replay.Replay(rules, funds, events)
	if err != nil {
		w.Errorf("auction %s: %v", a.id, err)
		return
	}
	store := NewAuctions(w.around)
	if board, round, err := store.Leaderboard(w.Context(), a.id, 0, 10_000); err != nil {
		w.Error(err)
	} else {
		places := make([]replay.Place, len(board))
		for i, p := range board {
			places[i] = replay.Place(p)
		}
		if err := out.CompareLeaderboard(round, places); err != nil {
			w.Errorf("auction %s: %v", a.id, err)
		}
	}
	if winners, err := store.Winners(w.Context(), a.id, 0, 0, 10_000); err != nil {
		w.Error(err)
	} else {
		wins := make([]replay.Win, len(winners))
		for i, p := range winners {
			wins[i] = replay.Win{Round: p.Round, Rank: p.Rank, Account: p.Account, Amount: p.Amount}
		}
		if err := replay.Compare("winners", wins, out.Wins()); err != nil {
			w.Errorf("auction %s: %v", a.id, err)
		}
	}
}

// foresee reads what the committed rows say and returns what a command will be told when it is decided at a time.
func (w *world) foresee(o *modelOp) func(at time.Time) string {
	w.Helper()
	if o.money != nil {
		return w.foreseeMoney(o.money)
	}
	row := rowsOf(w, scanAuction, `SELECT `+auctionFields+` FROM auctions WHERE id = $1`, o.auction)[0]
	rounds := rowsOf(w, scanRound, selectRounds, o.auction)
	bids := rowsOf(w, pgx.RowToStructByPos[auction.Bid], selectStanding, o.auction)
	accounts := rowsOf(w, scanAccount, selectAccounts, []string{o.bid.Account})
	return func(at time.Time) string {
		a := row.Auction
		a.Rounds = slices.Clone(rounds)
		state, book := auction.NewState(&a, slices.Clone(bids)), ledger.NewBook(at.UTC(), newID)
		for _, account := range accounts {
			book.LoadAccount(account)
		}
		state.Begin(book)
		state.LoadHolds([]string{o.bid.Account})
		return say(auction.Decide(state, o.bid))
	}
}

func (w *world) foreseeMoney(op ledger.Op) func(at time.Time) string {
	w.Helper()
	var holds []ledger.Hold
	ids := ledger.Accounts(op)
	if id, ok := ledger.HoldOf(op); ok {
		holds = rowsOf(w, pgx.RowToStructByPos[ledger.Hold], selectHolds, []uuid.UUID{id})
		for _, h := range holds {
			ids = append(ids, h.Account)
		}
	}
	accounts := rowsOf(w, scanAccount, selectAccounts, ids)
	taken := rowsOf(w, pgx.RowToStructByPos[ledger.Referenced], selectReferences, []string{ledger.ReferenceOf(op)})
	return func(at time.Time) string {
		book := ledger.NewBook(at.UTC(), newID)
		for _, account := range accounts {
			book.LoadAccount(account)
		}
		for _, r := range taken {
			book.LoadReference(r)
		}
		for _, h := range holds {
			book.LoadHold(h)
		}
		return say(ledger.Decide(book, op))
	}
}

func rowsOf[T any](w *world, scan pgx.RowToFunc[T], sql string, args ...any) []T {
	w.Helper()
	rows, err := w.around.pool.Query(w.Context(), sql, args...)
	if err != nil {
		w.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, scan)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// alone executes a new command while nothing else is under way, and compares what it is told with what the committed rows
// say it must be. Where that depends on when exactly it is decided, everything is right.
func (w *world) alone(s *modelServer, o *modelOp) {
	w.Helper()
	foreseen := w.foresee(o)
	got, of := w.timed(s, o)
	want := foreseen(of.before)
	if want != foreseen(of.after) {
		return
	}
	if said := told(got).Said; said != want {
		w.Errorf("server %d: %v: told %q, by the committed rows it is %q\nwhat left the fast path: %v", s.n, o, said, want, s.seen)
	}
	if a := w.auctions[o.auction]; a != nil && got.Status == 201 {
		a.offered[o.bid.Account] = o.bid.Amount
	}
}

// anyAuction draws one of the auctions that are not over.
func (w *world) anyAuction() *modelAuction {
	var ids []uuid.UUID
	for id, a := range w.auctions {
		if !a.over {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return w.auctions[pick(w, ids...)]
}
