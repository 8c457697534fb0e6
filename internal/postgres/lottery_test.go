package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// venue is a database with funded buyers, and the lottery of one process on it.
type venue struct {
	db    *DB
	store *Lottery
	*lottery.Service
}

// enter opens a process of its own on the database.
func enter(t *testing.T, url string, o lottery.Options) venue {
	t.Helper()
	db := open(t, Options{URL: url})
	store := NewLottery(db)
	return venue{db, store, newLotteryService(t, store, o)}
}

// buyers are the funded accounts of a venue.
func buyers() []string { return []string{"ann", "ben", "cleo", "dan"} }

func newVenue(t *testing.T, o lottery.Options) (venue, string) {
	t.Helper()
	url := database(t)
	v := enter(t, url, o)
	s := newLedgerService(t, v.db)
	fund(t, s, 100_000, buyers()...)
	fund(t, s, 0, "house")
	return v, url
}

// create makes a campaign of a triangle with two kinds of prizes, and publishes it.
func (v venue) create(t *testing.T, base int) uuid.UUID {
	t.Helper()
	a, err := v.Create(t.Context(), own[lottery.Op](lottery.Create{
		Name: "spring", BaseLength: &base, Price: new(int64(10)), Currency: "EUR", Beneficiary: "house",
		Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}, {Name: "last row", Layer: base, Quantity: 1}},
	}))
	if err = errors.Join(err, a.Err); err != nil {
		t.Fatal(err)
	}
	id := result[*lottery.Campaign](t, a.Result).ID
	v.must(t, id, lottery.Publish{})
	return id
}

// must executes an operation that has to succeed.
func (v venue) must(t *testing.T, id uuid.UUID, op lottery.Op) any {
	t.Helper()
	a, err := v.Execute(t.Context(), id, own(op))
	if err = errors.Join(err, a.Err); err != nil {
		t.Fatalf("%#v: %v", op, err)
	}
	return a.Result
}

// remembered is what the process's cache says of a campaign, and whether it says anything.
func (v venue) remembered(id uuid.UUID) (sold int, ok bool) {
	entry := v.store.memory.Enter(id)
	defer v.store.memory.Leave(id, entry)
	inv := v.store.memory.Lock(context.Background(), entry, patience) // Of the process, not of the test.
	defer v.store.memory.Unlock(entry, inv)
	if inv == nil {
		return 0, false
	}
	return inv.Sold(), true
}

// TestAProcessThatGuessesWrong has a process lock what a sale needs by what it remembers of a campaign, while another one has sold
// meanwhile: a position, so that it has to catch up, and then all but the last one, so that its sale is also the draw.
func TestAProcessThatGuessesWrong(t *testing.T) {
	t.Parallel()
	one, url := newVenue(t, lottery.Options{})
	two := enter(t, url, lottery.Options{})
	id := one.create(t, 3)
	for _, v := range []venue{one, two, one, two, two, one} { // Of six positions.
		v.must(t, id, lottery.Buy{Account: "ann"})
	}
	checkDrawn(t, two, id)
}

// checkDrawn recomputes the campaign's draw from what anybody can read.
func checkDrawn(t *testing.T, v venue, id uuid.UUID) *lottery.Draw {
	t.Helper()
	c, err := v.Campaign(t.Context(), id)
	if err != nil || c.Status != lottery.StatusCompleted || c.SoldPositions != c.TotalPositions {
		t.Fatalf("campaign %+v, %v", c, err)
	}
	owners, err := v.Owners(t.Context(), id, 0, c.TotalPositions)
	testwait.Must(t, err)
	draw, seed, err := v.Result(t.Context(), id)
	testwait.Must(t, err)
	want, err := fairdraw.Draw(lottery.NewDrawInput(c, seed, owners))
	if err != nil || draw.Root != want.Root || fmt.Sprint(draw.Winners) != fmt.Sprint(want.Winners) || len(draw.Winners) != 2 {
		t.Errorf("draw %+v, want %+v, %v", draw, want, err)
	}
	return draw
}

