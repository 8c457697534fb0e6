package archive_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

var (
	january = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	march   = time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)
)

// sell adds campaigns to months, whose sales are of so many months later.
func (w *world) sell(later int, months ...time.Time) {
	w.t.Helper()
	conn := pgtest.Connect(w.t, w.url)
	for _, month := range months {
		testwait.Must(w.t, partitionstest.Sales(w.t.Context(), conn, month, later))
	}
}

// check reads the files.
func (w *world) check() (archive.Checked, error) {
	return archive.Check(w.t.Context(), w.pool, w.directory, nil)
}

// checked has the files agree with the database, with so many purchases of so many campaigns in them.
func (w *world) checked(when string, purchases, campaigns int64) {
	w.t.Helper()
	if c, err := w.check(); err != nil || c.Purchases != purchases || c.Campaigns != campaigns {
		w.t.Errorf("the files %s: %+v, %v", when, c, err)
	}
}

// TestPurchasesLeave archives the purchases of two months with the rest of their history. The draws are verified from the files alone and what the
// database keeps, and a sale that comes late is refused.
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
		w.same(a, partitions.Transfers)
		testwait.Must(t, w.proof(a, partitionstest.CampaignOf(timeOf(a), partitionstest.Drawn)).Verify())
	}
	w.valid("after")
	w.checked("of two months", 14, 4)
	if left := ask[int](w, `SELECT count(*) FROM purchases`); left != 0 {
		t.Errorf("%d purchases are left", left)
	}
	const late = `INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at) VALUES ($1, 3, $1, 'old-03', 1, 1, 0, 4, $1, now())`
	if _, err := w.pool.Exec(t.Context(), late, partitionstest.CampaignOf(february, partitionstest.Cancelled)); pgkit.Code(err) != "23514" {
		t.Errorf("a late sale: %v", err)
	}
}

// timeOf is the month of an archive.
func timeOf(a archive.Archive) time.Time {
	if a.From == nil {
		return january
	}
	return *a.From
}

// proof makes a campaign's proof from an archive's file, and what the database keeps of the draw.
func (w *world) proof(a archive.Archive, id uuid.UUID) *fairdraw.Proof {
	w.t.Helper()
	c := &lottery.Campaign{ID: id, Layers: []lottery.Layer{{Positions: 2}, {Positions: 3, First: 2}}, Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}, {Name: "small", Layer: 2, Quantity: 2}}}
	owners := make([]string, 5)
	lines, err := csv.NewReader(unzip(w.t, filepath.Join(a.Directory, "purchases.csv.gz"))).ReadAll()
	testwait.Must(w.t, err)
	for _, line := range lines {
		if line[0] == id.String() { // campaign, seq, id, account, layer, number, ordinal
			ordinal, err := strconv.Atoi(line[6])
			testwait.Must(w.t, err)
			owners[ordinal] = line[3]
		}
	}
	var drawn fairdraw.Result
	testwait.Must(w.t, json.Unmarshal([]byte(ask[string](w, `SELECT winners FROM draws WHERE campaign = $1`, id)), &drawn.Winners))
	copy(drawn.Root[:], ask[[]byte](w, `SELECT root FROM draws WHERE campaign = $1`, id))
	return fairdraw.NewProof(lottery.NewDrawInput(c, fairdraw.Seed(ask[[]byte](w, `SELECT seed FROM campaign_seeds WHERE campaign = $1`, id)), owners), &drawn)
}

