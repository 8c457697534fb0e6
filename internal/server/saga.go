package server

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
)

type sagaStepView struct {
	Name   string          `json:"name"`
	Status saga.StepStatus `json:"status" enum:"pending,done,refused,compensated"`
	Reason string          `json:"reason" doc:"of a refusal, else empty"`
	Result string          `json:"result" doc:"what the step made, such as the id of a transfer, else empty"`
	Undone string          `json:"undone" doc:"what its compensation made, else empty"`
	// The log of older versions has neither.
	Attempts int    `json:"attempts" doc:"how often it, or its compensation, was tried; an attempt whose process died may be missing"`
	Error    string `json:"error" doc:"of the last attempt, empty where that did not fail"`
}

// sagaTransferView is the movement of money that a saga is about.
type sagaTransferView struct {
	From     crossEndView `json:"from"`
	To       crossEndView `json:"to"`
	Amount   int64        `json:"amount" doc:"minor units"`
	Currency string       `json:"currency"`
}

type sagaView struct {
	ID         uuid.UUID         `json:"id"`
	Name       string            `json:"name" doc:"of its definition" example:"cross-transfer"`
	Protocol   saga.Protocol     `json:"protocol" enum:"saga,twophase"`
	Status     saga.Status       `json:"status" enum:"pending,completed,failed,compensated"`
	Reason     string            `json:"reason" doc:"of a failure or compensation, else empty"`
	Steps      []sagaStepView    `json:"steps"`
	Transfer   *sagaTransferView `json:"transfer,omitzero" from:"-" doc:"the money that it moves; absent for an operation of another kind"`
	InDoubt    bool              `json:"in_doubt" from:"-" doc:"whether it is decided to commit, and not yet known to be committed everywhere"`
	Cancelled  bool              `json:"cancelled" doc:"whether an operator has given it up"`
	Stuck      bool              `json:"stuck" from:"-" doc:"whether it has failed ten times in a row; the server goes on trying it"`
	Attempts   int               `json:"attempts" doc:"how many in a row failed to get on"`
	LastError  string            `json:"last_error" doc:"of the last of them; one that has failed, or was compensated, always has one; else empty"`
	Term       int64             `json:"term" doc:"grows with each process that takes it over"`
	NextAt     *timestamp        `json:"next_at" from:"-" doc:"when it is tried next; null while it runs, and when it has ended"`
	DeadlineAt *timestamp        `json:"deadline_at" doc:"when what is not done is given up"`
	CreatedAt  timestamp         `json:"created_at"`
	EndedAt    *timestamp        `json:"ended_at"`
}

func viewSaga(s *saga.Saga) sagaView {
	v := as[sagaView](s)
	v.InDoubt, v.Stuck = s.InDoubt(), s.Stuck()
	if s.Status == saga.Pending && s.Parked() {
		v.NextAt = new(timestamp(s.NextAt))
	}
	if in, err := cross.ParseInput(s); err == nil && s.Name == cross.Definition {
		v.Transfer = new(as[sagaTransferView](in))
	}
	return v
}

type doubtView struct {
	Ledger     string    `json:"ledger" doc:"in whose database it is prepared"`
	GID        string    `json:"gid" doc:"its name in pg_prepared_xacts"`
	Saga       uuid.UUID `json:"saga"`
	Term       int64     `json:"term" doc:"of the saga, in which it was prepared"`
	PreparedAt timestamp `json:"prepared_at"`
	AgeMS      int64     `json:"age_ms" doc:"by the clock of its database"`
	Verdict    string    `json:"verdict" enum:"running,commit,rollback,in_doubt" doc:"running: its saga is at work on it; in_doubt: nobody may end it yet, see reason; else what the resolver is about to do"`
	Reason     string    `json:"reason" enum:",log_disowned,log_unproven,history_lost,too_young,participant_unreachable,sibling_committed" doc:"why it is in doubt, or is committed without the log's word, else empty"`
}