// TestTwoProcessesSellOneCampaign alternates the sales, so that each process's cache is old every time.
func TestTwoProcessesSellOneCampaign(t *testing.T) {
	t.Parallel()
	one, url := newVenue(t, lottery.Options{})
	two := enter(t, url, lottery.Options{})
	id := one.create(t, 5)
	for n := range 14 {
		v := []venue{one, two}[n%2]
		p := result[lottery.Purchase](t, v.must(t, id, lottery.Buy{Account: buyers()[n%4]}))
		if p.Seq != n+1 {
			t.Fatalf("sale %d has number %d", n+1, p.Seq)
		}
		if sold, ok := v.remembered(id); !ok || sold != n+1 {
			t.Fatalf("after sale %d the process remembers %d, %v", n+1, sold, ok)
		}
	}
	v := two
	if sold, ok := one.remembered(id); !ok || sold != 13 {
		t.Errorf("the other process remembers %d, %v", sold, ok)
	}
	one.must(t, id, lottery.Buy{Account: "dan"})
	for _, v := range []venue{one, two} {
		if a, err := v.Execute(t.Context(), id, own[lottery.Op](lottery.Buy{Account: "ann"})); err != nil || !errors.Is(a.Err, lottery.ErrSoldOut) {
			t.Errorf("one too many: %v, %v", a.Err, err)
		}
		if sold, ok := v.remembered(id); ok {
			t.Errorf("a process remembers a sold-out campaign: %d", sold)
		}
		checkDrawn(t, v, id)
	}
	if got := ask[int64](t, v.db, `SELECT available FROM accounts WHERE id = 'house'`); got != 150 {
		t.Errorf("the beneficiary has %d", got)
	}
}

// TestARaceOfTwoProcesses sends more buyers at once than there are positions.
func TestARaceOfTwoProcesses(t *testing.T) {
	t.Parallel()
	one, url := newVenue(t, lottery.Options{})
	two := enter(t, url, lottery.Options{})
	id := one.create(t, 6)
	var (
		group      sync.WaitGroup
		mu         sync.Mutex
		sold, late int
	)
	for n := range 50 {
		group.Go(func() {
			v := []venue{one, two}[n%2]
			a, err := v.Execute(t.Context(), id, keyed[lottery.Op](lottery.Buy{Account: buyers()[n%4]}, fmt.Sprint(n), ""))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case a.Status == 201:
				sold++
			case string(a.Body) == `{"detail":"`+lottery.ErrSoldOut.Error()+`"}`:
				late++
			default:
				t.Errorf("answer %d %s", a.Status, a.Body)
			}
		})
	}
	group.Wait()
	if sold != 21 || late != 29 {
		t.Errorf("%d sold, %d late", sold, late)
	}
	checkDrawn(t, one, id)
}

// TestAFailedCommitForgetsTheInventory makes the database refuse one buyer's purchase after it was decided.
func TestAFailedCommitForgetsTheInventory(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	id := v.create(t, 3)
	v.must(t, id, lottery.Buy{Account: "ann"})
	exec(t, v.db, `ALTER TABLE purchases ADD CONSTRAINT not_ben CHECK (account <> 'ben')`)
	for range 3 {
		if a, err := v.Execute(t.Context(), id, own[lottery.Op](lottery.Buy{Account: "ben"})); err == nil || command.Undividable(err) {
			t.Errorf("bought %+v, %v", a, err)
		}
		if sold, ok := v.remembered(id); ok {
			t.Errorf("remembers %d after a failure", sold)
		}
	}
	if p := result[lottery.Purchase](t, v.must(t, id, lottery.Buy{Account: "ann"})); p.Seq != 2 {
		t.Errorf("the next sale is %+v", p)
	}
	if sold, ok := v.remembered(id); !ok || sold != 2 {
		t.Errorf("remembers %d, %v", sold, ok)
	}
	exec(t, v.db, `ALTER TABLE purchases DROP CONSTRAINT not_ben`)
	// One that fails among others costs them nothing.
	for range 4 {
		v.must(t, id, lottery.Buy{Account: "ben"})
	}
	checkDrawn(t, v, id)
}