// TestSalesThatGoOn has a campaign of the first month sell on: the months leave without their purchases, which leave when the campaign has ended.
func TestSalesThatGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january, february, march)
	w.exec(`CREATE TABLE before_purchases AS SELECT * FROM purchases`)
	selling := partitionstest.CampaignOf(january, partitionstest.Drawn)
	w.exec(`UPDATE campaigns SET status = 'active' WHERE id = $1`, selling)
	r := w.run(archive.Options{Before: february})
	want := fmt.Sprintf("the purchases before 2025-02-01T00:00:00Z stay: campaign %s has not ended", selling)
	if len(r.Made) != 1 || r.Purchases != want {
		t.Errorf("made %+v", r)
	}
	if r = w.run(archive.Options{Before: march, DryRun: true}); len(r.Made) != 1 || r.Purchases != want || len(r.Made[0].Files) != 6 {
		t.Errorf("would make %+v", r)
	}
	w.run(archive.Options{Before: march})
	w.checked("without purchases", 0, 0)
	if left := ask[int](w, `SELECT count(*) FROM purchases`); left != 21 {
		t.Errorf("%d purchases are left", left)
	}
	w.exec(`UPDATE campaigns SET status = 'completed' WHERE id = $1`, selling)
	if r = w.run(archive.Options{Before: march}); len(r.Made) != 0 || r.Purchases != "the purchases before 2025-03-01T00:00:00Z leave with the next archive" {
		t.Errorf("with nothing to archive: %+v", r)
	}
	if r = w.run(archive.Options{Before: april, DryRun: true, KeepPurchases: true}); len(r.Made) != 1 || len(r.Made[0].Files) != 6 || r.Purchases != "" {
		t.Errorf("with purchases to be kept, would make %+v", r)
	}
	w.exec(`INSERT INTO log_topics VALUES (1, $1, 5, true)`, partitionstest.CampaignOf(march, partitionstest.Cancelled))
	r = w.run(archive.Options{Before: april})
	if len(r.Made) != 1 {
		t.Fatalf("made %+v", r)
	}
	names := []string{}
	for _, f := range r.Made[0].Files {
		if f.Table == partitions.Purchases {
			names = append(names, f.Name)
			if f.Rows != 7 {
				t.Errorf("%s has %d purchases", f.Name, f.Rows)
			}
		}
	}
	if got := strings.Join(names, " "); got != "purchases.csv.gz purchases-2.csv.gz" {
		t.Errorf("the files are %s", got)
	}
	w.checked("of two months at once", 14, 4)
	if left := ask[int](w, `SELECT count(*) FROM purchases`); left != 7 {
		t.Errorf("%d purchases are left", left)
	}
	w.exec(`UPDATE log_topics SET open = false`)
	w.run(archive.Options{Before: april.AddDate(0, 1, 0)})
	w.checked("of all", 21, 6)
	w.valid("after all")
	testwait.Must(t, w.proof(r.Made[0], selling).Verify())
}

// TestSalesLaterThanTheirCampaigns archives the purchases of campaigns whose sales, payout and refunds are of a later month, and stay.
func TestSalesLaterThanTheirCampaigns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(2, january)
	w.run(archive.Options{Before: february})
	w.checked("without their transfers", 7, 2)
	for what, sql := range map[string]string{
		"purchases in the files are not what their transfers say":                     `UPDATE transfers SET amount = 5 WHERE id = (SELECT id FROM transfers WHERE kind = 'purchase' LIMIT 1)`,
		"purchases of cancelled campaigns in the files are not what was refunded":     `UPDATE transfers SET destination = 'old-07' WHERE id = (SELECT id FROM transfers WHERE kind = 'refund' LIMIT 1)`,
		"purchases of cancelled campaigns in the files are not what was refunded\x00": `DELETE FROM transfers WHERE id = (SELECT id FROM transfers WHERE kind = 'refund' LIMIT 1)`,
	} {
		w.exec(`CREATE TABLE kept AS SELECT * FROM transfers WHERE kind IN ('purchase', 'refund')`)
		w.exec(sql)
		if _, err := w.check(); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(what, "\x00")) {
			t.Errorf("%s: %v", sql, err)
		}
		w.exec(`DELETE FROM transfers WHERE kind IN ('purchase', 'refund'); INSERT INTO transfers SELECT * FROM kept; DROP TABLE kept`)
	}
	w.checked("as before", 7, 2)
	w.run(archive.Options{Before: april})
	w.checked("with their transfers", 7, 2)
	w.valid("after all")
}

