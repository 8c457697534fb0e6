package ledger

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Book is the part of the ledger that one transaction works on: the accounts and holds it has locked, and the changes made
// to them. It takes time and identifiers from outside and touches nothing but itself. It is not safe for concurrent use.
type Book struct {
	now   time.Time
	newID func() uuid.UUID
	// chapters is whether accounts that change come to later chapters.
	chapters bool

	accounts  map[string]*bookAccount
	aside     map[string]error // why accounts that are there are not in the book
	contested map[string]error // why accounts that are not there can't be made
	// asideHolds is why the transaction can't work on holds that are in the book.
	asideHolds map[uuid.UUID]error
	holds      map[uuid.UUID]*bookHold
	archived   map[uuid.UUID]time.Time // up to when the history was archived, for holds that are not there and would be in it
	// taken are the completed requests that have the references of this transaction's operations, its own among them.
	taken               map[string]Referenced
	contestedReferences map[string]error // why no operation can have these

	touched   []*bookAccount // in the order of the first change
	heldOnes  []*bookHold    // changed or created holds, likewise
	transfers []Transfer
	entries   []Entry
	// references are those of this transaction's transfers that have one.
	references []Referenced
	legs       []RecordedLeg // of transfers that were asked for by their legs
}

type bookAccount struct {
	Account
	before  Account // as it was loaded
	created bool    // by this transaction
	changed bool
}

// VersionsInChapter is how many versions of an account a chapter has.
const VersionsInChapter = 4

type bookHold struct {
	Hold
	created bool
	changed bool
}

// Changes is what a transaction has to write.
type Changes struct {
	CreatedAccounts []Account
	UpdatedAccounts []AccountChange
	CreatedHolds    []Hold
	UpdatedHolds    []Hold // each was open when it was loaded
	Transfers       []Transfer
	Entries         []Entry
	References      []Referenced // of the transfers that have one, failed ones too
	Legs            []RecordedLeg
}

// AccountChange is an account as it is to be written.
type AccountChange struct {
	Account

	Before Account // as it was loaded; its version is smaller
}

// NewBook returns an empty book. All of a transaction's rows bear the one time now, to the microsecond, as the database keeps it:
// an answer made now equals one read later. newID gives unique identifiers.
func NewBook(now time.Time, newID func() uuid.UUID) *Book {
	return &Book{
		now: now.UTC().Truncate(time.Microsecond), newID: newID,
		accounts: map[string]*bookAccount{}, holds: map[uuid.UUID]*bookHold{},
	}
}

// BeginChapters has accounts that change come to the chapter of their new version. A store that keeps many dead versions of a row finds the living one
// by its chapter then. Without it, accounts stay in theirs.
func (b *Book) BeginChapters() { b.chapters = true }

// Grow makes room for n further transfers.
func (b *Book) Grow(n int) {
	b.touched = slices.Grow(b.touched, 2*n)
	b.transfers = slices.Grow(b.transfers, n)
	b.entries = slices.Grow(b.entries, 2*n)
}

// Now is the time of the book's transaction.
func (b *Book) Now() time.Time { return b.now }

// NewID returns an identifier that is new in the whole system.
func (b *Book) NewID() uuid.UUID { return b.newID() }

// LoadAccount adds an account that the transaction has locked.
func (b *Book) LoadAccount(a Account) { b.accounts[a.ID] = &bookAccount{Account: a, before: a} }

// LoadHold adds a hold whose account the transaction has locked.
func (b *Book) LoadHold(h Hold) { b.holds[h.ID] = &bookHold{Hold: h} }

// NoteArchived says of a hold that is not there that the history of before a time was archived, and that it would be in it.
func (b *Book) NoteArchived(hold uuid.UUID, before time.Time) {
	if b.archived == nil {
		b.archived = map[uuid.UUID]time.Time{}
	}
	b.archived[hold] = before
}

// SetAside says that an account exists, and that this transaction can't work on it. Every operation that needs it is
// refused with reason, also where the account was loaded.
func (b *Book) SetAside(id string, reason error) {
	delete(b.accounts, id)
	if b.aside == nil {
		b.aside = map[string]error{}
	}
	b.aside[id] = reason
}

// Contest says that another transaction is about to make an account. [Book.Open] is refused with reason; to everybody else
// the account is not there.
func (b *Book) Contest(id string, reason error) {
	if b.contested == nil {
		b.contested = map[string]error{}
	}
	b.contested[id] = reason
}

// Account returns the account as it stands in this transaction, or [AccountNotFoundError], or the reason for which it was
// set aside.
func (b *Book) Account(id string) (Account, error) {
	a, err := b.account(id)
	if err != nil {
		return Account{}, err
	}
	return a.Account, nil
}