// strand sells all but the last position, and the last one by hand, as if the process had died before its draw.
func strand(t *testing.T, v venue, id uuid.UUID, age string) {
	t.Helper()
	c, err := v.Campaign(t.Context(), id)
	testwait.Must(t, err)
	for range c.TotalPositions - 1 {
		v.must(t, id, lottery.Buy{Account: "ann"})
	}
	err = v.store.Commit(t.Context(), id, lottery.Want{Plan: func(c *lottery.Campaign, _ *lottery.Inventory) lottery.Need {
		return lottery.Need{Accounts: []string{"ben", c.Escrow}}
	}}, func(u *lottery.Unit) {
		s := u.State
		p := s.Campaign.Position(s.Inventory.Pick(0, s.Random))
		tr, err := s.Book.Move(ledger.KindPurchase, "ben", s.Campaign.Escrow, 10, "")
		testwait.Check(t, err)
		s.Inventory.Sell(p.Layer, p.Ordinal, "ben")
		s.Campaign.SoldPositions++
		s.Campaign.Layers[p.Layer-1].Sold++
		s.Campaign.Version++
		s.Changed = true
		s.Purchases = []lottery.Purchase{{
			ID: s.Book.NewID(), Campaign: id, Seq: s.Campaign.SoldPositions, Account: "ben", Position: p, Price: 10, Transfer: tr.ID, At: s.Book.Now(),
		}}
	})
	testwait.Must(t, err)
	exec(t, v.db, `UPDATE campaigns SET status = 'drawing', draw_started_at = clock_timestamp() - $2::text::interval WHERE id = $1`, id, age)
}

func TestSweepFinishesStuckDraws(t *testing.T) {
	t.Parallel()
	log := &testwait.Buffer{}
	o := lottery.Options{StuckAfter: time.Minute, Logger: slog.New(slog.NewTextHandler(log, nil))}
	v, url := newVenue(t, o)
	other := enter(t, url, o)
	stuck, withResult, fresh := v.create(t, 2), v.create(t, 2), v.create(t, 2)
	strand(t, v, stuck, "2 min")
	strand(t, v, withResult, "61 s")
	strand(t, v, fresh, "10 s")
	// The second one's result was written, and then its transaction was cut in two by hand.
	c, err := v.Campaign(t.Context(), withResult)
	testwait.Must(t, err)
	owners, err := v.Owners(t.Context(), withResult, 0, 3)
	testwait.Must(t, err)
	seed := fairdraw.Seed(ask[[]byte](t, v.db, `SELECT seed FROM campaign_seeds WHERE campaign = $1`, withResult))
	drawn, err := fairdraw.Draw(lottery.NewDrawInput(c, seed, owners))
	testwait.Must(t, err)
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	writeDraw(t, v.db, &lottery.Draw{Campaign: withResult, Root: drawn.Root, Winners: drawn.Winners, CompletedAt: made})

	w, err := v.Watch(t.Context(), time.Minute)
	if err != nil || len(w.Stuck) != 2 || w.Oversold != 0 {
		t.Errorf("watch %+v, %v", w, err)
	}
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		finished int
	)
	for _, v := range []venue{v, other} {
		group.Go(func() {
			n, err := v.Sweep(t.Context())
			testwait.Check(t, err)
			mu.Lock()
			defer mu.Unlock()
			finished += n
		})
	}
	group.Wait()
	if finished != 2 {
		t.Errorf("finished %d", finished)
	}
	for _, id := range []uuid.UUID{stuck, withResult} {
		if line := `level=WARN msg="stuck draw finished" campaign=` + id.String() + "\n"; strings.Count(log.String(), line) != 1 {
			t.Errorf("the log has not once %q:\n%s", line, log)
		}
	}
	if n := strings.Count(log.String(), "stuck draw finished"); n != 2 {
		t.Errorf("%d stuck draws are finished in the log:\n%s", n, log)
	}
	checkDrawn(t, v, stuck)
	if d := checkDrawn(t, v, withResult); !d.CompletedAt.Equal(made) {
		t.Errorf("drawn again at %v", d.CompletedAt)
	}
	if _, _, err := v.Result(t.Context(), fresh); !errors.Is(err, lottery.ErrNotDrawn) {
		t.Errorf("a fresh draw was taken over: %v", err)
	}
	// Whoever asks need not wait for the sweeper.
	if d := result[*lottery.Draw](t, v.must(t, fresh, lottery.AskDraw{})); d.Campaign != fresh {
		t.Errorf("draw %+v", d)
	}
	checkDrawn(t, v, fresh)
	v.must(t, fresh, lottery.AskDraw{}) // It is there, so that nothing is done.
	// An operator's recovery is written down, the sweeper's is not.
	if log := ask[string](t, v.db, `SELECT string_agg(object, ' ') FROM audit_log WHERE action = 'campaign.draw'`); log != fresh.String() {
		t.Errorf("recovered draws in the audit log: %q, want %s", log, fresh)
	}
	if w, err := v.Watch(t.Context(), 0); err != nil || len(w.Stuck) != 0 {
		t.Errorf("watch %+v, %v", w, err)
	}
}