// TestWithoutPurchases archives what has purchases without them, and gives up an archive that was begun with them.
func TestWithoutPurchases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january, february)
	sold := ask[int](w, `SELECT count(*) FROM purchases`)
	run := func(before time.Time, o archive.Options) (archive.Result, error) {
		o.Before, o.Directory = before, w.directory
		return archive.Run(t.Context(), w.pool, o)
	}
	if r, err := run(february, archive.Options{KeepPurchases: true}); err != nil || len(r.Made) != 1 {
		t.Fatalf("without purchases: %+v, %v", r, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, err := archive.Run(ctx, w.pool, archive.Options{Before: march, Directory: w.directory, Progress: func(archive.Progress) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := run(march, archive.Options{KeepPurchases: true}); !errors.Is(err, archive.ErrUnderWay) || !strings.Contains(err.Error(), "give --purchases") {
		t.Errorf("one that was begun with purchases: %v", err)
	}
	if r, err := run(march, archive.Options{KeepPurchases: true, Restart: true}); err != nil || len(r.Made) != 1 {
		t.Errorf("begun anew without them: %+v, %v", r, err)
	}
	if left := ask[int](w, `SELECT count(*) FROM purchases`); left != sold {
		t.Errorf("%d of %d purchases are left", left, sold)
	}
	w.valid("after all")
	w.checked("without purchases", 0, 0)
}

// TestCheckBesideAnArchive takes purchases out of the tables while the files are read that have the transfers which paid for them.
func TestCheckBesideAnArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january, february)
	w.run(archive.Options{Before: february, KeepPurchases: true})
	made := false
	c, err := archive.Check(t.Context(), w.pool, w.directory, func(archive.Progress) {
		if !made {
			made = true
			w.run(archive.Options{Before: march})
		}
	})
	if err != nil || c.Archives != 2 || c.Purchases == 0 {
		t.Errorf("checked %+v, %v", c, err)
	}
}

// TestWrongPurchases changes purchases before they are archived: nothing leaves the tables.
func TestWrongPurchases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell(0, january)
	drawn, cancelled := partitionstest.CampaignOf(january, partitionstest.Drawn), partitionstest.CampaignOf(january, partitionstest.Cancelled)
	run := func() error {
		_, err := archive.Run(t.Context(), w.pool, archive.Options{Before: february, Directory: t.TempDir(), Restart: true})
		return err
	}
	w.exec(`CREATE TABLE before AS SELECT * FROM purchases`)
	for sql, want := range map[string]string{
		`UPDATE purchases SET account = 'old-09' WHERE seq = 2 AND campaign = '` + drawn.String() + `'`: "has the sealed root",
		`DELETE FROM purchases WHERE seq = 5`:                                                     "has sold 5 positions, and 4 purchases are in the file",
		`DELETE FROM purchases WHERE seq = 3`:                                                     "sale 4 of campaign " + drawn.String() + " comes after sale 2",
		`DELETE FROM purchases WHERE campaign = '` + cancelled.String() + `'`:                     "which is not the next one that has sold something",
		`DELETE FROM purchases WHERE campaign = '` + drawn.String() + `'`:                         "none is in the file",
		`UPDATE purchases SET price = 1 WHERE seq = 1`:                                            ", for 1",
		`UPDATE purchases SET number = 1 WHERE seq = 1`:                                           "number 1, for",
		`UPDATE purchases SET ordinal = 9 WHERE seq = 1 AND campaign = '` + drawn.String() + `'`:  "is of position 9 to",
		`UPDATE purchases SET account = '' WHERE seq = 1 AND campaign = '` + drawn.String() + `'`: `to ""`,
		`DO $$ BEGIN EXECUTE (SELECT format('ALTER TABLE purchases DROP CONSTRAINT %I', conname) FROM pg_constraint WHERE conrelid = 'purchases'::regclass AND contype = 'u'); END $$; UPDATE purchases SET ordinal = 5, number = 6 WHERE price = 4`: "was sold twice",
		`UPDATE campaign_layers SET sold = 1 WHERE campaign = '` + cancelled.String() + `'`: "has sold 1 positions of layer 1, and 2 are in the file",
		`DELETE FROM draws`: "was completed without a draw",
	} {
		w.exec(`DROP TABLE IF EXISTS drawn, layers; CREATE TABLE drawn AS SELECT * FROM draws; CREATE TABLE layers AS SELECT * FROM campaign_layers`)
		w.exec(sql)
		if err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", sql, err)
		}
		if made := ask[int](w, `SELECT count(*) FROM archives WHERE detached_at IS NOT NULL`); made != 0 {
			t.Fatalf("%s: it was archived", sql)
		}
		w.exec(`ALTER TABLE purchases_first DROP CONSTRAINT sealed; TRUNCATE purchases; INSERT INTO purchases SELECT * FROM before;
			DELETE FROM draws; INSERT INTO draws SELECT * FROM drawn; DELETE FROM campaign_layers; INSERT INTO campaign_layers SELECT * FROM layers`)
	}
	testwait.Must(t, run())
	w.valid("after all")
}

