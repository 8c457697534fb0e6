//go:build unix

package explore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Mode is how a message is let through.
type Mode string

// The modes. The first is what happens where nothing is wrong.
const (
	Go   Mode = "go"   // it arrives, and its answer does
	Hold Mode = "hold" // it arrives; the answer is a message of its own
	Lose Mode = "lose" // it arrives; the answer is lost, and with it the connection
	Late Mode = "late" // the connection is cut now, and the message arrives later
	Drop Mode = "drop" // the connection is cut, and the message is lost
	Part Mode = "part" // it arrives, the answer is lost with its connection, and the messages of its server are stopped for a while
)

// Option is a message that could be let through next, or another event.
type Option struct {
	Label  string // the same in each run of a schedule
	Thread string // whose it is; the messages of a thread have an order
	Since  int    // the step that it was first seen at
	Faults []Mode // what it may meet other than Go

	process string // whose it is; empty: PostgreSQL's or the network's
	run     func(Mode) error
}

// link is what the gate knows of a connection.
type link struct {
	db         *database
	group      string // whose it is and what for, such as s1/reads
	name       string // while it has something to say or is in a transaction, such as s1/reads#2
	backend    *backend
	statements map[string]string
	since      map[string]int // when an option was first seen
	mode       Mode           // of the unit that is being executed
	chosen     bool           // that unit was let through by choice
	partial    []byte         // the answer so far of a unit that waits for a lock
	parked     bool           // it does
	parkedAt   time.Time
	held       []byte // an answer that waits to be let through
	idle       bool   // the session is in no transaction
	listens    bool   // the session wants notifications
	notifies   bool   // its transaction notifies others
	locks      bool   // the session has a lock beside transactions
	heard      []byte // notifications that wait to be let through
	ownTimeout time.Duration
	idleLimit  time.Duration // how long the session may do nothing in a transaction
	idleSince  time.Time     // when it began to
	timeout    time.Duration // how long it waits for locks now
	ended      bool
}

// gate is between the servers, their clients and the database. What goes through it does so one at a time. Servers and clients
// call dial and roundTrip; all else is called by the scheduler while everybody waits.
type gate struct {
	db      *database
	other   *database // that processes may use too; may be nil
	serve   func(server string) http.Handler
	arrived chan struct{} // has room for one: something may be pending

	mu    sync.Mutex
	conns []*conn
	calls []*call
	asks  []*ask
	lives map[string]int // of the processes
	who   *goroutines
	step  int
	moved bool // a transaction that notifies has ended since sessions were last asked for notifications
}

func newGate(db, other *database) *gate {
	return &gate{db: db, other: other, arrived: make(chan struct{}, 1), lives: map[string]int{}, who: newGoroutines()}
}

// begin counts steps from the next one on.
func (g *gate) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.step = 0
	for _, c := range g.conns {
		clear(c.since)
	}
}

func (g *gate) signal() {
	select {
	case g.arrived <- struct{}{}:
	default:
	}
}

// dial returns the function by which a server connects to the database.
func (g *gate) dial(server string) func(context.Context, string, string) (net.Conn, error) {
	g.mu.Lock()
	life := g.lives[server]
	g.mu.Unlock()
	return func(_ context.Context, _, to string) (net.Conn, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.lives[server] != life {
			return nil, errors.New("the server is dead")
		}
		c := newConn(server, g.who, g.signal)
		c.statements, c.since, c.db = map[string]string{}, map[string]int{}, g.db
		if strings.HasPrefix(to, otherHost) {
			c.db = g.other
		}
		g.conns = append(g.conns, c)
		return c, nil
	}
}

// all are the connections now. A server that was just answered may be making another one.
func (g *gate) all() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.conns)
}

