package server

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
)

type crossEndView struct {
	Ledger  string `json:"ledger" pattern:"^[A-Za-z0-9._:@-]{1,64}$" doc:"local, or the name that the server was given with --ledger"`
	Account string `json:"account" pattern:"^[A-Za-z0-9._:@-]{1,64}$"`
}

type crossTransferRequest struct {
	From   crossEndView `json:"from"`
	To     crossEndView `json:"to"`
	Amount int64        `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"minor units"`
	Mode   string       `json:"mode" enum:"saga,twophase" doc:"saga: debit, then credit, compensated where that is refused; twophase: both or neither"`
}

func (q *crossTransferRequest) op() (cross.Request, error) {
	var c checks
	c.ends(q.From, q.To)
	c.amount("amount", q.Amount)
	if q.Mode != string(saga.Compensated) && q.Mode != string(saga.TwoPhase) {
		c.fail("mode must be saga or twophase")
	}
	return cross.Request{From: cross.End(q.From), To: cross.End(q.To), Amount: q.Amount, Mode: saga.Protocol(q.Mode)}, c.err
}

func (c *checks) ends(from, to crossEndView) {
	c.id("from.ledger", from.Ledger)
	c.id("from.account", from.Account)
	c.id("to.ledger", to.Ledger)
	c.id("to.account", to.Account)
}

// account is the one that a user must own: users pay from this server's own ledger alone.
func (q *crossTransferRequest) account() string {
	if q.From.Ledger != cross.Local {
		return ""
	}
	return q.From.Account
}

type crossStepView struct {
	Name     string          `json:"name" enum:"debit,credit,transfer" doc:"transfer where both accounts are in one ledger"`
	Ledger   string          `json:"ledger"`
	Account  string          `json:"account"`
	Status   saga.StepStatus `json:"status" enum:"pending,done,refused,compensated"`
	Reason   string          `json:"reason" doc:"of a refusal, else empty"`
	Transfer *string         `json:"transfer" doc:"the transfer of the step's ledger that it made"`
	Undone   *string         `json:"undone" doc:"the one that undid it"`
}

type crossTransferView struct {
	ID        uuid.UUID       `json:"id"`
	From      crossEndView    `json:"from"`
	To        crossEndView    `json:"to"`
	Amount    int64           `json:"amount"`
	Currency  string          `json:"currency"`
	Mode      saga.Protocol   `json:"mode" enum:"saga,twophase"`
	Status    saga.Status     `json:"status" enum:"pending,completed,failed,compensated"`
	Reason    string          `json:"reason" doc:"of a failure or compensation, else empty" example:"insufficient_funds"`
	Steps     []crossStepView `json:"steps"`
	InDoubt   bool            `json:"in_doubt" doc:"a two-phase transfer that is decided to commit, and not yet committed everywhere"`
	Stuck     bool            `json:"stuck" doc:"whether it fails to get on; it is tried further"`
	Attempts  int             `json:"attempts" doc:"how many in a row failed to get on"`
	CreatedAt timestamp       `json:"created_at"`
	EndedAt   *timestamp      `json:"ended_at"`
}

func viewCross(s *saga.Saga) crossTransferView {
	in, err := cross.ParseInput(s)
	if err != nil {
		panic("server: " + err.Error()) // It was written by this program.
	}
	v := crossTransferView{
		ID: s.ID, From: crossEndView(in.From), To: crossEndView(in.To), Amount: in.Amount, Currency: in.Currency, Mode: s.Protocol,
		Status: s.Status, Reason: s.Reason, Steps: make([]crossStepView, len(s.Steps)),
		InDoubt: s.InDoubt(), Stuck: s.Stuck(), Attempts: s.Attempts,
		CreatedAt: timestamp(s.CreatedAt), EndedAt: (*timestamp)(s.EndedAt),
	}
	for i, step := range s.Steps {
		end := in.From
		if step.Name == cross.LegCredit {
			end = in.To
		}
		v.Steps[i] = crossStepView{Name: step.Name, Ledger: end.Ledger, Account: end.Account, Status: step.Status, Reason: step.Reason}
		if step.Result != "" && step.Status != saga.StepPending {
			v.Steps[i].Transfer = &step.Result
		}
		if step.Undone != "" {
			v.Steps[i].Undone = &step.Undone
		}
	}
	return v
}

func (s *Server) crossRoutes() []route {
	act := func(verb, summary string, act saga.Act) route {
		return actRoute("cross-transfers", verb, "transfer between ledgers", summary, viewCross, s.Cross.Execute, fixed(act))
	}
	return []route{
		commandRoute("/v1/cross-transfers", accessUser, http.StatusCreated, "Move money between accounts of different ledgers", viewCross,
			mutation[crossTransferRequest, cross.Request]{
				execute: s.Cross.Create, account: (*crossTransferRequest).account, op: plain((*crossTransferRequest).op),
			}),
		stuckToo(listRoute("/v1/cross-transfers", accessStaff, "List transfers between ledgers, oldest first", oldestFirst(), s.crossTransfers, viewCross, numberOfSaga)),
		readRoute("/v1/cross-transfers/{id}", accessStaff, "Read a transfer between ledgers", with(pathIDOf("transfer between ledgers"), s.Cross.Transfer), viewCross),
		act("retry", "Let a pending transfer be tried at once", saga.Retry),
		act("compensate", "Give a pending transfer up: legs that are not done are cancelled, those that are done are undone", saga.Compensate),
		s.crossLegRoute(),
	}
}

func (s *Server) crossTransfers(r *http.Request, after int64, limit int) ([]*saga.Saga, error) {
	var c checks
	stuck := c.stuck(r.URL.Query())
	if c.err != nil {
		return nil, c.err
	}
	return bounded(r.Context(), s.scans, func(ctx context.Context) ([]*saga.Saga, error) {
		return s.Cross.Transfers(ctx, stuck, after, limit)
	})
}
