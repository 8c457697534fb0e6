//go:build unix

package explore

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"
)

// settle goes on with those who waited for a lock and have it, one after the other. All that wait are stopped: PostgreSQL gives two of
// them their locks at once, and the machine would choose which of them first does what the lock was for.
func (g *gate) settle() error {
	for {
		var parked []*conn
		for _, c := range g.all() {
			if c.parked {
				parked = append(parked, c)
			}
		}
		if len(parked) == 0 {
			return nil
		}
		slices.SortFunc(parked, func(a, b *conn) int { return cmp.Compare(a.name, b.name) })
		waiting, err := g.db.waiting()
		if err != nil {
			return err
		}
		moved := false
		for _, c := range parked {
			if slices.Contains(waiting, c.backend.pid) {
				continue
			}
			if err := errors.Join(c.backend.resume(), g.collect(c)); err != nil {
				return err
			}
			moved = true
		}
		if !moved {
			return nil
		}
	}
}

// timeOut ends a wait for a lock as PostgreSQL does after lock_timeout.
func (g *gate) timeOut(c *conn) error {
	waiting, err := g.db.waiting()
	if err != nil || !slices.Contains(waiting, c.backend.pid) {
		return errors.Join(err, g.settle()) // Somebody outside of the gate was in its way, such as PostgreSQL's own housekeeping.
	}
	return g.end(c, "55P03", "canceling statement due to lock timeout")
}

// end ends a wait for a lock with an error.
func (g *gate) end(c *conn, code, text string) error {
	if err := errors.Join(g.db.cancel(c.backend), c.backend.resume()); err != nil {
		return err
	}
	for {
		m, err := c.backend.wait()
		if err != nil {
			return err
		}
		if m[0] == 'E' {
			c.partial = append(c.partial, withCode(m, code, text)...)
			break
		}
		c.partial = append(c.partial, m...)
	}
	return errors.Join(g.collect(c), g.settle())
}

// timeouts returns when PostgreSQL next ends a wait for a lock, or a session that does nothing in a transaction.
func (g *gate) timeouts() (next time.Time) {
	for _, c := range g.all() {
		since, limit := c.parkedAt, c.timeout
		if !c.parked {
			since, limit = c.idleSince, c.idleLimit
		}
		if over := since.Add(limit); (c.parked || c.backend != nil && !c.idle) && limit > 0 && (next.IsZero() || over.Before(next)) {
			next = over
		}
	}
	return next
}

// duration reads a setting of PostgreSQL's.
func duration(value string) time.Duration {
	if d, err := time.ParseDuration(value); err == nil {
		return d
	}
	ms, _ := strconv.Atoi(value) // 0 means never.
	return time.Duration(ms) * time.Millisecond
}
