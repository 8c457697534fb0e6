//go:build unix

package explore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// crossings are payments from one database to the other, or back, by two-phase commits. The log is in the first, which comes back as an older
// copy of itself.
type crossings struct {
	*World

	ended  chan struct{} // gets a value for each payment that has ended
	failed chan struct{} // closed when the database has come back
	// gone are those that were decided in the history that is lost, or had been committed on the other side: nobody can bring them to an end.
	gone []string
}

// crossingLimit is for how long processes go on when the database has come back, by the scheduler's time.
const crossingLimit = 6 * time.Minute

func crossingsOf(process int) []payment {
	return [][]payment{
		{{"x1", saga.TwoPhase, "ann", "bob", 30, false}, {"x2", saga.TwoPhase, "ann", "bob", 90, false}},
		{{"y1", saga.TwoPhase, "bob", "ann", 20, false}},
	}[process]
}

// olderLog has two processes make payments between two databases. A payment whose decision is lost must not be committed on one side
// alone: by no run that remembers what the log has lost, and under no fence of before.
func olderLog() Scenario {
	var c *crossings
	return Scenario{
		Kills: true, Stall: 6 * time.Second, Unbooked: true, Install: installPurses, Other: installPurses,
		Play: func(ctx context.Context, w *World) {
			const most = 64
			c = &crossings{World: w, ended: make(chan struct{}, most), failed: make(chan struct{})}
			for i, name := range []string{"p1", "p2"} {
				w.Process(ctx, name, func(ctx context.Context, pool *pgxpool.Pool) error { return c.pay(ctx, name, pool, crossingsOf(i)) })
			}
			w.Go(func() error { return c.fail(ctx) })
		},
		Check: func(_ context.Context, _ *World, _ *pgx.Conn) error { return c.check() },
	}
}

// fail copies the first database and loses it, as the seed has it.
func (c *crossings) fail(ctx context.Context) error {
	var b [3]byte
	_, _ = rand.Read(b[:]) // It never fails.
	for range b[0] % 2 {
		await(ctx, c.ended)
	}
	if err := c.Copy(ctx); err != nil {
		return err
	}
	for range b[1] % 2 {
		await(ctx, c.ended)
	}
	wait.For(ctx, time.Duration(b[2]%4)*300*time.Millisecond)
	defer close(c.failed)
	return c.Lose(ctx, func() error {
		decided, err := c.Rows(false, `SELECT id::text FROM library.sagas WHERE decided <> 0`)
		there, err2 := c.Rows(true, `SELECT saga::text FROM library.effects`)
		c.gone = slices.Concat(decided, there)
		return errors.Join(err, err2)
	})
}

// plan has odd payments begin at home.
func (p payment) crossing(here, there *pgsaga.Database) saga.Plan {
	from, to := here, there
	if p.cents%20 == 10 {
		from, to = there, here
	}
	return saga.Plan{Branches: []saga.Branch{from.Branch("debit", p.effect("debit", false)), to.Branch("credit", p.effect("credit", false))}}
}

// pay is a process that makes payments, and again when the log may have lost them.
func (c *crossings) pay(ctx context.Context, name string, pool *pgxpool.Pool, own []payment) error {
	other, err := c.Other(ctx, name)
	if err != nil {
		return err
	}
	defer other.Close()
	here, there := purses(pool), purses(other)
	o := saga.Options{
		Participants: map[string]saga.Participant{"here": here, "there": there}, Home: "here",
		Definitions: define(crossingsOf, func(p payment) saga.Plan { return p.crossing(here, there) }),
		LeaseTTL:    6 * time.Second, ReconcileEvery: 3 * time.Second, DoubtAge: 5 * time.Second, FenceEvery: 3 * time.Second, MaxPause: time.Second,
	}
	return serveSagas(ctx, pool, o, func(service *saga.Service) {
		c.makeAll(ctx, service, own)
		await(ctx, c.failed)
		c.makeAll(ctx, service, own)
	})
}

// makeAll makes payments until each has ended, as far as it can. As an operator does, it has the log adopt the coordinator where that was
// restored.
func (c *crossings) makeAll(ctx context.Context, service *saga.Service, own []payment) {
	limit := time.Now().Add(crossingLimit)
	for _, p := range own {
		for ctx.Err() == nil {
			asking, cancel := context.WithTimeout(ctx, 2*time.Second)
			s, err := service.Run(asking, saga.New{ID: p.id(), Name: p.name, Protocol: p.protocol})
			cancel()
			if err == nil && s.Status != saga.Pending {
				c.See("payment %s: %s %s", p.name, s.Status, s.Reason)
				c.ended <- struct{}{}
				break
			}
			if c.Life() == 2 {
				if slices.Contains(c.gone, p.id().String()) {
					break
				}
				if time.Now().After(limit) {
					c.Wrong(fmt.Errorf("payment %s does not end: %+v, %w", p.name, s, err))
					break
				}
				_, _ = service.Adopt(ctx, command.Command[struct{}]{}) // It is tried again.
				wait.For(ctx, 3*time.Second)
			}
			wait.For(ctx, 700*time.Millisecond)
		}
	}
}

// check wants each payment on both sides or on none, and on no side twice.
func (c *crossings) check() error {
	var wrong []error
	for process := range 2 {
		for _, p := range crossingsOf(process) {
			sql := fmt.Sprintf(`SELECT step FROM library.effects WHERE saga = '%s'`, p.id())
			here, err := c.Rows(false, sql)
			there, err2 := c.Rows(true, sql)
			ended, err3 := c.Rows(false, fmt.Sprintf(`SELECT status FROM library.sagas WHERE id = '%s'`, p.id()))
			if err := errors.Join(err, err2, err3); err != nil {
				return err
			}
			if len(here) > 1 || len(there) > 1 {
				wrong = append(wrong, fmt.Errorf("payment %s did %q here and %q there", p.name, here, there))
			}
			if completed := slices.Equal(ended, []string{string(saga.Completed)}); !slices.Contains(c.gone, p.id().String()) && (len(here) != len(there) || completed != (len(here) == 1)) {
				wrong = append(wrong, fmt.Errorf("payment %s, %q, did %q here and %q there", p.name, ended, here, there))
			}
		}
	}
	return errors.Join(wrong...)
}
