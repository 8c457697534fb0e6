package turns

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// The lock is that of two bytes, "FT", which nothing else uses.
const (
	takeTurn = `SELECT pg_advisory_lock(x'4654'::integer, 0)`
	giveTurn = `SELECT pg_advisory_unlock(x'4654'::integer, 0)`
)

// keep takes turns for as long as somebody wants them.
func (t *Turns) keep() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-t.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	var (
		conn   *pgx.Conn
		closes func(context.Context)
	)
	defer func() {
		if conn != nil {
			gone, cancel := context.WithTimeout(context.Background(), t.pace.drain)
			defer cancel()
			closes(gone)
		}
	}()
	for t.wanted() {
		var err error
		if conn == nil {
			conn, closes, err = t.o.Connect(ctx)
		}
		if err == nil {
			_, err = conn.Exec(ctx, takeTurn)
		}
		switch {
		case err == nil:
			t.turn()
			_, err = conn.Exec(ctx, giveTurn)
		case pgkit.Code(err) == pgkit.LockTimeout:
			t.refuse("late")
			err = nil
		}
		if err != nil {
			t.refuse("connection")
			t.mu.Lock()
			t.end()
			t.mu.Unlock()
			return
		}
	}
}

// wanted waits until somebody wants a turn. It reports false, and the keeper has ended, where nobody does for long.
func (t *Turns) wanted() bool {
	timeout := time.NewTimer(t.pace.idle)
	defer timeout.Stop()
	for over := false; ; {
		t.mu.Lock()
		switch {
		case over, t.closed:
			t.end()
			t.mu.Unlock()
			return false
		case len(t.waiting) > 0:
			t.mu.Unlock()
			return true
		}
		t.mu.Unlock()
		select {
		case <-t.changed:
		case <-timeout.C:
			over = true
		case <-t.closing:
		}
	}
}

// end is the keeper's end, which has those that wait do without a turn. The caller holds the mutex.
func (t *Turns) end() {
	t.kept = false
	for _, w := range t.waiting {
		w.turn <- nil
	}
	t.waiting = nil
}

// refuse has those that wait do without a turn: the others take too long, or the database can't be had. So that not each transaction waits for
// that, no turn is taken during some time.
func (t *Turns) refuse(reason string) {
	t.mu.Lock()
	t.hush = min(max(2*t.hush, quiet), maxQuiet)
	t.quiet = time.Now().Add(t.hush)
	for _, w := range t.waiting {
		w.turn <- nil
	}
	t.waiting = nil
	closed := t.closed
	t.mu.Unlock()
	if t.o.Without != nil && !closed {
		t.o.Without(reason)
	}
}

// turn lets transactions begin for as long as a turn is, and waits until they have ended.
func (t *Turns) turn() {
	r := &round{targets: map[string]*opening{}}
	t.mu.Lock()
	t.round, t.hush = r, 0
	for _, w := range t.waiting {
		t.admit(w)
	}
	t.waiting = nil
	t.mu.Unlock()

	end := time.NewTimer(t.pace.length)
	defer end.Stop()
	for open := true; open; {
		var lingered <-chan time.Time
		t.mu.Lock()
		if r.users == 0 {
			lingered = time.After(t.pace.linger + max(0, t.pace.grace-time.Since(r.called)))
		}
		t.mu.Unlock()
		select {
		case <-t.changed:
			continue
		case <-end.C:
		case <-lingered:
		case <-t.closing:
		}
		open = false
	}
	t.mu.Lock()
	r.closing = true
	t.mu.Unlock()
	late := time.NewTimer(t.pace.drain)
	defer late.Stop()
	for {
		t.mu.Lock()
		unused := r.users == 0
		if unused {
			t.round = nil
		}
		t.mu.Unlock()
		if unused {
			return
		}
		select {
		case <-t.changed:
			continue
		case <-late.C:
		case <-t.closing:
		}
		t.mu.Lock()
		t.round = nil // Those that are left are in nobody's way but by the checks of their transactions.
		t.mu.Unlock()
		return
	}
}

// Settings are those of the session that turns are taken on, by name: the wait for a turn is bounded, and PostgreSQL ends the session of a
// process that is stopped in its turn.
func Settings() (names, values []string) {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return []string{"lock_timeout", "idle_session_timeout"}, []string{ms(Patience), ms(session)}
}
