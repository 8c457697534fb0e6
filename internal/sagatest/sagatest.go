// Package sagatest is the conformance suite of sagas and two-phase transactions: it tries on PostgreSQL what packages saga and pgsaga promise
// there.
package sagatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// Harness is where sagas run.
type Harness struct {
	// Pools are those of the database that has the log, and of another one that takes part. They may be the same pool.
	Pools [2]*pgxpool.Pool
	// Schema has what [Install] makes, in both databases.
	Schema pgsaga.Schema
	// Prefix begins the names of all transactions that are prepared. It has small letters, digits, hyphens and colons.
	Prefix string
}

const (
	// patience bounds every wait. A slow database may need some of it, a bug all.
	patience = testwait.Patience
	// lease is after how long the saga of a process that has died is taken over.
	lease = time.Second
	// waitForRow is how long a branch waits for a row of another transaction.
	waitForRow = 500 * time.Millisecond
)

func tests() conformance.Suite[*suite] {
	of := conformance.NewTrial[*suite]
	return conformance.Suite[*suite]{
		of("EveryStepOnce", "S1", "processes die at each place of 45 sagas: every step is done once, or each that was done is undone once, in reverse order", (*suite).everyStepOnce),
		of("OneIDOneSaga", "S1", "eight requests at once, at two processes, for a saga of one id: there is one, whose step has one effect", (*suite).sameID),
		of("StepOnce", "S1", "eight executions of a step at once have one effect; a refusal or cancellation that came first stands", (*suite).stepOnce),
		of("OldRunWritesNothing", "S1", "a run whose saga was given to another process is told, and can't write the log", (*suite).lostLease),
		of("BothOrNeither", "T1", "processes die at each place of 40 two-phase transactions: both branches are committed or neither is, as the log says", (*suite).bothOrNeither),
		of("DecisionStands", "T1", "a process dies before its decision, after it, and between two commits: the next one commits each branch once", (*suite).decisionStands),
		of("BranchNobodySettles", "T1", "a prepared branch is left to its run while that has the lease, and rolled back when it has not", (*suite).parked),
	}
}

// Checks lists what the suite has, in order.
func Checks() []conformance.Check { return tests().Checks() }

// Run runs the suite. The checks may share a harness.
func Run[T conformance.Test[T]](t T, harness func(t T) Harness) {
	t.Helper()
	conformance.Run(t, tests(), func(t T, _ conformance.Check) *suite {
		t.Parallel()
		return newSuite(t, harness(t))
	})
}

// Install makes the tables of the log, of marks, and those in which steps have their effects.
func Install(ctx context.Context, conn *pgx.Conn, schema pgsaga.Schema) error {
	if err := schema.Install(ctx, conn); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, pgkit.In(string(schema), `CREATE TABLE @suite_effects (seq bigserial PRIMARY KEY, saga uuid NOT NULL, step text NOT NULL);
		CREATE TABLE @suite_stock (item text PRIMARY KEY, left_over bigint NOT NULL CHECK (left_over >= 0))`), pgx.QueryExecModeSimpleProtocol)
	return err
}

// suite is one check.
type suite struct {
	conformance.TB

	h           Harness
	tag         string // of the names in this check
	log         *pgsaga.Log
	parts       [2]*pgsaga.Database
	coordinator string

	mu   sync.Mutex
	rand *rand.Rand
}

func newSuite(t conformance.TB, h Harness) *suite {
	t.Helper()
	s := &suite{TB: t, h: h, tag: uuid.NewString()[:8], log: pgsaga.NewLog(h.Pools[0], pgsaga.LogOptions{Schema: h.Schema, Prefix: h.Prefix})}
	s.coordinator = h.Prefix + s.tag
	for i, pool := range h.Pools {
		s.parts[i] = pgsaga.NewDatabase(pool, pgsaga.Options{Schema: h.Schema, LockTimeout: waitForRow})
	}
	if h.Pools[0] == h.Pools[1] {
		s.parts[1] = s.parts[0]
	}
	s.rand, _ = testwait.Rand(t)
	return s
}

func (s *suite) rng(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *suite) ctx() context.Context {
	s.Helper()
	return testwait.Context(s, patience)
}

// named makes a name this check's own: others use the same log at the same time.
func (s *suite) named(name string) string { return name + "-" + s.tag }

// process is a service as another process would have it.
type process struct {
	*saga.Service

	die  context.CancelFunc // ends what keeps its leases, as its death would
	died chan struct{}      // closed when it has died at its place
}

