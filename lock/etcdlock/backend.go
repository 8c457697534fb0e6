package etcdlock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairlead-dev/fairlead/lock"
)

// Times of the protocol.
const (
	// PollInterval is how often a process looks after its waiting requests when it hears of no change.
	PollInterval = 400 * time.Millisecond
	// sessionSeconds is the lease of a process's waiting requests, the shortest that etcd has. Servers whose election timeout
	// is longer make it as long as they need.
	sessionSeconds = 1
	// sessionInterval is how often that lease is renewed.
	sessionInterval = 250 * time.Millisecond
	// cleanupTimeout bounds what is done for callers who have gone.
	cleanupTimeout = 5 * time.Second
	// callTimeout bounds a request that the backend makes in the background.
	callTimeout = 5 * time.Second
	// retryPause is the time between tries of what failed for a passing reason.
	retryPause = 50 * time.Millisecond
	// forgetAfter is how long a process remembers locks that it let expire, and sweepEvery at how many it looks for them.
	forgetAfter = time.Minute
	sweepEvery  = 256
)

// maxWaiters bounds the waiting requests of one process.
const maxWaiters = 1024

// DefaultPrefix is where locks are that have no reason for another place.
const DefaultPrefix = "fairlead/locks/"

// maxHolders bounds a snapshot: the end of each lease is asked for by itself.
const maxHolders = 200

// Options configure [New]. The zero value is fine.
type Options struct {
	// Prefix sets locks apart from others, and from everything else in etcd; "" means [DefaultPrefix].
	Prefix string
	Logger *slog.Logger // may be nil
}

// record is what is kept of a grant and of a request that waits.
type record struct {
	Owner  string        `json:"owner"`
	Keys   []string      `json:"keys"`
	TTL    time.Duration `json:"ttl_ns"`
	Hold   time.Duration `json:"hold_ns,omitempty"`
	AtUnix int64         `json:"at_unix_us"` // by the clock of the process that wrote it: for people, nothing is decided by it
}

// newRecord is the record of a request.
func (b *Backend) newRecord(r lock.Request) record {
	return record{Owner: r.Owner, Keys: r.Keys, TTL: r.TTL, Hold: r.MaxHold, AtUnix: b.wall().UnixMicro()}
}

func (r *record) at() time.Time { return time.UnixMicro(r.AtUnix).UTC() }

// grant is the lock that was granted at a revision, which is the token of all keys.
func (r *record) grant(id string, revision int64) lock.Grant {
	g := lock.Grant{ID: id, Owner: r.Owner, Tokens: make(map[string]int64, len(r.Keys)), TTL: r.TTL, GrantedAt: r.at()}
	for _, k := range r.Keys {
		g.Tokens[k] = revision
	}
	return g
}

// tenure is what this process knows of a lock that it was granted.
type tenure struct {
	start    time.Time     // before the lease's last renewal; zero: not known here
	ttl      time.Duration // from then on
	end      time.Time     // of the maximum hold; zero: none, or not known here
	lease    clientv3.LeaseID
	revision int64
	record   record
}

func (t *tenure) over(now time.Time) bool {
	return !t.start.IsZero() && !now.Before(t.start.Add(t.ttl)) || !t.end.IsZero() && !now.Before(t.end)
}

// Backend keeps locks in etcd. It is safe for concurrent use.
type Backend struct {
	client     *clientv3.Client
	prefix     string
	logger     *slog.Logger
	maxWaiters int
	wall       func() time.Time // the clock of day, which nothing depends on

	mu      sync.Mutex
	waiters map[string]*waiter
	strays  map[string]time.Time          // requests that may be in line for nobody, and how long more of them may come
	orphans map[clientv3.LeaseID]struct{} // leases that are to be revoked
	tenures map[string]*tenure
	session clientv3.LeaseID // of the waiting requests; 0: none
	watched bool

	base    context.Context //nolint:containedctx // The life of the backend, and of its own goroutines.
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	inspect chan struct{} // has a value when the waiters are to be looked after at once
}

var (
	_ lock.Backend   = (*Backend)(nil)
	_ lock.Inspector = (*Backend)(nil)
)

