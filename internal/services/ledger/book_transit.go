package ledger

// Transit is the account through which money goes to another ledger and comes from it. Like the outside it has entries but
// no balance of its own, and a name that no client can choose: what it owes is what the other ledger has, or what is on its
// way there.
func Transit(ledger string) string { return "transit/" + ledger }

// SendAway moves amount from an account towards another ledger. It returns [AccountNotFoundError], [ErrCurrencyMismatch] or
// [InsufficientFundsError], and then has changed nothing.
func (b *Book) SendAway(account, ledger string, amount int64, currency, memo string) (Transfer, error) {
	mustBePositive(amount)
	a, err := b.account(account)
	if err != nil {
		return Transfer{}, err
	}
	if a.Currency != currency {
		return Transfer{}, ErrCurrencyMismatch
	}
	if a.Available < amount {
		return Transfer{}, &InsufficientFundsError{Account: account}
	}
	t := b.record(KindCross, account, Transit(ledger), amount, a.Currency, memo)
	a.Available -= amount
	b.enter(a, t, -amount)
	b.enterTransit(t, ledger, amount)
	return t, nil
}

// TakeIn moves amount that comes from another ledger to an account. It returns [AccountNotFoundError], [ErrCurrencyMismatch]
// or [ErrBalanceOverflow], and then has changed nothing.
func (b *Book) TakeIn(account, ledger string, amount int64, currency, memo string) (Transfer, error) {
	mustBePositive(amount)
	a, err := b.account(account)
	if err != nil {
		return Transfer{}, err
	}
	if a.Currency != currency {
		return Transfer{}, ErrCurrencyMismatch
	}
	if overflows(a.Account, amount) {
		return Transfer{}, ErrBalanceOverflow
	}
	t := b.record(KindCross, Transit(ledger), account, amount, a.Currency, memo)
	a.Available += amount
	b.enter(a, t, amount)
	b.enterTransit(t, ledger, -amount)
	return t, nil
}

func (b *Book) enterTransit(t Transfer, ledger string, amount int64) {
	b.entries = append(b.entries, Entry{
		ID: b.newID(), Account: Transit(ledger), Transfer: t.ID, Amount: amount,
		Currency: t.Currency, At: b.now, Memo: t.Memo,
	})
}
