package ledger_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// epoch is the time at which tests begin.
func epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// counter gives identifiers in order, so that a failing run can be repeated.
func counter() func() uuid.UUID {
	n := uint64(0)
	return func() uuid.UUID {
		n++
		var id uuid.UUID
		binary.BigEndian.PutUint64(id[8:], n)
		return id
	}
}

// account is an account as the database would give it.
func account(id, currency string, available, held, version int64) ledger.Account {
	return ledger.Account{ID: id, Currency: currency, Available: available, Held: held, Version: version, CreatedAt: epoch()}
}

// bookOf is a book with the given accounts locked.
func bookOf(accounts ...ledger.Account) *ledger.Book {
	b := ledger.NewBook(epoch(), counter())
	for _, a := range accounts {
		b.LoadAccount(a)
	}
	return b
}

const referenceTaken = "the reference is taken"

// refusal names an error, so that two of them can be compared whatever ids they carry. It is empty for nil.
func refusal(err error) string {
	if leg, ok := errors.AsType[*ledger.LegError](err); ok {
		return fmt.Sprintf("leg %d: %s", leg.Leg, refusal(leg.Err))
	}
	if short, ok := errors.AsType[*ledger.InsufficientFundsError](err); ok {
		return "insufficient funds on " + short.Account
	}
	if errors.As(err, new(*ledger.ReferenceTakenError)) {
		return referenceTaken
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// balance fails the test unless the account stands as given.
func balance(tb testing.TB, b *ledger.Book, id string, available, held int64) {
	tb.Helper()
	a, err := b.Account(id)
	testwait.Must(tb, err)
	if a.Available != available || a.Held != held {
		tb.Errorf("%s has %d available and %d held, want %d and %d", id, a.Available, a.Held, available, held)
	}
}

// must fails the test on an error.
func must[T any](tb testing.TB) func(T, error) T {
	tb.Helper()
	return func(v T, err error) T {
		tb.Helper()
		testwait.Must(tb, err)
		return v
	}
}
