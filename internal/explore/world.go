//go:build unix

package explore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/saga"
)

const (
	// maxSteps ends a schedule that does not end by itself.
	maxSteps = 6000
	// closeLimit bounds each step of a server's end, by the scheduler's time.
	closeLimit = 15 * time.Second
	// tick is how long each step takes, by the scheduler's time. Timers that are set in different steps do not end at one moment then; the
	// runtime would draw lots.
	tick = time.Microsecond
)

var errEndless = errors.New("the schedule does not end")

// World is what one schedule runs: servers, clients and what they were told. The goroutine that runs the schedule is the
// scheduler.
type World struct {
	History *sim.History
	// Books are what clients were told that must be true at the end: all of the history, unless what they were told was lost, see [World.Lose].
	Books *sim.History
	// Database is the URL of the database, for the checks after a schedule.
	Database string

	gate     *gate
	strategy Strategy
	scenario Scenario
	trace    []Decision
	watched  bool                 // servers watch the database for lost commits
	apart    bool                 // its servers take no turns, so that they meet more often
	life     atomic.Int32         // of the database, see [World.Life]
	keptAll  bool                 // it came back with all that servers know to be confirmed
	faulty   bool                 // servers and processes may be killed and stopped
	stalled  map[string]time.Time // until when messages of servers and processes are stopped
	opened   int                  // commands that the scenario was opened and warmed up with

	mu        sync.Mutex
	failed    error    // of the clients
	seen      []string // what scenarios have noted
	servers   map[string]*instance
	all       []*instance // with those that were killed
	processes map[string]context.CancelCauseFunc
	handlers  map[string]http.Handler // of processes
	clients   sync.WaitGroup
	restarts  sync.WaitGroup
}

// instance is a server: the services and the edge, wired as in the program, without what it does in the background by itself. What
// a scenario wants of that it calls.
type instance struct {
	db        *postgres.DB
	ledger    *ledger.Service
	lottery   *lottery.Service
	auction   *auction.Service
	cross     *cross.Service
	multidraw *multidraw.Service
	locks     *postgres.Locks
	publish   *publish.Service
	edge      *server.Server
	handler   http.Handler
	watching  sync.WaitGroup
	stop      context.CancelFunc // ends the watch for lost commits
}

// names are the servers' names.
func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("s%d", i+1))
	}
	return all
}

// target is a server by its name. It implements [sim.Target].
type target string

// URL implements [sim.Target].
func (t target) URL() string { return "http://" + string(t) }

// Client returns a client that tries the servers in turn, the named one first.
func (w *World) Client(name string, servers ...string) *sim.Client {
	return w.clientOf(w.History, name, servers...)
}

func (w *World) clientOf(history *sim.History, name string, servers ...string) *sim.Client {
	// The first attempt goes to the second target.
	targets := make([]sim.Target, len(servers))
	for i, s := range servers {
		targets[(i+1)%len(servers)] = target(s)
	}
	return sim.NewClientOver(&transport{gate: w.gate, client: name}, history, sim.AdminKey, targets...)
}

// Go runs f as a client. The schedule ends when all have returned.
func (w *World) Go(f func() error) {
	mark := w.gate.who.next()
	w.clients.Go(func() {
		w.gate.who.mark(w.gate.who.here(), mark)
		w.Wrong(f())
	})
}

// Wrong notes that something does not hold, unless err is nil.
func (w *World) Wrong(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = errors.Join(w.failed, err)
}

// See notes what somebody was told. It is part of the schedule's history.
func (w *World) See(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, fmt.Sprintf(format, args...))
}

// Settle has a client send commands, one after the other, each until it has a final answer.
func (w *World) Settle(ctx context.Context, c *sim.Client, ops ...*sim.Op) {
	w.Go(func() error {
		for _, op := range ops {
			if _, err := c.Settle(ctx, op); err != nil {
				return err
			}
		}
		return nil
	})
}

