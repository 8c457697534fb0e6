package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// lockedReads keeps reads of a table that somebody has locked, as a change of the table does, from taking the connections that all other reads need. A
// read has its lock within [readLockTimeout], or gives its connection back. From then on one at a time tries again for all that read the
// same, and as many as half of the connections for all together. It is safe for concurrent use; a nil one has every read wait by itself.
type lockedReads struct {
	tries chan struct{} // has one for each read that tries again

	mu sync.Mutex
	by map[string]*lockedRead // by what is read
}

// lockedRead is what some reads wait to read.
type lockedRead struct {
	readers int           // guarded by the mutex of lockedReads
	turn    chan struct{} // has one while somebody tries
	free    chan struct{} // closed once somebody could read it
	err     error         // of the first try; it says that a lock was not had
}

func newLockedReads(conns int) *lockedReads {
	return &lockedReads{tries: make(chan struct{}, max(conns/2, 1)), by: map[string]*lockedRead{}}
}

// read runs a read, again and again as long as a lock is not to be had, for [command.BlockedFor]. The error is the last one's, or that of the
// try that others wait for, too.
func (l *lockedReads) read(ctx context.Context, what string, read func(context.Context) error) error {
	if l == nil {
		return read(ctx)
	}
	var late <-chan time.Time // once it waits
	for {
		r := l.join(what, nil)
		if r == nil {
			err := read(ctx)
			if !isLockTimeout(err) {
				return err
			}
			r = l.join(what, err)
		}
		if late == nil {
			late = time.After(command.BlockedFor)
		}
		done, err := l.await(ctx, late, what, r, func() error { return read(ctx) })
		if done || err != nil {
			return err
		}
	}
}

// await waits for its turns to read, and reports whether it has read. Where somebody else could, it has not and need not wait any more.
func (l *lockedReads) await(ctx context.Context, late <-chan time.Time, what string, r *lockedRead, read func() error) (done bool, err error) {
	defer l.leave(what, r)
	for {
		select {
		case r.turn <- struct{}{}:
		case <-r.free:
			return false, nil
		case <-late:
			return false, r.err
		case <-ctx.Done():
			return false, r.err
		}
		select {
		case l.tries <- struct{}{}:
		case <-late:
			<-r.turn
			return false, r.err
		case <-ctx.Done():
			<-r.turn
			return false, r.err
		}
		err := read()
		<-l.tries
		if !isLockTimeout(err) && ctx.Err() == nil {
			l.freed(what, r)
			return true, err
		}
		<-r.turn
		if ctx.Err() != nil { // Which says nothing of the lock.
			return true, err
		}
	}
}

// join counts the caller among those that wait for what is read. It returns nil where nobody does, unless err says why the caller has to.
func (l *lockedReads) join(what string, err error) *lockedRead {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.by[what]
	if r == nil && err != nil {
		r = &lockedRead{turn: make(chan struct{}, 1), free: make(chan struct{}), err: err}
		l.by[what] = r
	}
	if r != nil {
		r.readers++
	}
	return r
}

func (l *lockedReads) leave(what string, r *lockedRead) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.readers--; r.readers == 0 && l.by[what] == r {
		delete(l.by, what)
	}
}

// freed lets all others read.
func (l *lockedReads) freed(what string, r *lockedRead) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by[what] == r {
		delete(l.by, what)
		close(r.free)
	}
}

// BlockedReads is how many reads wait for tables that others have locked.
func (db *DB) BlockedReads() (n int) {
	l := db.reads.locked
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.by {
		n += r.readers
	}
	return n
}
