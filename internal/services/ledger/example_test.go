package ledger_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// A book works on what one transaction has locked. The store writes its changes and commits.
func ExampleBook() {
	b := ledger.NewBook(time.Now(), uuid.New)
	b.LoadAccount(ledger.Account{ID: "alice", Currency: "EUR", Available: 1000, Version: 7})
	b.LoadAccount(ledger.Account{ID: "bob", Currency: "EUR", Version: 1})

	if _, err := b.Move(ledger.KindTransfer, "alice", "bob", 250, "lunch"); err != nil {
		fmt.Println(err)
	}
	changes := b.Changes()
	for _, a := range changes.UpdatedAccounts {
		fmt.Println(a.ID, a.Available, "version", a.Version)
	}
	for _, e := range changes.Entries {
		fmt.Println(e.Account, e.Amount, e.Memo)
	}
	// Output:
	// alice 750 version 8
	// bob 250 version 2
	// alice -250 lunch
	// bob 250 lunch
}

// A hold sets money aside until it is captured, in part or whole, or released.
func ExampleBook_Capture() {
	b := ledger.NewBook(time.Now(), uuid.New)
	b.LoadAccount(ledger.Account{ID: "guest", Currency: "EUR", Available: 500, Version: 1})
	b.LoadAccount(ledger.Account{ID: "hotel", Currency: "EUR", Version: 1})

	deposit, err := b.PlaceHold("guest", 300, nil)
	if err != nil {
		fmt.Println(err)
	}
	if _, err := b.Withdraw("guest", 201, ""); err != nil {
		fmt.Println(err)
	}
	hold, err := b.Capture(deposit.ID, "hotel", 120, "minibar")
	fmt.Println(hold.Status, hold.Captured, err)
	_, err = b.Release(deposit.ID)
	fmt.Println(errors.Is(err, ledger.ErrHoldClosed))
	guest, err := b.Account("guest")
	fmt.Println(guest.Available, guest.Held, err)
	// Output:
	// account "guest" has too little available
	// captured 120 <nil>
	// true
	// 380 0 <nil>
}

// Decide applies one operation. A transfer that fails for want of money leaves its intent on record.
func ExampleDecide() {
	b := ledger.NewBook(time.Now(), uuid.New)
	for _, op := range []ledger.Op{
		ledger.CreateAccount{ID: "alice", Currency: "EUR"},
		ledger.CreateAccount{ID: "bob", Currency: "EUR"},
		ledger.Deposit{Account: "alice", Amount: 100},
		ledger.MakeTransfer{From: "alice", To: "bob", Amount: 101},
		ledger.MakeTransfer{From: "alice", To: "bob", Amount: 100},
	} {
		if _, err := ledger.Decide(b, op); err != nil {
			fmt.Println("refused:", err)
		}
	}
	for _, t := range b.Changes().Transfers {
		fmt.Printf("%s of %d: %s %q\n", t.Kind, t.Amount, t.Status, t.Reason)
	}
	// Output:
	// refused: account "alice" has too little available
	// deposit of 100: completed ""
	// transfer of 101: failed "insufficient_funds"
	// transfer of 100: completed ""
}
