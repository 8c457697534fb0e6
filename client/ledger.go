package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
)

// Ledger is the server's ledger as a party to transfers that another program, or server, makes: a [cross.Ledger] over HTTP.
// It takes part in mode saga alone. The client's key must be an admin's or a service's. It is safe for concurrent use.
//
// Each leg happens once, however often it is sent: the server keeps what became of it for ever, beside the idempotency key,
// which is the same for each execution.
type Ledger struct {
	client *Client
	as     string
}

var _ cross.Ledger = (*Ledger)(nil)

// Ledger returns the server's ledger. as is the name under which its books know the ledger at the other end of a transfer:
// money goes to the account transit/NAME there, and comes from it.
func (c *Client) Ledger(as string) *Ledger { return &Ledger{client: c, as: as} }

// Account implements [cross.Ledger].
func (l *Ledger) Account(ctx context.Context, id string) (ledger.Account, error) {
	a, err := l.client.GetAccount(ctx, id)
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusNotFound {
		return ledger.Account{}, &ledger.AccountNotFoundError{ID: id}
	}
	if err != nil {
		return ledger.Account{}, away(err)
	}
	return ledger.Account{ID: a.ID, Currency: a.Currency, Available: a.Available, Held: a.Held, Version: a.Version, CreatedAt: a.CreatedAt}, nil
}

// away tells a server that did not answer, or can't now, from one that refuses.
func away(err error) error {
	p, answered := errors.AsType[*Problem](err)
	if !answered || p.Status >= http.StatusInternalServerError {
		return command.Unavailable(err)
	}
	return err
}

// Execute implements [cross.Ledger].
func (l *Ledger) Execute(ctx context.Context, leg *cross.Leg) (saga.Outcome, error) {
	end := func(e cross.End) CrossEnd {
		name := l.as
		if e.Ledger == leg.Ledger() {
			name = cross.Local // There.
		}
		return CrossEnd{Ledger: name, Account: e.Account}
	}
	q := CrossLegRequest{
		Saga: leg.Saga.String(), Step: CrossLegRequestStep(leg.Step), From: end(leg.From), To: end(leg.To),
		Amount: leg.Amount, Currency: leg.Currency, Undo: leg.Undo, Cancel: leg.Cancel,
	}
	key := leg.Saga.String() + "." + leg.Key()
	if leg.Cancel != "" {
		key += ".cancel." + leg.Cancel
	}
	done, err := l.client.ExecuteCrossLeg(ctx, q, Key(key))
	if err != nil {
		return saga.Outcome{}, fmt.Errorf("client: leg %s: %w", leg.Key(), err)
	}
	switch {
	case done.Outcome == CrossLegOutcomeRefused:
		return saga.Refuse(done.Reason), nil
	case done.Transfer == "":
		return saga.Outcome{}, fmt.Errorf("client: leg %s: %w", leg.Key(), errNotJSON)
	}
	return saga.Outcome{Result: done.Transfer}, nil
}
