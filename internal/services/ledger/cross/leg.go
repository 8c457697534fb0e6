package cross

import (
	"errors"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/saga"
)

// The legs of a transfer.
const (
	LegDebit    = "debit"
	LegCredit   = "credit"
	LegTransfer = "transfer" // within one ledger
)

// Leg is one ledger's part of a transfer: what is to be done there, or undone. It is data, which can be sent to where the
// ledger is. Step is one of the legs.
type Leg struct {
	saga.Call
	Input
}

// Ledger names the ledger that the leg is for.
func (l *Leg) Ledger() string {
	if l.Step == LegCredit {
		return l.To.Ledger
	}
	return l.From.Ledger
}

// Accounts are those that [Leg.Decide] works on, in no order.
func (l *Leg) Accounts() []string {
	switch l.Step {
	case LegTransfer:
		return []string{l.From.Account, l.To.Account}
	case LegDebit:
		return []string{l.From.Account}
	}
	return []string{l.To.Account}
}

// errNoLeg is returned for a leg of another name.
var errNoLeg = errors.New("a leg is debit, credit or transfer")

// errCancelled refuses a leg that was cancelled, by an operator or for its deadline, before it was done.
type errCancelled struct{ reason string }

func (e errCancelled) Error() string { return "the leg was cancelled: " + e.reason }

// Decide moves the money in the ledger's book. Its errors are refusals, and leave the book as it was.
func (l *Leg) Decide(b *ledger.Book) (ledger.Transfer, error) {
	memo := "cross-transfer " + l.Saga.String()
	switch {
	case l.Cancel != "":
		return ledger.Transfer{}, errCancelled{l.Cancel}
	case l.Step == LegTransfer && l.Undo:
		return b.Move(ledger.KindCross, l.To.Account, l.From.Account, l.Amount, memo)
	case l.Step == LegTransfer:
		return b.Move(ledger.KindCross, l.From.Account, l.To.Account, l.Amount, memo)
	case l.Step == LegDebit && l.Undo:
		return b.TakeIn(l.From.Account, l.To.Ledger, l.Amount, l.Currency, memo)
	case l.Step == LegDebit:
		return b.SendAway(l.From.Account, l.To.Ledger, l.Amount, l.Currency, memo)
	case l.Step == LegCredit && l.Undo:
		return b.SendAway(l.To.Account, l.From.Ledger, l.Amount, l.Currency, memo)
	case l.Step == LegCredit:
		return b.TakeIn(l.To.Account, l.From.Ledger, l.Amount, l.Currency, memo)
	}
	return ledger.Transfer{}, errNoLeg
}

// Outcome makes of what [Leg.Decide] returned the outcome that is to be marked. It returns an error where the leg is to be
// executed again, or by another process.
func (l *Leg) Outcome(t ledger.Transfer, refusal error) (saga.Outcome, error) {
	if refusal == nil {
		return saga.Outcome{Result: t.ID.String()}, nil
	}
	reason := Reason(refusal)
	if reason == "" || l.Undo {
		return saga.Outcome{}, refusal
	}
	return saga.Refuse(reason), nil
}

// steps names the legs of a transfer.
func steps(from, to End) []string {
	if from.Ledger == to.Ledger {
		return []string{LegTransfer}
	}
	return []string{LegDebit, LegCredit}
}

// order sorts the legs of a two-phase transfer by their ledgers' names, so that opposed transfers prepare in one order.
func order(q *Request) []string {
	names := steps(q.From, q.To)
	if q.Mode == saga.TwoPhase && len(names) == 2 && q.From.Ledger > q.To.Ledger {
		slices.Reverse(names)
	}
	return names
}