func TestReadersOfCampaigns(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, v.create(t, 3))
	}
	id := ids[1]
	if s, err := v.Statistics(t.Context(), id); err != nil || s != (lottery.Statistics{}) {
		t.Errorf("statistics before a sale: %+v, %v", s, err)
	}
	var sales []lottery.Purchase
	for _, account := range []string{"ben", "ann", "ben", "ben"} {
		sales = append(sales, result[lottery.Purchase](t, v.must(t, id, lottery.Buy{Account: account})))
	}
	s, err := v.Statistics(t.Context(), id)
	if err != nil || s.Buyers != 2 || s.Revenue != 40 || s.LargestSold != 3 || !s.FirstSaleAt.Equal(sales[0].At) || !s.LastSaleAt.Equal(sales[3].At) {
		t.Errorf("statistics %+v, %v", s, err)
	}
	page, err := v.Purchases(t.Context(), id, "", 1, 2)
	if err != nil || len(page) != 2 {
		t.Fatalf("purchases %+v, %v", page, err)
	}
	for i, p := range page {
		want := sales[i+1]
		if p != want {
			t.Errorf("purchase %+v, want %+v", p, want)
		}
	}
	owners, err := v.Owners(t.Context(), id, 1, 5)
	if err != nil || len(owners) != 4 {
		t.Fatalf("owners %v, %v", owners, err)
	}
	for _, p := range sales {
		if o := p.Position.Ordinal; o >= 1 && o < 5 && owners[o-1] != p.Account {
			t.Errorf("ordinal %d belongs to %q, want %q", o, owners[o-1], p.Account)
		}
	}
	list, err := v.Campaigns(t.Context(), 0, 2, true)
	if err != nil || len(list) != 2 || list[0].ID != ids[0] || list[1].ID != id || list[1].SoldPositions != 4 {
		t.Errorf("campaigns %+v, %v", list, err)
	}
	if list, err = v.Campaigns(t.Context(), list[1].Number, 2, true); err != nil || len(list) != 1 || list[0].ID != ids[2] {
		t.Errorf("the rest %+v, %v", list, err)
	}
	for name, err := range map[string]error{
		"campaign": second(v.Campaign(t.Context(), uuid.Max)),
		"command":  answerErr(v.Execute(t.Context(), uuid.Max, own[lottery.Op](lottery.Publish{}))),
		"nil":      second(v.Execute(t.Context(), uuid.Nil, own[lottery.Op](lottery.Publish{}))),
	} {
		if !errors.As(err, new(*lottery.CampaignNotFoundError)) {
			t.Errorf("absent %s: %v", name, err)
		}
	}
	v.must(t, ids[0], lottery.Cancel{})
	v.must(t, id, lottery.Cancel{})
}

