package etcdlock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

// waiter is a request of this process.
type waiter struct {
	request  lock.Request
	deadline time.Time
	outcome  chan outcome // of the background's looking after it; has room for one
	leaving  bool         // it has given up; guarded by the backend's mutex
	away     time.Time    // since when etcd could not be reached; zero: it can be
	unsure   bool         // a write that puts it in line may be carried out yet
}

// outcome is how waiting ended.
type outcome struct {
	grant *lock.Grant
	cycle []string
}

// errSilent is returned when etcd has not answered in time. If etcd grants the lock all the same, the lock ends with its lease.
var errSilent = fmt.Errorf("etcd has not answered within %v", callTimeout)

// errAgain is returned when others were faster, or the request is not in line any more.
var errAgain = errors.New("to be tried again")

// Acquire implements [lock.Backend]. It fails where etcd does not answer for 5 s, whatever its Wait is. Where a connection breaks, or etcd has no leader,
// it asks again for as long; with a Wait of 0 it fails at once.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	r, err := r.Clean()
	if err != nil {
		return lock.Grant{}, fmt.Errorf("etcdlock: acquire: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(b.base, func() { end(lock.ErrClosed) })() //nolint:contextcheck // The life of the backend, and not of a request.
	w := &waiter{request: r, deadline: time.Now().Add(r.Wait), outcome: make(chan outcome, 1)}
	defer func() {
		if w.unsure {
			b.stray(r.ID)
		}
	}()
	waited := false
	for {
		g, err := b.once(ctx, w, &waited)
		if errors.Is(err, errAgain) {
			continue
		}
		if isPassing(err) && r.Wait != 0 {
			w.away = cmp.Or(w.away, time.Now())
			if time.Since(w.away) < callTimeout && (r.Wait < 0 || time.Now().Before(w.deadline)) && wait.For(ctx, retryPause) {
				b.logger.DebugContext(ctx, "etcd could not be reached, and is asked again", "id", r.ID, "error", err)
				continue
			}
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			} else if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
				err = context.DeadlineExceeded // The server keeps it, too, and has answered before the context's timer ran.
			}
			return lock.Grant{}, fmt.Errorf("etcdlock: acquire: %w", err)
		}
		g.Waited = waited
		return *g, nil
	}
}

// isPassing reports whether a call met a connection that broke, or an etcd without a leader. etcd may have carried it out.
func isPassing(err error) bool {
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return known.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

// newerThan fails when a request joined the line after a revision.
func (b *Backend) newerThan(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(b.waiterKey("")), "<", revision+1).WithPrefix()
}

// quiet tells, at a revision, whether a request's keys are free and nobody waits for anything: then there is nothing more
// to be thought about.
func (b *Backend) quiet(ctx context.Context, r lock.Request) (int64, bool, error) {
	ops := []clientv3.Op{clientv3.OpGet(b.waiterKey(""), clientv3.WithPrefix(), clientv3.WithCountOnly())}
	for _, k := range r.Keys {
		ops = append(ops, clientv3.OpGet(b.holderKey(k), clientv3.WithCountOnly()))
	}
	answer, err := b.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return 0, false, err
	}
	for _, x := range answer.Responses {
		if x.GetResponseRange().Count > 0 {
			return answer.Header.Revision, false, nil
		}
	}
	return answer.Header.Revision, true, nil
}

// once asks, and waits if it must.
func (b *Backend) once(ctx context.Context, w *waiter, waited *bool) (*lock.Grant, error) {
	if b.base.Err() != nil {
		return nil, lock.ErrClosed
	}
	asking, cancel := context.WithDeadlineCause(ctx, cmp.Or(w.away, time.Now()).Add(callTimeout), errSilent)
	defer cancel()
	g, err := b.ask(asking, w, waited)
	if err == nil || errors.Is(err, errAgain) {
		w.away = time.Time{}
	}
	if err != nil && errors.Is(context.Cause(asking), errSilent) {
		err = errSilent
	}
	if g != nil || err != nil {
		return g, err
	}
	return b.inLine(ctx, w)
}

// ask takes the keys if they are free, and else puts the request in line: then it returns neither a grant nor an error.
func (b *Backend) ask(ctx context.Context, w *waiter, waited *bool) (*lock.Grant, error) {
	r := w.request
	if revision, quiet, err := b.quiet(ctx, r); err != nil {
		return nil, err
	} else if quiet {
		if g, err := b.give(ctx, r, b.newerThan(revision)); g != nil || err != nil {
			return g, err
		}
	}
	seen, err := b.look(ctx)
	if err != nil {
		return nil, err
	}
	if seen.grantable(r) {
		g, err := b.give(ctx, r, b.newerThan(seen.revision))
		if err == nil && g == nil {
			err = errAgain
		}
		return g, err
	}
	if r.Wait == 0 || r.Wait > 0 && !time.Now().Before(w.deadline) {
		return nil, lock.ErrHeld
	}
	*waited = true
	return nil, b.join(ctx, w)
}