type adoptionView struct {
	Coordinator string   `json:"coordinator" doc:"what the identifiers of its prepared transactions begin with"`
	Ledgers     []string `json:"ledgers" doc:"those that had disowned the log; empty where there was nothing to adopt"`
}

type doubtsView struct {
	Items       []doubtView `json:"items" doc:"oldest first"`
	Unreachable []string    `json:"unreachable" doc:"ledgers whose databases could not be asked"`
}

// sagaRoutes are an operator's view of operations of several steps, and what may safely be done to them.
func (s *Server) sagaRoutes() []route {
	act := func(verb, summary string, act saga.Act) route {
		return actRoute("sagas", verb, "saga", summary, viewSaga, s.Cross.Execute, fixed(act))
	}
	return []route{
		fresh(sagaList(listRoute("/v1/sagas", accessStaff, "List operations of several steps, oldest first", oldestFirst(),
			s.sagas(func(q *saga.Query, after int64) { q.After = after }), viewSaga, numberOfSaga))),
		fresh(sagaList(listRoute("/v1/admin/sagas", accessAdmin, "List operations of several steps, newest first", newestFirst(),
			s.newestSagas, viewSaga, numberOfSaga,
			filter{name: "account", doc: "only transfers from or to this account: its id, or LEDGER/ID for one of another ledger; not beside the other filters"}))),
		readRoute("/v1/sagas/{id}", accessStaff, "Read an operation of several steps",
			with(pathID("saga"), func(ctx context.Context, id uuid.UUID) (*saga.Saga, error) { return s.Cross.Saga(ctx, id) }), viewSaga),
		act("retry", "Let a pending operation be tried at once", saga.Retry),
		act("compensate", "Give a pending operation up: steps that are not done are cancelled, those that are done are undone", saga.Compensate),
		readRoute("/v1/in-doubt", accessStaff, "List the prepared transactions of this coordinator's in every ledger's database", s.doubts, same[doubtsView]),
		commandRoute("/v1/in-doubt/adopt", accessAdmin, http.StatusOK, "Let this log, which is a copy or was restored, end the coordinator's prepared transactions from now on",
			func(a saga.Adoption) adoptionView {
				return adoptionView{Coordinator: a.Coordinator, Ledgers: append([]string{}, a.Participants...)}
			},
			mutation[noFields, struct{}]{op: fixed(struct{}{}), execute: s.Cross.Adopt}),
	}
}

// sagaList documents the filters of a list of sagas.
func sagaList(r route) route {
	return stuckToo(filtered(r,
		"name", "only those of this definition, such as cross-transfer", "status", "only those of this status: pending, completed, failed or compensated"))
}

// stuckToo documents a list that can be narrowed to what is stuck.
func stuckToo(r route) route {
	r.doc.query = append(r.doc.query, parameter{name: "stuck", doc: "true: only stuck ones, which have failed ten times in a row", schema: reflect.TypeFor[bool]()})
	return r
}

func numberOfSaga(s *saga.Saga) int64 { return s.Number }

// sagas reads the list of sagas from a place on, which from writes into the query.
func (s *Server) sagas(from func(q *saga.Query, place int64)) func(*http.Request, int64, int) ([]*saga.Saga, error) {
	return func(r *http.Request, place int64, limit int) ([]*saga.Saga, error) {
		query := r.URL.Query()
		var c checks
		q := saga.Query{Limit: limit, Stuck: c.stuck(query), Status: saga.Status(query.Get("status")), Name: query.Get("name")}
		from(&q, place)
		switch q.Status {
		case "", saga.Pending, saga.Completed, saga.Failed, saga.WasCompensated:
		default:
			c.fail("status must be pending, completed, failed or compensated")
		}
		if q.Name != "" {
			c.name("name", q.Name)
		}
		if c.err != nil {
			return nil, c.err
		}
		return bounded(r.Context(), s.scans, func(ctx context.Context) ([]*saga.Saga, error) { return s.Cross.Sagas(ctx, q) })
	}
}

