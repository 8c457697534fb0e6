package postgres

import (
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
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