func second[T any](_ T, err error) error { return err }

func answerErr(a command.Answer, err error) error { return errors.Join(a.Err, err) }

// TestAdministrationIsWrittenDown checks the audit log and the keys of creations.
func TestAdministrationIsWrittenDown(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	create := keyed[lottery.Op](lottery.Create{Name: "x", BaseLength: new(2), Price: new(int64(1)), Currency: "EUR", Beneficiary: "house"}, "c", "")
	a, err := v.Create(t.Context(), create)
	if err != nil || a.Status != 201 {
		t.Fatalf("%+v, %v", a, err)
	}
	again, err := v.Create(t.Context(), keyed(create.Op, "c", ""))
	if err != nil || !again.Replayed || string(again.Body) != string(a.Body) {
		t.Errorf("again: %+v, %v", again, err)
	}
	list, err := v.Campaigns(t.Context(), 0, 10, true)
	if err != nil || len(list) != 1 {
		t.Fatalf("campaigns %+v, %v", list, err)
	}
	id := list[0].ID
	for _, c := range []command.Command[lottery.Op]{
		keyed[lottery.Op](lottery.Publish{}, "p", ""), keyed[lottery.Op](lottery.Publish{}, "p2", ""), keyed[lottery.Op](lottery.Cancel{}, "x", ""),
	} {
		testwait.Check(t, testwait.Err(v.Execute(t.Context(), id, c)))
	}
	log := ask[string](t, v.db, `SELECT string_agg(concat_ws(' ', principal, action, request_id, object = $1), '; ' ORDER BY at, id) FROM audit_log`, id.String())
	if want := "tester campaign.create r-c t; tester campaign.publish r-p t; tester campaign.cancel r-x t"; log != want {
		t.Errorf("audit log %q, want %q", log, want)
	}
}

// TestWatchSeesWhatCannotBe takes the database's last defence away and oversells. Its database is not audited.
func TestWatchSeesWhatCannotBe(t *testing.T) {
	t.Parallel()
	v := enter(t, pgtest.NewDatabase(t, migrated), lottery.Options{})
	fund(t, newLedgerService(t, v.db), 100, buyers()...)
	fund(t, newLedgerService(t, v.db), 0, "house")
	id := v.create(t, 2)
	exec(t, v.db, `ALTER TABLE campaigns DROP CONSTRAINT campaigns_check`)
	exec(t, v.db, `UPDATE campaigns SET sold_positions = 4 WHERE id = $1`, id)
	if w, err := v.Watch(t.Context(), time.Hour); err != nil || w.Oversold != 1 {
		t.Errorf("watch %+v, %v", w, err)
	}
	if a, err := v.Execute(t.Context(), id, own[lottery.Op](lottery.Buy{Account: "ann"})); err == nil {
		t.Errorf("sold with a counter that lies: %+v", a)
	}
	// A result before the draw; then two results of one campaign, of which one is new.
	duplicates := func(want int) {
		t.Helper()
		if w, err := v.Watch(t.Context(), time.Hour); err != nil || w.Duplicates != want {
			t.Errorf("watch %+v, %v; want %d duplicates", w, err, want)
		}
	}
	duplicates(0)
	const drawAgain = `INSERT INTO draws (campaign, root, winners, completed_at) VALUES ($1, sha256('x'), '[]', now() - $2::interval)`
	exec(t, v.db, `ALTER TABLE draws DROP CONSTRAINT draws_pkey`)
	exec(t, v.db, drawAgain, id, 48*time.Hour)
	duplicates(1)
	exec(t, v.db, `UPDATE campaigns SET status = 'cancelled' WHERE id = $1`, id)
	duplicates(0)
	exec(t, v.db, drawAgain, id, time.Minute)
	duplicates(1)
}
