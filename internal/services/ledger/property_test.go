package ledger_test

import (
	"maps"
	"math"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// checked is a database of Go maps, a book at work on all of it, and the model that both must agree with.
type checked struct {
	now      time.Time
	newID    func() uuid.UUID
	accounts map[string]ledger.Account
	holds    map[uuid.UUID]ledger.Hold
	entries  []ledger.Entry
	taken    map[string]ledger.Referenced
	book     *ledger.Book
	model    model
	known    []uuid.UUID // every hold ever placed, and one that never was
	asked    []ledger.Op // every operation with a reference
	results  map[string]any
}

func newChecked() *checked {
	h := &checked{
		now: epoch(), newID: counter(), accounts: map[string]ledger.Account{}, holds: map[uuid.UUID]ledger.Hold{},
		known: []uuid.UUID{uuid.Max}, taken: map[string]ledger.Referenced{}, results: map[string]any{},
	}
	h.begin()
	return h
}

func (h *checked) begin() {
	h.book = ledger.NewBook(h.now, h.newID)
	for _, a := range h.accounts {
		h.book.LoadAccount(a)
	}
	for _, hold := range h.holds {
		h.book.LoadHold(hold)
	}
	for _, r := range h.taken {
		h.book.LoadReference(r)
	}
}

// ids are the accounts that operations name; the last never exists.
func ids() []string { return []string{"a", "b", "c", "d", "nobody"} }

func amounts() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(1, 100), rapid.SampledFrom([]int64{
		1, ledger.MaxAmount, math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - 100, math.MaxInt64 / 2,
	}))
}

func (h *checked) draw(t *rapid.T) ledger.Op {
	name := rapid.SampledFrom(ids())
	hold := rapid.SampledFrom(h.known)
	if len(h.asked) > 0 && rapid.IntRange(0, 5).Draw(t, "again") == 0 {
		return rapid.SampledFrom(h.asked).Draw(t, "asked")
	}
	reference := rapid.SampledFrom([]string{"", "", "", "r", "s", "t"}).Draw(t, "reference")
	switch rapid.SampledFrom([]string{
		"create", "deposit", "deposit", "withdraw", "transfer", "transfer", "legs", "legs", "place", "place", "capture", "release", "expire",
	}).Draw(t, "op") {
	case "create":
		return ledger.CreateAccount{
			ID: rapid.SampledFrom(ids()[:4]).Draw(t, "id"), Currency: rapid.SampledFrom([]string{"EUR", "EUR", "USD"}).Draw(t, "currency"),
		}
	case "deposit":
		return ledger.Deposit{Account: name.Draw(t, "account"), Amount: amounts().Draw(t, "amount"), Memo: "in", Reference: reference}
	case "withdraw":
		return ledger.Withdraw{Account: name.Draw(t, "account"), Amount: amounts().Draw(t, "amount"), Memo: "out", Reference: reference}
	case "transfer":
		return ledger.MakeTransfer{
			From: name.Draw(t, "from"), To: name.Draw(t, "to"), Amount: amounts().Draw(t, "amount"), Memo: "over", Reference: reference,
		}
	case "legs":
		return ledger.TransferLegs{Legs: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.Leg {
			return ledger.Leg{From: name.Draw(t, "from"), To: name.Draw(t, "to"), Amount: amounts().Draw(t, "amount")}
		}), 1, 6).Draw(t, "legs"), Memo: "over", Reference: reference}
	case "place":
		return ledger.PlaceHold{
			Account: name.Draw(t, "account"), Amount: amounts().Draw(t, "amount"),
			ExpiresIn: rapid.SampledFrom([]*time.Duration{nil, new(time.Microsecond), new(time.Second), new(time.Minute)}).Draw(t, "expires in"),
		}
	case "capture":
		return ledger.CaptureHold{
			Hold: hold.Draw(t, "hold"), To: name.Draw(t, "to"), Amount: rapid.Ptr(amounts(), true).Draw(t, "amount"),
		}
	case "release":
		return ledger.ReleaseHold{Hold: hold.Draw(t, "hold")}
	default:
		return expiry{ledger.ReleaseHold{Hold: hold.Draw(t, "hold")}}
	}
}

// expiry is what the sweeper does to a hold, which is no operation of a caller's.
type expiry struct{ ledger.ReleaseHold }

// snapshot is all that a book shows.
type snapshot struct {
	accounts  map[string]ledger.Account
	holds     map[uuid.UUID]ledger.Hold
	transfers int
	entries   int
}

func (h *checked) snapshot() snapshot {
	c := h.book.Changes()
	s := snapshot{accounts: map[string]ledger.Account{}, holds: map[uuid.UUID]ledger.Hold{}, transfers: len(c.Transfers), entries: len(c.Entries)}
	for _, id := range ids() {
		if a, err := h.book.Account(id); err == nil {
			s.accounts[id] = a
		}
	}
	for _, id := range h.known {
		if hold, err := h.book.Hold(id); err == nil {
			s.holds[id] = hold
		}
	}
	return s
}

