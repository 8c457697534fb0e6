package ledger_test

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// fact is something that happened. The model keeps nothing else: whatever it is asked, it adds up from all facts.
type fact struct {
	what     string // "open", "move", "failed", "hold", "captured", "released" or "expired"
	from, to string // of a move; outside ones begin with "outside/"
	account  string // of an opened account or a hold
	currency string // of an opened account
	amount   *big.Int
	hold     uuid.UUID
	until    *time.Time // of a hold
	asked    ledger.Op  // of a move with a reference
}

// model is a ledger that is too slow and too plain to be wrong in the way a book may be.
type model struct{ facts []fact }

func (m *model) currency(account string) (string, bool) {
	for _, f := range m.facts {
		if f.what == "open" && f.account == account {
			return f.currency, true
		}
	}
	return "", false
}

// total is what came to the account, less what left it.
func (m *model) total(account string) *big.Int {
	sum := new(big.Int)
	for _, f := range m.facts {
		if f.what != "move" {
			continue
		}
		if f.to == account {
			sum.Add(sum, f.amount)
		}
		if f.from == account {
			sum.Sub(sum, f.amount)
		}
	}
	return sum
}

// holdState finds a hold's account and amount, and how it ended, which is empty while it is open.
func (m *model) holdState(id uuid.UUID) (made fact, end string, ok bool) {
	for _, f := range m.facts {
		if f.hold != id {
			continue
		}
		if f.what == "hold" {
			made, ok = f, true
		} else {
			end = f.what
		}
	}
	return made, end, ok
}

func (m *model) held(account string) *big.Int {
	sum := new(big.Int)
	for _, f := range m.facts {
		if f.what != "hold" || f.account != account {
			continue
		}
		if _, end, _ := m.holdState(f.hold); end == "" {
			sum.Add(sum, f.amount)
		}
	}
	return sum
}

func (m *model) available(account string) *big.Int {
	return new(big.Int).Sub(m.total(account), m.held(account))
}

func (m *model) add(f fact) { m.facts = append(m.facts, f) }

func notFound(account string) string { return fmt.Sprintf("there is no account %q", account) }

// full says whether the account cannot take amount more.
func (m *model) full(account string, amount *big.Int) bool {
	return new(big.Int).Add(m.total(account), amount).Cmp(big.NewInt(math.MaxInt64)) > 0
}

func (m *model) short(account string, amount *big.Int) bool {
	return m.available(account).Cmp(amount) < 0
}

// apply does what op should do and returns the refusal it should meet, empty for none. newHold is the id that the
// book gave a hold placed by op.
func (m *model) apply(op ledger.Op, now time.Time, newHold uuid.UUID) string {
	reference := ledger.ReferenceOf(op)
	if first, ok := m.first(reference); ok && !reflect.DeepEqual(first.asked, op) {
		return referenceTaken
	} else if ok {
		return ""
	}
	why := m.do(op, now, newHold)
	if reference != "" && why == "" {
		m.facts[len(m.facts)-1].asked = op
	}
	return why
}

// first finds the move that has a reference.
func (m *model) first(reference string) (fact, bool) {
	for _, f := range m.facts {
		if reference != "" && f.asked != nil && ledger.ReferenceOf(f.asked) == reference {
			return f, true
		}
	}
	return fact{}, false
}

func (m *model) do(op ledger.Op, now time.Time, newHold uuid.UUID) string {
	switch op := op.(type) {
	case ledger.CreateAccount:
		if _, ok := m.currency(op.ID); ok {
			return ledger.ErrAccountExists.Error()
		}
		m.add(fact{what: "open", account: op.ID, currency: op.Currency})
	case ledger.Deposit:
		return m.deposit(op)
	case ledger.Withdraw:
		return m.withdraw(op)
	case ledger.MakeTransfer:
		why, failed := m.move(op.From, op.To, big.NewInt(op.Amount))
		if failed {
			m.add(fact{what: "failed"})
		}
		return why
	case ledger.TransferLegs:
		return m.legs(op)
	case ledger.PlaceHold:
		return m.place(op, now, newHold)
	case ledger.CaptureHold:
		return m.capture(op, now)
	case ledger.ReleaseHold:
		_, why := m.usable(op.Hold, now)
		if why == "" {
			m.add(fact{what: "released", hold: op.Hold})
		}
		return why
	}
	return ""
}

