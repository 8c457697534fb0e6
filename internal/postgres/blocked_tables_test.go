package postgres

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestALockedTableStopsItsOwnCommandsAlone has a session lock a table that only some commands of the ledger write, as one does that makes an index:
// the others go on, alone and in batches with those, which wait by themselves.
func TestALockedTableStopsItsOwnCommandsAlone(t *testing.T) {
	t.Parallel()
	legs := ledger.TransferLegs{Legs: []ledger.Leg{{From: "cid", To: "dan", Amount: 1}, {From: "dan", To: "cid", Amount: 1}}}
	for name, scene := range map[string]struct {
		lock string
		op   func(hold uuid.UUID) ledger.Op
		by   bool // an operator
	}{
		"a hold":                        {`LOCK TABLE hold_rows IN SHARE MODE`, func(uuid.UUID) ledger.Op { return ledger.PlaceHold{Account: "ann", Amount: 1} }, false},
		"a capture":                     {`LOCK TABLE hold_rows IN SHARE MODE`, func(id uuid.UUID) ledger.Op { return ledger.CaptureHold{Hold: id, To: "ben"} }, false},
		"a capture, while nobody reads": {`LOCK TABLE hold_rows`, func(id uuid.UUID) ledger.Op { return ledger.CaptureHold{Hold: id, To: "ben"} }, false},
		"legs":                          {`LOCK TABLE transfer_legs IN SHARE MODE`, func(uuid.UUID) ledger.Op { return legs }, false},
		"a reference": {`LOCK TABLE transfer_references IN SHARE MODE`, func(id uuid.UUID) ledger.Op {
			return ledger.Deposit{Account: "ann", Amount: 1, Reference: "of " + id.String()}
		}, false},
		"a release by an operator":       {`LOCK TABLE audit_log IN SHARE MODE`, func(id uuid.UUID) ledger.Op { return ledger.ReleaseHold{Hold: id} }, true},
		"a release, while nobody writes": {`LOCK TABLE hold_rows IN SHARE MODE`, func(id uuid.UUID) ledger.Op { return ledger.ReleaseHold{Hold: id} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, Options{URL: database(t)})
			s := newLedgerService(t, db)
			fund(t, s, 1000, "ann", "ben", "cid", "dan")
			execute := func(op ledger.Op) error {
				c := own(op)
				c.Operator = scene.by
				return answerErr(s.Execute(t.Context(), c))
			}
			var holds []uuid.UUID
			for range 6 {
				a, err := s.Execute(t.Context(), own[ledger.Op](ledger.PlaceHold{Account: "ann", Amount: 1}))
				testwait.Must(t, answerErr(a, err))
			}
			open, err := s.OpenHolds(t.Context(), "ann", uuid.Max, 6)
			testwait.Must(t, err)
			for _, h := range open {
				holds = append(holds, h.ID)
			}
			holds, last := holds[1:], holds[0]
			pair := func() error {
				return answerErr(s.Execute(t.Context(), own[ledger.Op](ledger.MakeTransfer{From: "cid", To: "dan", Amount: 1})))
			}
			testwait.Must(t, pair())

			goAway := stranger(t, db, scene.lock)
			var waiting []<-chan error
			for _, id := range holds {
				waiting = append(waiting, stays(func() error { return execute(scene.op(id)) }))
			}
			isWaiting(t, db, name, waiting[0])
			neighbour(t, "a transfer", pair)
			goAway()
			for _, done := range waiting {
				if err := <-done; err != nil {
					t.Errorf("%s, whose table has become free: %v", name, err)
				}
			}
			nothingBlocked(t, db)

			stranger(t, db, scene.lock)
			if err := execute(scene.op(last)); !isBlocked(err) {
				t.Errorf("%s, whose table stays locked: %v", name, err)
			}
			testwait.Must(t, pair())
		})
	}
}

