package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/redisclient"
)

// Times of the protocol. Holders that die are replaced within TTL + PollInterval and a round trip; one second more where
// the next in line has died, too. Package lock promises TTL + 2 s. HandOver and the time for which a waiting request
// counts as alive, 1.2 s, are in the scripts, too.
const (
	// PollInterval is how often a process looks after its waiting requests.
	PollInterval = 400 * time.Millisecond
	// BlindPollInterval is how often it does while notifications do not arrive.
	BlindPollInterval = 50 * time.Millisecond
	// HandOver is how long a lock that was handed over waits for its waiter to take it.
	HandOver = time.Second
	// cleanupTimeout bounds what is done for callers who have gone.
	cleanupTimeout = 5 * time.Second
)

// maxWaiters bounds the waiting requests of one process.
const maxWaiters = 8192

// DefaultNamespace is where locks are that have no reason for another place.
const DefaultNamespace = "fairlead:locks"

// maxHolders bounds a snapshot.
const maxHolders = 10_000

// Options configure [New]. The zero value is fine.
type Options struct {
	// Namespace sets locks apart from others on the same server, and decides where in a cluster they are: all locks of
	// one namespace are in one slot. It must not have braces. "" means [DefaultNamespace].
	Namespace string
	Logger    *slog.Logger // may be nil
	// Observer may be nil, and a [lock.FallbackObserver] as well. It does not see leases expire that nobody was in line for, and sees the hand-overs to requests of this
	// process.
	Observer lock.StoreObserver
}

// Backend keeps locks in Redis. It is safe for concurrent use.
type Backend struct {
	client     redisclient.Client
	scripts    *scripts
	space      string   // what all names begin with
	state      []string // the one key that the scripts are told: the stream of tokens
	process    string   // names this backend to the others
	logger     *slog.Logger
	observer   lock.StoreObserver
	maxWaiters int
	// idleFor, localFor and turnFor are the constants of group.go.
	idleFor, localFor, turnFor time.Duration

	mu       sync.Mutex
	waiters  map[string]*waiter // those that ask, or are in line
	groups   map[string]*group  // by key
	behind   int                // how many wait in groups
	forgetAt int                // when groups that nobody needs are looked for
	watched  bool               // the background has been started

	base    context.Context //nolint:containedctx // The life of the backend, and of its own goroutines.
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	inspect chan struct{} // has a value when the waiters are to be looked after at once
	hearing atomic.Bool   // notifications arrive
}

var (
	_ lock.Backend   = (*Backend)(nil)
	_ lock.Inspector = (*Backend)(nil)
)

// New returns a backend on the server or cluster of a client, which an adapter of package redisclient wraps. It makes a connection of its own for notifications when
// somebody waits. The caller closes the backend, and then the client. It returns [lock.ErrInvalid] for a namespace with
// braces.
func New(client redisclient.Client, o Options) (*Backend, error) {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	if strings.ContainsAny(o.Namespace, "{}") {
		return nil, fmt.Errorf("redislock: %w: the namespace must not have braces", lock.ErrInvalid)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		client: client, scripts: newScripts(source), space: "{" + o.Namespace + "}", state: []string{"{" + o.Namespace + "}:tokens"}, process: uuid.NewString(), logger: o.Logger,
		observer: o.Observer, maxWaiters: maxWaiters,
		idleFor: idleFor, localFor: localFor, turnFor: turnFor, waiters: map[string]*waiter{},
		groups: map[string]*group{}, forgetAt: manyGroups, inspect: make(chan struct{}, 1),
	}
	b.base, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// Close answers those that wait with [lock.ErrClosed] and ends what runs in the background. Locks stay as they are, and
// can be renewed and released as long as the client is open.
func (b *Backend) Close() {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.tasks.Wait()
}

// Acquire implements [lock.Backend]. The request's ID must not have a slash. The grant's ID is made of it and of the first key.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	r, err := r.Clean()
	if err == nil && strings.Contains(r.ID, "/") {
		err = fmt.Errorf("%w: the ID must not have a slash", lock.ErrInvalid)
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("redislock: acquire: %w", err)
	}
	w := &waiter{backend: b, request: r, signal: make(chan struct{}, 1), deadline: time.Now().Add(r.Wait)}
	return w.acquire(ctx)
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	request, key, ok := place(id)
	if !ok {
		return lock.Grant{}, lock.ErrLost
	}
	var a answer
	if err := persist(ctx, func(bool) (err error) {
		a, err = b.ask(ctx, b.scripts.renew, id, request, key, strconv.FormatInt(ttl.Microseconds(), 10))
		return err
	}); err != nil {
		return lock.Grant{}, fmt.Errorf("redislock: renew: %w", err)
	}
	if a.status != statusGranted {
		return lock.Grant{}, lock.ErrLost
	}
	return a.grant, nil
}

