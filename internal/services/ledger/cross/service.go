package cross

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/saga"
)

// Service makes transfers between ledgers, by sagas, which an operator sees and acts on as such. It is safe for concurrent use.
type Service struct {
	*saga.Service

	ledgers map[string]Ledger
}

// NewService returns a service for these ledgers, by name; [Local] is among them. The options' definitions and participants
// are set here. The caller calls Reconcile and Close.
func NewService(store saga.Store, ledgers map[string]Ledger, o saga.Options) *Service {
	s := &Service{ledgers: ledgers}
	o.Definitions = []saga.Definition{{Name: Definition, Plan: s.plan}}
	o.Participants, o.Home = map[string]saga.Participant{}, Local
	for name, l := range ledgers {
		if p, ok := l.(Preparer); ok {
			o.Participants[name] = p
		}
	}
	s.Service = saga.NewService(store, o)
	return s
}

// Leg executes a leg of another server's transfer in the server's own ledger. Result: a [saga.Outcome]. It returns
// [ErrNoExecutor] where that ledger can't.
func (s *Service) Leg(ctx context.Context, c command.Command[*Leg]) (command.Answer, error) {
	e, ok := s.ledgers[Local].(Preparer)
	if !ok {
		return command.Answer{}, ErrNoExecutor
	}
	return e.Command(ctx, c)
}

// Create makes a transfer and answers with its end: a *[saga.Saga], or, for want of money, a
// [ledger.InsufficientFundsError] with the transfer's id. It is refused with [LedgerNotFoundError],
// [ledger.AccountNotFoundError], [ledger.ErrSameAccount], [ledger.ErrCurrencyMismatch] or [ErrTwoPhaseUnavailable]. Errors
// are those of [saga.Service.Create], and [UnreachableError].
func (s *Service) Create(ctx context.Context, c command.Command[Request]) (command.Answer, error) {
	q := c.Op
	made := command.Command[saga.New]{Key: c.Key, Principal: c.Principal, RequestID: c.RequestID, Render: render(c.Render, q.From.Account)}
	// A repeat gets the decision that was made, whatever has become of the ledgers meanwhile.
	if a, ok, err := s.Replay(ctx, made); ok || err != nil {
		return a, err
	}
	in, err := s.check(ctx, &q)
	if err != nil && !refused(err) {
		return command.Answer{}, err
	}
	raw, marshalErr := json.Marshal(in)
	if marshalErr != nil {
		return command.Answer{}, marshalErr
	}
	made.Op = saga.New{Name: Definition, Protocol: q.Mode, Input: raw, Steps: order(&q), Refusal: err}
	return s.Service.Create(ctx, made)
}

// Transfer returns one transfer, or [saga.NotFoundError].
func (s *Service) Transfer(ctx context.Context, id uuid.UUID) (*saga.Saga, error) {
	found, err := s.Saga(ctx, id)
	if err == nil && found.Name != Definition {
		return nil, &saga.NotFoundError{ID: id}
	}
	return found, err
}

// Transfers returns up to limit transfers with a number above after, in order; with stuck, only stuck ones.
func (s *Service) Transfers(ctx context.Context, stuck bool, after int64, limit int) ([]*saga.Saga, error) {
	return s.Sagas(ctx, saga.Query{Name: Definition, Stuck: stuck, After: after, Limit: limit})
}

// render speaks of a transfer that failed for want of money, or of a database that prepares, as of any other such refusal.
func render(r command.Render, account string) command.Render {
	if r == nil {
		return nil
	}
	return func(result any, err error) command.Rendered {
		if made, ok := result.(*saga.Saga); ok && err == nil && made.Status == saga.Failed {
			switch made.Reason {
			case ReasonInsufficientFunds:
				return r(nil, &ledger.InsufficientFundsError{Account: account, Transfer: &made.ID})
			case saga.ReasonTwoPhaseUnavailable:
				return r(nil, ErrTwoPhaseUnavailable)
			}
		}
		return r(result, err)
	}
}