func (m *model) deposit(op ledger.Deposit) string {
	currency, ok := m.currency(op.Account)
	switch amount := big.NewInt(op.Amount); {
	case !ok:
		return notFound(op.Account)
	case m.full(op.Account, amount):
		return ledger.ErrBalanceOverflow.Error()
	default:
		m.add(fact{what: "move", from: "outside/" + currency, to: op.Account, amount: amount})
		return ""
	}
}

func (m *model) withdraw(op ledger.Withdraw) string {
	currency, ok := m.currency(op.Account)
	switch amount := big.NewInt(op.Amount); {
	case !ok:
		return notFound(op.Account)
	case m.short(op.Account, amount):
		return "insufficient funds on " + op.Account
	default:
		m.add(fact{what: "move", from: op.Account, to: "outside/" + currency, amount: amount})
		return ""
	}
}

// move reports, beside the refusal, whether it was for want of money.
func (m *model) move(from, to string, amount *big.Int) (why string, short bool) {
	a, okA := m.currency(from)
	b, okB := m.currency(to)
	switch {
	case from == to:
		return ledger.ErrSameAccount.Error(), false
	case !okA:
		return notFound(from), false
	case !okB:
		return notFound(to), false
	case a != b:
		return ledger.ErrCurrencyMismatch.Error(), false
	case m.short(from, amount):
		return "insufficient funds on " + from, true
	case m.full(to, amount):
		return ledger.ErrBalanceOverflow.Error(), false
	}
	m.add(fact{what: "move", from: from, to: to, amount: amount})
	return "", false
}

// legs makes one move after the other, and forgets them all at the first refusal.
func (m *model) legs(op ledger.TransferLegs) string {
	mark := len(m.facts)
	for i, leg := range op.Legs {
		why, short := m.move(leg.From, leg.To, big.NewInt(leg.Amount))
		if why == "" {
			continue
		}
		m.facts = m.facts[:mark]
		if short {
			m.add(fact{what: "failed"})
		}
		return fmt.Sprintf("leg %d: %s", i, why)
	}
	return ""
}

func (m *model) place(op ledger.PlaceHold, now time.Time, id uuid.UUID) string {
	amount := big.NewInt(op.Amount)
	if _, ok := m.currency(op.Account); !ok {
		return notFound(op.Account)
	}
	if m.short(op.Account, amount) {
		return "insufficient funds on " + op.Account
	}
	f := fact{what: "hold", account: op.Account, amount: amount, hold: id}
	if op.ExpiresIn != nil {
		f.until = new(now.Add(*op.ExpiresIn))
	}
	m.add(f)
	return ""
}

func (m *model) expire(id uuid.UUID, now time.Time) {
	made, end, ok := m.holdState(id)
	if ok && end == "" && made.until != nil && made.until.Compare(now) <= 0 {
		m.add(fact{what: "expired", hold: id})
	}
}

// usable finds a hold that is open, and expires one whose time is over.
func (m *model) usable(id uuid.UUID, now time.Time) (fact, string) {
	m.expire(id, now)
	made, end, ok := m.holdState(id)
	switch {
	case !ok:
		return made, (&ledger.HoldNotFoundError{ID: id}).Error()
	case end != "":
		return made, ledger.ErrHoldClosed.Error()
	}
	return made, ""
}

func (m *model) capture(op ledger.CaptureHold, now time.Time) string {
	made, why := m.usable(op.Hold, now)
	if why != "" {
		return why
	}
	amount := made.amount
	if op.Amount != nil {
		amount = big.NewInt(*op.Amount)
	}
	if amount.Cmp(made.amount) > 0 {
		return ledger.ErrCaptureTooLarge.Error()
	}
	// Should the move be refused, the hold must still be there.
	mark := len(m.facts)
	m.add(fact{what: "captured", hold: op.Hold})
	if why, _ := m.move(made.account, op.To, amount); why != "" {
		m.facts = m.facts[:mark]
		return why
	}
	return ""
}
