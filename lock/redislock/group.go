package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// Limits of what the requests of a process do among themselves.
const (
	// idleFor is how long a request waits behind another one of its process while nothing moves there, before it gets in line itself,
	// and localFor how long at most, so that the order of asking between processes is off by no more.
	idleFor  = 100 * time.Millisecond
	localFor = time.Second
	// turnFor and maxTurn bound for how long, and how often, a process passes a lock on while others are in line.
	turnFor = 20 * time.Millisecond
	maxTurn = 64
	// maxRounds bounds how often each request of a group has the lock in a turn, and leastCrowd is how many requests all groups must have
	// that want the lock, for this to be more than once. Those of a smaller one would not be back in time to have it as often as others.
	maxRounds  = 3
	leastCrowd = 4
	// manyGroups is how many groups there are at least before those are looked for that nobody needs.
	manyGroups = 1024
)

// group is the simple requests of this process for one key, while there are several. One of them asks Redis for all, or stands in
// line for all; those behind it wait here. Whoever of them holds the lock and releases it passes it on to the next one by a script
// that checks the holder's lease and gives a new token. This goes on for a turn: until all have had the lock that waited when it began,
// or as often as that for some rounds. Then those in line go first, and the next one here gets in line, by the same script.
//
// A group may be forgotten at any time: then its requests, each of which waits here for no longer than localFor, ask by themselves.
// The backend's mutex guards it.
type group struct {
	waiting []*waiter // in order of asking
	asking  *waiter   // who asks or stands in line for those behind; nil: nobody
	passing bool      // the lock is being passed on
	holder  string    // the request that has the lock; "": none of them, or its holder has not been told of any rivals
	moved   time.Time // when the lock, or whose turn it is to ask, changed last
	begun   time.Time // when the turn began
	members int       // how many are to be passed the lock in this turn
}

// turn is what a request that waits behind others is told once.
type turn struct {
	grant  *lock.Grant // nil: it is to ask by itself
	unsure bool        // it may have been granted the lock, or be in line
	lined  bool        // it is in line
}

// begin begins a turn, while others are in line.
func (g *group) begin(holder string, now time.Time, others crowds) {
	size := len(g.waiting) + 1
	g.holder, g.moved, g.begun, g.members = holder, now, now, min(others.rounds(size)*size-1, maxTurn)
}

// crowds tells how many requests the groups have for which others stand in line: the fewest, and the most.
type crowds struct{ least, most int64 }

// rounds is how many a turn has of a group of some size. All groups find the same number, so that no request has the lock more often
// than others. The end of a turn costs as much as passing the lock on eight times, since another process has to wake up.
func (c crowds) rounds(size int) int {
	if min(c.least, int64(size)) < leastCrowd {
		return 1
	}
	return int(max(1, min(maxRounds, maxTurn/max(c.most, int64(size)))))
}

// simple reports whether a request may wait behind others of its process: it is not in anybody's way, since its owner holds nothing.
func (w *waiter) simple() bool {
	return w.request.NewOwner && w.request.Wait != 0 && w.request.MaxHold == 0 && len(w.request.Keys) == 1
}

// join makes a simple request one of its key's group, and reports whether it is to wait behind others. Else it asks. The caller has the mutex.
func (b *Backend) join(w *waiter) (behind bool) {
	key, now := w.request.Keys[0], time.Now()
	g := b.groups[key]
	switch {
	case g == nil:
		b.forget(now)
		b.groups[key] = &group{asking: w, moved: now}
	case now.Sub(g.moved) < b.idleFor:
		w.turn = make(chan turn, 1)
		g.waiting = append(g.waiting, w)
		b.behind++
		return true
	case g.asking == nil && !g.passing:
		g.asking, g.moved = w, now
	}
	return false
}

// forget deletes the groups of holders that have not released their locks for long: they may never do so.
func (b *Backend) forget(now time.Time) {
	if len(b.groups) < b.forgetAt {
		return
	}
	for key, g := range b.groups {
		if len(g.waiting) == 0 && g.asking == nil && !g.passing && now.Sub(g.moved) > time.Second {
			delete(b.groups, key)
		}
	}
	b.forgetAt = max(manyGroups, 2*len(b.groups))
}

// answered is called when a request that asked by itself is answered. Another one of its group asks then, if the lock is not theirs.
func (b *Backend) answered(w *waiter, granted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, w.request.ID)
	if !w.simple() {
		return
	}
	g := b.groups[w.request.Keys[0]]
	if g == nil {
		return
	}
	asked := g.asking == w
	if asked {
		g.asking = nil
	}
	switch {
	case granted && (w.contends || len(g.waiting) > 0):
		g.begin(w.request.ID, time.Now(), w.others)
		if !asked { // It was in line for itself alone.
			g.members = 0
		}
	case !granted && g.asking == nil && g.holder == "" && !g.passing && len(g.waiting) > 0:
		b.promote(g, b.first(g), turn{})
	}
	b.tidy(w.request.Keys[0], g)
}

func (b *Backend) tidy(key string, g *group) {
	if len(g.waiting) == 0 && g.asking == nil && !g.passing && g.holder == "" && b.groups[key] == g {
		delete(b.groups, key)
	}
}

// first takes the first of those that wait out of the group.
func (b *Backend) first(g *group) *waiter {
	w := g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	b.behind--
	return w
}

