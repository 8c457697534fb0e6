package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Row is a row of the table, as it can be caused from outside, or why it can't.
type Row struct {
	Name string `json:"row"`
	// Does says what is done to the installation.
	Does string `json:"does,omitempty"`
	// Needs says what that needs beside servers and database.
	Needs string `json:"needs,omitempty"`
	// Cannot says why it can't be done from outside; empty if it can.
	Cannot string `json:"cannot,omitempty"`

	// processes says that it is one of the servers' processes to which it is done.
	processes bool
	// begin starts the fault, and returns what ends it; both may fail because the fault hit them, too.
	begin func(ctx context.Context, s *site) (end func() error, err error)
	// most is how long it lasts, and pause what comes before the next one, at most.
	most, pause time.Duration
}

// How long faults last and how far apart they are, at most.
const (
	moment = 50 * time.Millisecond
	short  = time.Second
	long   = 5 * time.Second
)

// Rows are all rows, in the table's order.
func Rows() []Row {
	var rows []Row
	for _, r := range tally.Rows() {
		row := Row{Name: r.Name, Cannot: cannot(r)}
		if i := slices.IndexFunc(outside(), func(o Row) bool { return o.Name == r.Name }); i >= 0 {
			row = outside()[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// cannot says why a fault can't be caused from outside.
func cannot(r tally.Row) string {
	why := "it is a test of a library's own"
	switch r.Name {
	case tally.DatabaseKilled:
		why = "a session can't kill its PostgreSQL; " + tally.BackendsTerminated + " ends all sessions"
	case tally.CommitAnswerLost, tally.CommitLost:
		why = "it needs a proxy between servers and PostgreSQL; " + tally.AnswerLost + " loses answers to clients"
	case tally.DiskFull:
		why = "a session must not fill a disk that others may share"
	case tally.ClockStepped:
		why = "a session can't set its machine's clock"
	}
	if strings.HasPrefix(r.Name, tally.Crash("")) {
		why = "it needs servers that were built with crash points"
	}
	return fmt.Sprintf("%s (make torture ROWS=%s does it, in a clone of the project)", why, r.Name)
}

// outside are the rows that can be caused from outside.
func outside() []Row {
	locks := []string{"accounts", "transfers", "campaigns", "idempotency_keys"}
	return []Row{
		{
			Name: tally.ServerKilled, Does: "kills a server, with SIGKILL", Needs: "--pid FILE, which has the process's number anew when something has started it again",
			pause: long, processes: true, begin: killServer,
		},
		{
			Name: tally.ServerPaused, Does: "stops a server for up to 10 s, with SIGSTOP", Needs: "--pid NUMBER or FILE",
			most: 2 * long, pause: short, processes: true, begin: pauseServer,
		},
		{Name: tally.AnswerLost, Does: "loses the answer to a command that was carried out", pause: moment, begin: func(_ context.Context, s *site) (func() error, error) {
			s.proxy().Lose(1)
			return nil, nil
		}},
		{Name: tally.NetworkCut, Does: "cuts clients off from one server or all, for up to 5 s", most: long, pause: short, begin: func(_ context.Context, s *site) (func() error, error) {
			some := s.some()
			for _, p := range some {
				p.Cut(true)
			}
			return func() error {
				for _, p := range some {
					p.Cut(false)
				}
				return nil
			}, nil
		}},
		{Name: tally.NetworkSlow, Does: "delays requests to one server or all by up to 1 s, for up to 5 s", most: long, pause: short, begin: func(_ context.Context, s *site) (func() error, error) {
			some := s.some()
			for _, p := range some {
				p.Slow(short)
			}
			return func() error {
				for _, p := range some {
					p.Slow(0)
				}
				return nil
			}, nil
		}},
		{
			Name: tally.BackendsTerminated, Does: "ends all sessions of the database", Needs: "a database user that may (pg_signal_backend)",
			pause: short, begin: func(ctx context.Context, s *site) (func() error, error) {
				_, err := EndSessions(ctx, s.conn)
				return nil, err
			},
		},
		{Name: tally.TableLocked, Does: "locks a table (" + strings.Join(locks, ", ") + ") for up to 5 s", most: long, pause: short, begin: func(ctx context.Context, s *site) (func() error, error) {
			return s.hold(ctx, "LOCK TABLE "+locks[s.rng.IntN(len(locks))]+" IN ACCESS EXCLUSIVE MODE")
		}},
		{Name: tally.RowLocked, Does: "locks the row of one of its accounts for up to 5 s", most: long, pause: short, begin: func(ctx context.Context, s *site) (func() error, error) {
			return s.hold(ctx, "SELECT FROM accounts WHERE id = '"+s.account()+"' FOR UPDATE")
		}},
		{
			Name: tally.ConnectionsExhausted, Does: "takes all connections of PostgreSQL for up to 5 s", Needs: "a PostgreSQL of its own, and a user that may end sessions",
			most: long, pause: long, begin: func(ctx context.Context, s *site) (func() error, error) {
				release, err := TakeConnections(ctx, s.o.DatabaseURL)
				return func() error { release(); return nil }, err
			},
		},
		{
			Name: tally.BranchOrphaned, Does: "leaves a prepared transaction that locks the row of one of its accounts, for up to 5 s", Needs: "max_prepared_transactions above 0",
			most: long, pause: short, begin: orphan,
		},
	}
}

// hold keeps a lock.
func (s *site) hold(ctx context.Context, sql string) (func() error, error) {
	release, err := Hold(ctx, s.o.DatabaseURL, sql)
	return func() error { release(); return nil }, err
}

// orphan prepares a transaction that nobody ends until the fault is over.
func orphan(ctx context.Context, s *site) (func() error, error) {
	gid := fmt.Sprintf("%s-orphan-%d", s.prefix, s.faults)
	conn, err := Connect(ctx, s.o.DatabaseURL)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"BEGIN", "SELECT FROM accounts WHERE id = '" + s.account() + "' FOR UPDATE", "PREPARE TRANSACTION '" + gid + "'"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			closing(conn) //nolint:contextcheck // It ends also after ctx has.
			return nil, err
		}
	}
	return func() error {
		defer closing(conn) //nolint:contextcheck // As above.

		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectLimit) // Not left behind, even if the run was ended.
		defer cancel()
		_, err := conn.Exec(within, "ROLLBACK PREPARED '"+gid+"'")
		return err
	}, nil
}

// draw is a time of up to most.
func draw(rng *rand.Rand, most time.Duration) time.Duration {
	if most == 0 {
		return 0
	}
	return time.Duration(rng.Int64N(int64(most)))
}

// cause lets one fault happen, from begin to end.
func (r Row) cause(ctx context.Context, s *site) error {
	lasts, pause := draw(s.rng, r.most), draw(s.rng, r.pause)
	if !wait.For(ctx, pause) {
		return nil
	}
	s.faults++
	began := time.Now()
	end, err := r.begin(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	s.history.Recorder.Fault(r.Name, began)
	if end == nil {
		return nil
	}
	wait.For(ctx, lasts)
	if err := end(); err != nil {
		return fmt.Errorf("%s: end it: %w", r.Name, err)
	}
	return nil
}
