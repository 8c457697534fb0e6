//go:build unix

package explore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"
)

// glance is how long a read waits before somebody looks whether PostgreSQL waits for a lock.
const glance = 4 * time.Millisecond

// errSlow is returned by a read that had nothing to read for a glance.
var errSlow = errors.New("nothing to read yet")

// backend is a session of a real PostgreSQL. It reads and writes by system calls: to a bubble of testing/synctest the goroutine
// that waits for PostgreSQL is at work, and so time stands still meanwhile.
type backend struct {
	fd    int
	pid   string
	hello []byte // the parameters that PostgreSQL reports at the start
	in    []byte
	chunk [64 << 10]byte

	what     string            // its connections are for
	prepared map[string][]byte // the answers to units that prepare statements, without the last byte: the state of the transaction
	names    map[string]string // which unit has prepared a statement, by its name
	asked    string            // the unit that is under way, if it prepares statements
	stale    bool              // it may have prepared others
	status   byte              // of the transaction, as PostgreSQL said it last
}

// connect opens a session by the socket in dir.
func connect(dir, port, user, database string) (*backend, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	b := &backend{fd: fd, status: 'I', prepared: map[string][]byte{}, names: map[string]string{}}
	limit := syscall.NsecToTimeval(glance.Nanoseconds())
	err = errors.Join(
		syscall.Connect(fd, &syscall.SockaddrUnix{Name: dir + "/.s.PGSQL." + port}),
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit),
	)
	if err == nil {
		err = b.start(user, database)
	}
	if err != nil {
		b.close()
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return b, nil
}

func (b *backend) start(user, database string) error {
	const protocol3 = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, protocol3)
	for _, word := range []string{"user", user, "database", database, "application_name", "explore", ""} {
		body = append(append(body, word...), 0)
	}
	if err := b.write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)); err != nil { //nolint:gosec // It is short.
		return err
	}
	for {
		m, err := b.wait()
		if err != nil {
			return err
		}
		switch m[0] {
		case 'S':
			b.hello = append(b.hello, m...)
		case 'K':
			b.pid = strconv.FormatUint(uint64(binary.BigEndian.Uint32(m[5:])), 10)
		case 'E':
			return errors.New(string(m[5:]))
		case 'Z':
			return nil
		}
	}
}

func (b *backend) close() { _ = syscall.Close(b.fd) }

// stop stops the process of a session. It waits for a lock, and so it has nothing that others of PostgreSQL's processes could wait for.
func (b *backend) stop() error { return b.send(syscall.SIGSTOP) }

// resume has it go on.
func (b *backend) resume() error { return b.send(syscall.SIGCONT) }

func (b *backend) send(s syscall.Signal) error {
	pid, err := strconv.Atoi(b.pid)
	if err == nil {
		err = syscall.Kill(pid, s)
	}
	if err != nil {
		return fmt.Errorf("signal PostgreSQL's process %s: %w", b.pid, err)
	}
	return nil
}

func (b *backend) write(p []byte) error {
	for len(p) > 0 {
		n, err := syscall.Write(b.fd, p)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		p = p[max(n, 0):]
	}
	return nil
}

// next returns PostgreSQL's next message, or errSlow. The message is the caller's.
func (b *backend) next() ([]byte, error) {
	for {
		if len(b.in) >= 5 {
			if n := int(binary.BigEndian.Uint32(b.in[1:])) + 1; len(b.in) >= n {
				m := append([]byte(nil), b.in[:n]...)
				b.in = b.in[n:]
				return m, nil
			}
		}
		n, err := syscall.Read(b.fd, b.chunk[:])
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return nil, errSlow
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.ErrUnexpectedEOF
		default:
			b.in = append(b.in, b.chunk[:n]...)
		}
	}
}

// wait is next that has patience.
func (b *backend) wait() (m []byte, err error) {
	for {
		if m, err = b.next(); !errors.Is(err, errSlow) {
			return m, err
		}
	}
}

// query runs statements by the simple protocol and returns the first column of their rows.
func (b *backend) query(sql string) (first []string, err error) {
	m := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(sql)+5)) //nolint:gosec // It is short.
	if err := b.write(append(append(m, sql...), 0)); err != nil {
		return nil, err
	}
	for {
		m, waited := b.wait()
		if waited != nil {
			return nil, waited
		}
		switch m[0] {
		case 'D':
			if n := int32(binary.BigEndian.Uint32(m[7:])); n >= 0 { //nolint:gosec // -1 is NULL.
				first = append(first, string(m[11:11+n]))
			}
		case 'E':
			err = fmt.Errorf("%s: %s", sql, fields(m))
		case 'Z':
			return first, err
		}
	}
}

// fields tells an ErrorResponse or NoticeResponse.
func fields(m []byte) (text string) {
	eachField(m, func(code byte, value string) {
		if code == 'C' || code == 'M' {
			text += value + " "
		}
	})
	return text
}

func eachField(m []byte, f func(code byte, value string)) {
	for rest := m[5:]; len(rest) > 1; {
		end := 1
		for end < len(rest) && rest[end] != 0 {
			end++
		}
		f(rest[0], string(rest[1:end]))
		rest = rest[min(end+1, len(rest)):]
	}
}
