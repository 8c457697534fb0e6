//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// Each payment has this many steps or branches.
var sagaSteps = []string{"debit", "credit", "note"}

// payment is a saga of a scenario: it moves cents from one purse to the other.
type payment struct {
	name     string
	protocol saga.Protocol
	from, to string
	cents    int
	closed   bool // the last step is refused
}

func (p payment) id() uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(p.name)) }

// payments are those of the two processes. Some can't be made, and of some that depends on which come first.
func payments(process int) []payment {
	return [][]payment{
		{{"a1", saga.TwoPhase, "ann", "bob", 30, false}, {"a2", saga.Compensated, "bob", "ann", 20, true}, {"a3", saga.TwoPhase, "ann", "bob", 20, true}},
		{{"b1", saga.Compensated, "bob", "ann", 40, false}, {"b2", saga.TwoPhase, "bob", "ann", 70, false}},
	}[process]
}

// installPurses makes the log, and what payments change.
func installPurses(ctx context.Context, db *pgx.Conn) error {
	return errors.Join(pgsaga.Schema(library).Install(ctx, db), execute(ctx, db,
		`CREATE TABLE library.purses (owner text PRIMARY KEY, cents integer NOT NULL CHECK (cents >= 0))`,
		`INSERT INTO library.purses VALUES ('ann', 50), ('bob', 50)`,
		`CREATE TABLE library.effects (n bigint GENERATED ALWAYS AS IDENTITY, saga uuid, step text)`))
}

// sagas has two processes make payments by compensated steps and by two-phase commits, on one log; each goes on with what the other has
// left.
func sagas() Scenario {
	return Scenario{
		Kills: true, Stall: 6 * time.Second, Unbooked: true, Install: installPurses,
		Play: func(ctx context.Context, w *World) {
			for i, name := range []string{"p1", "p2"} {
				w.Process(ctx, name, func(ctx context.Context, pool *pgxpool.Pool) error { return pay(ctx, w, pool, payments(i)) })
			}
		},
		Check: func(ctx context.Context, _ *World, db *pgx.Conn) error {
			var wrong []error
			for process := range 2 {
				for _, p := range payments(process) {
					wrong = append(wrong, checkPayment(ctx, db, p))
				}
			}
			var cents int
			err := db.QueryRow(ctx, `SELECT sum(cents) FROM library.purses`).Scan(&cents)
			if err == nil && cents != 100 {
				err = fmt.Errorf("the purses have %d of 100", cents)
			}
			return errors.Join(append(wrong, err)...)
		},
	}
}

// effect is what a step does, or undoes.
func (p payment) effect(step string, undo bool) pgsaga.Transaction {
	return func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
		owner, cents, what := p.from, -p.cents, step
		if step == "credit" {
			owner, cents = p.to, p.cents
		}
		if undo {
			cents, what = -cents, "undo "+step
		}
		if step == "note" && p.closed {
			return saga.Refuse("closed"), nil
		}
		if step != "note" {
			_, err := tx.Exec(ctx, `UPDATE library.purses SET cents = cents + $2 WHERE owner = $1`, owner, cents)
			if violated, ok := errors.AsType[*pgconn.PgError](err); ok && violated.Code == "23514" && !undo {
				return saga.Refuse("no money"), nil
			}
			if err != nil {
				return saga.Outcome{}, err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO library.effects (saga, step) VALUES ($1, $2)`, c.Saga, what)
		return saga.Outcome{}, err
	}
}

// plan makes a payment's plan.
func (p payment) plan(d *pgsaga.Database) (out saga.Plan) {
	for _, step := range sagaSteps {
		if p.protocol == saga.TwoPhase {
			out.Branches = append(out.Branches, d.Branch(step, p.effect(step, false)))
		} else {
			out.Steps = append(out.Steps, d.Step(step, p.effect(step, false), p.effect(step, true)))
		}
	}
	return out
}

// purses are those of a database, where payments are made.
func purses(pool *pgxpool.Pool) *pgsaga.Database {
	return pgsaga.NewDatabase(pool, pgsaga.Options{Schema: library, LockTimeout: time.Second})
}

// define defines the payments of both processes.
func define(paymentsOf func(process int) []payment, plan func(payment) saga.Plan) (out []saga.Definition) {
	for process := range 2 {
		for _, p := range paymentsOf(process) {
			out = append(out, saga.Definition{Name: p.name, Plan: func(*saga.Saga) (saga.Plan, error) { return plan(p), nil }})
		}
	}
	return out
}

// pay is a process that makes payments, and goes on with the other's until none of its own is in doubt.
func pay(ctx context.Context, w *World, pool *pgxpool.Pool, own []payment) error {
	d := purses(pool)
	o := saga.Options{Participants: map[string]saga.Participant{"purses": d}, Definitions: define(payments, func(p payment) saga.Plan { return p.plan(d) })}
	return serveSagas(ctx, pool, o, func(service *saga.Service) {
		for _, p := range own {
			for ctx.Err() == nil {
				s, err := service.Run(ctx, saga.New{ID: p.id(), Name: p.name, Protocol: p.protocol})
				if err == nil && s.Status != saga.Pending {
					w.See("payment %s: %s %s", p.name, s.Status, s.Reason)
					break
				}
				wait.For(ctx, 200*time.Millisecond)
			}
		}
		for ctx.Err() == nil {
			doubts, failures := service.InDoubt(ctx)
			if len(doubts)+len(failures) == 0 {
				break
			}
			wait.For(ctx, 1300*time.Millisecond)
		}
	})
}

// serveSagas has a process reconcile the sagas of a log while it does its work.
func serveSagas(ctx context.Context, pool *pgxpool.Pool, o saga.Options, work func(*saga.Service)) error {
	log := pgsaga.NewLog(pool, pgsaga.LogOptions{Schema: library})
	for err := errors.New("not asked"); err != nil; {
		if o.Coordinator, err = log.Coordinator(ctx); err != nil && !wait.For(ctx, 100*time.Millisecond) {
			return nil // It was killed.
		}
	}
	service := saga.NewService(log, o)
	reconciling, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		service.Reconcile(reconciling)
	}()
	work(service)
	stop()
	<-ended
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := service.Close(closing); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// checkPayment compares what a payment did with what the log says.
func checkPayment(ctx context.Context, db *pgx.Conn, p payment) error {
	var status saga.Status
	if err := db.QueryRow(ctx, `SELECT status FROM library.sagas WHERE id = $1`, p.id()).Scan(&status); err != nil {
		return fmt.Errorf("payment %s: %w", p.name, err)
	}
	rows, err := db.Query(ctx, `SELECT step FROM library.effects WHERE saga = $1 ORDER BY n`, p.id())
	if err != nil {
		return err
	}
	did, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	ok := false
	switch status {
	case saga.Completed:
		ok = len(did) == len(sagaSteps)
		for i, step := range did {
			ok = ok && step == sagaSteps[i]
		}
	case saga.Failed:
		ok = len(did) == 0
	case saga.WasCompensated:
		half := len(did) / 2
		ok = half > 0 && len(did) == 2*half && p.protocol == saga.Compensated
		for i := range half {
			ok = ok && did[i] == sagaSteps[i] && did[len(did)-1-i] == "undo "+sagaSteps[i]
		}
	case saga.Pending:
	}
	if !ok {
		return fmt.Errorf("payment %s is %s, and did %q", p.name, status, did)
	}
	return nil
}
