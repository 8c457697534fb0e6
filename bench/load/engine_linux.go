package load

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ErrStalled is returned when no answer came for StallTimeout although requests were waiting for theirs.
var ErrStalled = errors.New("no answer came")

// StallTimeout is how long an engine waits for any answer before it gives up.
const StallTimeout = 30 * time.Second

// readBytes is room for a whole answer to a single command. It grows for answers to batches.
const readBytes = 8 << 10

// maxEvents is how many ready connections one wait returns at most.
const maxEvents = 128

// Check judges an answer and returns a non-nil error when it is not one that the run may contain.
type Check func(status int, body []byte) error

// conn is one keep-alive connection with at most one request on its way.
type conn struct {
	fd    int
	index int // Among the engine's.
	busy  bool
	since int64 // When the running request's latency began to count: nanoseconds since the engine's epoch.
	read  []byte
	rest  []byte // Of the running request: what the socket had no room for yet.
}

// Engine owns keep-alive connections to one server, or to several. It is for one goroutine, which should be locked to its thread.
type Engine struct {
	epoll   int
	timer   int
	conns   []*conn
	events  [maxEvents]unix.EpollEvent
	epoch   time.Time
	waiting int // Connections that are busy.
}

// Dial opens n connections to servers in turn, given as IPv4 addresses and ports.
func Dial(n int, addrs ...string) (*Engine, error) {
	targets := make([]netip.AddrPort, len(addrs))
	for i, addr := range addrs {
		var err error
		if targets[i], err = netip.ParseAddrPort(addr); err != nil {
			return nil, fmt.Errorf("address %q: %w", addr, err)
		}
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll: %w", err)
	}
	e := &Engine{epoll: epoll, timer: -1, epoch: time.Now()}
	for i := range n {
		target := targets[i%len(targets)]
		fd, err := connect(target)
		if err == nil {
			e.conns = append(e.conns, &conn{fd: fd, index: i, read: make([]byte, 0, readBytes)})
			err = e.watch(fd, i)
		}
		if err != nil {
			e.Close()
			return nil, fmt.Errorf("connection %d to %s: %w", i, target, err)
		}
	}
	return e, nil
}

func connect(target netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(target.Port()), Addr: target.Addr().As4()})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// watch has wait return index when fd can be read.
func (e *Engine) watch(fd, index int) error {
	return e.control(unix.EPOLL_CTL_ADD, fd, index, unix.EPOLLIN)
}

func (e *Engine) control(op, fd, index int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(index)} //nolint:gosec // Far fewer files can be open.
	return unix.EpollCtl(e.epoll, op, fd, &event)
}

// Close closes the connections.
func (e *Engine) Close() {
	for _, c := range e.conns {
		_ = unix.Close(c.fd)
	}
	if e.timer >= 0 {
		_ = unix.Close(e.timer)
	}
	_ = unix.Close(e.epoll)
}

func (e *Engine) now() int64 { return int64(time.Since(e.epoch)) }

// send writes a request on an idle connection. What a socket has no room for is copied, and written when it has.
func (e *Engine) send(c *conn, request []byte, since int64) error {
	n, err := unix.Write(c.fd, request)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("write a request: %w", err)
	}
	c.busy, c.since = true, since
	e.waiting++
	if n = max(n, 0); n == len(request) {
		return nil
	}
	c.rest = append(c.rest[:0], request[n:]...)
	return e.control(unix.EPOLL_CTL_MOD, c.fd, c.index, unix.EPOLLIN|unix.EPOLLOUT)
}

// sendRest goes on with a request for which there was no room.
func (e *Engine) sendRest(c *conn) error {
	n, err := unix.Write(c.fd, c.rest)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("write a request: %w", err)
	}
	if c.rest = c.rest[:copy(c.rest, c.rest[n:])]; len(c.rest) > 0 {
		return nil
	}
	return e.control(unix.EPOLL_CTL_MOD, c.fd, c.index, unix.EPOLLIN)
}

// timerIndex marks the timer among the connections' indices.
const timerIndex = -1

// wait blocks until connections have answered or the timer fired, and hands each whole answer to done.
func (e *Engine) wait(done func(index int, c *conn, status int, body []byte) error) error {
	n, err := unix.EpollWait(e.epoll, e.events[:], int(StallTimeout.Milliseconds()))
	for errors.Is(err, unix.EINTR) {
		n, err = unix.EpollWait(e.epoll, e.events[:], int(StallTimeout.Milliseconds()))
	}
	if err != nil {
		return fmt.Errorf("wait for answers: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("%w for %s: %d requests wait", ErrStalled, StallTimeout, e.waiting)
	}
	for _, event := range e.events[:n] {
		if event.Fd == timerIndex {
			var ticks [8]byte
			_, _ = unix.Read(e.timer, ticks[:]) // Only to make it wait again.
			continue
		}
		if c := e.conns[event.Fd]; event.Events&unix.EPOLLOUT != 0 && len(c.rest) > 0 {
			if err := e.sendRest(c); err != nil {
				return err
			}
		}
		if event.Events&^unix.EPOLLOUT == 0 {
			continue
		}
		if err := e.receive(int(event.Fd), done); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) receive(index int, done func(int, *conn, int, []byte) error) error {
	c := e.conns[index]
	if len(c.read) == cap(c.read) {
		c.read = append(make([]byte, 0, 2*cap(c.read)), c.read...)
	}
	n, err := unix.Read(c.fd, c.read[len(c.read):cap(c.read)])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("read an answer: %w", err)
	case n == 0:
		return errors.New("read an answer: the server closed the connection")
	}
	c.read = c.read[:len(c.read)+n]
	status, body, size, err := parseResponse(c.read)
	if err != nil || size == 0 {
		return err
	}
	if !c.busy || len(c.rest) > 0 || size != len(c.read) {
		return fmt.Errorf("%w: bytes that no request asked for", ErrMalformed)
	}
	c.busy = false
	e.waiting--
	err = done(index, c, status, body)
	// The next request may be on its way already, but its answer is not read before this returns.
	c.read = c.read[:0]
	return err
}

// arm sets the timer to fire after d, at once when it isn't positive.
func (e *Engine) arm(d time.Duration) error {
	if e.timer < 0 {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
		if err != nil {
			return fmt.Errorf("create a timer: %w", err)
		}
		e.timer = fd
		if err := e.watch(fd, timerIndex); err != nil {
			return fmt.Errorf("watch the timer: %w", err)
		}
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 1))}
	if err := unix.TimerfdSettime(e.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("set the timer: %w", err)
	}
	return nil
}
