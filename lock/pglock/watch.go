package pglock

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

const (
	// channel carries the ids of requests whose rows are worth a look. An id of another schema's is known to nobody.
	channel = "fairlead_locks"
	// maxHints is how many ids wait to be sent. Polling finds those beyond it.
	maxHints = 4096
	// hintsAtOnce keeps a payload below PostgreSQL's limit of 8,000 bytes.
	hintsAtOnce = 200
	// pollTimeout bounds one look after the waiting requests.
	pollTimeout = 5 * time.Second
	minPoll     = 2 * time.Millisecond
	// notifyTimeout bounds a notification, and so how long a backend that is closed may take to send its last ones.
	notifyTimeout = 2 * time.Second
)

// register makes a request known to those who wake it, and starts what looks after it.
func (b *Backend) register(w *waiter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return lock.ErrClosed
	case w.wait != 0 && len(b.waiters) >= b.maxWaiters:
		return lock.ErrTooManyWaiters
	}
	b.waiters[w.request.id] = w
	return nil
}

func (b *Backend) unregister(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, w.request.id)
}

// retire makes a request unknown to those who wake it and hand over to it, and returns its grant if it has just got one.
func (b *Backend) retire(w *waiter) *lock.Grant {
	b.unregister(w)
	select {
	case g := <-w.granted:
		return g
	default:
		return nil
	}
}

// look says that a request looks whether it was granted. It reports false if it was, together with others.
func (b *Backend) look(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.looking = b.cohorts[w.request.id] == nil
	return w.looking
}

func (b *Backend) looked(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.looking = false
}

// attend looks after a request that has just joined the line. If it reports true, Close waits until that has left, and
// b.tasks is to be told.
func (b *Backend) attend(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Add(1)
	b.start()
	if !w.request.newOwner { // It may have closed a cycle.
		b.fresh = append(b.fresh, w.request.id)
		wait.Signal(b.joined)
	}
	return true
}

// wake tells requests that they were granted.
func (b *Backend) wake(ids []uuid.UUID) {
	if b.observer != nil {
		for range ids {
			b.observer.HandedOver()
		}
	}
	b.tell(ids)
}

// tell makes requests look at their rows, in whichever process they wait.
func (b *Backend) tell(ids []uuid.UUID) {
	for _, id := range ids {
		if b.poke(id) {
			continue
		}
		select {
		case b.hints <- id:
		default:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.hints) > 0 && !b.closed {
		b.start()
	}
}

// start starts the background when it is first needed. The caller has the mutex, and has seen that nothing is closed.
func (b *Backend) start() {
	if !b.watched {
		b.watched = true
		b.tasks.Go(b.watch)
		b.tasks.Go(b.listen)
		b.tasks.Go(b.send)
	}
}

// poke makes a request of this process look at its rows; false: there is none.
func (b *Backend) poke(id uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.waiters[id]
	if ok {
		wait.Signal(w.signal)
	}
	return ok
}

// ids lists the requests of this process.
func (b *Backend) ids() []uuid.UUID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.waiters))
}

// watch looks after the waiting requests, until the backend is closed.
func (b *Backend) watch() {
	timer := time.NewTimer(PollInterval)
	defer timer.Stop()
	for {
		next := time.Duration(-1)
		select {
		case <-b.base.Done():
			return
		case <-b.joined:
			b.mu.Lock()
			fresh := b.fresh
			b.fresh = nil
			b.mu.Unlock()
			b.inspectFresh(fresh)
		case <-b.inspect:
			next = b.poll()
		case <-timer.C:
			next = b.poll()
		}
		if next >= 0 {
			timer.Reset(next)
		}
	}
}

// inspectFresh looks whether requests that have just joined a line have closed a cycle.
func (b *Backend) inspectFresh(ids []uuid.UUID) {
	ctx, cancel := context.WithTimeout(b.base, pollTimeout)
	defer cancel()
	var waitedFor bool
	err := b.pool.QueryRow(ctx, b.st.WaitedFor, pgkit.Texts(ids)).Scan(&waitedFor)
	if err == nil && waitedFor {
		err = b.resolve(ctx)
	}
	if err != nil && b.base.Err() == nil {
		b.logger.WarnContext(ctx, "looking for deadlocks failed, and is tried again", "error", err)
	}
}