func (s *suite) process(definition saga.Definition, hit func(saga.Place, int)) *process {
	s.Helper()
	o := saga.Options{
		Coordinator: s.coordinator, Definitions: []saga.Definition{definition}, Participants: map[string]saga.Participant{s.named("here"): s.parts[0]},
		LeaseTTL: lease, ReconcileEvery: lease / 10, MaxPause: 20 * time.Millisecond, Hit: hit,
	}
	if s.parts[1] != s.parts[0] {
		o.Participants[s.named("there")] = s.parts[1]
	}
	p := &process{Service: saga.NewService(s.log, o), died: make(chan struct{})}
	var reconciling context.Context
	reconciling, p.die = context.WithCancel(context.WithoutCancel(s.Context()))
	var stopped sync.WaitGroup
	stopped.Go(func() { p.Reconcile(reconciling) })
	s.Cleanup(func() {
		p.die()
		stopped.Wait()
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testwait.Check(s, p.Close(closing))
	})
	return p
}

// doomed is a process that dies when it comes to a place for the nth time, of branch or step i; -1: of any.
func (s *suite) doomed(definition saga.Definition, place saga.Place, i, nth int) *process {
	s.Helper()
	var p *process
	var left atomic.Int64
	left.Store(int64(nth))
	ready := make(chan struct{})
	p = s.process(definition, func(at saga.Place, of int) {
		if at != place || i >= 0 && of != i || left.Add(-1) != 0 {
			return
		}
		<-ready
		p.die() // Nobody keeps its leases any more; what else it runs goes on for a while, as after a partition.
		close(p.died)
		if at != saga.AfterIntent { // That one is the caller's goroutine.
			runtime.Goexit()
		}
	})
	close(ready)
	return p
}

// dead reports whether the process has died.
func (p *process) dead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

var errFlaky = errors.New("the network was away")

// effect is what steps do.
func (s *suite) effect(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error) {
	_, err := tx.Exec(ctx, pgkit.In(string(s.h.Schema), `INSERT INTO @suite_effects (saga, step) VALUES ($1, $2)`), c.Saga, c.Key())
	return saga.Outcome{Result: "made by " + c.Key()}, err
}

// effects are what the steps or branches of a saga have left in a database, in the order of happening.
func (s *suite) effects(pool *pgxpool.Pool, id uuid.UUID) []string {
	s.Helper()
	rows, err := pool.Query(s.Context(), pgkit.In(string(s.h.Schema), `SELECT step FROM @suite_effects WHERE saga = $1 ORDER BY seq`), id)
	testwait.Must(s, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	testwait.Must(s, err)
	return steps
}

// stock puts so much of an item on the shelf, in both databases, and returns its name.
func (s *suite) stock(item string, n int64) string {
	s.Helper()
	item = s.named(item)
	for _, pool := range s.h.Pools {
		testwait.Must(s, testwait.Err(pool.Exec(s.Context(), pgkit.In(string(s.h.Schema), `INSERT INTO @suite_stock VALUES ($1, $2) ON CONFLICT DO NOTHING`), item, n)))
	}
	return item
}

func (s *suite) stocked(pool *pgxpool.Pool, item string) (n int64) {
	s.Helper()
	testwait.Must(s, pool.QueryRow(s.Context(), pgkit.In(string(s.h.Schema), `SELECT left_over FROM @suite_stock WHERE item = $1`), item).Scan(&n))
	return n
}

// take is a step that takes from the shelf, or puts back.
func (s *suite) take(item string, n int64) pgsaga.Transaction {
	return func(ctx context.Context, tx pgx.Tx, _ saga.Call) (saga.Outcome, error) {
		_, err := tx.Exec(ctx, pgkit.In(string(s.h.Schema), `UPDATE @suite_stock SET left_over = left_over - $2 WHERE item = $1`), item, n)
		if pgkit.Code(err) == checkViolation {
			return saga.Refuse("sold out"), nil
		}
		return saga.Outcome{}, err
	}
}

// checkViolation is the SQLSTATE of a CHECK that does not hold.
const checkViolation = "23514"

// ended waits for a saga's end.
func (s *suite) ended(p *process, id uuid.UUID) *saga.Saga {
	s.Helper()
	ended, err := p.Wait(s.ctx(), id)
	if err != nil {
		s.Fatal(fmt.Errorf("wait for %s: %w", id, err))
	}
	return ended
}