// TestALockedTableIsSeen: commands that meet a table which somebody keeps locked are refused one by one; the metric and the doctor say so meanwhile, and
// the doctor does although nobody happens to wait.
func TestALockedTableIsSeen(t *testing.T) {
	t.Parallel()
	for lock, scene := range map[string]struct {
		mode    string // as the doctor has it
		command func(*testing.T, *recorder) (*DB, func() error)
	}{
		`LOCK TABLE accounts IN SHARE MODE`: {"the whole of accounts in SHARE mode", aDeposit},
		// No probe looks at these rows.
		`SELECT FROM campaign_layers FOR UPDATE`:                {"campaign_layers, or rows there,", aPurchase},
		`LOCK TABLE purchases IN SHARE ROW EXCLUSIVE MODE`:      {"the whole of purchases", aPurchase},
		`LOCK TABLE purchases_first IN ACCESS EXCLUSIVE MODE`:   {"the whole of purchases_first in ACCESS EXCLUSIVE mode", aPurchase},
		`LOCK TABLE auction_standing IN EXCLUSIVE MODE`:         {"the whole of auction_standing in EXCLUSIVE mode", aBid},
		`LOCK TABLE auction_bids, auction_events IN SHARE MODE`: {" in SHARE mode", aBid},
		// The public log has connections of its own.
		`SELECT FROM log_state FOR UPDATE`: {"log_state, or rows there,", aTermOfTheLog},
	} {
		if !testwait.Torture() && strings.HasPrefix(scene.mode, "the whole of ") && !strings.Contains(lock, "accounts") {
			continue // One whole table is enough for the short form.
		}
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(lock, "_first") {
				pgtest.Needs(t, pgkit.Partitions)
			}
			seen := &recorder{}
			db, do := scene.command(t, seen)
			testwait.Must(t, do())
			goAway := stranger(t, db, lock)
			testwait.Eventually(t, patience, "the metric tells of the table", func() bool {
				if err := do(); err != nil && !isBlocked(err) {
					t.Fatal(err)
				}
				return seen.blockedTables() > 0
			})
			findings, err := db.Blocked(t.Context())
			if err != nil || len(findings) != 1 || !strings.Contains(findings[0].Message, scene.mode) || !strings.Contains(findings[0].Remedy, "pg_terminate_backend(") {
				t.Errorf("the doctor says %+v, %v", findings, err)
			}
			goAway()
			testwait.Eventually(t, patience, "the metric tells that the table is free", func() bool { return seen.blockedTables() == 0 })
			if findings, err := db.Blocked(t.Context()); err != nil || len(findings) > 0 {
				t.Errorf("once the table is free, the doctor says %+v, %v", findings, err)
			}
			testwait.Must(t, untilFree(do))
		})
	}
}

func aDeposit(t *testing.T, seen *recorder) (*DB, func() error) {
	t.Helper()
	db := open(t, Options{URL: database(t), Observer: seen})
	money := newLedgerService(t, db)
	fund(t, money, 100, "ann")
	return db, func() error {
		return answerErr(money.Execute(t.Context(), own[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1})))
	}
}

func aPurchase(t *testing.T, seen *recorder) (*DB, func() error) {
	t.Helper()
	v, url := newVenue(t, lottery.Options{})
	campaign := v.create(t, 100)
	db := open(t, Options{URL: url, Observer: seen})
	s := newLotteryService(t, NewLottery(db), lottery.Options{})
	return db, func() error {
		return answerErr(s.Execute(t.Context(), campaign, own[lottery.Op](lottery.Buy{Account: "ann"})))
	}
}

func aBid(t *testing.T, seen *recorder) (*DB, func() error) {
	t.Helper()
	h := newHouse(t, database(t))
	h.retries = seen
	fund(t, newLedgerService(t, h.db), 100_000, "seller", "ann")
	id := h.open(nil)
	db := open(t, Options{URL: h.db.url, Observer: seen})
	h.service = auction.NewService(NewAuctions(db), auction.Options{})
	t.Cleanup(func() { closing(t, h.service.Close) })
	amount := int64(0)
	return db, func() error {
		amount++
		_, err := h.bid(id, "ann", amount)
		return err
	}
}

func aTermOfTheLog(t *testing.T, seen *recorder) (*DB, func() error) {
	t.Helper()
	db := open(t, Options{URL: database(t), Observer: seen})
	log, err := NewLog(db)
	testwait.Must(t, err)
	t.Cleanup(func() { closing(t, log.Shutdown) })
	return db, func() error { return testwait.Err(log.Begin(t.Context(), 1)) }
}
