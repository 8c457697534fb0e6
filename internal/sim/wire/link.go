package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// Request codes of the untyped first message of a connection.
const (
	codeCancel = 80877102
	codeTLS    = 80877103
	codeGSS    = 80877104
)

// maxMessage bounds one message; PostgreSQL's own limit is 1 GiB, a batch of commands is far below.
const maxMessage = 256 << 20

var errTooLong = errors.New("message too long")

// link is one connection through the proxy.
type link struct {
	proxy           *Proxy
	client, backend net.Conn

	// inBlock is the transaction status of the last ReadyForQuery: 'I' outside a block, 'T' inside, 'E' failed.
	inBlock atomic.Int32
	// doomed is set when the next ReadyForQuery must not reach the client.
	doomed atomic.Bool
	muted  atomic.Bool // the commit's outcome is to stay open: its answer is not passed on

	// What the frontend's messages since the last synchronisation mean; the reader of commands alone touches them.
	statements map[string]statement // by name, prepared
	portals    map[string]statement // by name, bound
	pipeline   statement
}

// statement says what an SQL text does, be it one statement or several.
type statement struct{ begins, commits, writes bool }

// cut closes both ends. It may be called any number of times.
func (l *link) cut() {
	_ = l.client.Close()
	_ = l.backend.Close()
}

