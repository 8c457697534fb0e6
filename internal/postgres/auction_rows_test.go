package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// TestAmountsOfHolds: an open hold of an auction has the amount of its standing bid, which its own row does not repeat,
// and one that is captured or released has its last.
func TestAmountsOfHolds(t *testing.T) {
	for _, unique := range []bool{true, false} {
		t.Run(fmt.Sprintf("unique=%t", unique), func(t *testing.T) {
			h := newHouse(t, database(t))
			accounts := newLedgerService(t, h.db)
			fund(t, accounts, 1000, "seller", "ann", "ben")
			id := h.open(func(c *auction.Create) { c.UniqueAmounts = unique })
			holds := map[string]auction.Placed{}
			amounts := func(ann, ben int64, status ledger.HoldStatus, repeated int64) {
				t.Helper()
				for account, want := range map[string]int64{"ann": ann, "ben": ben} {
					got, err := NewLedger(h.db).Hold(t.Context(), holds[account].Hold)
					if err != nil || got.Amount != want || (account == "ben" && got.Status != status) {
						t.Errorf("%s: %+v, %v; want %d %s", account, got, err, want, status)
					}
				}
				if n := ask[int64](t, h.db, `SELECT count(amount) FROM hold_rows`); n != repeated {
					t.Errorf("%d holds repeat their amount, want %d", n, repeated)
				}
			}
			for i, b := range []struct {
				account string
				amount  int64
			}{{"ann", 100}, {"ben", 50}, {"ben", 60}, {"ann", 120}, {"ben", 100}} {
				placed, err := h.bid(id, b.account, b.amount)
				if err != nil {
					t.Fatalf("bid %d: %v", i, err)
				}
				holds[b.account] = placed
			}
			amounts(120, 100, ledger.HoldOpen, 0)
			h.end(id)
			h.do(id, auction.CloseRound{Round: 1, Term: 1}) // Ann wins, and pays.
			amounts(120, 100, ledger.HoldOpen, 1)
			if _, err := h.bid(id, "ben", 130); err != nil {
				t.Fatal(err)
			}
			won := holds["ann"].Hold
			if again, err := h.bid(id, "ann", 120); err != nil || again.Hold == won {
				t.Fatalf("ann bids anew: %+v, %v", again, err)
			}
			amounts(120, 130, ledger.HoldOpen, 1)
			h.do(id, auction.Cancel{})
			amounts(120, 130, ledger.HoldReleased, 3)
			if i, err := NewLedger(h.db).Integrity(t.Context()); err != nil || !i.Valid {
				t.Errorf("integrity %+v, %v", i, err)
			}
		})
	}
}

// TestAuctionRowsAreGuarded: the database itself refuses what must not be, whatever a server does.
func TestAuctionRowsAreGuarded(t *testing.T) {
	h := newHouse(t, pgtest.NewDatabase(t, migrated))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann", "ben")
	unique, plain := h.open(nil), h.open(func(c *auction.Create) { c.UniqueAmounts = false })
	for i, account := range []string{"ann", "ben"} {
		if _, err := h.bid(unique, account, int64(10+i)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.bid(plain, account, 10); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ sql, code string }{
		"two open holds of an account": {`INSERT INTO hold_rows (id, account, captured, status, created_at, owner)
			SELECT gen_random_uuid(), account, 0, 'open', now(), owner FROM hold_rows WHERE account = 'ann' LIMIT 1`, "23505"},
		"an amount twice":                    {`UPDATE auction_standing SET amount = 11, unique_amount = 11 WHERE account = 'ann' AND unique_amount = 10`, "23505"},
		"another amount in the index":        {`UPDATE auction_standing SET unique_amount = 12 WHERE account = 'ann' AND unique_amount = 10`, "23514"},
		"a hold's amount in two places":      {`UPDATE hold_rows SET amount = 10 WHERE account = 'ann'`, "23514"},
		"a hold without an amount":           {`INSERT INTO hold_rows (id, account, captured, status, created_at) VALUES (gen_random_uuid(), 'ann', 0, 'open', now())`, "23514"},
		"a hold that ended without its last": {`UPDATE hold_rows SET status = 'released', closed_at = now() WHERE account = 'ann'`, "23514"},
		"a hold of no auction's name":        {`UPDATE hold_rows SET owner = 'auction:first' WHERE account = 'ann'`, "22P02"},
	} {
		_, err := h.db.pool.Exec(t.Context(), c.sql)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	// A second bid with one hold, and a hold that is for no bid, the integrity check finds. Where rows have no versions, an index refuses the first.
	const again = `INSERT INTO auction_standing SELECT auction, account, 20, NULL, round, seq, at, hold, active FROM auction_standing WHERE account = 'ann' AND unique_amount IS NULL`
	if _, err := h.db.pool.Exec(t.Context(), again); pgtest.Off(pgkit.RowVersions) != (pgkit.Code(err) == pgkit.UniqueViolation) {
		t.Errorf("a second bid with one hold: %v", err)
	} else if i, failed := NewLedger(h.db).Integrity(t.Context()); failed != nil || err == nil && (i.Valid || i.FirstBadAccount != "ann") {
		t.Errorf("integrity %+v, %v", i, failed)
	}
	exec(t, h.db, `DELETE FROM auction_standing WHERE account = 'ann' AND amount = 20`)
	exec(t, h.db, `DELETE FROM auction_standing WHERE account = 'ben'`)
	if i, err := NewLedger(h.db).Integrity(t.Context()); err != nil || i.Valid || i.FirstBadAccount != "ben" {
		t.Errorf("integrity %+v, %v", i, err)
	}
	exec(t, h.db, `UPDATE accounts SET held = 0, available = available + held WHERE id = 'ben'`)
	if i, err := NewLedger(h.db).Integrity(t.Context()); err != nil || i.Valid || i.FirstBadAccount != "ben" {
		t.Errorf("integrity %+v, %v", i, err)
	}
}

// TestACloseIsAFewStatements: a round's close writes as many statements for a thousand bidders as for one.
func TestACloseIsAFewStatements(t *testing.T) {
	t.Parallel()
	queued := func(bidders int) int {
		st := auction.NewState(&auction.Auction{}, nil)
		for range bidders {
			st.Events = append(st.Events, auction.Event{Type: auction.EventBidCarriedOver})
			st.Winners = append(st.Winners, auction.Winner{})
		}
		var b pgx.Batch
		saveBids(&b, st, 0, countedWrites, raising{counted: raiseStanding, guarded: guardedRaiseStanding})
		saveOutcome(&b, st)
		return b.Len()
	}
	if one, many := queued(1), queued(1000); one != many {
		t.Errorf("%d statements for one bidder, %d for 1,000", one, many)
	}
}
