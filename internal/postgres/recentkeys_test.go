package postgres

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestRepeatsUndoNothing: a request that comes again is answered from its record, without a transaction that fails.
func TestRepeatsUndoNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	money := newLedgerService(t, h.db)
	fund(t, money, 1000, "seller", "ann", "ben")
	id := h.open(nil)
	testwait.Must(t, testwait.Err(h.bid(id, "ben", 1)))
	for i := range 5 {
		a, err := h.service.Execute(t.Context(), id, keyed[auction.Op](auction.PlaceBid{Account: "ann", Amount: 10}, "bid", "10"))
		if err != nil || a.Status != 201 || a.Replayed != (i > 0) {
			t.Errorf("bid %d: %+v, %v", i, a, err)
		}
		m, err := money.Execute(t.Context(), keyed[ledger.Op](ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1}, "transfer", ""))
		if err != nil || m.Status != 201 || m.Replayed != (i > 0) {
			t.Errorf("transfer %d: %+v, %v", i, m, err)
		}
	}
	if reasons, _, _ := h.retries.seen(); len(reasons) > 0 {
		t.Errorf("run again for %v", reasons)
	}
	if h.remembered(id) == nil {
		t.Error("the auction was forgotten")
	}
}