// prepare does one thing that is no choice, and says whether there was one: a session starts, or statements are prepared. It forgets
// connections that nobody needs.
func (g *gate) prepare() (bool, error) {
	g.mu.Lock()
	g.conns = slices.DeleteFunc(g.conns, func(c *conn) bool { return c.ended || c.backend == nil && c.gone() })
	g.mu.Unlock()
	for _, c := range g.all() {
		if c.backend == nil {
			if c.first(false, false) != nil {
				return true, g.start(c)
			}
			continue
		}
		if u := c.first(true, false); u != nil && !c.parked && len(c.held) == 0 {
			if tell(u, c.statements); prepares(u) || pings(u) || u[0] == 'X' && c.free() { // It is told for the statements' sake.
				return true, g.execute(c, Go)
			}
		} else if u == nil && c.gone() && c.free() {
			return true, g.hangUp(c)
		}
	}
	return false, nil
}

// name names the connections that have something to say, with the smallest number that no other one of the group has now. Those of a
// pool are alike, and which of them a goroutine gets is the machine's choice: it must not be part of a history.
func (g *gate) name() {
	type speaker struct {
		*conn

		what string
		unit []byte
	}
	var nameless []speaker
	taken := map[string]bool{}
	for _, c := range g.conns {
		u := c.first(true, false)
		switch {
		case c.ended || c.backend == nil:
		case c.name != "":
			taken[c.name] = true
		case u != nil:
			nameless = append(nameless, speaker{c, c.group + " " + tell(u, c.statements) + " " + c.writer, u})
		case c.gone() || len(c.heard) > 0:
			nameless = append(nameless, speaker{conn: c, what: c.group})
		}
	}
	slices.SortStableFunc(nameless, func(a, b speaker) int {
		return cmp.Or(cmp.Compare(a.what, b.what), g.who.compare(a.asker, b.asker), bytes.Compare(a.unit, b.unit), cmp.Compare(a.asker, b.asker))
	})
	for _, c := range nameless {
		for n := 1; c.name == ""; n++ {
			if name := c.group + "#" + strconv.Itoa(n); !taken[name] {
				c.name, taken[name] = name, true
			}
		}
	}
}

// start starts a session, once the server has asked for it.
func (g *gate) start(c *conn) error {
	u := c.first(false, true)
	if u == nil {
		return nil
	}
	if binary.BigEndian.Uint32(u[4:]) == cancelCode {
		pid := strconv.FormatUint(uint64(binary.BigEndian.Uint32(u[8:])), 10)
		c.sever()
		c.ended = true
		for _, other := range g.all() {
			if other.backend != nil && other.backend.pid == pid && other.parked {
				return g.end(other, "57014", "canceling statement due to user request")
			}
		}
		return nil
	}
	parameters := startParameters(u)
	app := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(parameters["application_name"], "fairlead"), " "), " ", "-")
	c.group = c.server + "/" + cmp.Or(app, "commands")
	if parameters["plan_cache_mode"] != "" {
		c.group = c.server + "/pipeline"
	}
	b, err := c.db.take(c.group[len(c.server):])
	if err != nil {
		return err
	}
	c.backend, c.idle = b, true
	c.ownTimeout, c.timeout, c.idleLimit = 0, 0, 0
	// What the session did in other schedules must not count: PostgreSQL would choose plans by how often it has run a statement.
	set := []string{"SET skew.life = " + strconv.Itoa(c.db.life), "SET plan_cache_mode = force_custom_plan"}
	for name, value := range parameters {
		switch name {
		case "user", "database", "statement_timeout": // By the machine's time.
		case "idle_in_transaction_session_timeout":
			c.idleLimit = duration(value)
		case "lock_timeout":
			c.ownTimeout = duration(value)
		case "options": // -c name=value, for each setting
			for _, option := range strings.Split(value, "-c ")[1:] {
				name, value, _ := strings.Cut(strings.TrimSpace(option), "=")
				set = append(set, fmt.Sprintf("SET %s = '%s'", name, value))
			}
		default:
			set = append(set, fmt.Sprintf("SET %s = '%s'", name, value))
		}
	}
	c.timeout = c.ownTimeout
	if _, err := b.query(strings.Join(append(set, "SET deadlock_timeout = '1h'"), "; ")); err != nil {
		return err
	}
	key := []byte{'K', 0, 0, 0, 12}
	pid, _ := strconv.ParseUint(b.pid, 10, 32) // It was written as one.
	key = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(key, uint32(pid)), 1)
	c.answer(slices.Concat([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 0}, b.hello, key, []byte{'Z', 0, 0, 0, 5, 'I'}))
	return nil
}