// Lead has a server close the rounds of auctions, as the leader of a term does, until ctx ends.
func (w *World) Lead(ctx context.Context, name string, term int64) {
	w.mu.Lock()
	i := w.servers[name]
	w.mu.Unlock()
	closer := &auction.Closer{Reader: i.auction, Execute: i.auction.Execute, Broadcast: func(uuid.UUID, auction.Event) {}}
	w.Go(func() error { closer.Lead(ctx, term); return nil })
}

// Count counts the commands with a final answer of a status, by how their keys begin. What the scenario was opened with does not
// count.
func (w *World) Count(keys string, status int) (n int) {
	for _, op := range w.History.Ops()[w.opened:] {
		if final, ok := op.Final(); ok && final.Status == status && strings.HasPrefix(op.Key, keys) {
			n++
		}
	}
	return n
}

// adminKeys knows the key of the clients.
type adminKeys struct{ auth.KeyStore }

// KeyByHash implements [auth.KeyStore].
func (k adminKeys) KeyByHash(ctx context.Context, hash [32]byte) (auth.Key, error) {
	if hash == sha256.Sum256([]byte(sim.AdminKey)) {
		return auth.Key{ID: "explore", Role: auth.RoleAdmin, Name: "explore", Hash: hash, CreatedAt: time.Now()}, nil
	}
	return k.KeyStore.KeyByHash(ctx, hash)
}

// observer notes what must not be, whatever happens to messages. It implements [postgres.Observer].
type observer struct{ *World }

// Fallback implements [speculation.Observer].
func (o observer) Fallback(name, reason string) {
	if reason == "encode" {
		o.Wrong(fmt.Errorf("a speculative transaction %s could not be encoded", name))
	}
}

// Transaction implements [pgkit.Observer].
func (observer) Transaction(string, int, time.Duration, string) {}

// Retry implements [pgkit.Observer].
func (observer) Retry(string, string) {}

// Blocked implements [postgres.Observer].
func (observer) Blocked(int, int)  {}
func (observer) BlockedTables(int) {}

// MetOldPrimary implements [postgres.Observer].
func (observer) MetOldPrimary(bool) {}

// open starts a server.
func (w *World) open(ctx context.Context, name string) (err error) {
	o := postgres.Options{URL: address, MaxConns: poolSize, ReadConns: poolSize, Dial: w.gate.dial(name), Observer: observer{w}}
	o.NoTurns = w.apart
	if w.watched {
		o.Watch = &postgres.Watch{Version: "explore", KeysKept: 24 * time.Hour}
	}
	db, err := postgres.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			db.Close()
		}
	}()
	i := &instance{
		db: db, ledger: ledger.NewService(postgres.NewLedger(db), groupcommit.Options{}), lottery: lottery.NewService(postgres.NewLottery(db), lottery.Options{Lanes: groupcommit.Options{}}),
		auction: auction.NewService(postgres.NewAuctions(db), auction.Options{Lanes: groupcommit.Options{}}),
	}
	log := postgres.NewSagas(db)
	coordinator, err := log.Coordinator(ctx)
	if err != nil {
		return err
	}
	i.cross = cross.NewService(log, map[string]cross.Ledger{cross.Local: postgres.NewCrossLedger(db)}, saga.Options{Coordinator: coordinator})
	i.multidraw = multidraw.NewService(postgres.NewMultidraws(db), multidraw.Options{})
	i.publish = publish.NewService(postgres.NewPublications(db), publish.Options{})
	registry := prometheus.NewRegistry()
	i.locks = postgres.NewLocks(db, lockprom.New(registry))
	keys := postgres.NewAPIKeys(db)
	authenticator, err := auth.New(auth.Options{Store: adminKeys{keys}}) //nolint:contextcheck // It makes one of its own, which Close ends.
	if err != nil {
		return err
	}
	i.edge, err = server.New(server.Options{
		Ledger: i.ledger, Lottery: i.lottery, Auction: i.auction, Cross: i.cross, Publish: i.publish, Multidraw: i.multidraw, Locks: i.locks, Keys: keys, Auth: authenticator, Ready: db.Ready, Acknowledge: db.Acknowledge,
		Operator: postgres.NewOperator(db), Log: postgres.NewLogReader(db), Registry: registry, Version: "explore",
	})
	if err != nil {
		return err
	}
	i.handler = i.edge.Handler()
	db.OnLostHistory(i.edge.Forget)
	watching, stop := context.WithCancel(ctx)
	if i.stop = stop; w.watched {
		i.watching.Go(func() { db.WatchHistory(watching) })
	}
	w.mu.Lock()
	w.servers[name], w.all = i, append(w.all, i)
	w.mu.Unlock()
	return nil
}