// Snapshot implements [lock.Inspector]. It shows 10,000 holders at most, and goes through the names of all that is on the
// server for them, a thousand at a time. Who waits for whom is shown at one instant; the holders are read before that, so that
// one who came or went meanwhile may be shown or not.
func (b *Backend) Snapshot(ctx context.Context) (lock.Snapshot, error) {
	holders, err := b.holders(ctx)
	if err != nil {
		return lock.Snapshot{}, fmt.Errorf("redislock: snapshot: %w", err)
	}
	owners, waiters, err := b.look(ctx)
	if err != nil {
		return lock.Snapshot{}, fmt.Errorf("redislock: snapshot: %w", err)
	}
	slices.SortStableFunc(holders, func(x, y lock.Grant) int { return x.GrantedAt.Compare(y.GrantedAt) })
	return lock.Snapshot{Holders: holders, Waiters: waiters, Edges: lock.NewGraph(owners, waiters).Edges()}, nil
}

// Find implements [lock.Inspector].
func (b *Backend) Find(ctx context.Context, key string) (lock.Grant, bool, error) {
	p := b.parts(ctx, b.scripts.find, 1, key)
	holders := p.holders(0)
	if p.err != nil {
		return lock.Grant{}, false, fmt.Errorf("redislock: find: %w", p.err)
	}
	if len(holders) == 0 {
		return lock.Grant{}, false, nil
	}
	return holders[0], true, nil
}

// resolve breaks the deadlocks that there are. The script that marks a victim looks again whether it still waits for
// itself, so that several processes which find one cycle make one victim.
func (b *Backend) resolve(ctx context.Context) error {
	owners, waiters, err := b.look(ctx)
	if err != nil {
		return err
	}
	for _, d := range lock.NewGraph(owners, waiters).Deadlocks() {
		a, err := b.ask(ctx, b.scripts.mark, d.Victim, b.process, d.Victim, strings.Join(d.Cycle, "\n"))
		if err != nil {
			return err
		}
		if a.status == statusVictim && b.observer != nil {
			b.observer.Victim()
		}
	}
	return nil
}

// overtakes tells which requests a request may be granted before, if there are any: those that wait for its owner.
func (b *Backend) overtakes(ctx context.Context, r lock.Request) ([]string, error) {
	owners, waiters, err := b.look(ctx)
	if err != nil {
		return nil, err
	}
	mine := func(x lock.Waiter) bool { return x.ID == r.ID }
	me := slices.IndexFunc(waiters, mine)
	if me < 0 {
		me = len(waiters)
		waiters = append(waiters, lock.Waiter{ID: r.ID, Owner: r.Owner, Keys: r.Keys, Ticket: math.MaxInt64})
	}
	if !slices.ContainsFunc(lock.NewGraph(owners, waiters).Grantable(), mine) {
		return nil, nil
	}
	var before []string
	for _, x := range waiters[:me] {
		if slices.ContainsFunc(x.Keys, func(k string) bool { return slices.Contains(r.Keys, k) }) {
			before = append(before, x.ID)
		}
	}
	return before, nil
}

// Reasons of fallbacks, for a [lock.FallbackObserver].
const (
	// FallbackBlind is a look after waiting requests while the subscription was down.
	FallbackBlind = "blind"
	// FallbackFound is a grant that was found by looking, before any notification told of it.
	FallbackFound = "found"
	// FallbackPassing is a lock that could not be passed on within the process, as the server did not answer.
	FallbackPassing = "passing"
)

func (b *Backend) fallback(reason string) {
	if o, ok := b.observer.(lock.FallbackObserver); ok {
		o.Fallback(reason)
	}
}

func (b *Backend) expired(n int64) {
	if n > 0 && b.observer != nil {
		b.observer.Expired(int(n))
	}
}

// register makes a request known to those who wake it, and reports whether it is to wait behind others of its process.
func (b *Backend) register(w *waiter) (behind bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.base.Err() != nil:
		return false, lock.ErrClosed
	case w.request.Wait == 0:
		return false, nil
	case len(b.waiters)+b.behind >= b.maxWaiters:
		return false, lock.ErrTooManyWaiters
	case w.simple() && b.join(w):
		return true, nil
	}
	b.waiters[w.request.ID] = w
	return false, nil
}

// start starts the background when it is first needed.
func (b *Backend) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.watched && b.base.Err() == nil {
		b.watched = true
		b.tasks.Go(b.watch)
		b.tasks.Go(b.listen)
	}
}

// wake makes requests of this process look at their rows, since they were told to, or found to be worth it.
func (b *Backend) wake(ids []string, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if w, ok := b.waiters[id]; ok {
			if !found || len(w.signal) == 0 {
				w.found.Store(found)
			}
			wait.Signal(w.signal)
		}
	}
}

// ids lists the requests of this process.
func (b *Backend) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.waiters))
}

// note says that something failed which is tried again.
func (b *Backend) note(ctx context.Context, what string, err error) {
	if err != nil && b.base.Err() == nil && !errors.Is(err, context.Canceled) {
		b.logger.WarnContext(ctx, "looking after locks failed, and is tried again", "at", what, "error", err)
	}
}