// poll says that the waiting requests are alive, wakes those whose rows are gone, takes over what has expired, shortens leases
// that were written by a clock that was ahead, and looks for deadlocks. It returns when to do so next.
func (b *Backend) poll() time.Duration {
	interval := PollInterval
	if !b.hearing.Load() {
		interval = BlindPollInterval
	}
	ids := b.ids()
	if len(ids) == 0 {
		return interval
	}
	ctx, cancel := context.WithTimeout(b.base, pollTimeout)
	defer cancel()
	var (
		alive     []uuid.UUID
		free      []string
		expiry    float64
		ahead     []uuid.UUID
		waitedFor bool
	)
	// Two batches: the first one's row locks are not to be kept for the reads.
	rows, err := b.pool.Query(ctx, b.st.KeepAlive, pgkit.Texts(ids), aliveFor.Microseconds())
	if err == nil {
		alive, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	}
	if err == nil {
		var batch pgx.Batch
		batch.Queue(b.st.FreeKeys, pgkit.Texts(alive)).Query(func(rows pgx.Rows) (err error) {
			free, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		batch.Queue(b.st.NextExpiry, pgkit.Texts(alive)).QueryRow(func(row pgx.Row) error { return row.Scan(&expiry, &ahead) })
		batch.Queue(b.st.WaitedFor, pgkit.Texts(alive)).QueryRow(func(row pgx.Row) error { return row.Scan(&waitedFor) })
		err = b.pool.SendBatch(ctx, &batch).Close()
	}
	if err == nil && len(free) > 0 {
		// What another session has locked is left to the next look: to wait for one key after the other, as many as there are, would make
		// all others late, and their requests look dead.
		rows, err = b.pool.Query(ctx, b.st.Unlocked, free)
		if err == nil {
			free, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
	}
	if err == nil {
		err = b.endAhead(ctx, b.pool, ahead)
	}
	if err == nil && waitedFor {
		err = b.resolve(ctx)
	}
	if err != nil {
		level := slog.LevelWarn
		if b.pollFails { // While the database is away, it fails every few milliseconds.
			level = slog.LevelDebug
		}
		b.pollFails = true
		if b.base.Err() == nil {
			b.logger.Log(ctx, level, "looking after waiting lock requests failed, and is tried again", "error", err)
		}
		return interval
	}
	b.pollFails = false
	said := make(map[uuid.UUID]bool, len(alive))
	for _, id := range alive {
		said[id] = true
	}
	for _, id := range ids {
		if !said[id] {
			b.poke(id)
		}
	}
	for _, k := range free {
		b.follow(ctx, settled{more: []string{k}})
	}
	return max(minPoll, min(interval, time.Duration(expiry*float64(time.Second))+minPoll))
}

// send notifies other processes, in transactions of their own. When the backend is closed it still sends what there is: who
// releases a lock as its last act hands it over as quickly as others do.
func (b *Backend) send() {
	for {
		select {
		case <-b.base.Done():
			select {
			case id := <-b.hints:
				b.sendFrom(id)
			default:
				return
			}
		case id := <-b.hints:
			b.sendFrom(id)
		}
	}
}

// sendFrom sends a first hint and those that have gathered behind it.
func (b *Backend) sendFrom(first uuid.UUID) {
	ids := []string{first.String()}
	for len(ids) < hintsAtOnce && len(b.hints) > 0 {
		ids = append(ids, (<-b.hints).String())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.base), notifyTimeout)
	defer cancel()
	if err := b.notify(ctx, strings.Join(ids, ",")); err != nil {
		b.logger.DebugContext(ctx, "notifying of locks failed: polling finds what was granted", "error", err)
	}
}

func (b *Backend) notify(ctx context.Context, payload string) error {
	if b.mute.Load() {
		return nil
	}
	_, err := b.pool.Exec(ctx, b.st.Notify, channel, payload)
	return err
}

// channel is what the database's functions notify; nil: nobody.
func (b *Backend) channel() *string {
	if b.mute.Load() {
		return nil
	}
	return new(channel)
}

// listen hears other processes' notifications, until the backend is closed.
func (b *Backend) listen() {
	l := pgkit.Listener{
		Config: b.pool.Config().ConnConfig, Channel: channel, Notify: b.notify,
		Heard: func(payload string) {
			for text := range strings.SplitSeq(payload, ",") {
				if id, err := uuid.Parse(text); err == nil {
					b.poke(id)
				}
			}
		},
		Hearing: func() {
			b.hearing.Store(true)
			wait.Signal(b.inspect) // What was notified of before is found by looking.
		},
	}
	ctx, end := context.WithCancel(b.base)
	defer end()
	wait.Reconnect(ctx, func() error { return l.Listen(ctx) }, func(err error, _ time.Duration) {
		b.hearing.Store(false)
		wait.Signal(b.inspect)
		if errors.Is(err, pgkit.ErrNoNotify) {
			b.mute.Store(true)
			b.logger.WarnContext(b.base, "processes look for locks that were handed to them, instead of being notified", "error", err)
			end()
			return
		}
		b.logger.DebugContext(b.base, "listening for locks ended, and is tried again", "error", err)
	})
}