// account is where every operation finds its accounts.
func (b *Book) account(id string) (*bookAccount, error) {
	if a, ok := b.accounts[id]; ok {
		return a, nil
	}
	if reason, ok := b.aside[id]; ok {
		return nil, reason
	}
	return nil, &AccountNotFoundError{ID: id}
}

// Accounts yields every account of the book as it stands now, in no order.
func (b *Book) Accounts() iter.Seq[Account] {
	return func(yield func(Account) bool) {
		for _, a := range b.accounts {
			if !yield(a.Account) {
				return
			}
		}
	}
}

// Unchanged yields the accounts that were loaded and not changed, in no order.
func (b *Book) Unchanged() iter.Seq[Account] {
	return func(yield func(Account) bool) {
		for _, a := range b.accounts {
			if !a.changed && !yield(a.Account) {
				return
			}
		}
	}
}

// Open creates an account with nothing on it. It returns [ErrAccountExists] when the id is taken.
func (b *Book) Open(id, currency string) (Account, error) {
	if _, err := b.account(id); !isAbsent(err) {
		return Account{}, ErrAccountExists
	}
	if reason := b.contested[id]; reason != nil {
		return Account{}, reason
	}
	a := &bookAccount{
		Account: Account{ID: id, Currency: currency, Version: 1, CreatedAt: b.now},
		created: true,
	}
	b.accounts[id] = a
	b.touch(a)
	return a.Account, nil
}

// Move transfers amount from one account to another. It returns [AccountNotFoundError], [ErrSameAccount],
// [ErrCurrencyMismatch], [ErrBalanceOverflow] or [InsufficientFundsError], and then has changed nothing.
func (b *Book) Move(kind Kind, from, to string, amount int64, memo string) (Transfer, error) {
	find := func(id string) (*Account, error) {
		a, err := b.account(id)
		if err != nil {
			return nil, err
		}
		return &a.Account, nil
	}
	if _, _, err := movable(find, from, to, mustBePositive(amount)); err != nil {
		return Transfer{}, err
	}
	src, dst := b.accounts[from], b.accounts[to]
	t := b.record(kind, from, to, amount, src.Currency, memo)
	src.Available -= amount
	dst.Available += amount
	b.enter(src, t, -amount)
	b.enter(dst, t, amount)
	return t, nil
}

// movable finds the accounts of a movement, and refuses one that can't be made. The source is there with a refusal that comes after
// it was found.
func movable(find func(id string) (*Account, error), from, to string, amount int64) (src, dst *Account, err error) {
	if from == to {
		return nil, nil, ErrSameAccount
	}
	if src, err = find(from); err != nil {
		return nil, nil, err
	}
	if dst, err = find(to); err != nil {
		return src, nil, err
	}
	switch {
	case src.Currency != dst.Currency:
		return src, dst, ErrCurrencyMismatch
	case src.Available < amount:
		return src, dst, &InsufficientFundsError{Account: from}
	case overflows(*dst, amount):
		return src, dst, ErrBalanceOverflow
	}
	return src, dst, nil
}

// Deposit brings amount in from the outside. It returns [AccountNotFoundError] or [ErrBalanceOverflow].
func (b *Book) Deposit(account string, amount int64, memo string) (Transfer, error) {
	return b.elsewhere(KindDeposit, account, "", mustBePositive(amount), "", memo)
}

// Withdraw takes amount to the outside. It returns [AccountNotFoundError] or [InsufficientFundsError].
func (b *Book) Withdraw(account string, amount int64, memo string) (Transfer, error) {
	return b.elsewhere(KindWithdrawal, account, "", -mustBePositive(amount), "", memo)
}

// Transit names the account through which money goes to another ledger and comes from it. Like the outside it has entries but
// no balance, and no client can choose its name. The sum of its entries is what the other ledger has, or what is on its way there.
func Transit(ledger string) string { return "transit/" + ledger }

// SendAway moves amount from an account towards another ledger. It returns [AccountNotFoundError], [ErrCurrencyMismatch] or
// [InsufficientFundsError], and then has changed nothing.
func (b *Book) SendAway(account, ledger string, amount int64, currency, memo string) (Transfer, error) {
	return b.elsewhere(KindCross, account, Transit(ledger), -mustBePositive(amount), currency, memo)
}

// TakeIn moves amount from another ledger to an account. It returns [AccountNotFoundError], [ErrCurrencyMismatch] or
// [ErrBalanceOverflow], and then has changed nothing.
func (b *Book) TakeIn(account, ledger string, amount int64, currency, memo string) (Transfer, error) {
	return b.elsewhere(KindCross, account, Transit(ledger), mustBePositive(amount), currency, memo)
}

