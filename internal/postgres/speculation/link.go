package speculation

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

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
	if place := members[0].Place; crashpoint.Named(place) {
		// Die with the statements executed, or about to be, and the end not said. A server that is stopped here and not killed keeps its locks:
		// PostgreSQL has no timeout for what follows a statement until the Sync.
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
			failed := pgconn.ErrorResponseToPgError(msg)
			if failed.Code == pgkit.CompletionUnknown {
				l.fail(failed)
				return
			}
			outcome = failed
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
