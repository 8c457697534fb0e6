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

	mu      sync.Mutex // held while a transaction is made and sent, which keeps their order
	link    *link
	retryAt time.Time // when to connect again
	closed  bool
	readers sync.WaitGroup
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

// Commit calls fill, sends what it has queued as one transaction, and waits for its end. The next caller's fill is called
// once this one's transaction is sent. Where fill returns an error, nothing is sent, and the error is returned. place is a
// crash point.
//
// Its own errors are a [notSentError], [ErrLinkLost], [pgkit.ErrNotReplicated], and PostgreSQL's, after which nothing of the
// transaction is there. Once it is sent, ctx no longer counts: giving up would only make the outcome unknown.
func (p *Pipeline) Commit(ctx context.Context, place string, fill func(*pgx.Batch) error) error {
	done, l, err := p.send(ctx, place, fill)
	if err != nil {
		return err
	}
	// A transaction that waits, or takes its time, is not cut; one of a database that is away is.
	there, stop := p.Presence.Watch(context.WithoutCancel(ctx))
	defer stop()
	select {
	case err := <-done:
		if !errors.Is(err, ErrLinkLost) {
			p.Presence.Heard()
		}
		return err
	case <-there.Done():
		l.fail(context.Cause(there))
		return <-done
	}
}

func (p *Pipeline) send(ctx context.Context, place string, fill func(*pgx.Batch) error) (<-chan error, *link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.connected(ctx); err != nil {
		return nil, nil, NotSent("connection", err)
	}
	var b pgx.Batch
	if err := fill(&b); err != nil {
		return nil, nil, err
	}
	done, err := p.link.send(&b, place)
	return done, p.link, err
}

// connected makes sure that there is a connection that has not failed, as far as is known.
func (p *Pipeline) connected(ctx context.Context) error {
	switch {
	case p.closed:
		return net.ErrClosed
	case p.link != nil && p.link.failure() == nil:
		return nil
	case time.Now().Before(p.retryAt):
		return errors.New("the connection failed a moment ago")
	}
	start := time.Now()
	l, err := p.connect(ctx)
	if err != nil {
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
	l := &link{explicit: p.Explicit, statements: make(map[string]*pgconn.StatementDescription, len(p.Statements))}
	for i, sql := range append([]string{waitLess, begin, commit}, p.Statements...) {
		statement, err := conn.Prepare(ctx, "fairlead_pipeline_"+strconv.Itoa(i), sql, nil)
		if err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
		l.statements[sql] = statement
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
	frontend   *pgproto3.Frontend                      // of the reader
	explicit   bool                                    // each transaction has BEGIN and COMMIT
	statements map[string]*pgconn.StatementDescription // by text
	params     Params                                  // of the writer
	out        []byte                                  // likewise: what is to be written

	mu     sync.Mutex
	sent   []underWay // in order
	broken error
}

// underWay is a transaction whose end is not known yet.
type underWay struct {
	done   chan<- error // has room for the end
	behind bool         // one that was under way when this one was sent has failed
}

// send writes a transaction to the connection. After an error nothing of it has been sent.
func (l *link) send(b *pgx.Batch, place string) (<-chan error, error) {
	l.params.Reset()
	for _, q := range b.QueuedQueries {
		statement := l.statements[q.SQL]
		if statement == nil || len(statement.ParamOIDs) != len(q.Arguments) {
			return nil, NotSent("encode", errors.New("a statement that is not prepared, or has other parameters"))
		}
		for i, arg := range q.Arguments {
			if err := l.params.Append(statement.ParamOIDs[i], arg); err != nil {
				return nil, NotSent("encode", err)
			}
		}
	}
	done := make(chan error, 1)
	before, err := l.expect(done)
	if err != nil {
		return nil, NotSent("connection", err)
	}
	binary := []int16{pgx.BinaryFormatCode}
	if l.explicit {
		l.execute(begin)
	}
	if before >= crowded {
		l.execute(waitLess)
	}
	for _, q := range b.QueuedQueries {
		l.append(&pgproto3.Bind{
			PreparedStatement: l.statements[q.SQL].Name, ParameterFormatCodes: binary, Parameters: l.params.Next(len(q.Arguments)),
			ResultFormatCodes: binary,
		})
		l.append(&pgproto3.Execute{})
	}
	if crashpoint.Enabled {
		// Die with the statements executed, or about to be, and the end not said.
		l.append(&pgproto3.Flush{})
		l.flush()
		crashpoint.Hit(place)
	}
	l.append(&pgproto3.Sync{})
	if l.explicit {
		l.execute(commit)
		l.append(&pgproto3.Sync{})
	}
	l.flush()
	return done, nil
}

// execute adds the execution of a statement without parameters.
func (l *link) execute(sql string) {
	l.append(&pgproto3.Bind{PreparedStatement: l.statements[sql].Name})
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
func (l *link) expect(done chan<- error) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.sent)
	if l.broken == nil {
		l.sent = append(l.sent, underWay{done: done})
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
	if outcome != nil {
		for i := range l.sent {
			l.sent[i].behind = true
		}
		if first.behind {
			outcome = fmt.Errorf("%w: %w", ErrBehind, outcome)
		}
	}
	first.done <- outcome
}

// UnderWay counts the transactions that were sent and whose end is not known yet. There are none without a connection;
// connected reports whether there is one.
func (p *Pipeline) UnderWay() (n int, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		return 0, false
	}
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	return len(p.link.sent), p.link.broken == nil
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
		t.done <- fmt.Errorf("%w: %w", ErrLinkLost, reason)
	}
	l.sent = nil
}

// end says good-bye, so that the database doesn't take the end for an accident.
func (l *link) end() {
	if l.failure() == nil {
		l.append(&pgproto3.Terminate{})
		l.flush()
	}
	l.fail(net.ErrClosed)
}
