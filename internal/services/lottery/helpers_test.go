package lottery_test

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// counter gives identifiers in order, so that a failing run can be repeated.
func counter() func() uuid.UUID {
	n := uint64(0)
	return func() uuid.UUID {
		n++
		id := uuid.UUID{6: 0x70, 8: 0x80}
		binary.BigEndian.PutUint32(id[:4], 0x0190_0000)
		binary.BigEndian.PutUint32(id[12:], uint32(n))
		return id
	}
}

func testSeed() fairdraw.Seed { return fairdraw.Seed{1, 2, 3} }

// world stands for the database: what was committed of one campaign and of all accounts. A transaction works on copies
// of it, and of the accounts sees only those that the plan names.
type world struct {
	now      time.Time
	newID    func() uuid.UUID
	random   func(int) int
	accounts map[string]ledger.Account
	campaign lottery.Campaign
	sales    []lottery.Purchase
	draw     *lottery.Draw
	entries  []ledger.Entry
	kinds    []ledger.Kind // of the committed transfers
	loadAll  bool          // load every account, planned or not
}

// order says what campaign to make; the zero value of a field means an ordinary one.
type order struct {
	base    int
	layers  []lottery.NewLayer
	price   int64
	prizes  []lottery.Prize
	limit   *int
	buyers  []string
	funds   int64
	houseIs int64 // what the beneficiary has from the start
}

// newWorld makes a campaign, pending, with a beneficiary "house" and funded buyers.
func newWorld(tb testing.TB, o order) *world {
	tb.Helper()
	w := &world{
		now: epoch(), newID: counter(), random: rand.New(rand.NewPCG(1, 2)).IntN,
		accounts: map[string]ledger.Account{},
	}
	w.account("house", o.houseIs)
	for _, b := range o.buyers {
		w.account(b, cmp.Or(o.funds, 1_000_000))
	}
	create := lottery.Create{
		Name: "spring", Layers: o.layers, Price: new(cmp.Or(o.price, 10)), Currency: "EUR", Beneficiary: "house",
		Prizes: o.prizes, PurchaseLimit: o.limit, Seed: testSeed(),
	}
	if o.layers == nil {
		create.BaseLength = new(cmp.Or(o.base, 2))
	}
	cr := &lottery.Creation{Book: w.book([]string{"house"})}
	c, err := lottery.DecideCreate(cr, create)
	testwait.Must(tb, err)
	w.campaign = *c
	w.save(cr.Book.Changes())
	return w
}

func (w *world) account(id string, available int64) {
	w.accounts[id] = ledger.Account{ID: id, Currency: "EUR", Available: available, Version: 1, CreatedAt: w.now}
}

func (w *world) book(accounts []string) *ledger.Book {
	b := ledger.NewBook(w.now, w.newID)
	if w.loadAll {
		accounts = slices.Collect(maps.Keys(w.accounts))
	}
	for _, id := range accounts {
		if a, ok := w.accounts[id]; ok {
			b.LoadAccount(a)
		}
	}
	return b
}

func (w *world) save(c ledger.Changes) {
	for _, a := range c.CreatedAccounts {
		w.accounts[a.ID] = a
	}
	for _, a := range c.UpdatedAccounts {
		w.accounts[a.ID] = a.Account
	}
	for _, t := range c.Transfers {
		w.kinds = append(w.kinds, t.Kind)
	}
	w.entries = append(w.entries, c.Entries...)
}

// inventory is rebuilt from the sales, as another process would.
func (w *world) inventory() *lottery.Inventory {
	inv := lottery.NewInventory(w.campaign.Layers)
	for _, p := range w.sales {
		inv.Sell(p.Position.Layer, p.Position.Ordinal, p.Account)
	}
	return inv
}

// outcome is what one operation was answered.
type outcome struct {
	result any
	err    error
}

