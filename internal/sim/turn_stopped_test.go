//go:build unix

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestServerStoppedInItsTurn stops one of two servers while it has the turn at what both work on. The other one goes on without the turn,
// PostgreSQL ends the session that the turn is taken on, and the stopped server goes on when it wakes, and takes turns again. Nothing is
// lost or done twice.
func TestServerStoppedInItsTurn(t *testing.T) {
	beside(t)
	pgtest.Needs(t, pgkit.AdvisoryLocks)
	t.Run("bids", func(t *testing.T) {
		beside(t)
		_, seed := testwait.Rand(t)
		s := newTurnStage(t)
		accounts := names("bidder", 40)
		h := &auctionHouse{database: s.database, servers: []*sim.Server{s.sleeper, s.other}, client: s.client, history: s.history, funds: map[string]int64{}}
		h.open(t, append(accounts, "gallery"), 1_000_000)
		b := h.launch(t, "turns", accounts, calm(3))
		c := b.crowd(t, seed, 8, 0)
		s.stopInTurns(t)
		c.finish(t)
		b.act(t, "cancel")
		out := b.finish(t, patience)
		if held := out.Held(); held != 0 || out.Status != "cancelled" {
			t.Errorf("%d held after the end, %s", held, out.Status)
		}
		h.close(t, 1)
	})
	t.Run("purchases and transfers", func(t *testing.T) {
		beside(t)
		_, seed := testwait.Rand(t)
		s := newTurnStage(t)
		l := startLoad(t, s.client, sim.WorkloadOptions{Seed: seed, Prefix: "turns", Accounts: 20, Workers: 16, Mix: sim.DefaultMix()})
		s.stopInTurns(t)
		l.finish(t)
		closeBooks(t, s.database, s.client, s.history, 1)
	})
}

// turnStage is two servers on one database. PostgreSQL tells the sessions of the one that will be stopped by their role.
type turnStage struct {
	database, role string
	sleeper, other *sim.Server
	client         *sim.Client // of both, and of the other one mostly: a command that comes to a stopped server waits there
	history        *sim.History
	conn           *pgx.Conn
}

func newTurnStage(t *testing.T) *turnStage {
	t.Helper()
	s := &turnStage{database: newDatabase(t), role: "sleeper_" + strings.ReplaceAll(uuid.NewString(), "-", "")}
	s.conn = pgtest.Connect(t, s.database)
	testwait.Must(t, testwait.Err(s.conn.Exec(t.Context(), `CREATE ROLE `+s.role+` LOGIN SUPERUSER PASSWORD 'x'`)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.database)
		testwait.Must(t, err)
		_, err = conn.Exec(ctx, `DROP OWNED BY `+s.role+`; DROP ROLE `+s.role)
		testwait.Check(t, errors.Join(err, conn.Close(ctx)))
	})
	u, err := url.Parse(s.database)
	testwait.Must(t, err)
	u.User = url.UserPassword(s.role, "x")
	s.sleeper, s.other = newServer(t, u.String()), newServer(t, s.database)
	t.Cleanup(func() { _ = s.sleeper.Signal(syscall.SIGCONT) }) // It is awake, unless the test has failed.
	s.client, s.history = newClient(t, s.sleeper, s.other, s.other, s.other)
	s.client.LimitAttempts(time.Second)
	return s
}

// turn is one that the sleeper has had since a moment of the database's clock.
type turn struct {
	session int
	began   time.Time
}

// turn returns that which the sleeper has, if any, and knows of: PostgreSQL has answered, and waits for the session's next statement.
func (s *turnStage) turn(t *testing.T) (now turn, has bool) {
	t.Helper()
	err := s.conn.QueryRow(t.Context(), `SELECT a.pid, a.state_change FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.classid = x'4654'::integer::oid AND l.objid = 0 AND l.granted
			AND a.datname = current_database() AND a.usename = $1 AND a.state = 'idle'`, s.role).Scan(&now.session, &now.began)
	if errors.Is(err, pgx.ErrNoRows) {
		return turn{}, false
	}
	testwait.Must(t, err)
	return now, true
}

// without is how often a server went on without a turn that it wanted.
func without(t *testing.T, server *sim.Server, reason string) float64 {
	t.Helper()
	return seriesOf(t, server)[fmt.Sprintf(`fairlead_transaction_fallbacks_total{reason=%q,transaction="turns"}`, reason)]
}

// stopInTurns stops the sleeper in one turn after the other, under a load that is running, and sees what comes of it.
func (s *turnStage) stopInTurns(t *testing.T) {
	t.Helper()
	only := sim.NewClient(s.history, sim.AdminKey, s.sleeper)
	t.Cleanup(only.Close)
	// The other server may just do without turns, after one that it did not get. Then it does not notice that the sleeper keeps one.
	const most = 10
	noticed := 0
	for stop := 0; stop < testwait.Count(1, most) || noticed == 0; stop++ {
		if stop == most {
			t.Fatalf("the other server has noticed none of %d turns that did not end", stop)
		}
		lost := without(t, s.sleeper, "connection")
		stopped, late := s.stopInTurn(t)

		answers := s.history.After(50)
		if !s.isEnded(t, stopped) { // The statement that gives the turn back was on its way when the sleeper was stopped.
			testwait.Must(t, s.sleeper.Signal(syscall.SIGCONT))
			continue
		}
		await(t, "answers of the other server", answers)
		if without(t, s.other, "late") > late {
			noticed++
		}

		testwait.Must(t, s.sleeper.Signal(syscall.SIGCONT))
		testwait.Eventually(t, patience, "the sleeper notices that its session has ended", func() bool { return without(t, s.sleeper, "connection") > lost })
		testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), only, []string{fmt.Sprintf("awake-%d", stop)}, 10))
		await(t, "answers after waking", s.history.After(50))
		testwait.Eventually(t, patience, "the sleeper has a turn again", func() bool {
			_, has := s.turn(t)
			return has
		})
		auditNow(t, s.database)
		if t.Failed() {
			t.Fatalf("after stop %d", stop)
		}
	}
}

// isEnded waits until PostgreSQL has ended the session of a turn, and reports whether that had the turn until then.
func (s *turnStage) isEnded(t *testing.T, stopped turn) (ended bool) {
	t.Helper()
	there := func() (there bool) {
		testwait.Must(t, s.conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND usename = $2)`, stopped.session, s.role).Scan(&there))
		return there
	}
	testwait.Eventually(t, patience, "PostgreSQL ends the session of the turn", func() bool {
		now, has := s.turn(t)
		ended = !there()
		return ended || !has || now != stopped
	})
	return ended
}

// stopInTurn stops the sleeper in a turn, and returns it, with how often the other server had not got its own by then.
func (s *turnStage) stopInTurn(t *testing.T) (now turn, late float64) {
	t.Helper()
	testwait.Eventually(t, patience, "the sleeper is stopped in its turn", func() bool {
		late = without(t, s.other, "late")
		before, had := s.turn(t)
		if !had {
			return false
		}
		testwait.Must(t, s.sleeper.Freeze(testwait.Context(t, patience)))
		var has bool
		if now, has = s.turn(t); has && now == before {
			return true
		}
		testwait.Must(t, s.sleeper.Signal(syscall.SIGCONT)) // That turn was over.
		return false
	})
	return now, late
}