// options lists what can happen next, by label.
func (g *gate) options() []Option {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.name()
	var all []Option
	for _, c := range g.conns {
		process := c.server
		add := func(what string, faults []Mode, run func(Mode) error) {
			label := c.name + " " + what
			if c.since[label] == 0 {
				clear(c.since)
				c.since[label] = g.step
			}
			all = append(all, Option{Label: label, Thread: c.name, Since: c.since[label], Faults: faults, process: process, run: run})
		}
		if c.ended || c.backend == nil {
			continue
		}
		// PostgreSQL counts from its answer, whether or not that has arrived.
		if c.idleLimit > 0 && !c.idle && !c.parked && time.Since(c.idleSince) >= c.idleLimit {
			all = append(all, Option{Label: c.name + " idle timeout", Thread: c.name, Since: g.step, run: func(Mode) error { return g.hangUp(c) }})
		}
		if len(c.held) > 0 {
			add("answer", []Mode{Lose}, func(m Mode) error { return g.release(c, m) })
			continue
		}
		if c.parked {
			if process = ""; c.timeout > 0 && time.Since(c.parkedAt) >= c.timeout {
				add("lock timeout", nil, func(Mode) error { return g.timeOut(c) })
			}
			continue
		}
		if len(c.heard) > 0 && !c.gone() {
			add("notification", nil, func(Mode) error { g.notify(c); return nil })
		}
		if u := c.first(true, false); u != nil {
			faults := []Mode{Hold, Lose, Late, Drop}
			if c.gone() {
				faults = nil
			}
			add(tell(u, c.statements), faults, func(m Mode) error { return g.let(c, m) })
		} else if c.gone() {
			add("hangup", nil, func(Mode) error { return g.hangUp(c) })
		}
	}
	all = append(all, g.callOptions()...)
	all = append(all, g.askOptions()...)
	slices.SortFunc(all, func(a, b Option) int { return cmp.Compare(a.Label, b.Label) })
	return all
}

// let lets a unit through.
func (g *gate) let(c *conn, m Mode) error {
	if m == Late || m == Drop {
		c.who.mark(c.asker, c.who.next())
		c.sever()
		if m == Drop {
			c.discard()
		}
		return nil
	}
	c.chosen = true
	return errors.Join(g.execute(c, m), g.settle())
}

func (g *gate) execute(c *conn, m Mode) error {
	if err := c.db.setClock(time.Now()); err != nil {
		return err
	}
	u := c.first(true, true)
	if u[0] == 'X' {
		c.sever()
		return g.hangUp(c)
	}
	if answer := c.backend.known(u); answer != nil {
		c.give(answer)
		return nil
	}
	for _, sql := range statementsIn(u, c.statements) {
		if _, gid, ok := strings.Cut(sql, "prepare transaction '"); ok {
			if err := c.db.prepares(strings.TrimRight(gid, "'")); err != nil {
				return err
			}
		}
		c.listens = c.listens || strings.HasPrefix(brief(sql), "listen")
		c.notifies = c.notifies || c.db.notifying(sql)
		c.locks = (c.locks || strings.Contains(sql, "pg_advisory_lock")) && !strings.Contains(sql, "pg_advisory_unlock")
		for function, limit := range c.db.limits {
			if strings.Contains(sql, function) {
				c.timeout = limit
			}
		}
	}
	u, limit := withoutLimit(u)
	if limit != "" {
		c.timeout = duration(limit)
	}
	c.mode = m
	if err := c.backend.forget(u); err != nil {
		return err
	}
	if err := c.backend.write(u); err != nil {
		return err
	}
	return g.collect(c)
}