// step runs one operation on the book and on the model, and compares them.
func (h *checked) step(t *rapid.T) {
	op := h.draw(t)
	if e, ok := op.(expiry); ok {
		h.book.Expire(e.Hold)
		h.model.expire(e.Hold, h.now)
		h.checkBook(t)
		return
	}
	before, facts := h.snapshot(), len(h.model.facts)
	result, err := ledger.Decide(h.book, op)
	var placed uuid.UUID
	if hold, ok := result.(ledger.Hold); ok && err == nil {
		placed = hold.ID
		if _, isNew := op.(ledger.PlaceHold); isNew {
			h.known = append(h.known, placed)
		}
	}
	if got, want := refusal(err), h.model.apply(op, h.now, placed); got != want {
		t.Fatalf("%#v: refused with %q, want %q", op, got, want)
	}
	if err != nil {
		h.checkRefusal(t, op, err, before, h.model.facts[facts:])
	}
	if reference := ledger.ReferenceOf(op); reference != "" {
		h.asked = append(h.asked, op)
		if repeated, ok := result.(ledger.Repeated); ok {
			if len(h.model.facts) != facts || !reflect.DeepEqual(repeated.First, h.results[reference]) || !reflect.DeepEqual(before, h.snapshot()) {
				t.Fatalf("%#v: repeated %+v, first %+v", op, repeated.First, h.results[reference])
			}
		} else if err == nil {
			h.results[reference] = result
		}
	}
	h.checkBook(t)
}

// checkRefusal makes sure that a refusal changed nothing but what it may: a failed intent, or a hold past its time.
func (h *checked) checkRefusal(t *rapid.T, op ledger.Op, err error, before snapshot, news []fact) {
	after := h.snapshot()
	if len(news) == 0 {
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%#v was refused (%v) and changed the book:\n%+v\n%+v", op, err, before, after)
		}
		return
	}
	if len(news) != 1 {
		t.Fatalf("%#v was refused (%v) with %d facts", op, err, len(news))
	}
	switch news[0].what {
	case "failed":
		transfers := h.book.Changes().Transfers
		last := transfers[len(transfers)-1]
		if last.Status != ledger.TransferFailed || last.Reason != ledger.ReasonInsufficientFunds {
			t.Fatalf("failed intent %+v", last)
		}
		before.transfers++
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%#v left more than its intent", op)
		}
	case "expired":
		if after.transfers != before.transfers || after.entries != before.entries ||
			after.holds[news[0].hold].Status != ledger.HoldExpired {
			t.Fatalf("%#v: a hold past its time did not just expire: %+v", op, after)
		}
	default:
		t.Fatalf("%#v was refused (%v) with a %s", op, err, news[0].what)
	}
}

// checkBook compares balances with the model's, and the invariants of the package with the book's own words.
func (h *checked) checkBook(t *rapid.T) {
	entries := append(append([]ledger.Entry{}, h.entries...), h.book.Changes().Entries...)
	sums, perTransfer := map[string]*big.Int{}, map[uuid.UUID]*big.Int{}
	for _, e := range entries {
		add(sums, e.Account, e.Amount)
		add(perTransfer, e.Transfer, e.Amount)
	}
	for id, sum := range perTransfer {
		if sum.Sign() != 0 {
			t.Fatalf("the entries of transfer %s sum to %s", id, sum)
		}
	}
	inside := map[string]*big.Int{}
	for id, a := range h.snapshot().accounts {
		if a.Available < 0 || a.Held < 0 || a.Available > math.MaxInt64-a.Held {
			t.Fatalf("account out of range: %+v", a)
		}
		if big.NewInt(a.Available).Cmp(h.model.available(id)) != 0 || big.NewInt(a.Held).Cmp(h.model.held(id)) != 0 {
			t.Fatalf("account %+v, want %s available and %s held", a, h.model.available(id), h.model.held(id))
		}
		sum := new(big.Int).Add(big.NewInt(a.Available), big.NewInt(a.Held))
		if got := sums[id]; sum.Sign() != 0 && (got == nil || got.Cmp(sum) != 0) {
			t.Fatalf("account %+v, its entries sum to %s", a, got)
		}
		if inside[a.Currency] == nil {
			inside[a.Currency] = new(big.Int)
		}
		inside[a.Currency].Add(inside[a.Currency], sum)
	}
	for currency, sum := range inside {
		outside := h.model.total(ledger.Outside(currency))
		if outside.Add(outside, sum).Sign() != 0 {
			t.Fatalf("%s: inside and outside differ by %s", currency, outside)
		}
	}
}

func add[K comparable](sums map[K]*big.Int, key K, amount int64) {
	if sums[key] == nil {
		sums[key] = new(big.Int)
	}
	sums[key].Add(sums[key], big.NewInt(amount))
}

