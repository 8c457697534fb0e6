package server

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/saga"
)

type sagaStepView struct {
	Name   string          `json:"name"`
	Status saga.StepStatus `json:"status" enum:"pending,done,refused,compensated"`
	Reason string          `json:"reason" doc:"of a refusal, else empty"`
	Result string          `json:"result" doc:"what the step made, such as the id of a transfer, else empty"`
	Undone string          `json:"undone" doc:"what its compensation made, else empty"`
}

type sagaView struct {
	ID         uuid.UUID      `json:"id"`
	Name       string         `json:"name" doc:"of its definition" example:"cross-transfer"`
	Protocol   saga.Protocol  `json:"protocol" enum:"saga,twophase"`
	Status     saga.Status    `json:"status" enum:"pending,completed,failed,compensated"`
	Reason     string         `json:"reason" doc:"of a failure or compensation, else empty"`
	Steps      []sagaStepView `json:"steps"`
	InDoubt    bool           `json:"in_doubt" from:"-" doc:"whether it is decided to commit, and not yet known to be committed everywhere"`
	Cancelled  bool           `json:"cancelled" doc:"whether an operator has given it up"`
	Stuck      bool           `json:"stuck" from:"-" doc:"whether it fails to get on; it is tried further"`
	Attempts   int            `json:"attempts" doc:"how many in a row failed to get on"`
	LastError  string         `json:"last_error" doc:"of the last of them; one that has failed, or was compensated, always has one; else empty"`
	Term       int64          `json:"term" doc:"grows with each process that takes it over"`
	NextAt     *timestamp     `json:"next_at" from:"-" doc:"when it is tried next; null while it runs, and when it has ended"`
	DeadlineAt *timestamp     `json:"deadline_at" doc:"when what is not done is given up"`
	CreatedAt  timestamp      `json:"created_at"`
	EndedAt    *timestamp     `json:"ended_at"`
}

func viewSaga(s *saga.Saga) sagaView {
	v := as[sagaView](s)
	v.InDoubt, v.Stuck = s.InDoubt(), s.Stuck()
	if s.Status == saga.Pending && s.Parked() {
		v.NextAt = new(timestamp(s.NextAt))
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
	Reason     string    `json:"reason" enum:",log_disowned,log_unproven,too_young,participant_unreachable,sibling_committed" doc:"why it is in doubt, or is committed without the log's word, else empty"`
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
		stuckToo(filtered(listRoute("/v1/sagas", accessStaff, "List operations of several steps, oldest first", oldestFirst(), s.sagas, viewSaga, numberOfSaga),
			"name", "only those of this definition, such as cross-transfer", "status", "only those of this status: pending, completed, failed or compensated")),
		readRoute("/v1/sagas/{id}", accessStaff, "Read an operation of several steps",
			with(pathIDOf("saga"), func(ctx context.Context, id uuid.UUID) (*saga.Saga, error) { return s.Cross.Saga(ctx, id) }), viewSaga),
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

// stuckToo documents a list that can be narrowed to what fails to get on.
func stuckToo(r route) route {
	r.doc.query = append(r.doc.query, parameter{name: "stuck", doc: "true: only those that fail to get on", schema: reflect.TypeFor[bool]()})
	return r
}

func numberOfSaga(s *saga.Saga) int64 { return s.Number }

func (s *Server) sagas(r *http.Request, after int64, limit int) ([]*saga.Saga, error) {
	query := r.URL.Query()
	var c checks
	q := saga.Query{After: after, Limit: limit, Stuck: c.stuck(query), Status: saga.Status(query.Get("status")), Name: query.Get("name")}
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

// stuck reads whether a list is narrowed to what fails to get on.
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
