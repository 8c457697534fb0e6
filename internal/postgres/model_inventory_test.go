package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestInventoryOfALostTimeline has a failover lose sales that a process remembers, and as many others made elsewhere.
func TestInventoryOfALostTimeline(t *testing.T) {
	t.Parallel()
	here, url := newVenue(t, lottery.Options{})
	there := enter(t, url, lottery.Options{})
	// So many positions that nobody happens to choose one that is taken, which would have all sales read again; all of one layer, whose counter
	// is the same again.
	layers, limit := []lottery.NewLayer{{Positions: 5000, Price: new(int64(10))}}, 2
	a, err := here.Create(t.Context(), own[lottery.Op](lottery.Create{
		Name: "spring", Layers: layers, Currency: "EUR", Beneficiary: "house", PurchaseLimit: &limit,
		Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}},
	}))
	if err = errors.Join(err, a.Err); err != nil {
		t.Fatal(err)
	}
	id := result[*lottery.Campaign](t, a.Result).ID
	here.must(t, id, lottery.Publish{})
	conn := pgtest.Connect(t, url)
	for _, sql := range []string{witness, pastTables, `SELECT model.copy()`} {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)))
	}
	knowTheTime(t, here.db) // Else it takes locks after a while.
	here.must(t, id, lottery.Buy{Account: "ann"})
	here.must(t, id, lottery.Buy{Account: "ann"})
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `SELECT model.go_back()`)))
	there.must(t, id, lottery.Buy{Account: "ben"})
	there.must(t, id, lottery.Buy{Account: "ben"})
	here.db.spec.Accounts.Forget([]string{"ben"}) // Else the guard of his account refuses.
	// By the database, ben has bought what may be bought, and ann nothing.
	if r, err := here.Execute(t.Context(), id, own[lottery.Op](lottery.Buy{Account: "ben"})); err != nil || !errors.Is(r.Err, lottery.ErrPurchaseLimit) {
		t.Errorf("ben buys more than the limit: %v, %v", err, r.Err)
	}
	if r, err := here.Execute(t.Context(), id, own[lottery.Op](lottery.Buy{Account: "ann"})); err != nil || r.Err != nil {
		t.Errorf("ann buys: %v, %v", err, r.Err)
	}
}
