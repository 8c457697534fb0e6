package lottery_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// layersOf makes explicit layers of the campaign's price.
func layersOf(positions ...int) []lottery.NewLayer {
	layers := make([]lottery.NewLayer, len(positions))
	for i, n := range positions {
		layers[i].Positions = n
	}
	return layers
}

// checkPositions walks layer by layer and counts, which is what an ordinal says.
func checkPositions(t *rapid.T, c *lottery.Campaign) {
	t.Helper()
	ordinal := 0
	seen := map[uuid.UUID]bool{}
	for i, layer := range c.Layers {
		for number := 1; number <= layer.Positions; number++ {
			p := c.Position(ordinal)
			if p.Layer != i+1 || p.Number != number || p.Ordinal != ordinal || p.ID != lottery.PositionID(c.ID, ordinal) {
				t.Fatalf("ordinal %d is %+v, want layer %d number %d", ordinal, p, i+1, number)
			}
			if seen[p.ID] || p.ID.Version() != 7 || p.ID.Variant() != uuid.RFC4122 {
				t.Fatalf("id %s of ordinal %d: version %d, seen before: %v", p.ID, ordinal, p.ID.Version(), seen[p.ID])
			}
			seen[p.ID] = true
			if found, ok := c.FindPosition(p.ID); !ok || found != p {
				t.Fatalf("%s finds %+v, %v", p.ID, found, ok)
			}
			ordinal++
		}
	}
	if ordinal != c.TotalPositions {
		t.Errorf("%d positions, the campaign says %d", ordinal, c.TotalPositions)
	}
	if _, ok := c.FindPosition(lottery.PositionID(c.ID, c.TotalPositions)); ok {
		t.Error("a position past the last was found")
	}
}

func TestForeignAndForgedPositionsAreNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, order{base: 5})
	c := w.campaign
	id := lottery.PositionID(c.ID, 3)
	if _, ok := c.FindPosition(lottery.PositionID(w.newID(), 3)); ok {
		t.Error("another campaign's position was found")
	}
	for bit := range 128 {
		forged := id
		forged[bit/8] ^= 1 << (bit % 8)
		if p, ok := c.FindPosition(forged); ok {
			t.Errorf("%s with bit %d changed finds %+v", id, bit, p)
		}
	}
	far := id
	binary.BigEndian.PutUint32(far[12:], 1<<32-1)
	if _, ok := c.FindPosition(far); ok {
		t.Error("the largest ordinal was found")
	}
}

func TestRandomShapes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &lottery.Campaign{ID: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))}
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 100), 1, 20).Draw(t, "layers") {
			c.Layers = append(c.Layers, lottery.Layer{Positions: n, First: c.TotalPositions})
			c.TotalPositions += n
		}
		checkPositions(t, c)
	})
}

func TestCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, order{})
	base := lottery.Create{
		Name: "x", Price: new(int64(7)), Currency: "EUR", Beneficiary: "house", Seed: testSeed(), PurchaseLimit: new(3),
		Layers: []lottery.NewLayer{{Positions: 2}, {Positions: 5, Price: new(int64(9))}},
		Prizes: []lottery.Prize{{Name: "any", Quantity: 7}, {Name: "first", Layer: 1, Quantity: 2}},
	}
	cr := &lottery.Creation{Book: w.book([]string{"house"})}
	c, err := lottery.DecideCreate(cr, base)
	testwait.Must(t, err)
	seed := testSeed()
	if c.Status != lottery.StatusPending || c.TotalPositions != 7 || c.SoldPositions != 0 || c.Version != 1 ||
		c.Commitment != sha256.Sum256(seed[:]) || *c.PurchaseLimit != 3 || c.DrawMode != lottery.DrawInstant {
		t.Errorf("campaign %+v", c)
	}
	want := []lottery.Layer{{Positions: 2, Price: 7}, {Positions: 5, Price: 9, First: 2}}
	if len(c.Layers) != 2 || c.Layers[0] != want[0] || c.Layers[1] != want[1] {
		t.Errorf("layers %+v", c.Layers)
	}
	accounts := cr.Book.Changes().CreatedAccounts
	if len(accounts) != 1 || accounts[0].ID != c.Escrow || accounts[0].Currency != "EUR" {
		t.Errorf("accounts %+v", accounts)
	}
	if len(cr.Campaigns) != 1 || cr.Campaigns[0].Campaign != c || cr.Campaigns[0].Seed != testSeed() {
		t.Errorf("to be written: %+v", cr.Campaigns)
	}

	absent := &ledger.AccountNotFoundError{}
	noLayer := &lottery.LayerNotFoundError{}
	for name, c := range map[string]struct {
		change func(*lottery.Create)
		want   func(error) bool
	}{
		"absent beneficiary":      {func(op *lottery.Create) { op.Beneficiary = "nobody" }, func(err error) bool { return errors.As(err, &absent) }},
		"other currency":          {func(op *lottery.Create) { op.Currency = "USD" }, func(err error) bool { return errors.Is(err, ledger.ErrCurrencyMismatch) }},
		"prize of no layer":       {func(op *lottery.Create) { op.Prizes = []lottery.Prize{{Name: "p", Layer: 3, Quantity: 1}} }, func(err error) bool { return errors.As(err, &noLayer) && noLayer.Layer == 3 }},
		"more prizes than layer":  {func(op *lottery.Create) { op.Prizes = []lottery.Prize{{Name: "p", Layer: 1, Quantity: 3}} }, isTooMany},
		"more prizes than places": {func(op *lottery.Create) { op.Prizes = []lottery.Prize{{Name: "p", Quantity: 8}} }, isTooMany},
		"more winners than may be": {func(op *lottery.Create) {
			op.Layers = layersOf(lottery.MaxWinners)
			op.Prizes = []lottery.Prize{{Name: "p", Quantity: lottery.MaxWinners}, {Name: "q", Quantity: 1}}
		}, isTooMany},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := base
			c.change(&op)
			w := newWorld(t, order{})
			cr := &lottery.Creation{Book: w.book([]string{"house"})}
			if made, err := lottery.DecideCreate(cr, op); !c.want(err) || made != nil {
				t.Errorf("made %+v, %v", made, err)
			}
			if changes := cr.Book.Changes(); len(changes.CreatedAccounts)+len(cr.Campaigns) != 0 {
				t.Errorf("a refusal left %+v", changes)
			}
		})
	}
	op := base
	op.Layers, op.Prizes = layersOf(lottery.MaxWinners), []lottery.Prize{{Name: "p", Quantity: lottery.MaxWinners}}
	if _, err := lottery.DecideCreate(cr, op); err != nil {
		t.Errorf("as many winners as may be: %v", err)
	}
}

func isTooMany(err error) bool { return errors.Is(err, lottery.ErrTooManyPrizes) }