// join puts a request in line.
func (b *Backend) join(ctx context.Context, w *waiter) error {
	lease, err := b.lease(ctx)
	if err != nil {
		return err
	}
	r := w.request
	value, err := json.Marshal(b.newRecord(r))
	if err != nil {
		return err
	}
	b.start()
	if _, err = b.client.Put(ctx, b.waiterKey(r.ID), string(value), clientv3.WithLease(lease)); err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			b.endSession(lease)
			return errAgain
		}
		w.unsure = true // If it is in line, it keeps its place when it asks again.
		return err
	}
	if err := b.enter(w); err != nil {
		b.withdraw(ctx, r.ID)
		return err
	}
	return nil
}

// enter makes a request known to the background, which is started when it is first needed.
func (b *Backend) enter(w *waiter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.base.Err() != nil:
		return lock.ErrClosed
	case len(b.waiters) >= b.maxWaiters:
		return lock.ErrTooManyWaiters
	}
	b.waiters[w.request.ID] = w
	wait.Signal(b.inspect)
	return nil
}

// start starts the background, which a process needs that has something in line.
func (b *Backend) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watched || b.base.Err() != nil {
		return
	}
	b.watched = true
	b.tasks.Go(func() { wait.Every(b.base, PollInterval, b.inspect, b.watch) })
	b.tasks.Go(func() { wait.Every(b.base, sessionInterval, nil, b.keepSession) })
	b.tasks.Go(b.listen)
}

// stray remembers a request that may be in line, or come to be, although nobody waits for it any more. Its process's lease
// keeps it there, in front of others, so the background deletes it again until no call that wrote it can be under way.
func (b *Backend) stray(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strays[id] = time.Now().Add(callTimeout)
	wait.Signal(b.inspect)
}

// orphan remembers a lease that could not be revoked: what a grant wrote under it, whose answer was lost, keeps others from the keys.
func (b *Backend) orphan(id clientv3.LeaseID) {
	b.start()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans[id] = struct{}{}
	wait.Signal(b.inspect)
}

// sweep deletes the strays, and revokes the orphans.
func (b *Backend) sweep(ctx context.Context) error {
	b.mu.Lock()
	strays, orphans := maps.Clone(b.strays), maps.Clone(b.orphans)
	b.mu.Unlock()
	for id := range orphans {
		if _, err := b.client.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
		b.mu.Lock()
		delete(b.orphans, id)
		b.mu.Unlock()
	}
	for id, until := range strays {
		over := time.Now().After(until)
		if _, err := b.client.Delete(ctx, b.waiterKey(id)); err != nil {
			return err
		}
		if over {
			b.mu.Lock()
			delete(b.strays, id)
			b.mu.Unlock()
		}
	}
	return nil
}

// withdraw takes a request out of the line, as far as etcd can be reached; else the background does, or the end of its
// process's lease.
func (b *Backend) withdraw(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if _, err := b.client.Delete(ctx, b.waiterKey(id)); err != nil {
		b.logger.DebugContext(ctx, "leaving the line failed, and is tried again", "id", id, "error", err)
		b.stray(id)
	}
}

// inLine waits until the request is granted or has to end.
func (b *Backend) inLine(ctx context.Context, w *waiter) (*lock.Grant, error) {
	var timeout <-chan time.Time
	if w.request.Wait > 0 {
		timeout = time.After(time.Until(w.deadline))
	}
	var reason error
	select {
	case o := <-w.outcome:
		return o.result()
	case <-timeout:
		reason = lock.ErrHeld
	case <-ctx.Done():
		reason = context.Cause(ctx)
	case <-b.base.Done():
		reason = lock.ErrClosed
	}
	b.mu.Lock()
	_, mine := b.waiters[w.request.ID]
	delete(b.waiters, w.request.ID)
	w.leaving = true
	b.mu.Unlock()
	if mine {
		b.withdraw(ctx, w.request.ID)
		return nil, reason
	}
	// The background is about to answer, or has. Its grant is taken if only the wait limit was over.
	g, err := (<-w.outcome).result()
	switch {
	case g != nil && !errors.Is(reason, lock.ErrHeld):
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = b.Release(cleanup, *g) // What can't be undone expires.
		return nil, reason
	case errors.Is(err, errAgain):
		b.withdraw(ctx, w.request.ID)
		return nil, reason
	}
	return g, err
}

func (o outcome) result() (*lock.Grant, error) {
	switch {
	case o.grant != nil:
		return o.grant, nil
	case o.cycle != nil:
		return nil, &lock.DeadlockError{Cycle: o.cycle}
	}
	return nil, errAgain
}