// forwardCommands reads what the client sends until an end is closed.
func (l *link) forwardCommands() {
	l.statements, l.portals = map[string]statement{}, map[string]statement{}
	in, out := bufio.NewReaderSize(l.client, 64<<10), bufio.NewWriterSize(l.backend, 64<<10)
	if l.forwardStartup(in) != nil {
		return
	}
	for {
		kind, body, err := readMessage(in)
		if err != nil {
			return
		}
		fate, commits := Delivered, l.commits(kind, body)
		if steps(kind) {
			fate = l.proxy.step(l)
		}
		if l.proxy.silent() {
			continue
		}
		if commits && fate == Delivered {
			fate = l.proxy.fate()
		}
		if fate != Delivered {
			if l.forwardLast(out, fate, kind, body) != nil {
				l.proxy.beforeCut() // The blackout first, so that a client that sees the cut is too late.
				l.cut()
				return
			}
		} else if writeMessage(out, kind, body) != nil {
			return
		}
		// What the client sent in one go goes on in one go; nothing waits here that the client waits for.
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// forwardLast does to the last message of a connection what its fate is.
func (l *link) forwardLast(out *bufio.Writer, fate Fate, kind byte, body []byte) error {
	switch fate {
	case CommitLost:
		return errCut
	case AnswerLost:
		l.doomed.Store(true)
	case OutcomeOpen:
		l.muted.Store(true) // The answer may come before the cut, and must not get through.
	case Delivered:
	}
	if err := writeMessage(out, kind, body); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if fate == OutcomeOpen {
		return errCut
	}
	return nil
}

// forwardStartup forwards the untyped messages with which a connection begins. It refuses encryption itself.
func (l *link) forwardStartup(in *bufio.Reader) error {
	for {
		head := make([]byte, 8)
		if _, err := io.ReadFull(in, head); err != nil {
			return err
		}
		length, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if code == codeTLS || code == codeGSS {
			if _, err := l.client.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		}
		if length < 8 || length > maxMessage {
			return errTooLong
		}
		message := make([]byte, length)
		copy(message, head)
		if _, err := io.ReadFull(in, message[len(head):]); err != nil {
			return err
		}
		if code == codeCancel && l.proxy.opts.LoseCancels {
			return errCut
		}
		_, err := l.backend.Write(message)
		return err // A cancel request ends here too: PostgreSQL closes it without an answer.
	}
}

// forwardAnswers reads what PostgreSQL sends until an end is closed, or until the answer that is to be lost has come.
func (l *link) forwardAnswers() {
	in, out := bufio.NewReaderSize(l.backend, 64<<10), bufio.NewWriterSize(l.client, 64<<10)
	first := true // message of an answer
	for {
		kind, body, err := readMessage(in)
		if err != nil {
			return
		}
		const readyForQuery = 'Z'
		if first && !l.hold(out) {
			return
		}
		first = kind == readyForQuery
		if kind == readyForQuery && len(body) == 1 {
			l.inBlock.Store(int32(body[0]))
			if l.doomed.Load() {
				l.proxy.beforeCut() // The blackout first, so that a client that sees the cut is too late.
				l.cut()
				return
			}
		}
		const noticeResponse = 'N'
		if kind == noticeResponse && l.proxy.opts.Notice != nil {
			l.proxy.opts.Notice(body)
		}
		if l.doomed.Load() || l.muted.Load() || l.proxy.silent() {
			continue
		}
		const notification = 'A'
		if (kind != notification || !l.proxy.opts.Deaf) && writeMessage(out, kind, body) != nil {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// hold waits for as long as the next answer is to be held back, once those before it are on their way.
func (l *link) hold(out *bufio.Writer) bool {
	d := l.proxy.delay()
	if d == 0 {
		return true
	}
	if out.Flush() != nil {
		return false
	}
	<-time.After(d)
	return true
}

// commits follows the client's messages and says whether this one commits a transaction.
func (l *link) commits(kind byte, body []byte) bool {
	switch kind {
	case 'Q': // Query: SQL
		s := classify(cString(&body))
		l.pipeline = statement{}
		return s.commits || s.writes && !s.begins && l.inBlock.Load() == 'I'
	case 'P': // Parse: statement, SQL, …
		name := cString(&body)
		l.statements[name] = classify(cString(&body))
	case 'B': // Bind: portal, statement, …
		portal := cString(&body)
		l.portals[portal] = l.statements[cString(&body)]
	case 'E': // Execute: portal, …
		s := l.portals[cString(&body)]
		l.pipeline.begins = l.pipeline.begins || s.begins
		l.pipeline.commits = l.pipeline.commits || s.commits
		l.pipeline.writes = l.pipeline.writes || s.writes
	case 'S': // Sync
		s := l.pipeline
		l.pipeline = statement{}
		return s.commits || s.writes && !s.begins && l.inBlock.Load() == 'I'
	}
	return false
}

// classify looks at the first word of each statement of an SQL text. A semicolon within a literal makes it see a
// statement too many, whose first word is hardly one of these.
func classify(sql string) statement {
	var all statement
	for one := range strings.SplitSeq(sql, ";") {
		words := strings.Fields(strings.ToLower(stripComments(one)))
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "begin", "start":
			all.begins = true
		case "commit", "end":
			all.commits = true
		case "insert", "update", "delete", "merge":
			all.writes = true
		case "with":
			for i, w := range words[1:] {
				switch strings.TrimLeft(w, "(") {
				case "insert", "delete", "merge":
					all.writes = true
				case "update": // Not that of FOR UPDATE and FOR NO KEY UPDATE, which only lock.
					all.writes = all.writes || words[i] != "for" && words[i] != "key"
				}
			}
		}
	}
	return all
}

func stripComments(sql string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(sql, "\n") {
		code, _, _ := strings.Cut(line, "--")
		b.WriteString(code)
		b.WriteByte('\n')
	}
	return b.String()
}

// cString takes a zero-terminated string from the front of a message.
func cString(body *[]byte) string {
	for i, c := range *body {
		if c == 0 {
			s := string((*body)[:i])
			*body = (*body)[i+1:]
			return s
		}
	}
	return ""
}

// readMessage reads one typed message; its length field counts itself.
func readMessage(in *bufio.Reader) (kind byte, body []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length < 4 || length > maxMessage {
		return 0, nil, errTooLong
	}
	body = make([]byte, length-4)
	_, err = io.ReadFull(in, body)
	return head[0], body, err
}

func writeMessage(out *bufio.Writer, kind byte, body []byte) error {
	head := [5]byte{kind}
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)+4)) //nolint:gosec // Bounded by maxMessage.
	if _, err := out.Write(head[:]); err != nil {
		return err
	}
	_, err := out.Write(body)
	return err
}