// New returns a backend on the client's cluster. The caller closes the backend, and then the client.
func New(client *clientv3.Client, o Options) *Backend {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		client: client, prefix: cmp.Or(o.Prefix, DefaultPrefix), logger: o.Logger, maxWaiters: maxWaiters, wall: time.Now,
		waiters: map[string]*waiter{}, strays: map[string]time.Time{}, orphans: map[clientv3.LeaseID]struct{}{}, tenures: map[string]*tenure{}, inspect: make(chan struct{}, 1),
	}
	b.base, b.stop = context.WithCancel(context.Background())
	return b
}

// Names of what is kept.
func (b *Backend) grantKey(id string) string  { return b.prefix + "grant/" + id }
func (b *Backend) waiterKey(id string) string { return b.prefix + "wait/" + id }
func (b *Backend) holderKey(k string) string  { return b.prefix + "key/" + k }
func (b *Backend) arbiterKey() string         { return b.prefix + "arbiter" }

// Close answers those that wait with [lock.ErrClosed] and ends what runs in the background. Locks stay as they are, and
// can be renewed and released as long as the client is open.
func (b *Backend) Close() {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.tasks.Wait()
}

// seconds is a lease that is no shorter than d.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// give writes a grant if all of its keys are free, and the conditions hold. It returns nil when they do not.
func (b *Backend) give(ctx context.Context, r lock.Request, also ...clientv3.Cmp) (*lock.Grant, error) {
	start := time.Now()
	t := &tenure{start: start, ttl: r.TTL, record: b.newRecord(r)}
	if r.MaxHold > 0 {
		t.end = start.Add(r.MaxHold)
	}
	value, err := json.Marshal(t.record)
	if err != nil {
		return nil, err
	}
	lease, err := b.client.Grant(ctx, seconds(r.TTL))
	if err != nil {
		return nil, err
	}
	t.lease = lease.ID
	ops := []clientv3.Op{
		clientv3.OpDelete(b.waiterKey(r.ID)), clientv3.OpPut(b.grantKey(r.ID), string(value), clientv3.WithLease(lease.ID)),
	}
	for _, k := range r.Keys {
		also = append(also, absent(b.holderKey(k)))
		ops = append(ops, clientv3.OpPut(b.holderKey(k), r.ID, clientv3.WithLease(lease.ID)))
	}
	answer, err := b.client.Txn(ctx).If(also...).Then(ops...).Commit()
	if err != nil || !answer.Succeeded {
		b.revoke(ctx, lease.ID) // What the transaction may have done ends with its lease.
		return nil, err
	}
	t.revision = answer.Header.Revision
	b.mu.Lock()
	if len(b.tenures)%sweepEvery == 0 {
		maps.DeleteFunc(b.tenures, func(_ string, t *tenure) bool { return time.Since(t.start.Add(t.ttl)) > forgetAfter })
	}
	b.tenures[r.ID] = t
	b.mu.Unlock()
	g := t.grant(r.ID)
	return &g, nil
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

func (t *tenure) grant(id string) lock.Grant {
	g := t.record.grant(id, t.revision)
	g.TTL, g.Start, g.ExpiresAt = t.ttl, t.start, t.start.Add(t.ttl).UTC()
	return g
}

// revoke ends a lease and what is written under it. Where etcd can't be reached, the background tries again, until it expires.
func (b *Backend) revoke(ctx context.Context, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if _, err := b.client.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		b.logger.DebugContext(ctx, "revoking a lease failed, and is tried again", "error", err)
		b.orphan(id)
	}
}

// tenureOf finds a lock. It reads one that was granted to another process, or that another process may have changed.
func (b *Backend) tenureOf(ctx context.Context, id string) (*tenure, error) {
	t := new(tenure)
	b.mu.Lock()
	if known, ok := b.tenures[id]; ok {
		*t = *known
	}
	b.mu.Unlock()
	if t.lease != clientv3.NoLease {
		return t, nil
	}
	return t, b.read(ctx, id, t)
}

// read reads a lock as etcd has it. It returns [lock.ErrLost] when there is none.
func (b *Backend) read(ctx context.Context, id string, t *tenure) error {
	answer, err := b.client.Get(ctx, b.grantKey(id))
	switch {
	case err != nil:
		return err
	case len(answer.Kvs) == 0:
		return lock.ErrLost
	}
	kv := answer.Kvs[0]
	if err := json.Unmarshal(kv.Value, &t.record); err != nil {
		return err
	}
	t.lease, t.revision, t.ttl = clientv3.LeaseID(kv.Lease), kv.CreateRevision, t.record.TTL
	return nil
}

