package lottery

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// TestFailures puts a draw's errors, as the store returns them, into kinds that metrics have from the start.
func TestFailures(t *testing.T) {
	t.Parallel()
	refused := func(code string) error { return fmt.Errorf("postgres: lottery: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err  error
		want string
	}{
		{command.UnknownOutcome(errors.New("the connection ended")), "unknown_outcome"},
		{command.Unavailable(errors.New("no connection")), "unavailable"},
		{command.Unavailable(refused("40P01")), "deadlock"},
		{refused("40001"), "serialization"},
		{refused("55P03"), "timeout"},
		{refused("23505"), "constraint"},
		{refused("57P01"), "unavailable"},
		{refused("53100"), "database"},
		{ErrSealBroken, "seal_broken"},
		{fmt.Errorf("pay out: %w", ledger.ErrBalanceOverflow), "payout_refused"},
		{&ledger.AccountNotFoundError{ID: "house"}, "payout_refused"},
		{errors.New("anything else"), "other"},
	} {
		if got := failureOf(c.err); got != c.want || !slices.Contains(Failures(), got) {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
	for _, err := range []error{nil, ErrNotSoldOut, ErrNotDrawn, &BeaconPendingError{}} {
		if refusedDraw(AskDraw{}, err) != nil || refusedDraw(FinishDraw{}, err) != nil {
			t.Errorf("%v counts as a failed draw", err)
		}
	}
	if refusedDraw(FinishDraw{}, ErrSealBroken) == nil || refusedDraw(Buy{}, ledger.ErrBalanceOverflow) != nil {
		t.Error("a refused draw is one, and a refused sale is none")
	}
}