// TestManyPurchases copies more purchases than are copied at a time, of campaigns that sold in turn.
func TestManyPurchases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := []uuid.UUID{partitions.At(february.AddDate(0, 0, -9)), partitions.At(february.AddDate(0, 0, -8))}
	const each = 25_000
	for i, id := range ids {
		w.exec(`INSERT INTO campaigns (id, name, status, draw_mode, currency, beneficiary, escrow, total_positions, sold_positions, commitment, version, created_at, cancelled_at, witnesses)
			VALUES ($1, 'many', 'cancelled', 'instant', 'SIM', 'old-01', $2, 30000, $3, sha256(''), 1, now(), now(), 0)`, id, lottery.EscrowOf(id), each-i)
		w.exec(`INSERT INTO campaign_layers (campaign, layer, positions, price, sold) VALUES ($1, 1, 30000, 1, $2)`, id, each-i)
	}
	w.exec(`INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at)
		SELECT c.id, s, gen_random_uuid(), 'old-01', 1, s, s - 1, 1, gen_random_uuid(), now() FROM generate_series(1, $1) AS s, campaigns AS c WHERE s <= c.sold_positions`, each)
	w.exec(`CREATE TABLE before_purchases AS SELECT * FROM purchases`)
	r := w.run(archive.Options{Before: february})
	w.same(r.Made[0], partitions.Purchases)
	if _, err := w.check(); err == nil || !strings.Contains(err.Error(), "the purchases in the files are not what their transfers say") {
		t.Errorf("nothing was paid: %v", err)
	}
}

// TestPurchasesOfAnOlderVersion has the purchases be put into partitions months after the rest: they leave when the month of that is over.
func TestPurchasesOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE TABLE anew (LIKE purchases INCLUDING ALL); DROP TABLE purchases; ALTER TABLE anew RENAME TO purchases`)
	w.sell(0, january, february)
	w.exec(`CREATE TABLE before_purchases AS SELECT * FROM purchases`)
	if r := w.run(archive.Options{Before: february}); len(r.Made) != 0 || !strings.Contains(r.Why, "fairlead migrate up has not come to its end") {
		t.Errorf("in one piece: %+v", r)
	}
	testwait.Must(t, partitions.Convert(t.Context(), w.pool, march.AddDate(0, 0, 14)))
	if r := w.run(archive.Options{Before: march}); len(r.Made) != 2 || r.Purchases != "" {
		t.Errorf("before the month's end: %+v", r)
	}
	w.checked("without purchases", 0, 0)
	w.run(archive.Options{Before: april})
	w.checked("with all of them", 14, 4)
	w.valid("after all")
}