// doubt makes the next call read which lease a lock is under.
func (b *Backend) doubt(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.tenures[id]; ok {
		t.lease = clientv3.NoLease
	}
}

func (b *Backend) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.tenures, id)
}

// Renew implements [lock.Backend]. A lease that is to last for another time than before is replaced by another. A maximum
// hold is known to the process that was granted the lock, and not to others that renew it.
func (b *Backend) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	g, err := b.renew(ctx, id, ttl)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, errReplaced) {
		// The lock may be under another lease than was thought.
		b.doubt(id)
		g, err = b.renew(ctx, id, ttl)
	}
	switch {
	case err == nil:
		return g, nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound), errors.Is(err, lock.ErrLost):
		b.forget(id)
		return lock.Grant{}, lock.ErrLost
	}
	return lock.Grant{}, fmt.Errorf("etcdlock: renew: %w", err)
}

func (b *Backend) renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	start := time.Now()
	t, err := b.tenureOf(ctx, id)
	if err != nil {
		return lock.Grant{}, err
	}
	if t.over(start) {
		// etcd counts in seconds. A lock that is over by its TTL is not revived in the rest of the last second.
		b.revoke(ctx, t.lease)
		return lock.Grant{}, lock.ErrLost
	}
	if ttl == 0 || seconds(ttl) == seconds(t.ttl) {
		_, err = b.client.KeepAliveOnce(ctx, t.lease)
	} else {
		err = b.replace(ctx, id, t, ttl)
	}
	if err != nil {
		return lock.Grant{}, err
	}
	t.start, t.ttl = start, cmp.Or(ttl, t.ttl)
	b.mu.Lock()
	if _, ok := b.tenures[id]; ok {
		b.tenures[id] = t
	}
	b.mu.Unlock()
	return t.grant(id), nil
}

// errReplaced is returned when a lock's lease was replaced by somebody else.
var errReplaced = errors.New("the lease was replaced by another renewal")

// replace puts a lock under a new lease. Its token stays, as that is the revision at which the grant was made.
func (b *Backend) replace(ctx context.Context, id string, t *tenure, ttl time.Duration) error {
	lease, err := b.client.Grant(ctx, seconds(ttl))
	if err != nil {
		return err
	}
	renewed := t.record
	renewed.TTL = ttl
	value, err := json.Marshal(renewed)
	if err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpPut(b.grantKey(id), string(value), clientv3.WithLease(lease.ID))}
	for _, k := range t.record.Keys {
		ops = append(ops, clientv3.OpPut(b.holderKey(k), id, clientv3.WithLease(lease.ID)))
	}
	grant := b.grantKey(id)
	answer, err := b.client.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(grant), "=", t.revision), clientv3.Compare(clientv3.LeaseValue(grant), "=", t.lease),
	).Then(ops...).Commit()
	if err != nil {
		// If etcd has carried it out, the lock lasts as long as the new lease, and renewing the old one would be of no use.
		b.doubt(id)
		return err
	}
	if !answer.Succeeded {
		b.revoke(ctx, lease.ID)
		return errReplaced
	}
	b.revoke(ctx, t.lease)
	t.lease, t.record = lease.ID, renewed
	return nil
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, g lock.Grant) error {
	id, now := g.ID, time.Now()
	t, err := b.revokeOf(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		b.doubt(id) // The lock may be under another lease than was thought.
		t, err = b.revokeOf(ctx, id)
	}
	switch {
	case errors.Is(err, lock.ErrLost), errors.Is(err, rpctypes.ErrLeaseNotFound), err == nil && t.over(now):
		b.forget(id)
		return lock.ErrLost
	case err != nil:
		return fmt.Errorf("etcdlock: release: %w", err)
	}
	b.forget(id)
	return nil
}

func (b *Backend) revokeOf(ctx context.Context, id string) (*tenure, error) {
	t, err := b.tenureOf(ctx, id)
	if err == nil {
		_, err = b.client.Revoke(ctx, t.lease)
	}
	return t, err
}

// world is everything under the prefix at one revision.
type world struct {
	revision int64
	arbiter  int64 // revision of the arbiter's key
	holders  map[string]string
	grants   []lock.Grant
	leases   []clientv3.LeaseID // of the grants
	waiters  []lock.Waiter
}