// begin makes the state of one transaction, with what the plan asks for.
func (w *world) begin(ops ...lottery.Op) *lottery.State {
	c := w.campaign
	c.Layers = slices.Clone(c.Layers)
	inv := w.inventory()
	need := lottery.Plan(&c, inv, ops)
	s := &lottery.State{Campaign: &c, Inventory: inv, Book: w.book(need.Accounts), Random: w.random}
	if need.Result {
		s.Seed, s.Draw = testSeed(), w.draw
	}
	return s
}

// transact runs one transaction and commits it.
func (w *world) transact(ops ...lottery.Op) []outcome {
	s := w.begin(ops...)
	outcomes := make([]outcome, len(ops))
	for i, op := range ops {
		outcomes[i].result, outcomes[i].err = lottery.Decide(s, op)
	}
	w.commit(s)
	return outcomes
}

// commit keeps what a transaction decided, under the rules of the store.
func (w *world) commit(s *lottery.State) {
	if s.Changed != (s.Campaign.Version == w.campaign.Version+1) {
		panic("a change without a new version, or the reverse")
	}
	if s.Drawn != nil {
		if w.draw != nil {
			panic("a second draw")
		}
		w.draw = s.Drawn
	}
	w.campaign = *s.Campaign
	w.sales = append(w.sales, s.Purchases...)
	w.save(s.Book.Changes())
}

// do runs one operation in a transaction of its own and fails the test when it is refused.
func (w *world) do(tb testing.TB, op lottery.Op) any {
	tb.Helper()
	o := w.transact(op)[0]
	if o.err != nil {
		tb.Fatalf("%T: %v", op, o.err)
	}
	return o.result
}

// has fails the test unless the account has that much available.
func (w *world) has(tb testing.TB, account string, available int64) {
	tb.Helper()
	if a := w.accounts[account]; a.Available != available || a.Held != 0 {
		tb.Errorf("%s has %d available and %d held, want %d", account, a.Available, a.Held, available)
	}
}

// check compares what was committed with the package's invariants.
func (w *world) check(tb interface {
	Helper()
	Fatalf(string, ...any)
},
) {
	tb.Helper()
	c := &w.campaign
	sold, takings := map[int]int{}, int64(0)
	ordinals := map[int]bool{}
	for i, p := range w.sales {
		if p.Seq != i+1 || ordinals[p.Position.Ordinal] || c.Position(p.Position.Ordinal) != p.Position {
			tb.Fatalf("sale %+v is out of order, or a second one, or nowhere", p)
		}
		ordinals[p.Position.Ordinal] = true
		sold[p.Position.Layer]++
		takings += p.Price
	}
	for i, l := range c.Layers {
		if l.Sold != sold[i+1] || l.Sold > l.Positions {
			tb.Fatalf("layer %d: %+v with %d sales", i+1, l, sold[i+1])
		}
	}
	if c.SoldPositions != len(w.sales) {
		tb.Fatalf("%d sold, %d sales", c.SoldPositions, len(w.sales))
	}
	escrow := w.accounts[c.Escrow].Available
	switch c.Status {
	case lottery.StatusActive, lottery.StatusDrawing:
		if escrow != takings {
			tb.Fatalf("%s with %d in escrow and takings of %d", c.Status, escrow, takings)
		}
	case lottery.StatusPending, lottery.StatusCompleted, lottery.StatusCancelled:
		if escrow != 0 {
			tb.Fatalf("%s with %d in escrow", c.Status, escrow)
		}
	}
	if (w.draw != nil) != (c.Status == lottery.StatusCompleted) || (c.Status == lottery.StatusCompleted) != (c.CompletedAt != nil) {
		tb.Fatalf("%s, draw %v", c.Status, w.draw)
	}
	sums := map[uuid.UUID]int64{}
	for _, e := range w.entries {
		sums[e.Transfer] += e.Amount
	}
	for id, sum := range sums {
		if sum != 0 {
			tb.Fatalf("the entries of %s sum to %d", id, sum)
		}
	}
}
