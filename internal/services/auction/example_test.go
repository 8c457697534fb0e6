package auction_test

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// One transaction starts an auction and takes three bids, a later one closes its only round.
func ExampleDecide() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	book := ledger.NewBook(now, uuid.New)
	book.LoadAccount(ledger.Account{ID: "shop", Currency: "EUR"})
	book.LoadAccount(ledger.Account{ID: "ann", Currency: "EUR", Available: 500})
	book.LoadAccount(ledger.Account{ID: "ben", Currency: "EUR", Available: 500})
	a, err := auction.DecideCreate(&auction.Creation{Book: book}, auction.Create{
		Title: "lamp", Currency: "EUR", Seller: "shop", MinBid: 1, MinIncrement: 1,
		Rounds: []auction.NewRound{{Winners: 1, Duration: time.Minute}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	state := auction.NewState(a, nil)

	state.Begin(book)
	for _, op := range []auction.Op{
		auction.Start{},
		auction.PlaceBid{Account: "ann", Amount: 200},
		auction.PlaceBid{Account: "ben", Amount: 300},
		auction.PlaceBid{Account: "ann", Amount: 600},
	} {
		if _, err := auction.Decide(state, op); err != nil {
			fmt.Println("refused:", err)
		}
	}
	state.Keep()

	later := ledger.NewBook(now.Add(time.Minute), uuid.New)
	for account := range book.Accounts() {
		later.LoadAccount(account)
	}
	state.Begin(later)
	state.LoadHolds([]string{"ann", "ben"})
	if _, err := auction.Decide(state, auction.CloseRound{Round: 1, Term: 1}); err != nil {
		fmt.Println("refused:", err)
	}
	for _, w := range state.Winners {
		fmt.Println("won:", w.Account, w.Amount)
	}
	for _, e := range state.Events {
		fmt.Println(e.Seq, e.Type)
	}
	ann, _ := later.Account("ann")
	fmt.Println("ann:", ann.Available, "available,", ann.Held, "held")
	// Output:
	// refused: account "ann" has too little available
	// won: ben 300
	// 5 round.completed
	// 6 auction.completed
	// ann: 500 available, 0 held
}
