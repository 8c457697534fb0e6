package ledger

import (
	"time"

	"github.com/google/uuid"
)

// Hold returns the hold as it stands in this transaction, or [HoldNotFoundError].
func (b *Book) Hold(id uuid.UUID) (Hold, error) {
	h, ok := b.holds[id]
	if !ok {
		return Hold{}, &HoldNotFoundError{ID: id, Archived: b.archived[id]}
	}
	return h.Hold, nil
}

// PlaceHold sets amount aside on an account, for ever or, when expiresIn is not nil, for that long. It returns
// [AccountNotFoundError] or [InsufficientFundsError].
func (b *Book) PlaceHold(account string, amount int64, expiresIn *time.Duration) (Hold, error) {
	return b.placeHold(account, amount, expiresIn, "")
}

// Reserve sets amount aside on an account for an owner, until it is captured or released. It returns
// [AccountNotFoundError] or [InsufficientFundsError].
func (b *Book) Reserve(account string, amount int64, owner string) (Hold, error) {
	return b.placeHold(account, amount, nil, owner)
}

func (b *Book) placeHold(account string, amount int64, expiresIn *time.Duration, owner string) (Hold, error) {
	mustBePositive(amount)
	a, err := b.account(account)
	if err != nil {
		return Hold{}, err
	}
	if a.Available < amount {
		return Hold{}, &InsufficientFundsError{Account: account}
	}
	h := &bookHold{
		Hold:    Hold{ID: b.newID(), Account: account, Amount: amount, Status: HoldOpen, CreatedAt: b.now, Owner: owner},
		created: true,
	}
	if expiresIn != nil {
		at := b.now.Add(*expiresIn)
		h.ExpiresAt = &at
	}
	b.holds[h.ID] = h
	b.touchHold(h)
	b.unhold(a, -amount)
	return h.Hold, nil
}

// RaiseHold sets more aside under an open hold, amount in all, which is more than before. It returns [HoldNotFoundError],
// [ErrHoldClosed] or [InsufficientFundsError].
func (b *Book) RaiseHold(id uuid.UUID, amount int64) (Hold, error) {
	h, a, err := b.openHold(id)
	if err != nil {
		return Hold{}, err
	}
	if amount <= h.Amount {
		panic("ledger: a hold would not be raised")
	}
	if a.Available < amount-h.Amount {
		return Hold{}, &InsufficientFundsError{Account: h.Account}
	}
	b.unhold(a, h.Amount-amount)
	h.Amount = amount
	b.touchHold(h)
	return h.Hold, nil
}

// Capture pays amount of an open hold to another account and releases the rest. It returns [HoldNotFoundError],
// [ErrHoldClosed], [ErrCaptureTooLarge], and what [Book.Move] returns. A hold whose time is over is closed, not captured.
func (b *Book) Capture(id uuid.UUID, to string, amount int64, memo string) (Hold, error) {
	mustBePositive(amount)
	h, a, err := b.openHold(id)
	if err != nil {
		return Hold{}, err
	}
	if amount > h.Amount {
		return Hold{}, ErrCaptureTooLarge
	}
	// The money is made available and moved in one step of this book; no reader sees it in between. Should the move be
	// refused, it is set aside again.
	version := a.Version
	a.Available, a.Held = a.Available+h.Amount, a.Held-h.Amount
	t, err := b.Move(KindCapture, h.Account, to, amount, memo)
	if err != nil {
		a.Available, a.Held, a.Version = a.Available-h.Amount, a.Held+h.Amount, version
		return Hold{}, err
	}
	h.Captured, h.Transfer = amount, &t.ID
	b.closeHold(h, HoldCaptured)
	return h.Hold, nil
}

// Release gives an open hold's money back. It returns [HoldNotFoundError] or [ErrHoldClosed].
func (b *Book) Release(id uuid.UUID) (Hold, error) {
	h, a, err := b.openHold(id)
	if err != nil {
		return Hold{}, err
	}
	b.unhold(a, h.Amount)
	b.closeHold(h, HoldReleased)
	return h.Hold, nil
}

// Expire closes a hold whose time is over and reports whether it did.
func (b *Book) Expire(id uuid.UUID) bool {
	h, ok := b.holds[id]
	if !ok || !h.expired(b.now) {
		return false
	}
	a, err := b.account(h.Account)
	if err != nil {
		return false
	}
	b.unhold(a, h.Amount)
	b.closeHold(h, HoldExpired)
	return true
}

// SetHoldAside says that this transaction can't work on a hold. Every operation that needs it is refused with the reason.
func (b *Book) SetHoldAside(id uuid.UUID, reason error) {
	if b.asideHolds == nil {
		b.asideHolds = map[uuid.UUID]error{}
	}
	b.asideHolds[id] = reason
}

// openHold finds an open hold and its account; one whose time is over is expired on the way.
func (b *Book) openHold(id uuid.UUID) (*bookHold, *bookAccount, error) {
	h, ok := b.holds[id]
	if !ok {
		return nil, nil, &HoldNotFoundError{ID: id, Archived: b.archived[id]}
	}
	if reason, ok := b.asideHolds[id]; ok {
		return nil, nil, reason
	}
	b.Expire(id)
	if h.Status != HoldOpen {
		return nil, nil, ErrHoldClosed
	}
	a, err := b.account(h.Account)
	if isAbsent(err) {
		panic("ledger: a hold was loaded without its account")
	}
	return h, a, err
}

// unhold moves amount from held to available; a negative amount is set aside.
func (b *Book) unhold(a *bookAccount, amount int64) {
	b.change(a)
	a.Available += amount
	a.Held -= amount
	if a.Available < 0 || a.Held < 0 {
		panic("ledger: a balance went below zero")
	}
}

func (b *Book) closeHold(h *bookHold, status HoldStatus) {
	now := b.now
	h.Status, h.ClosedAt = status, &now
	b.touchHold(h)
}

func (b *Book) touchHold(h *bookHold) {
	if !h.changed {
		h.changed = true
		b.heldOnes = append(b.heldOnes, h)
	}
}
