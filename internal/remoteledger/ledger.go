// Package remoteledger makes another server's ledger a party to transfers between ledgers, over HTTP.
package remoteledger

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
)

// Ledger is the ledger of the server that a client calls. It takes part in mode saga alone. The client's key must be an
// admin's or a service's. It is safe for concurrent use.
//
// Each leg happens once, however often it is sent: the server keeps what became of it for ever, beside the idempotency key,
// which is the same for each execution.
type Ledger struct {
	client *client.Client
	as     string
}

var _ cross.Ledger = (*Ledger)(nil)

// New returns the server's ledger. as is the name under which its books know the ledger at the other end of a transfer:
// money goes to the account transit/NAME there, and comes from it.
func New(c *client.Client, as string) *Ledger { return &Ledger{client: c, as: as} }

// Account implements [cross.Ledger].
func (l *Ledger) Account(ctx context.Context, id string) (ledger.Account, error) {
	a, err := l.client.GetAccount(ctx, id)
	p, answered := errors.AsType[*client.Problem](err)
	switch {
	case err == nil:
		return ledger.Account{ID: a.ID, Currency: a.Currency, Available: a.Available, Held: a.Held, Version: a.Version, CreatedAt: a.CreatedAt}, nil
	case answered && p.Status == http.StatusNotFound:
		return ledger.Account{}, &ledger.AccountNotFoundError{ID: id}
	case !answered || p.Status >= http.StatusInternalServerError:
		return ledger.Account{}, command.Unavailable(err) // It did not answer, or can't now: unlike one that refuses.
	}
	return ledger.Account{}, err
}

// Execute implements [cross.Ledger].
func (l *Ledger) Execute(ctx context.Context, leg *cross.Leg) (saga.Outcome, error) {
	end := func(e cross.End) client.CrossEnd {
		name := l.as
		if e.Ledger == leg.Ledger() {
			name = cross.Local // There.
		}
		return client.CrossEnd{Ledger: name, Account: e.Account}
	}
	key := leg.Saga.String() + "." + leg.Key()
	if leg.Cancel != "" {
		key += ".cancel." + leg.Cancel
	}
	done, err := l.client.ExecuteCrossLeg(ctx, client.CrossLegRequest{
		Saga: leg.Saga.String(), Step: client.CrossLegRequestStep(leg.Step), From: end(leg.From), To: end(leg.To),
		Amount: leg.Amount, Currency: leg.Currency, Undo: leg.Undo, Cancel: leg.Cancel,
	}, client.Key(key))
	switch {
	case err != nil:
		return saga.Outcome{}, fmt.Errorf("leg %s: %w", leg.Key(), err)
	case done.Outcome == client.CrossLegOutcomeRefused:
		return saga.Refuse(done.Reason), nil
	case done.Transfer == "":
		return saga.Outcome{}, fmt.Errorf("leg %s: the answer names no transfer", leg.Key())
	}
	return saga.Outcome{Result: done.Transfer}, nil
}