// refused reports whether an error is a decision, or an absence, and no failure to find out.
func refused(err error) bool {
	if err == nil || Reason(err) != "" {
		return true
	}
	_, absent := errors.AsType[*LedgerNotFoundError](err)
	return absent || errors.Is(err, ledger.ErrSameAccount) || errors.Is(err, ErrTwoPhaseUnavailable)
}

// check looks at what never changes: accounts are not closed, and keep their currency.
func (s *Service) check(ctx context.Context, q *Request) (Input, error) {
	in := Input{From: q.From, To: q.To, Amount: q.Amount}
	if q.From == q.To {
		return in, ledger.ErrSameAccount
	}
	from, ok := s.ledgers[q.From.Ledger]
	if !ok {
		return in, &LedgerNotFoundError{Name: q.From.Ledger}
	}
	to, ok := s.ledgers[q.To.Ledger]
	if !ok {
		return in, &LedgerNotFoundError{Name: q.To.Ledger}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	source, err := from.Account(ctx, q.From.Account)
	if err != nil {
		return in, unreachable(q.From.Ledger, err)
	}
	destination, err := to.Account(ctx, q.To.Account)
	if err != nil {
		return in, unreachable(q.To.Ledger, err)
	}
	if source.Currency != destination.Currency {
		return in, ledger.ErrCurrencyMismatch
	}
	in.Currency = source.Currency
	if q.Mode != saga.TwoPhase || q.From.Ledger == q.To.Ledger {
		return in, nil
	}
	return in, errors.Join(unreachable(q.From.Ledger, canPrepare(ctx, from)), unreachable(q.To.Ledger, canPrepare(ctx, to)))
}

// checkTimeout bounds what is asked of ledgers before a transfer is made. They may be on other servers, which may be
// silent.
const checkTimeout = 5 * time.Second

// unreachable names the ledger that could not be asked. What a ledger refused is its own word.
func unreachable(name string, err error) error {
	if name == Local || refused(err) {
		return err
	}
	return &UnreachableError{Name: name, Err: err}
}

func canPrepare(ctx context.Context, l Ledger) error {
	p, ok := l.(Preparer)
	if !ok {
		return ErrTwoPhaseUnavailable
	}
	return p.CanPrepare(ctx)
}

// plan implements [saga.Definition].
func (s *Service) plan(made *saga.Saga) (saga.Plan, error) {
	in, err := ParseInput(made)
	if err != nil {
		return saga.Plan{}, err
	}
	var p saga.Plan
	names := steps(in.From, in.To)
	if made.Protocol == saga.TwoPhase && len(names) > 1 {
		for _, step := range made.Steps {
			b, err := s.branch(&in, step.Name)
			if err != nil {
				return saga.Plan{}, err
			}
			p.Branches = append(p.Branches, b)
		}
		return p, nil
	}
	for _, name := range names {
		execute := func(ctx context.Context, c saga.Call) (saga.Outcome, error) {
			l := &Leg{Call: c, Input: in}
			on, ok := s.ledgers[l.Ledger()]
			if !ok {
				return saga.Outcome{}, &LedgerNotFoundError{Name: l.Ledger()}
			}
			return on.Execute(ctx, l)
		}
		p.Steps = append(p.Steps, saga.Step{Name: name, Do: execute, Undo: execute})
	}
	return p, nil
}

func (s *Service) branch(in *Input, step string) (saga.Branch, error) {
	place := (&Leg{Call: saga.Call{Step: step}, Input: *in}).Ledger()
	on, ok := s.ledgers[place]
	if !ok {
		return saga.Branch{}, &LedgerNotFoundError{Name: place}
	}
	p, ok := on.(Preparer)
	if !ok {
		return saga.Branch{}, fmt.Errorf("ledger %s: %w", place, saga.ErrTwoPhaseUnavailable)
	}
	return saga.Branch{Name: step, Participant: p, Prepare: func(ctx context.Context, c saga.Call, gid string) (saga.Outcome, error) {
		return p.Prepare(ctx, &Leg{Call: c, Input: *in}, gid)
	}}, nil
}
