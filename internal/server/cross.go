package server

import (
	"context"
	"net/http"
	"reflect"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
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
	c.id("from.ledger", q.From.Ledger)
	c.id("from.account", q.From.Account)
	c.id("to.ledger", q.To.Ledger)
	c.id("to.account", q.To.Account)
	c.amount("amount", q.Amount)
	if q.Mode != string(cross.ModeSaga) && q.Mode != string(cross.ModeTwoPhase) {
		c.fail("mode must be saga or twophase")
	}
	return cross.Request{From: cross.End(q.From), To: cross.End(q.To), Amount: q.Amount, Mode: cross.Mode(q.Mode)}, c.err
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
		CreatedAt: timestamp(s.CreatedAt), EndedAt: optionalTime(s.EndedAt),
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
	list := paged[crossTransferView]("List transfers between ledgers, oldest first")
	list.query = append(list.query, parameter{name: "stuck", doc: "true: only those that fail to get on", schema: reflect.TypeFor[bool]()})
	return []route{
		post("/v1/cross-transfers", accessUser, http.StatusCreated,
			doc[crossTransferRequest, crossTransferView]("Move money between accounts of different ledgers"),
			mutate(s, mutation[crossTransferRequest, cross.Request]{
				status: http.StatusCreated, view: of(viewCross),
				account: (*crossTransferRequest).account,
				op:      func(_ *http.Request, q *crossTransferRequest) (cross.Request, error) { return q.op() },
				execute: func(ctx context.Context, c command.Command[cross.Request]) (command.Answer, error) {
					return s.cross.Create(ctx, c)
				},
			})),
		get("/v1/cross-transfers", accessStaff, list, s.getCrossTransfers),
		get("/v1/cross-transfers/{id}", accessStaff, doc[none, crossTransferView]("Read a transfer between ledgers"), s.getCrossTransfer),
		s.crossRoute("retry", "Let a pending transfer be tried at once", saga.Retry),
		s.crossRoute("compensate", "Give a pending transfer up: legs that are not done are cancelled, those that are done are undone", saga.Compensate),
		s.crossLegRoute(),
	}
}

// crossRoute is an operator's act on one transfer.
func (s *Server) crossRoute(verb, summary string, act saga.Act) route {
	return post("/v1/cross-transfers/{id}/"+verb, accessStaff, http.StatusOK, doc[noFields, crossTransferView](summary),
		func(w http.ResponseWriter, r *http.Request) {
			mutate(s, mutation[noFields, saga.Act]{
				status: http.StatusOK, view: of(viewCross),
				op: func(*http.Request, *noFields) (saga.Act, error) { return act, nil },
				execute: func(ctx context.Context, c command.Command[saga.Act]) (command.Answer, error) {
					id, err := pathUUID(r.PathValue("id"), "transfer between ledgers")
					if err != nil {
						return command.Answer{}, err
					}
					return s.cross.Execute(ctx, id, c)
				},
			})(w, r)
		})
}

func (s *Server) getCrossTransfer(w http.ResponseWriter, r *http.Request) {
	id, err := pathUUID(r.PathValue("id"), "transfer between ledgers")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	answer(s, w, r, viewCross)(s.cross.Transfer(r.Context(), id))
}

func (s *Server) getCrossTransfers(w http.ResponseWriter, r *http.Request) {
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	stuck := r.URL.Query().Get("stuck")
	if stuck != "" && stuck != "true" && stuck != "false" {
		s.writeProblem(w, r, refuse("stuck must be true or false"))
		return
	}
	found, err := bounded(r.Context(), s.scans, func(ctx context.Context) ([]*saga.Saga, error) {
		return s.cross.Transfers(ctx, stuck == "true", p.after, p.limit+1)
	})
	answer(s, w, r, func(rows []*saga.Saga) list[crossTransferView] {
		return newList(r, rows, p.limit, viewCross, func(s *saga.Saga) int64 { return s.Number })
	})(found, err)
}