// elsewhere moves amount between an account and one without a balance, which is not in the book: the outside if other is empty. A
// positive amount comes in, a negative one goes out. The currency of a transfer between ledgers must be the account's.
func (b *Book) elsewhere(kind Kind, account, other string, amount int64, currency, memo string) (Transfer, error) {
	a, err := b.account(account)
	switch {
	case err != nil:
		return Transfer{}, err
	case kind == KindCross && a.Currency != currency:
		return Transfer{}, ErrCurrencyMismatch
	case amount > 0 && overflows(a.Account, amount):
		return Transfer{}, ErrBalanceOverflow
	case amount < 0 && a.Available < -amount:
		return Transfer{}, &InsufficientFundsError{Account: account}
	}
	other = cmp.Or(other, Outside(a.Currency))
	from, to := other, account
	if amount < 0 {
		from, to = account, other
	}
	t := b.record(kind, from, to, max(amount, -amount), a.Currency, memo)
	a.Available += amount
	b.enter(a, t, amount)
	b.enterElsewhere(other, t, -amount)
	return t, nil
}

// Fail records a transfer that was refused, so that its intent can be looked up. No money moves.
func (b *Book) Fail(from, to string, amount int64, memo, reason string) (Transfer, error) {
	src, err := b.Account(from)
	if err != nil {
		return Transfer{}, err
	}
	b.record(KindTransfer, from, to, amount, src.Currency, memo)
	t := &b.transfers[len(b.transfers)-1]
	t.Status, t.Reason = TransferFailed, reason
	return *t, nil
}

// Changes returns what was changed since the book was loaded.
func (b *Book) Changes() Changes {
	c := Changes{Transfers: b.transfers, Entries: b.entries, References: b.references, Legs: b.legs}
	c.UpdatedAccounts = slices.Grow(c.UpdatedAccounts, len(b.touched))
	for _, a := range b.touched {
		if a.created {
			c.CreatedAccounts = append(c.CreatedAccounts, a.Account)
		} else {
			c.UpdatedAccounts = append(c.UpdatedAccounts, AccountChange{Account: a.Account, Before: a.before})
		}
	}
	for _, h := range b.heldOnes {
		if h.created {
			c.CreatedHolds = append(c.CreatedHolds, h.Hold)
		} else {
			c.UpdatedHolds = append(c.UpdatedHolds, h.Hold)
		}
	}
	return c
}

func (b *Book) record(kind Kind, from, to string, amount int64, currency, memo string) Transfer {
	t := Transfer{
		ID: b.newID(), Kind: kind, From: from, To: to, Amount: amount, Currency: currency,
		Status: TransferCompleted, Memo: memo, CreatedAt: b.now,
	}
	b.transfers = append(b.transfers, t)
	return t
}

func (b *Book) enter(a *bookAccount, t Transfer, amount int64) {
	b.change(a)
	b.entries = append(b.entries, Entry{
		ID: b.newID(), Account: a.ID, Version: a.Version, Transfer: t.ID, Amount: amount,
		Currency: t.Currency, At: b.now, Memo: t.Memo,
	})
	if a.Available < 0 || a.Held < 0 {
		panic("ledger: a balance went below zero")
	}
}

func (b *Book) enterElsewhere(account string, t Transfer, amount int64) {
	b.entries = append(b.entries, Entry{
		ID: b.newID(), Account: account, Transfer: t.ID, Amount: amount,
		Currency: t.Currency, At: b.now, Memo: t.Memo,
	})
}

func (b *Book) touch(a *bookAccount) {
	if !a.changed {
		a.changed = true
		b.touched = append(b.touched, a)
	}
}

// change gives an account its next version.
func (b *Book) change(a *bookAccount) {
	b.touch(a)
	a.Version++
	if b.chapters && !a.created {
		a.Chapter = a.Version / VersionsInChapter
	}
}

// CanReceive reports whether amount fits on the account, or [AccountNotFoundError], or [ErrBalanceOverflow].
func (b *Book) CanReceive(account string, amount int64) error {
	a, err := b.Account(account)
	if err == nil && overflows(a, amount) {
		err = ErrBalanceOverflow
	}
	return err
}

func overflows(a Account, amount int64) bool { return a.Available+a.Held > maxTotal-amount }

func isAbsent(err error) bool {
	_, absent := errors.AsType[*AccountNotFoundError](err)
	return absent
}

func mustBePositive(amount int64) int64 {
	// MaxAmount is a limit of the contract. Our own movements, such as a campaign's payout, may be larger.
	if amount <= 0 {
		panic("ledger: amount out of range")
	}
	return amount
}