// newestSagas is sagas backwards. Those of an account are found by indexes of their own, which have them in no status.
func (s *Server) newestSagas(r *http.Request, before int64, limit int) ([]*saga.Saga, error) {
	query := r.URL.Query()
	account := query.Get("account")
	if account == "" {
		return s.sagas(func(q *saga.Query, before int64) { q.Before = before })(r, before, limit)
	}
	ledger, id, other := strings.Cut(account, "/")
	if !other {
		ledger, id = cross.Local, account
	}
	var c checks
	c.id("account", id)
	c.id("the ledger of account", ledger)
	if query.Get("name") != "" || query.Get("status") != "" || query.Get("stuck") != "" {
		c.fail("what is narrowed to an account can't be narrowed further")
	}
	if c.err != nil {
		return nil, c.err
	}
	return bounded(r.Context(), s.scans, func(ctx context.Context) ([]*saga.Saga, error) {
		ids, err := s.Operator.Sagas(ctx, ledger, id, before, limit)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		return s.Cross.Sagas(ctx, saga.Query{IDs: ids, Before: before, Limit: limit})
	})
}

// stuck reads whether a list is narrowed to what is stuck.
func (c *checks) stuck(query url.Values) bool {
	stuck := query.Get("stuck")
	if stuck != "" && stuck != "true" && stuck != "false" {
		c.fail("stuck must be true or false")
	}
	return stuck == "true"
}

func (s *Server) doubts(r *http.Request) (v doubtsView, err error) {
	leave, err := s.checks.enter(r.Context())
	if err != nil {
		return v, err
	}
	found, failures := s.Cross.InDoubt(r.Context())
	leave()
	for ledger, err := range failures {
		s.Logger.WarnContext(r.Context(), "a ledger could not be asked for its prepared transactions", "ledger", ledger, "error", err)
	}
	v = doubtsView{Items: make([]doubtView, len(found)), Unreachable: slices.AppendSeq([]string{}, maps.Keys(failures))}
	slices.Sort(v.Unreachable)
	for i := range found {
		d := &found[i]
		v.Items[i] = doubtView{
			Ledger: d.Participant, GID: d.GID, Saga: d.Saga, Term: d.Term, PreparedAt: timestamp(d.At), AgeMS: d.Age.Milliseconds(), Verdict: string(d.Verdict), Reason: d.Reason,
		}
	}
	return v, nil
}

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

// payers names the account that a user must own: users pay from this server's own ledger alone.
func (q *crossTransferRequest) payers() []string {
	if q.From.Ledger != cross.Local {
		return []string{""}
	}
	return []string{q.From.Account}
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
	Stuck     bool            `json:"stuck" doc:"whether it has failed ten times in a row; the server goes on trying it"`
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
				execute: s.Cross.Create, accounts: (*crossTransferRequest).payers, op: plain((*crossTransferRequest).op),
			}),
		fresh(stuckToo(listRoute("/v1/cross-transfers", accessStaff, "List transfers between ledgers, oldest first", oldestFirst(), s.crossTransfers, viewCross, numberOfSaga))),
		readRoute("/v1/cross-transfers/{id}", accessUser, "Read a transfer between ledgers", owned("transfer between ledgers", s.Cross.Transfer, localParties), viewCross),
		act("retry", "Let a pending transfer be tried at once", saga.Retry),
		act("compensate", "Give a pending transfer up: legs that are not done are cancelled, those that are done are undone", saga.Compensate),
		s.crossLegRoute(),
	}
}

// localParties are the accounts of this server's own ledger that a transfer is from or to.
func localParties(t *saga.Saga) (accounts []string) {
	v := viewCross(t)
	for _, end := range []crossEndView{v.From, v.To} {
		if end.Ledger == cross.Local {
			accounts = append(accounts, end.Account)
		}
	}
	return accounts
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