func (i *instance) close(ctx context.Context) error {
	var failures []error
	i.stop()
	i.watching.Wait()
	for _, step := range []func(context.Context) error{i.edge.Close, i.locks.Close, i.cross.Close, i.multidraw.Close, i.publish.Close, i.auction.Close, i.lottery.Close, i.ledger.Close, i.db.Shutdown} {
		ctx, cancel := context.WithTimeout(ctx, closeLimit)
		failures = append(failures, step(ctx))
		cancel()
	}
	return errors.Join(failures...)
}

// handler is a server's, for the gate.
func (w *World) handler(name string) http.Handler {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.servers[name]; i != nil {
		return i.handler
	}
	return w.handlers[name]
}

// steps runs the schedule until done is closed.
func (w *World) steps(ctx context.Context, done <-chan struct{}) error {
	for {
		synctest.Wait()
		time.Sleep(tick)
		synctest.Wait()
		select {
		case <-done:
			return nil
		default:
		}
		if w.gate.step++; w.gate.step > maxSteps {
			return errEndless
		}
		for moved := true; moved; synctest.Wait() {
			var err error
			if moved, err = w.gate.prepare(); err != nil {
				return err
			}
		}
		if err := w.gate.hear(); err != nil {
			return err
		}
		select { // What was let through without a choice may have been the last.
		case <-done:
			return nil
		default:
		}
		options := slices.Concat(w.parting(w.moving(w.gate.options())), w.faults(ctx), w.passing())
		i, mode := w.strategy.Choose(w.gate.step, options)
		w.trace = append(w.trace, Decision{options[i].Label, mode})
		if mode == Part {
			w.stalled[options[i].process], mode = time.Now().Add(w.scenario.Outage), Lose
		}
		if err := options[i].run(mode); err != nil {
			return fmt.Errorf("step %d, %s: %w", w.gate.step, options[i].Label, err)
		}
	}
}

// passing are the options that let time pass: until something happens, and no longer than the label says.
func (w *World) passing() (all []Option) {
	for _, d := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second} {
		all = append(all, Option{Label: fmt.Sprintf("time %04dms", d.Milliseconds()), Thread: timeThread, run: func(Mode) error { w.pass(d); return nil }})
	}
	return all
}

func (w *World) pass(d time.Duration) {
	select {
	case <-w.gate.arrived:
	default:
	}
	for _, next := range []time.Time{w.gate.timeouts(), w.stalls()} {
		if !next.IsZero() {
			d = min(d, max(time.Until(next), 0))
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.gate.arrived:
	case <-timer.C:
	}
}

// await runs f while the schedule goes on in order.
func (w *World) await(ctx context.Context, f func() error) error {
	strategy := w.strategy
	w.strategy = inOrder{}
	defer func() { w.strategy = strategy }()
	return w.during(ctx, f)
}

// during runs the schedule until f returns.
func (w *World) during(ctx context.Context, f func() error) error {
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = f()
	}()
	if failed := w.steps(ctx, done); failed != nil {
		return failed
	}
	return err
}
