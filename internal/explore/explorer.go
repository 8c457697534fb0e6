//go:build unix

package explore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/sim"
)

// begin is when a schedule begins, after the moment at which each bubble's time does. What it finds there is older.
const begin = time.Hour

// checkLimit bounds the checks after a schedule. It is the machine's time, and so it is long.
const checkLimit = 10 * time.Minute

// Scenario is what servers and clients do while their messages are put in an order.
type Scenario struct {
	Servers int
	// Kills says that servers and processes may be killed.
	Kills bool
	// Stall is for how long the messages of a server or process may be stopped; 0: they are not.
	Stall time.Duration
	// Outage is for how long a server hears nothing from anybody from the loss of an answer on, where that is what happens ([Part]); 0: it does not.
	Outage time.Duration
	// Watched says that servers watch the database for lost commits, in schedules with an odd seed.
	Watched bool
	// Unbooked says that the clients' own books do not know all that they do: bids.
	Unbooked bool
	// Install makes tables in the schema [library] beside the servers' own, and triggers. It is called once, and may be nil.
	Install func(ctx context.Context, db *pgx.Conn) error
	// Other makes tables in the same schema of another database, which processes reach too ([World.Other]). It is called once; nil: there is
	// no other database.
	Other func(ctx context.Context, db *pgx.Conn) error
	// Open makes what each schedule begins with. It is called once, and may be nil.
	Open func(ctx context.Context, c *sim.Client) error
	// Warm is what clients have each server do, in order and without faults, before each schedule: so servers remember what they have
	// done. It may be nil.
	Warm func(ctx context.Context, w *World) error
	// Play begins what the clients do, by [World.Go].
	Play func(ctx context.Context, w *World)
	// Check looks at what came of it, beside what is checked of each schedule; it may be nil.
	Check func(ctx context.Context, w *World, db *pgx.Conn) error
}

// Explorer runs schedules of a scenario, one after the other on one database.
type Explorer struct {
	t        *testing.T
	scenario Scenario
	db       *database
	other    *database // may be nil
	opened   *sim.History
	chance   *chance
	check    *pgx.Conn // nil while the scenario is opened
	length   int       // of the schedule without faults
}

// Result is how a schedule ended.
type Result struct {
	Trace []Decision
	Err   error // what was wrong; nil: nothing
	// Seen is what clients were told, in a form that is the same each time.
	Seen []string
}

// History is all of a schedule in words: what happened, what clients were told, and what was wrong. The same seed gives the same bytes. Ids
// are left out: they say how many were made before, too.
func (r Result) History() string {
	return fmt.Sprintf("%s%s\n%s", Tell(r.Trace), strings.Join(r.Seen, "\n"), ids.ReplaceAllString(fmt.Sprint(r.Err), "…"))
}

func migrate(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, url)
	return err
}

