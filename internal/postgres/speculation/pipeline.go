package speculation

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Pipeline commits transactions on a connection of its own, each of which may be sent while those before it are still
// being executed or committed: PostgreSQL goes from one to the next without waiting for this process in between.
//
// A transaction is the statements up to a Sync (PostgreSQL documentation, "Extended Query", pipelining). They run in one
// implicit transaction, which the Sync commits; the first error undoes all of it, and what was sent behind it goes on.
// Nobody looks at results in between, so the statements must refuse by themselves where they must not be committed, and a
// transaction that rests on an earlier one must have guards that fail when that one did.
//
// Behind two that are under way, transactions that have nothing to do with each other are gathered, and sent as one when there is
// room: a commit, and the execution of each statement, are shared. If it fails, each of them is sent again by itself, and fewer are
// gathered from then on.
//
// With Explicit, BEGIN goes before the statements, and COMMIT behind their Sync with one of its own: what comes behind an error up to a
// Sync is not executed, and a COMMIT of a transaction that has failed rolls it back.
//
// It connects when it is first used, and again after a failure. It is safe for concurrent use.
type Pipeline struct {
	Config     *pgx.ConnConfig
	Presence   *pgkit.Presence
	Statements []string // all that can be sent, in the order in which a transaction has them
	// Met is called with a new connection before it is used; it may be nil.
	Met      func(ctx context.Context, conn *pgx.Conn) error
	Explicit bool
	// Undone is called for a transaction that is sent again by itself, with what undid those that it was sent with; it may be nil.
	Undone func(error)

	mu         sync.Mutex // held while a transaction is made and sent, which keeps their order
	link       *link
	gathering  *gathering // what is sent next; nil while nothing waits
	connecting bool
	retryAt    time.Time // when to connect again
	closed     bool
	readers    sync.WaitGroup
}

const (
	connectTimeout = 5 * time.Second
	// reconnectPause is how long transactions go another way after a connection could not be had.
	reconnectPause = time.Second
)

var (
	// ErrLinkLost is returned when nobody knows whether a transaction was committed.
	ErrLinkLost = errors.New("the connection was lost before the transaction's end was known")
	// ErrBehind is returned, with PostgreSQL's error, for a transaction that failed after one that it was sent behind.
	ErrBehind = errors.New("sent behind a transaction that failed")
)

// notSentError is returned when nothing of a transaction has reached the database.
type notSentError struct {
	reason string // a word for the metrics
	cause  error  // may be nil
}

func (e *notSentError) Error() string {
	if e.cause == nil {
		return "the transaction was not sent: " + e.reason
	}
	return "the transaction was not sent: " + e.reason + ": " + e.cause.Error()
}

func (e *notSentError) Unwrap() error { return e.cause }

// NotSent reports that a transaction was not sent.
func NotSent(reason string, cause error) error { return &notSentError{reason: reason, cause: cause} }

// IsNotSent reports whether nothing of a transaction has reached the database.
func IsNotSent(err error) bool {
	_, ok := errors.AsType[*notSentError](err)
	return ok
}

// Work is what a pipeline has to know of a transaction.
type Work struct {
	Place    string   // a crash point
	Touched  []string // what it reads or writes and others may, too, by any name
	Commands int
}

// Commit calls fill, sends what it has queued as one transaction, and waits for its end. The next caller's fill is called
// once this one's transaction is sent, or gathered to be sent next. Where fill returns an error, nothing is sent, and the error is
// returned.
//
// Its own errors are a [notSentError], [ErrLinkLost], [pgkit.ErrNotReplicated], and PostgreSQL's, after which nothing of the
// transaction is there. Once it is sent, ctx no longer counts: giving up would only make the outcome unknown.
func (p *Pipeline) Commit(ctx context.Context, w Work, fill func(*pgx.Batch) error) error {
	m := &member{Work: w, done: make(chan error, 1)}
	l, g, err := p.send(ctx, m, fill)
	if err != nil {
		return err
	}
	// A transaction that waits, or takes its time, is not cut; one of a database that is away is.
	there, stop := p.Presence.Watch(context.WithoutCancel(ctx))
	defer stop()
	err = p.await(there, l, g, m)
	if errors.Is(err, errUndone) {
		if p.Undone != nil {
			p.Undone(err)
		}
		p.mu.Lock()
		err = l.send([]*member{m}, alone(m))
		p.mu.Unlock()
		if err == nil {
			err = p.await(there, l, nil, m)
		}
	}
	if !IsNotSent(err) && !errors.Is(err, ErrLinkLost) {
		p.Presence.Heard()
	}
	return err
}

