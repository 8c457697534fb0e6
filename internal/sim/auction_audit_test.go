//go:build unix

package sim_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAuctionChecksNoticeTampering plays an auction of which one round is closed, changes the database in every way that
// a check is for, or what clients were told, and wants each to be noticed.
func TestAuctionChecksNoticeTampering(t *testing.T) {
	accounts := []string{"ann", "bob", "cyd"}
	h := openHouse(t, 1, append(accounts, "gallery"), 1000)
	b := h.launch(t, "tamper", accounts, replay.Rules{
		Seller: "gallery", UniqueAmounts: true, Window: time.Hour, Extension: time.Millisecond, MaxExtensions: 2,
		Rounds: []replay.RoundRule{{Winners: 1, Duration: 4 * time.Second}, {Winners: 1, Duration: time.Hour}},
	})
	bid := func(account string, amount int64) {
		op := sim.NewBid(fmt.Sprintf("tamper-%s-%d", account, amount), b.id, account, amount)
		if a, err := h.client.Settle(testwait.Context(t, patience), op); err != nil || a.Status != http.StatusCreated {
			t.Fatalf("%s: %v %v", op, a, err)
		}
	}
	bid("ann", 100)
	bid("bob", 50)
	bid("bob", 60)
	b.await(t, patience, "the second round", func(e replay.Event) bool { return e.Opening != nil && e.Opening.Round == 2 })
	bid("cyd", 70)
	bid("bob", 80)

	conn := connect(t, h.database)
	complain(t, sim.AuditAuctions(testwait.Context(t, patience), conn))
	for _, sql := range []string{
		`UPDATE auctions SET seq = seq + 1`,
		`UPDATE auctions SET total_bids = total_bids + 1`,
		`UPDATE auctions SET status = 'completed'`,
		`DELETE FROM auction_bids WHERE previous_amount > 0`,
		`DELETE FROM auction_events WHERE seq = 2`,
		`UPDATE auction_bids SET at = at - interval '1 hour' WHERE seq = (SELECT max(seq) FROM auction_bids)`,
		`UPDATE auction_bids SET previous_amount = 1 WHERE previous_amount = 0`,
		`UPDATE auction_bids SET amount = amount + 1 WHERE account = 'cyd'`,
		`UPDATE auction_bids SET round = 2 WHERE account = 'ann'`,
		`UPDATE auction_standing SET amount = amount + 1, unique_amount = NULL WHERE account = 'bob'`,
		`UPDATE auction_standing SET amount = 70, unique_amount = NULL WHERE account = 'bob'`,
		`UPDATE auction_standing SET active = false WHERE account = 'bob'`,
		`DELETE FROM auction_standing WHERE account = 'bob'`,
		`UPDATE auction_standing SET hold = gen_random_uuid() WHERE account = 'bob'`,
		`UPDATE hold_rows SET owner = 'auction:' || gen_random_uuid() WHERE account = 'bob'`,
		`UPDATE hold_rows SET status = 'released', amount = 80, closed_at = now() WHERE account = 'bob' AND status = 'open'`,
		`DELETE FROM auction_winners`,
		`UPDATE auction_winners SET amount = amount - 1`,
		`UPDATE auction_winners SET account = 'cyd'`,
		`UPDATE auction_winners SET transfer = gen_random_uuid()`,
		`INSERT INTO auction_winners SELECT auction, round, 2, 'cyd', amount, transfer FROM auction_winners`,
		`UPDATE auction_rounds SET ends_at = ends_at + interval '1 second' WHERE round = 1`,
		`UPDATE auction_rounds SET ended_at = started_at WHERE round = 1`,
		`UPDATE auction_rounds SET extensions = 3, ends_at = ends_at + interval '1 millisecond' WHERE round = 1`,
		`INSERT INTO auction_events SELECT auction, 1000, type, at, data FROM auction_events WHERE type = 'round.completed'`,
		`DELETE FROM idempotency_keys WHERE id IN (SELECT id FROM idempotency_keys WHERE position('previous_amount' IN convert_from(body, 'UTF8')) > 0 LIMIT 1)`,
	} {
		tx, err := conn.Begin(t.Context())
		testwait.Must(t, err)
		tag, err := tx.Exec(t.Context(), sql)
		switch {
		case err != nil:
			t.Logf("the database refuses %s: %v", sql, err)
		case tag.RowsAffected() == 0:
			t.Errorf("changed nothing: %s", sql)
		default:
			if err := sim.AuditAuctions(testwait.Context(t, patience), savepoints{tx}); !errors.Is(err, sim.ErrModel) {
				t.Errorf("%s: not noticed: %v", sql, err)
			}
		}
		if err := tx.Rollback(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Fatal(err)
		}
	}
	b.cancel(t)
	out := b.finish(t, patience)
	for what, alter := range map[string]func(*replay.Outcome){
		"amount":      func(o *replay.Outcome) { o.Bids[1].Amount++ },
		"account":     func(o *replay.Outcome) { o.Bids[1].Account = "cyd" },
		"previous":    func(o *replay.Outcome) { o.Bids[1].PreviousAmount++ },
		"round":       func(o *replay.Outcome) { o.Bids[1].Round++ },
		"rank":        func(o *replay.Outcome) { o.Bids[1].Rank++ },
		"end":         func(o *replay.Outcome) { o.Bids[1].RoundEndsAt = o.Bids[1].RoundEndsAt.Add(time.Millisecond) },
		"number":      func(o *replay.Outcome) { o.Bids[1].Seq += 100 },
		"lost bid":    func(o *replay.Outcome) { o.Bids = o.Bids[1:] },
		"foreign bid": func(o *replay.Outcome) { o.Bids = append(o.Bids, replay.PlacedBid{Seq: 1000}) },
	} {
		altered := *out
		altered.Bids = slices.Clone(out.Bids)
		alter(&altered)
		if err := sim.CheckBids(h.history.Ops(), b.id, &altered); !errors.Is(err, sim.ErrModel) {
			t.Errorf("%s: not noticed: %v", what, err)
		}
	}
	h.close(t, 1)
}