// lease is that of the process's waiting requests.
func (b *Backend) lease(ctx context.Context) (clientv3.LeaseID, error) {
	b.mu.Lock()
	id := b.session
	b.mu.Unlock()
	if id != 0 {
		return id, nil
	}
	answer, err := b.client.Grant(ctx, sessionSeconds)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == 0 {
		b.session = answer.ID
	}
	return b.session, nil
}

// keepSession renews that lease. It does so until the backend is closed, and then what has the lease is left to expire.
func (b *Backend) keepSession() {
	b.mu.Lock()
	id := b.session
	b.mu.Unlock()
	if id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(b.base, sessionSeconds*time.Second)
	defer cancel()
	if _, err := b.client.KeepAliveOnce(ctx, id); errors.Is(err, rpctypes.ErrLeaseNotFound) {
		b.endSession(id)
		wait.Signal(b.inspect)
	}
}

// endSession makes the next request that joins a line ask for a new lease.
func (b *Backend) endSession(id clientv3.LeaseID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == id {
		b.session = 0
	}
}

// listen pokes the background whenever something changes, until the backend is closed.
func (b *Backend) listen() {
	for b.base.Err() == nil {
		ctx, cancel := context.WithCancel(b.base)
		for answer := range b.client.Watch(clientv3.WithRequireLeader(ctx), b.prefix, clientv3.WithPrefix(), clientv3.WithFilterPut()) {
			if answer.Err() != nil {
				break
			}
			wait.Signal(b.inspect)
		}
		cancel()
		wait.For(b.base, retryPause)
	}
}

// watch looks after the waiting requests.
func (b *Backend) watch() {
	ctx, cancel := context.WithTimeout(b.base, callTimeout)
	defer cancel()
	if err := errors.Join(b.sweep(ctx), b.lookAfter(ctx)); err != nil && b.base.Err() == nil {
		b.logger.WarnContext(ctx, "looking after waiting lock requests failed, and is tried again", "error", err)
		wait.For(b.base, retryPause)
		wait.Signal(b.inspect)
	}
}

// lookAfter takes what this process's requests can be granted, and ends those that are to break a deadlock.
func (b *Backend) lookAfter(ctx context.Context) error {
	b.mu.Lock()
	ids := slices.Collect(maps.Keys(b.waiters))
	b.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	seen, err := b.look(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !seen.waits(id) { // It expired, since this process was silent for too long: it asks again.
			_ = b.answer(id, func(*waiter) (outcome, bool, error) { return outcome{}, true, nil })
		}
	}
	graph := seen.build()
	for _, x := range graph.Grantable() {
		if err := b.answer(x.ID, func(w *waiter) (outcome, bool, error) { return b.take(ctx, w) }); err != nil {
			return err
		}
	}
	for _, d := range graph.Deadlocks() {
		if err := b.answer(d.Victim, func(*waiter) (outcome, bool, error) { return b.sacrifice(ctx, seen, d) }); err != nil {
			return err
		}
	}
	return nil
}

// answer ends a request of this process if f has an outcome; else it goes on waiting.
func (b *Backend) answer(id string, f func(*waiter) (outcome, bool, error)) error {
	b.mu.Lock()
	w, ok := b.waiters[id]
	delete(b.waiters, id) // From here on whoever gives up waits for the outcome.
	b.mu.Unlock()
	if !ok {
		return nil
	}
	o, done, err := f(w)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !done && !w.leaving {
		b.waiters[id] = w
		return err
	}
	w.outcome <- o
	return err
}

// take grants a request in line, if it still is and its keys are still free.
func (b *Backend) take(ctx context.Context, w *waiter) (outcome, bool, error) {
	g, err := b.give(ctx, w.request, clientv3.Compare(clientv3.CreateRevision(b.waiterKey(w.request.ID)), ">", 0))
	return outcome{grant: g}, g != nil, err
}

// sacrifice takes the victim of a deadlock out of the line, unless another one was since the cycle was seen.
func (b *Backend) sacrifice(ctx context.Context, seen *world, d lock.Deadlock) (outcome, bool, error) {
	answer, err := b.client.Txn(ctx).
		If(
			clientv3.Compare(clientv3.ModRevision(b.arbiterKey()), "=", seen.arbiter),
			clientv3.Compare(clientv3.CreateRevision(b.waiterKey(d.Victim)), ">", 0),
		).
		Then(clientv3.OpPut(b.arbiterKey(), d.Victim), clientv3.OpDelete(b.waiterKey(d.Victim))).Commit()
	if err != nil {
		return outcome{}, false, err
	}
	if !answer.Succeeded {
		wait.Signal(b.inspect)
		return outcome{}, false, nil
	}
	return outcome{cycle: slices.Clone(d.Cycle)}, true, nil
}
