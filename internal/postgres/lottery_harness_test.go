package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// ahead is a venue whose sales are speculative for as long as the test takes, and what is seen of them.
type ahead struct {
	venue

	t    *testing.T
	seen *recorder
}

// lookAhead opens a process on the database of a venue.
func lookAhead(t *testing.T, url string) ahead {
	t.Helper()
	pgtest.Needs(t, pgkit.AdvisoryLocks) // Others have no speculative sales.
	seen := &recorder{}
	db := open(t, Options{URL: url, Observer: seen})
	waitLong(db)
	db.spec.Accounts.Patience = patience
	knowTheTime(t, db)
	store := NewLottery(db)
	return ahead{venue{db, store, newLotteryService(t, store, lottery.Options{})}, t, seen}
}

// buy buys a position of a layer, and returns the sale.
func (v ahead) buy(id uuid.UUID, account string, layer int) (lottery.Purchase, error) {
	a, err := v.Execute(v.t.Context(), id, own[lottery.Op](lottery.Buy{Account: account, Layer: layer}))
	p, _ := a.Result.(lottery.Purchase)
	return p, errors.Join(err, a.Err)
}

// fell runs something and returns for what reasons transactions have left the fast path meanwhile.
func (v ahead) fell(do func()) map[string]int {
	v.t.Helper()
	before := v.seen.fallbacks()
	do()
	after := v.seen.fallbacks()
	for reason, n := range before {
		if after[reason] -= n; after[reason] == 0 {
			delete(after, reason)
		}
	}
	return after
}

// openSale makes a campaign of two layers of which one account may buy so much, and has its first position sold.
func (v ahead) openSale(limit *int, positions ...int) uuid.UUID {
	v.t.Helper()
	var layers []lottery.NewLayer
	for i, n := range positions {
		layers = append(layers, lottery.NewLayer{Positions: n, Price: new(int64(10 + i))})
	}
	a, err := v.Create(v.t.Context(), own[lottery.Op](lottery.Create{
		Name: "ahead", Layers: layers, Currency: "EUR", Beneficiary: "house", PurchaseLimit: limit,
		Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}},
	}))
	testwait.Must(v.t, errors.Join(err, a.Err))
	id := result[*lottery.Campaign](v.t, a.Result).ID
	v.must(v.t, id, lottery.Publish{})
	v.must(v.t, id, lottery.Buy{Account: "dan", Layer: 1})
	return id
}

// checkSales wants the sales of a campaign to be as its counters say, and in the order of time.
func (v ahead) checkSales(id uuid.UUID, sold int) {
	v.t.Helper()
	c, err := v.Campaign(v.t.Context(), id)
	testwait.Must(v.t, err)
	sales, err := v.Purchases(v.t.Context(), id, "", 0, 1000)
	testwait.Must(v.t, err)
	if c.SoldPositions != sold || len(sales) != sold {
		v.t.Errorf("%d sold, %d sales, want %d", c.SoldPositions, len(sales), sold)
	}
	var in [8]int
	var last time.Time
	var due int64
	for i, p := range sales {
		if p.Seq != i+1 || p.At.Before(last) {
			v.t.Errorf("sale %d has number %d and was at %v, the one before at %v", i+1, p.Seq, p.At, last)
		}
		last = p.At
		in[p.Position.Layer-1]++
		due += p.Price
	}
	for i, l := range c.Layers {
		if l.Sold != in[i] {
			v.t.Errorf("layer %d has sold %d, there are %d", i+1, l.Sold, in[i])
		}
	}
	if got := ask[int64](v.t, v.db, `SELECT available FROM accounts WHERE id = $1`, c.Escrow); c.Status == lottery.StatusActive && got != due {
		v.t.Errorf("the escrow has %d, want %d", got, due)
	}
}

// selling is what a batch of one sale wants.
func selling(account string) lottery.Want {
	return lottery.Want{Buyers: []string{account}, Plan: func(c *lottery.Campaign, inv *lottery.Inventory) lottery.Need {
		return lottery.Plan(c, inv, []lottery.Op{lottery.Buy{Account: account}})
	}}
}

// sends has a batch of one sale sent, which is decided so.
func (v ahead) sends(id uuid.UUID, entry *speculation.Entry[*knownInventory], account string, want error) <-chan error {
	return later(func() error {
		random, err := newRandom()
		testwait.Check(v.t, err)
		return v.store.commitSpeculative(v.t.Context(), id, entry, selling(account), nil, random, func(u *lottery.Unit) {
			if _, err := lottery.Decide(u.State, lottery.Buy{Account: account}); !errors.Is(err, want) {
				v.t.Errorf("%s buys: %v, want %v", account, err, want)
			}
		})
	})
}
