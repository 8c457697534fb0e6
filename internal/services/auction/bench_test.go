package auction_test

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// BenchmarkPlaceBid decides raises in one auction of 10,000 bidders, in batches of 128, with what the store asks for each
// of them: the book, the holds and the changes of the standing bids.
func BenchmarkPlaceBid(b *testing.B) {
	const bidders, batch = 10_000, 128
	var ids uint64
	newID := func() (id uuid.UUID) {
		ids++
		binary.BigEndian.PutUint64(id[:], ids)
		return id
	}
	now := epoch()
	accounts := make([]ledger.Account, bidders)
	names := make([]string, bidders)
	for i := range accounts {
		names[i] = fmt.Sprintf("user-%05d", i)
		accounts[i] = ledger.Account{ID: names[i], Currency: "EUR", Available: 1 << 50}
	}
	book := ledger.NewBook(now, newID)
	book.LoadAccount(ledger.Account{ID: "shop", Currency: "EUR"})
	create := standard()
	create.Rounds[0].Duration, create.Cooldown, create.UniqueAmounts = auction.MaxDuration, 0, true
	a, err := auction.DecideCreate(&auction.Creation{Book: book}, create)
	if err != nil {
		b.Fatal(err)
	}
	s := auction.NewState(a, nil)
	s.Begin(book)
	if _, err := auction.Decide(s, auction.Start{}); err != nil {
		b.Fatal(err)
	}
	amount := int64(10)
	next := 0
	transaction := func(n int) {
		now = now.Add(time.Microsecond)
		book := ledger.NewBook(now, newID)
		for i := range n {
			book.LoadAccount(accounts[(next+i*7)%bidders])
		}
		s.Begin(book)
		for i := range n {
			who := (next + i*7) % bidders
			s.LoadHolds(names[who : who+1])
			amount += 5
			if _, err := auction.Decide(s, auction.PlaceBid{Account: names[who], Amount: amount}); err != nil {
				b.Fatal(err)
			}
		}
		s.StandingChanges()
		for _, c := range book.Changes().UpdatedAccounts {
			i, err := strconv.Atoi(c.ID[len("user-"):])
			if err != nil {
				b.Fatal(err)
			}
			accounts[i] = c.Account
		}
		next = (next + n*7) % bidders
		s.Keep()
	}
	for s.Standing.Len() < bidders {
		transaction(batch)
	}
	b.ReportAllocs()
	for done := 0; done < b.N; done += batch {
		transaction(min(batch, b.N-done))
	}
}
