package server

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
)

type crossLegRequest struct {
	Saga     uuid.UUID    `json:"saga" doc:"the transfer that it is part of, at the server which makes it"`
	Step     string       `json:"step" enum:"debit,credit,transfer"`
	Undo     bool         `json:"undo,omitempty" doc:"undo the leg, which must have been done"`
	Cancel   *string      `json:"cancel,omitempty" doc:"refuse the leg with this reason unless it was done already" example:"cancelled"`
	From     crossEndView `json:"from" doc:"the ledger is local where it is this server's"`
	To       crossEndView `json:"to" doc:"the ledger is local where it is this server's"`
	Amount   int64        `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units"`
	Currency string       `json:"currency" pattern:"^[A-Z][A-Z0-9]{2,11}$"`
}

func (q *crossLegRequest) op() (*cross.Leg, error) {
	var c checks
	l := &cross.Leg{
		Call:  saga.Call{Saga: q.Saga, Step: q.Step, Undo: q.Undo},
		Input: cross.Input{From: cross.End(q.From), To: cross.End(q.To), Amount: q.Amount, Currency: q.Currency},
	}
	if q.Saga == uuid.Nil {
		c.fail("saga must be the id of a transfer")
	}
	if q.Cancel != nil {
		c.name("cancel", *q.Cancel)
		l.Cancel = *q.Cancel
	}
	if q.Undo && q.Cancel != nil {
		c.fail("a leg is undone or cancelled, and not both")
	}
	c.ends(q.From, q.To)
	c.amount("amount", q.Amount)
	c.currency("currency", q.Currency)
	within := q.From.Ledger == q.To.Ledger
	switch q.Step {
	case cross.LegDebit, cross.LegCredit:
		if within {
			c.fail("a %s is between two ledgers", q.Step)
		}
	case cross.LegTransfer:
		if !within || q.From == q.To {
			c.fail("a transfer is between two accounts of one ledger")
		}
	default:
		c.fail("step must be debit, credit or transfer")
	}
	if c.err == nil && l.Ledger() != cross.Local {
		c.fail("the ledger of a %s must be local: this server executes legs in its own ledger alone", q.Step)
	}
	return l, c.err
}

type crossLegView struct {
	Outcome  string  `json:"outcome" enum:"done,refused" doc:"for ever: a repeat is told the same"`
	Reason   string  `json:"reason" doc:"of a refusal, else empty" example:"insufficient_funds"`
	Transfer *string `json:"transfer" doc:"the transfer that it made in this ledger"`
}

func viewLeg(o saga.Outcome) crossLegView {
	if o.Refused {
		return crossLegView{Outcome: "refused", Reason: o.Reason}
	}
	return crossLegView{Outcome: "done", Transfer: &o.Result}
}

// crossLegRoute lets another server have its transfers' legs executed here. Who may call it moves money into and out of this
// ledger, as with deposits and withdrawals.
func (s *Server) crossLegRoute() route {
	return commandRoute("/v1/cross-legs", accessStaff, http.StatusOK, "Execute, once, this ledger's leg of another server's transfer", viewLeg,
		mutation[crossLegRequest, *cross.Leg]{execute: s.Cross.Leg, op: plain((*crossLegRequest).op)})
}
