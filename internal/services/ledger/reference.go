package ledger

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Referenced is a deposit, a withdrawal or a transfer whose request had a reference.
type Referenced struct {
	Transfer

	Available int64 // what a deposit or a withdrawal left on its account
}

// Repeated is the result of a request which only repeats an earlier one with the same reference. Nothing was changed.
type Repeated struct {
	First any // the first request's result: a [Transfer] or a [Movement]
}

// ReferenceTakenError is returned when another request has completed with this reference.
type ReferenceTakenError struct {
	Reference string
	Transfer  uuid.UUID // that has it
}

func (e *ReferenceTakenError) Error() string {
	return fmt.Sprintf("the reference %q is that of another request, which made transfer %s", e.Reference, e.Transfer)
}

// ReferenceOf returns the reference of op, empty where it has none.
func ReferenceOf(op Op) string {
	switch op := op.(type) {
	case Deposit:
		return op.Reference
	case Withdraw:
		return op.Reference
	case MakeTransfer:
		return op.Reference
	case TransferLegs:
		return op.Reference
	}
	return ""
}

// LoadReference adds a completed request. Its reference is taken.
func (b *Book) LoadReference(r Referenced) {
	if b.taken == nil {
		b.taken = map[string]Referenced{}
	}
	b.taken[r.Reference] = r
}

// Referenced reports whether the reference is taken.
func (b *Book) Referenced(reference string) bool {
	_, ok := b.taken[reference]
	return ok
}

// ContestReference says that another transaction is about to take a reference. Every operation that has it is refused with reason.
func (b *Book) ContestReference(reference string, reason error) {
	if b.contestedReferences == nil {
		b.contestedReferences = map[string]error{}
	}
	b.contestedReferences[reference] = reason
}

// decideOnce does what op asks for, unless its reference is taken. An operation that is refused leaves its reference free.
func (b *Book) decideOnce(op Op, reference string) (any, error) {
	if first, ok := b.taken[reference]; ok {
		if !first.sameAs(op) {
			return nil, &ReferenceTakenError{Reference: reference, Transfer: first.ID}
		}
		return Repeated{First: first.result()}, nil
	}
	if reason := b.contestedReferences[reference]; reason != nil {
		return nil, reason
	}
	result, err := b.decide(op)
	if short, ok := errors.AsType[*InsufficientFundsError](err); ok && short.Transfer != nil {
		failed := Referenced{Transfer: b.transfers[len(b.transfers)-1]}
		failed.Reference = reference
		b.references = append(b.references, failed)
	}
	if err != nil {
		return result, err
	}
	var done Referenced
	switch r := result.(type) {
	case Movement:
		done.Transfer, done.Available = r.Transfer, r.Available
	case Transfer:
		done.Transfer = r
	}
	done.Reference = reference
	b.references = append(b.references, done)
	b.LoadReference(done)
	return done.result(), nil
}

// sameAs reports whether op asks for what was done, in every field.
func (r Referenced) sameAs(op Op) bool {
	switch op := op.(type) {
	case Deposit:
		return r.Kind == KindDeposit && r.To == op.Account && r.Amount == op.Amount && r.Memo == op.Memo
	case Withdraw:
		return r.Kind == KindWithdrawal && r.From == op.Account && r.Amount == op.Amount && r.Memo == op.Memo
	case MakeTransfer:
		return r.Kind == KindTransfer && r.Legs == nil && r.From == op.From && r.To == op.To && r.Amount == op.Amount && r.Memo == op.Memo
	case TransferLegs:
		return r.Kind == KindTransfer && sameLegs(r.Legs, op.Legs) && r.Memo == op.Memo
	}
	return false
}

// result is what the request was answered with.
func (r Referenced) result() any {
	switch r.Kind {
	case KindDeposit:
		return Movement{Transfer: r.Transfer, Account: r.To, Available: r.Available}
	case KindWithdrawal:
		return Movement{Transfer: r.Transfer, Account: r.From, Available: r.Available}
	case KindTransfer, KindCapture, KindPurchase, KindPayout, KindRefund, KindCross:
	}
	return r.Transfer
}