// collect reads the answer to a unit, until it is complete or PostgreSQL waits for a lock.
func (g *gate) collect(c *conn) error {
	for {
		m, err := c.backend.next()
		if errors.Is(err, errSlow) {
			waiting, err := g.db.waiting()
			if err != nil {
				return err
			}
			if slices.Contains(waiting, c.backend.pid) {
				if !c.parked {
					c.parked, c.parkedAt = true, time.Now()
				}
				return c.backend.stop()
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if m[0] == 'N' {
			if _, value, ok := strings.Cut(fields(m), lockTimeoutNotice); ok {
				c.timeout = duration(strings.TrimSpace(value))
				continue
			}
		}
		c.partial = append(c.partial, m...)
		if m[0] == 'Z' {
			if c.idle = m[5] == 'I'; c.idle {
				c.timeout = c.ownTimeout
				g.moved, c.notifies = g.moved || c.notifies, false
			}
			c.idleSince = time.Now()
			answer := c.partial
			c.backend.note(answer)
			c.partial, c.parked = nil, false
			switch c.mode {
			case Lose:
				c.lose()
			case Hold:
				c.held = answer
			case Go, Late, Drop, Part: // Of Late and Drop nobody reads it, and Part is Lose here.
				c.give(answer)
			}
			return nil
		}
	}
}

// release lets an answer through that was held.
func (g *gate) release(c *conn, m Mode) error {
	if m == Lose {
		c.lose()
	} else {
		c.give(c.held)
	}
	c.held = nil
	return nil
}

// hear asks the sessions that listen for notifications, which PostgreSQL gives them only when they are spoken to or at its leisure.
func (g *gate) hear() error {
	if !g.moved {
		return nil
	}
	g.moved = false
	for _, c := range g.all() {
		if c.backend == nil || c.ended || !c.listens || !c.idle || c.parked {
			continue
		}
		if err := c.backend.write([]byte{'S', 0, 0, 0, 4}); err != nil {
			return err
		}
		for {
			m, err := c.backend.wait()
			if err != nil {
				return fmt.Errorf("%s: %w", c.group, err)
			}
			if m[0] == 'Z' {
				break
			}
			c.heard = append(c.heard, m...)
		}
	}
	return nil
}

// notify lets notifications through.
func (g *gate) notify(c *conn) {
	heard := c.heard
	c.heard = nil
	c.give(heard)
}

// hangUp tells PostgreSQL that a connection has ended, and its server, should PostgreSQL have ended it.
func (g *gate) hangUp(c *conn) error {
	c.ended = true
	c.sever()
	return errors.Join(c.db.give(c.backend), g.settle())
}

// kill ends a server as SIGKILL does: its connections and its clients' are cut. What it wrote may be on its way still.
func (g *gate) kill(server string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lives[server]++
	for _, c := range g.conns {
		if c.server == server {
			c.sever()
		}
	}
	for _, call := range g.calls {
		if call.server == server && call.begun {
			call.fail(g.who.next())
		}
	}
}

// finish ends all sessions, as a database does that fails, and says whether there were any.
func (g *gate) finish(dbs ...*database) (found bool, err error) {
	conns := slices.DeleteFunc(g.all(), func(c *conn) bool { return !slices.Contains(dbs, c.db) })
	for _, c := range conns {
		c.sever()
		if c.parked {
			err = errors.Join(err, g.timeOut(c))
		}
	}
	for _, c := range conns {
		if c.backend != nil && !c.ended {
			err = errors.Join(err, g.hangUp(c))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns = slices.DeleteFunc(g.conns, func(c *conn) bool { return slices.Contains(conns, c) })
	return len(conns) > 0, err
}