func (w *world) build() *lock.Graph { return lock.NewGraph(w.holders, w.waiters) }

func (w *world) waits(id string) bool {
	return slices.ContainsFunc(w.waiters, func(x lock.Waiter) bool { return x.ID == id })
}

// look reads everything.
func (b *Backend) look(ctx context.Context) (*world, error) {
	answer, err := b.client.Get(ctx, b.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	w := &world{revision: answer.Header.Revision, holders: map[string]string{}}
	for _, kv := range answer.Kvs {
		kind, name, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), b.prefix), "/")
		if kind == "arbiter" {
			w.arbiter = kv.ModRevision
		}
		if kind != "grant" && kind != "wait" {
			continue // Keys that are held have their grants.
		}
		var r record
		if err := json.Unmarshal(kv.Value, &r); err != nil {
			return nil, fmt.Errorf("read %q: %w", kv.Key, err)
		}
		if kind == "wait" {
			w.waiters = append(w.waiters, lock.Waiter{ID: name, Owner: r.Owner, Keys: r.Keys, Ticket: kv.CreateRevision, Since: r.at()})
			continue
		}
		for _, k := range r.Keys {
			w.holders[k] = r.Owner
		}
		w.grants = append(w.grants, r.grant(name, kv.CreateRevision))
		w.leases = append(w.leases, clientv3.LeaseID(kv.Lease))
	}
	slices.SortFunc(w.waiters, func(x, y lock.Waiter) int { return cmp.Compare(x.Ticket, y.Ticket) })
	return w, nil
}

// Snapshot implements [lock.Inspector]. It shows 200 holders at most. Times are those of the processes' clocks, and the
// ends of leases are as of the answer, by this process's clock.
func (b *Backend) Snapshot(ctx context.Context) (lock.Snapshot, error) {
	w, err := b.look(ctx)
	if err != nil {
		return lock.Snapshot{}, fmt.Errorf("etcdlock: snapshot: %w", err)
	}
	out := lock.Snapshot{Waiters: w.waiters, Edges: w.build().Edges()}
	for i, h := range w.grants[:min(len(w.grants), maxHolders)] {
		alive, err := b.expiry(ctx, w.leases[i], &h)
		if err != nil {
			return lock.Snapshot{}, fmt.Errorf("etcdlock: snapshot: %w", err)
		}
		if alive {
			out.Holders = append(out.Holders, h)
		}
	}
	slices.SortStableFunc(out.Holders, func(x, y lock.Grant) int { return x.GrantedAt.Compare(y.GrantedAt) })
	return out, nil
}

// expiry asks when a lock's lease ends, and reports whether it has not ended.
func (b *Backend) expiry(ctx context.Context, lease clientv3.LeaseID, h *lock.Grant) (bool, error) {
	left, err := b.client.TimeToLive(ctx, lease)
	if err != nil || left.TTL <= 0 {
		return false, err
	}
	h.ExpiresAt = time.Now().Add(time.Duration(left.TTL) * time.Second).UTC()
	return true, nil
}

// Find implements [lock.Inspector]. Times are as in [Backend.Snapshot].
func (b *Backend) Find(ctx context.Context, key string) (g lock.Grant, ok bool, err error) {
	answer, err := b.client.Get(ctx, b.holderKey(key))
	if err == nil && len(answer.Kvs) > 0 {
		var t tenure
		id := string(answer.Kvs[0].Value)
		if err = b.read(ctx, id, &t); err == nil {
			g = t.record.grant(id, t.revision)
			ok, err = b.expiry(ctx, t.lease, &g)
		}
	}
	if err != nil && !errors.Is(err, lock.ErrLost) {
		return g, false, fmt.Errorf("etcdlock: find: %w", err)
	}
	return g, ok, nil
}

// grantable tells whether a request that is not in line would be granted now.
func (w *world) grantable(r lock.Request) bool {
	with := append(slices.Clone(w.waiters), lock.Waiter{ID: r.ID, Owner: r.Owner, Keys: r.Keys, Ticket: math.MaxInt64})
	return slices.ContainsFunc(lock.NewGraph(w.holders, with).Grantable(), func(x lock.Waiter) bool { return x.ID == r.ID })
}