// commit writes the book's changes to the maps as the store would, under the store's rules, and begins anew.
func (h *checked) commit(t *rapid.T, later time.Duration) {
	before, loaded := h.snapshot(), maps.Clone(h.accounts)
	c := h.book.Changes()
	seen := map[string]bool{}
	for _, a := range c.CreatedAccounts {
		if _, exists := h.accounts[a.ID]; exists || seen[a.ID] {
			t.Fatalf("account %s is created twice", a.ID)
		}
		seen[a.ID], h.accounts[a.ID] = true, a
	}
	for _, a := range c.UpdatedAccounts {
		was, exists := h.accounts[a.ID]
		if !exists || seen[a.ID] || a.Version <= was.Version || a.Before != was {
			t.Fatalf("update of %+v from %+v (written before: %v)", a, was, seen[a.ID])
		}
		seen[a.ID], h.accounts[a.ID] = true, a.Account
	}
	h.commitHolds(t, c)
	for _, r := range c.References {
		if _, taken := h.taken[r.Reference]; taken && r.Status == ledger.TransferCompleted {
			t.Fatalf("reference %s is taken twice", r.Reference)
		}
		if r.Status == ledger.TransferCompleted {
			h.taken[r.Reference] = r
		}
	}
	h.checkEntries(t, c, loaded)
	h.entries = append(h.entries, c.Entries...)
	h.checkLegs(t, c)
	for _, tr := range c.Transfers {
		if !tr.CreatedAt.Equal(h.now) {
			t.Fatalf("transfer %+v does not bear the time of its transaction", tr)
		}
	}
	h.now = h.now.Add(later)
	h.begin()
	after := h.snapshot()
	if !reflect.DeepEqual(before.accounts, after.accounts) || !reflect.DeepEqual(before.holds, after.holds) {
		t.Fatalf("what was written is not what the book showed:\n%+v\n%+v", before, after)
	}
}

func (h *checked) commitHolds(t *rapid.T, c ledger.Changes) {
	written := map[uuid.UUID]bool{}
	for _, hold := range c.CreatedHolds {
		if _, exists := h.holds[hold.ID]; exists || written[hold.ID] {
			t.Fatalf("hold %s is created twice", hold.ID)
		}
		written[hold.ID], h.holds[hold.ID] = true, hold
	}
	for _, hold := range c.UpdatedHolds {
		if was, exists := h.holds[hold.ID]; !exists || written[hold.ID] || was.Status != ledger.HoldOpen || hold.Status == ledger.HoldOpen {
			t.Fatalf("update of hold %+v from %+v", hold, was)
		}
		written[hold.ID], h.holds[hold.ID] = true, hold
	}
}

// checkEntries makes sure that an account's entries are numbered upwards, above what was loaded and up to what is written.
func (h *checked) checkEntries(t *rapid.T, c ledger.Changes, loaded map[string]ledger.Account) {
	last := map[string]int64{}
	for id, a := range loaded {
		last[id] = a.Version
	}
	for _, e := range c.Entries {
		if e.Account == ledger.Outside(e.Currency) {
			if e.Version != 0 {
				t.Fatalf("outside entry %+v has a version", e)
			}
			continue
		}
		if e.Version <= last[e.Account] || e.Version > h.accounts[e.Account].Version {
			t.Fatalf("entry %+v after version %d, the account is at %d", e, last[e.Account], h.accounts[e.Account].Version)
		}
		last[e.Account] = e.Version
	}
}

// checkLegs makes sure that each leg of what completed has a transfer of its own, that nothing else has legs, and that what failed moved
// nothing.
func (h *checked) checkLegs(t *rapid.T, c ledger.Changes) {
	rows := map[uuid.UUID]ledger.Transfer{}
	for _, tr := range c.Transfers {
		rows[tr.ID] = tr
	}
	parts := map[uuid.UUID]bool{}
	var last ledger.RecordedLeg
	for i, l := range c.Legs {
		whole, ok := rows[l.Transfer]
		if first := i == 0 || last.Transfer != l.Transfer; !ok || (l.Number == 0) != first || !first && l.Number != last.Number+1 {
			t.Fatalf("leg %+v after %+v, of %+v", l, last, whole)
		}
		last = l
		if whole.Status == ledger.TransferFailed {
			if l.Part != nil {
				t.Fatalf("leg %+v of %+v was moved", l, whole)
			}
			continue
		}
		if l.Part == nil || parts[*l.Part] || (*l.Part == whole.ID) != (l.Number == 0) {
			t.Fatalf("leg %+v of %+v", l, whole)
		}
		parts[*l.Part] = true
		if p := rows[*l.Part]; p.From != l.From || p.To != l.To || p.Amount != l.Amount || p.Currency != l.Currency || p.Status != ledger.TransferCompleted {
			t.Fatalf("leg %+v was moved as %+v", l, p)
		}
	}
}

// TestRandomOperationsAgreeWithTheModel runs random operations in random transactions.
func TestRandomOperationsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newChecked()
		for _, id := range ids()[:2] {
			testwait.Must(t, testwait.Err(ledger.Decide(h.book, ledger.CreateAccount{ID: id, Currency: "EUR"})))
			h.model.apply(ledger.CreateAccount{ID: id, Currency: "EUR"}, h.now, uuid.Nil)
		}
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			if rapid.IntRange(0, 4).Draw(t, "commit") == 0 {
				h.commit(t, rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Second, time.Minute}).Draw(t, "later"))
			}
			h.step(t)
		}
		h.commit(t, 0)
	})
}
