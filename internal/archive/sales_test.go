package archive_test

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

var january = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// sell adds campaigns to months.
func (w *world) sell(later int, months ...time.Time) {
	w.t.Helper()
	conn := pgtest.Connect(w.t, w.url)
	for _, month := range months {
		testwait.Must(w.t, partitionstest.Sales(w.t.Context(), conn, month, later))
	}
}

// TestPurchasesLeave archives the purchases of two months with the rest of their history.
func TestPurchasesLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january, february)
	w.exec(`CREATE TABLE before_purchases AS SELECT * FROM purchases; CREATE TABLE before_transfers AS SELECT * FROM transfers`)
	w.valid("before")
	r := w.run(archive.Options{Before: april.Add(-time.Nanosecond)})
	if len(r.Made) != 2 || r.Purchases != "" {
		t.Fatalf("made %+v", r)
	}
	for _, a := range r.Made {
		w.same(a, partitions.Purchases)
	}
	w.valid("after")
	if left := ask[int](w, `SELECT count(*) FROM purchases`); left != 0 {
		t.Errorf("%d purchases are left", left)
	}
	c, err := archive.Check(t.Context(), w.pool, w.directory, nil)
	if err != nil || c.Purchases != 14 || c.Campaigns != 4 {
		t.Errorf("the files: %+v, %v", c, err)
	}
}