// await waits for the end of a transaction. The one that has begun a gathering sends it when there is room.
func (p *Pipeline) await(there context.Context, l *link, g *gathering, m *member) error {
	away := there.Done()
	var room <-chan struct{}
	if g != nil {
		room = g.room
	}
	for {
		select {
		case err := <-m.done:
			return err
		case <-room:
			p.mu.Lock()
			if p.gathering == g {
				p.sendGathered()
			}
			p.mu.Unlock()
			room = nil
		case <-away:
			l.fail(context.Cause(there)) // Which makes room.
			away = nil
		}
	}
}

// send makes a transaction and sends it, or adds it to those that are gathered. It returns the gathering that it has begun.
func (p *Pipeline) send(ctx context.Context, m *member, fill func(*pgx.Batch) error) (*link, *gathering, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.connected(ctx); err != nil {
		return nil, nil, NotSent("connection", err)
	}
	var b pgx.Batch
	if err := fill(&b); err != nil {
		return nil, nil, err
	}
	m.queries = b.QueuedQueries
	l := p.link
	if g := p.gathering; g != nil {
		if g.join(m) {
			if len(g.members) >= l.most() {
				p.sendGathered()
			}
			return l, nil, nil
		}
		p.sendGathered()
	}
	if room := l.wait(); room != nil {
		g := &gathering{link: l, groups: make([][]*pgx.QueuedQuery, len(l.statements)), touched: map[string]struct{}{}, room: room}
		if g.join(m) {
			p.gathering = g
			return l, g, nil
		}
	}
	return l, nil, l.send([]*member{m}, alone(m))
}

// sendGathered sends what was gathered. The caller holds the mutex.
func (p *Pipeline) sendGathered() {
	g := p.gathering
	p.gathering = nil
	if err := g.link.send(g.members, g.groups); err != nil {
		end(g.members, err)
	}
}

// connected makes sure that there is a connection that has not failed, as far as is known. The caller holds the mutex, which is given
// back while it connects: others don't wait for that.
func (p *Pipeline) connected(ctx context.Context) error {
	switch {
	case p.closed:
		return net.ErrClosed
	case p.link != nil && p.link.failure() == nil:
		return nil
	case p.connecting:
		return errors.New("another transaction is connecting")
	case time.Now().Before(p.retryAt):
		return errors.New("the connection failed a moment ago")
	}
	if p.gathering != nil {
		p.sendGathered() // It can't be, which its members are told.
	}
	start := time.Now()
	p.connecting = true
	p.mu.Unlock()
	l, err := p.connect(ctx)
	p.mu.Lock()
	p.connecting = false
	switch {
	case p.closed:
		if err == nil {
			l.end()
		}
		return net.ErrClosed
	case err != nil:
		p.Presence.Missed(start)
		p.retryAt = time.Now().Add(reconnectPause)
		return err
	}
	p.link = l
	p.readers.Go(l.receive)
	return nil
}

func (p *Pipeline) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	connected, err := pgx.ConnectConfig(ctx, p.Config.Copy())
	if err != nil {
		return nil, err
	}
	conn := connected.PgConn()
	if p.Met != nil {
		if err := p.Met(ctx, connected); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	l := &link{explicit: p.Explicit, statements: make(map[string]*prepared, len(p.Statements)), limit: maxGathered}
	for i, sql := range append([]string{waitLess, begin, commit}, p.Statements...) {
		statement, err := conn.Prepare(ctx, "fairlead_pipeline_"+strconv.Itoa(i), sql, nil)
		if err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
		l.statements[sql] = &prepared{statement.Name, len(statement.ParamOIDs), i}
	}
	raw, err := conn.Hijack()
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	l.conn, l.frontend = raw.Conn, raw.Frontend
	return l, l.conn.SetDeadline(time.Time{})
}

// Close ends the connection. What was sent and not answered ends with [ErrLinkLost], so callers wait for their answers first.
func (p *Pipeline) Close() {
	p.mu.Lock()
	p.closed = true
	if p.link != nil {
		p.link.end()
	}
	p.mu.Unlock()
	p.readers.Wait()
}

// UnderWay counts the transactions that were sent, or gathered, and whose end is not known yet. There are none without a connection;
// connected reports whether there is one.
func (p *Pipeline) UnderWay() (n int, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		return 0, false
	}
	if p.gathering != nil {
		n = len(p.gathering.members)
	}
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	for _, t := range p.link.sent {
		n += len(t.members)
	}
	return n, p.link.broken == nil
}
