package speculation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
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
	Statements []string // all that can be sent
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

// Transactions that are sent behind so many others on a connection wait for a lock as long as waitLess says, because all
// of them may meet locked rows, one after the other, and a neighbour behind them waits for the sum.
const (
	crowded  = 2
	waitLess = `SELECT set_config('lock_timeout', '8ms', true)`
)

// begin and commit are those of an explicit transaction.
const (
	begin  = `begin`
	commit = `commit`
)

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

// alone returns the statements of one transaction, each by itself.
func alone(m *member) [][]*pgx.QueuedQuery {
	groups := make([][]*pgx.QueuedQuery, len(m.queries))
	for i := range m.queries {
		groups[i] = m.queries[i : i+1]
	}
	return groups
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

// link is one connection of a pipeline. It has one writer, who holds the pipeline's mutex, and one reader.
type link struct {
	conn       net.Conn
	frontend   *pgproto3.Frontend   // of the reader
	explicit   bool                 // each transaction has BEGIN and COMMIT
	statements map[string]*prepared // by text
	params     Params               // of the writer
	column     []any                // likewise
	out        []byte               // likewise: what is to be written

	mu     sync.Mutex
	sent   []underWay    // in order
	room   chan struct{} // is told when fewer than crowded are under way; nil while nobody waits
	limit  int           // how many transactions are gathered at most
	calm   int           // how many have committed since one failed
	broken error
}

// prepared is a statement that the connection knows.
type prepared struct {
	name       string
	parameters int
	rank       int // its place in the order in which a transaction has them
}

// underWay is a transaction whose end is not known yet.
type underWay struct {
	members []*member
	behind  bool // one that was under way when this one was sent has failed
}

// send writes the transactions of members to the connection as one, each group of equal statements as one. After an error nothing of it
// has been sent.
func (l *link) send(members []*member, groups [][]*pgx.QueuedQuery) error {
	l.params.Reset()
	for _, same := range groups {
		if len(same) == 0 {
			continue
		}
		statement := l.statements[same[0].SQL]
		if statement == nil || statement.parameters != len(same[0].Arguments) {
			return NotSent("encode", errors.New("a statement that is not prepared, or has other parameters"))
		}
		for i := range statement.parameters {
			l.column = l.column[:0]
			for _, q := range same {
				l.column = append(l.column, q.Arguments[i])
			}
			if err := l.params.Append(l.column...); err != nil {
				return NotSent("encode", err)
			}
		}
	}
	before, err := l.expect(members)
	if err != nil {
		return NotSent("connection", err)
	}
	binary := []int16{pgx.BinaryFormatCode}
	if l.explicit {
		l.execute(begin)
	}
	if before >= crowded {
		l.execute(waitLess)
	}
	for _, same := range groups {
		if len(same) == 0 {
			continue
		}
		statement := l.statements[same[0].SQL]
		l.append(&pgproto3.Bind{
			PreparedStatement: statement.name, ParameterFormatCodes: binary, Parameters: l.params.Next(statement.parameters),
			ResultFormatCodes: binary,
		})
		l.append(&pgproto3.Execute{})
	}
	if crashpoint.Enabled {
		// Die with the statements executed, or about to be, and the end not said.
		l.append(&pgproto3.Flush{})
		l.flush()
		crashpoint.Hit(members[0].Place)
	}
	l.append(&pgproto3.Sync{})
	if l.explicit {
		l.execute(commit)
		l.append(&pgproto3.Sync{})
	}
	l.flush()
	return nil
}

// execute adds the execution of a statement without parameters.
func (l *link) execute(sql string) {
	l.append(&pgproto3.Bind{PreparedStatement: l.statements[sql].name})
	l.append(&pgproto3.Execute{})
}

// append adds a message to what flush writes. The frontend could do that, but its memory is new for each long message.
func (l *link) append(m pgproto3.FrontendMessage) {
	out, err := m.Encode(l.out)
	if err != nil {
		l.fail(err) // It is too long for the protocol, which a batch cannot be. What is half there is not sent.
		return
	}
	l.out = out
}

// flush writes what was appended. A failure is passed to those who wait.
func (l *link) flush() {
	defer func() { l.out = l.out[:0] }()
	err := l.conn.SetWriteDeadline(time.Now().Add(pgkit.CommitTimeout))
	if err == nil {
		_, err = l.conn.Write(l.out)
	}
	if err != nil {
		l.fail(err)
	}
}

// expect notes a transaction that is about to be written, and returns how many are under way before it.
func (l *link) expect(members []*member) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.sent)
	if l.broken == nil {
		l.sent = append(l.sent, underWay{members: members})
	}
	return before, l.broken
}

// receive reads how the transactions end, in order, until the connection does.
func (l *link) receive() {
	var outcome error
	begun := false // and not committed
	for {
		msg, err := l.frontend.Receive()
		if err != nil {
			l.fail(err)
			return
		}
		switch msg := msg.(type) {
		case *pgproto3.ErrorResponse:
			outcome = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.NoticeResponse:
			if outcome == nil && pgkit.IsReplicationWarning(msg.Routine) {
				outcome = pgkit.ErrNotReplicated
			}
		case *pgproto3.CommandComplete:
			if begun && outcome == nil && string(msg.CommandTag) != "COMMIT" {
				outcome = pgx.ErrTxCommitRollback
			}
		case *pgproto3.ReadyForQuery:
			if begun = l.explicit && !begun; begun {
				continue // It is yet to be committed.
			}
			l.answer(outcome)
			outcome = nil
		}
	}
}

func (l *link) answer(outcome error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sent) == 0 {
		return
	}
	first := l.sent[0]
	l.sent = l.sent[1:]
	switch n := len(first.members); {
	case undone(outcome):
		for i := range l.sent {
			l.sent[i].behind = true
		}
		if first.behind {
			outcome = fmt.Errorf("%w: %w", ErrBehind, outcome)
		}
		if l.calm = 0; n > 1 {
			l.limit = n / 2
		}
	default:
		if l.calm++; l.calm%BackoffTransactions == 0 {
			l.limit = min(2*l.limit, maxGathered)
		}
	}
	l.signal()
	end(first.members, outcome)
}

// undone reports whether nothing of a transaction is there, by how it has ended.
func undone(outcome error) bool {
	return outcome != nil && !errors.Is(outcome, pgkit.ErrNotReplicated) && !errors.Is(outcome, ErrLinkLost)
}

// most is how many transactions are gathered at most.
func (l *link) most() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// wait returns what is told when a transaction should be sent, nil where it should be at once.
func (l *link) wait() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sent) < crowded || l.limit < 2 || l.broken != nil {
		return nil
	}
	l.room = make(chan struct{}, 1)
	return l.room
}

// signal tells the one that waits to send that it should. The caller holds the mutex.
func (l *link) signal() {
	if l.room != nil && (len(l.sent) < crowded || l.broken != nil) {
		l.room <- struct{}{} // It has room for the one.
		l.room = nil
	}
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

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// fail closes the connection. The end of what was sent on it is unknown.
func (l *link) fail(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return
	}
	l.broken = reason
	_ = l.conn.Close()
	for _, t := range l.sent {
		end(t.members, fmt.Errorf("%w: %w", ErrLinkLost, reason))
	}
	l.sent = nil
	l.signal()
}

// end says good-bye, so that the database doesn't take the end for an accident.
func (l *link) end() {
	if l.failure() == nil {
		l.append(&pgproto3.Terminate{})
		l.flush()
	}
	l.fail(net.ErrClosed)
}