// NewExplorer prepares a scenario.
func NewExplorer(t *testing.T, s Scenario) *Explorer {
	t.Helper()
	x := &Explorer{t: t, scenario: s, db: openDatabase(t, migrate, s.Install), opened: sim.NewHistory()}
	var ok bool
	if x.chance, ok = rand.Reader.(*chance); !ok {
		t.Fatal("the program takes its chances from elsewhere")
	}
	if s.Other != nil {
		x.other = openDatabase(t, func(context.Context, string) error { return nil }, s.Other)
	}
	if s.Open != nil {
		opening := s
		opening.Warm, opening.Play = nil, func(ctx context.Context, w *World) {
			w.Go(func() error { return s.Open(ctx, w.Client("opening", names(1)...)) })
		}
		if _, err := x.schedule(0, inOrder{}, opening, x.opened); err != nil {
			t.Fatalf("open the scenario: %v", err)
		}
	}
	for _, db := range x.databases() {
		if err := db.keep(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if x.check, err = pgx.Connect(t.Context(), x.db.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.check.Close(context.Background()) })
	r := x.Run(0, inOrder{})
	if r.Err != nil {
		t.Fatalf("the schedule without faults: %v\n%s", r.Err, Tell(r.Trace))
	}
	x.length = len(r.Trace)
	return x
}

func (x *Explorer) databases() []*database {
	if x.other == nil {
		return []*database{x.db}
	}
	return []*database{x.db, x.other}
}

// Seed runs the schedule of a seed.
func (x *Explorer) Seed(seed uint64) Result { return x.Run(seed, newSeeded(seed, x.length)) }

// Run runs a schedule and checks what came of it. Ids and other random choices depend on the seed.
func (x *Explorer) Run(seed uint64, s Strategy) Result {
	for _, db := range x.databases() {
		if err := db.restore(); err != nil {
			x.t.Fatal(err)
		}
	}
	history := x.opened.Clone()
	w, err := x.schedule(seed, s, x.scenario, history)
	r := Result{Trace: w.trace, Err: err}
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	told := []*sim.History{history}
	if w.Books != nil && w.Books != history {
		told = append(told, w.Books)
	}
	if err == nil {
		r.Err = checkOutcomes(history)
		for _, h := range told {
			r.Err = errors.Join(r.Err, h.CheckReplies())
		}
		if x.scenario.Servers > 0 {
			r.Err = errors.Join(r.Err, x.audit(ctx))
		}
		if !x.scenario.Unbooked {
			r.Err = errors.Join(r.Err, w.Books.Check(ctx, x.check))
		}
		if x.scenario.Check != nil {
			r.Err = errors.Join(r.Err, x.scenario.Check(ctx, w, x.check))
		}
	}
	for _, h := range told {
		for _, op := range h.Ops()[len(x.opened.Ops()):] {
			for _, a := range op.Answers() { // Of two at one moment, either may be noted first.
				line := fmt.Sprintf("%s: %d %s", op.Key, a.Status, a.Code())
				if a.Replayed {
					line += "(replayed)"
				}
				r.Seen = append(r.Seen, line)
			}
		}
	}
	r.Seen = append(r.Seen, w.seen...)
	slices.Sort(r.Seen) // Two that learn of something together may do so in any order.
	return r
}

// audit audits what a schedule had to do with: the groups of services that have nothing are left out.
func (x *Explorer) audit(ctx context.Context) error {
	full, err := x.db.full()
	if err != nil {
		return err
	}
	groups := []audit.Guarantee{audit.Money, audit.Keys}
	for table, group := range map[string]audit.Guarantee{
		"campaigns": audit.Lottery, "auctions": audit.Auctions, "publications": audit.Publications, "multidraws": audit.Multidraws,
	} {
		if slices.Contains(full, table) {
			groups = append(groups, group)
		}
	}
	return audit.Audit(ctx, x.check, groups...)
}

// checkOutcomes looks for commands whose answers all say that nothing was applied, until one turns out to be stored.
func checkOutcomes(h *sim.History) error {
	var wrong []error
	for _, op := range h.Ops() {
		final, _ := op.Final()
		applied := !final.Stored() || !final.Replayed
		for _, a := range op.Answers() {
			p := a.Problem()
			none := p.Outcome == client.NotApplied || p.Code == "unavailable" // Of the latter the edge knows no earlier attempt; we know all.
			applied = applied || a.Err != nil || a.Stored() && !a.Replayed || !a.Final() && !none
		}
		if !applied {
			wrong = append(wrong, fmt.Errorf("%s: each attempt was told that nothing was applied: %v", op, op.Answers()))
		}
	}
	return errors.Join(wrong...)
}

// schedule runs a schedule in a bubble of its own.
func (x *Explorer) schedule(seed uint64, s Strategy, scenario Scenario, history *sim.History) (w *World, err error) {
	cryptotest.SetGlobalRandom(x.t, seed) // For what doesn't ask crypto/rand.Reader, which it changes.
	rand.Reader = x.chance
	synctest.Test(x.t, func(t *testing.T) {
		if x.check != nil {
			time.Sleep(begin)
		}
		g := newGate(x.db, x.other)
		x.chance.begin(seed, g.who)
		w = &World{
			History: history, Database: x.db.url, gate: g, strategy: s, scenario: scenario, stalled: map[string]time.Time{},
			watched: scenario.Watched && seed%2 == 1, apart: seed&2 == 0, servers: map[string]*instance{}, processes: map[string]context.CancelCauseFunc{}, handlers: map[string]http.Handler{},
		}
		g.serve = w.handler
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err = w.await(ctx, func() error {
			for _, name := range names(scenario.Servers) {
				if err := w.open(ctx, name); err != nil {
					return err
				}
			}
			if scenario.Warm != nil {
				return scenario.Warm(ctx, w)
			}
			return nil
		})
		w.trace, w.opened, w.Books = nil, len(history.Ops()), history
		g.begin()
		if err == nil {
			w.faulty = true
			scenario.Play(ctx, w)
			err = w.during(ctx, func() error { w.clients.Wait(); return w.failed })
		}
		trace := w.trace
		w.faulty = false
		clear(w.stalled)
		g.begin()
		cancel()
		ended := w.await(ctx, func() error {
			w.clients.Wait()
			w.restarts.Wait()
			var failures []error
			for _, i := range w.all {
				failures = append(failures, i.close(context.WithoutCancel(ctx)))
			}
			return errors.Join(failures...)
		})
		err = errors.Join(err, ended)
		time.Sleep(begin)                           // What is still at work in killed processes gives up.
		for found := true; found; synctest.Wait() { // A last connection may ask for the end of another one's statement.
			var finished error
			found, finished = g.finish(x.databases()...)
			err = errors.Join(err, finished)
		}
		w.trace = trace
	})
	return w, err
}

// Again runs the schedule of a seed, whose result is known, some times more. It returns how often that failed, and how often the history was the same.
func (x *Explorer) Again(seed uint64, first Result, times int) (failed, same int) {
	history := first.History()
	for range times {
		r := x.Seed(seed)
		if r.Err != nil {
			failed++
		}
		if r.History() == history {
			same++
		}
	}
	return failed, same
}

// Shrink looks for a short trace that fails too, with at most tries runs.
func (x *Explorer) Shrink(seed uint64, trace []Decision, tries int) []Decision {
	return shrink(trace, tries, func(shorter []Decision) bool {
		return x.Run(seed, &replayed{shorter}).Err != nil
	})
}

// Tell lists decisions, one a line.
func Tell(trace []Decision) string {
	var text strings.Builder
	for i, d := range trace {
		fmt.Fprintf(&text, "%4d  %s\n", i+1, d)
	}
	return text.String()
}