// promote lets one that waited behind others ask by itself, and for those behind it unless another does.
func (b *Backend) promote(g *group, w *waiter, t turn) {
	if g.asking == nil {
		g.asking, g.moved = w, time.Now()
	}
	b.waiters[w.request.ID] = w
	w.turn <- t
}

// quit takes a request out of its group, and lets it ask by itself if asks says so. It reports false if its turn has just come: it is
// told of that.
func (b *Backend) quit(w *waiter, asks bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := w.request.Keys[0]
	g := b.groups[key]
	if g == nil {
		return false
	}
	i := slices.Index(g.waiting, w)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	b.behind--
	if asks {
		b.promote(g, w, turn{})
	}
	b.tidy(key, g)
	return true
}

// idle is how long it is until a request should no longer wait behind others, if nothing moves.
func (b *Backend) idle(w *waiter) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[w.request.Keys[0]]; g != nil {
		return b.idleFor - time.Since(g.moved)
	}
	return 0
}

// waitBehind waits behind others of the process. Without a grant and without an error, the request is to ask by itself.
func (w *waiter) waitBehind(ctx context.Context) (*lock.Grant, error) {
	w.contends = true
	t, reason := w.hear(ctx)
	late := errors.Is(reason, lock.ErrHeld)
	if t == nil {
		if w.backend.quit(w, reason == nil) && reason != nil {
			return nil, reason
		}
		said := <-w.turn // Soon: passing a lock on has a limit.
		t = &said
	}
	w.known, w.lined = t.unsure || t.lined, t.lined
	switch {
	case reason == nil || late && t.grant != nil:
		return t.grant, nil
	case t.grant != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = w.backend.Release(ctx, *t.grant) // There is nobody to tell: what can't be undone expires.
		return nil, reason
	case w.known:
		w.abandon(ctx)
	}
	w.backend.answered(w, false)
	return nil, reason
}

// hear waits for what the request is told, or for the reason to wait no longer. With neither it has waited for long enough.
func (w *waiter) hear(ctx context.Context) (t *turn, reason error) {
	began := time.Now()
	first := w.backend.idleFor // Something has just moved.
	if w.request.Wait > 0 {
		first = min(first, w.request.Wait)
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case said := <-w.turn:
			return &said, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-w.backend.base.Done():
			return nil, lock.ErrClosed
		case <-timer.C:
		}
		if w.request.Wait > 0 && !time.Now().Before(w.deadline) {
			return nil, lock.ErrHeld
		}
		more := w.patience(began)
		if more <= 0 {
			return nil, nil
		}
		timer.Reset(more)
	}
}

// patience is how long to wait behind others from now on, if nothing moves.
func (w *waiter) patience(began time.Time) time.Duration {
	d := min(w.backend.idle(w), w.backend.localFor-time.Since(began))
	if w.request.Wait > 0 {
		d = min(d, time.Until(w.deadline))
	}
	return d
}

// next tells to whom of its process a lock is to be passed on that is released, and whether those in line go first; nil: there is
// nobody.
func (b *Backend) next(id, key string) (w *waiter, yields bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[key]
	if g == nil || g.holder != id {
		return nil, false
	}
	g.holder = ""
	if len(g.waiting) == 0 || b.base.Err() != nil {
		b.tidy(key, g)
		return nil, false
	}
	g.passing, g.moved = true, time.Now()
	w = b.first(g)
	b.waiters[w.request.ID] = w // It may come into line, and be granted the lock by others, before we are answered.
	w.crowd = len(g.waiting) + 1
	return w, g.members == 0 || g.moved.Sub(g.begun) > b.turnFor
}

// pass passes a lock on to another request of the process, which is told of it.
func (b *Backend) pass(ctx context.Context, id, key string, w *waiter, yields bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	r := &w.request
	args := []string{b.hash(key), id, r.ID, w.text(), strconv.FormatInt(lifetime(r.TTL), 10), "", strconv.Itoa(w.crowd)}
	var a answer
	var unknown error
	err := persist(ctx, func(again bool) (err error) {
		args[5] = flag(again) + flag(yields) + b.process
		a, err = b.ask(ctx, b.scripts.pass, name(r.ID, key), args...)
		if err != nil && unknown == nil {
			unknown = err
		}
		return err
	})
	if err != nil {
		b.fallback(FallbackPassing)
	} else {
		w.complete(&a)
	}
	b.passed(key, w, yields, &a, err)
	switch {
	case err != nil:
		return fmt.Errorf("redislock: release: %w", err)
	case a.status == statusGranted || a.status == statusInLine:
		return nil
	case unknown != nil:
		return fmt.Errorf("redislock: release: %w", unknown)
	}
	return lock.ErrLost
}

// passed tells a request what has become of the lock that was to be passed on to it.
func (b *Backend) passed(key string, w *waiter, yields bool, a *answer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[key]
	g.passing = false
	if err != nil || a.status != statusGranted {
		b.promote(g, w, turn{unsure: err != nil, lined: err == nil && a.status == statusInLine})
		return
	}
	delete(b.waiters, w.request.ID)
	g.members--
	if g.holder, g.moved = w.request.ID, time.Now(); yields {
		g.begin(g.holder, g.moved, a.others)
	}
	if b.observer != nil {
		b.observer.HandedOver()
	}
	w.turn <- turn{grant: &a.grant}
}
