package wire_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// start makes a database and a proxy to it, and returns the proxy, a URL through it and one that goes around it.
func start(t *testing.T, opts wire.Options) (proxy *wire.Proxy, through, around string) {
	t.Helper()
	around = pgtest.NewDatabase(t, nil)
	proxy, through = wire.Through(t, around, opts)
	return proxy, through, around
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	return conn
}

// TestLostCommitsAreWhatTheProxySays writes one row a transaction in each of the ways in which pgx commits, and counts
// afterwards: delivered and answer-lost commits are there, lost commits are not, open ones may be.
func TestLostCommitsAreWhatTheProxySays(t *testing.T) {
	proxy, through, around := start(t, wire.Options{Seed: 7, LoseOneIn: 3})
	direct := connect(t, around)
	testwait.Must(t, testwait.Err(direct.Exec(t.Context(), `CREATE TABLE marks (n int PRIMARY KEY, acknowledged bool)`)))
	const insert = `INSERT INTO marks (n) VALUES ($1)`
	ways := map[string]func(*pgx.Conn, int) error{
		"explicit": func(c *pgx.Conn, n int) error {
			tx, err := c.Begin(t.Context())
			if err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), insert, n); err != nil {
				return err
			}
			return tx.Commit(t.Context())
		},
		"one statement": func(c *pgx.Conn, n int) error {
			_, err := c.Exec(t.Context(), insert, n)
			return err
		},
		"batch": func(c *pgx.Conn, n int) error {
			var b pgx.Batch
			b.Queue(`SELECT 1`)
			b.Queue(`WITH made AS (INSERT INTO marks (n) VALUES ($1) RETURNING n) SELECT n FROM made`, n)
			return c.SendBatch(t.Context(), &b).Close()
		},
		"simple protocol": func(c *pgx.Conn, n int) error {
			_, err := c.Exec(t.Context(), fmt.Sprintf("-- a comment\nINSERT INTO marks (n) VALUES (%d); SELECT 1", n), pgx.QueryExecModeSimpleProtocol)
			return err
		},
	}
	proxy.Arm(true)
	n, acknowledged := 0, 0
	const rounds = 60
	for name, write := range ways {
		before := proxy.Stats()
		for range rounds {
			n++
			conn, err := pgx.Connect(t.Context(), through)
			testwait.Must(t, err)
			if err := write(conn, n); err == nil {
				acknowledged++
			} else if !conn.IsClosed() && !strings.Contains(err.Error(), "EOF") {
				t.Errorf("%s: %v", name, err)
			}
			_ = conn.Close(t.Context())
		}
		if after := proxy.Stats(); after.Delivered+after.Lost() != before.Delivered+before.Lost()+rounds {
			t.Errorf("%s: saw %d commits of %d", name, after.Delivered+after.Lost()-before.Delivered-before.Lost(), rounds)
		}
	}
	s := proxy.Stats()
	t.Logf("%+v", s)
	if s.AnswerLost == 0 || s.OutcomeOpen == 0 || s.CommitLost == 0 {
		t.Fatalf("a fate did not occur: %+v", s)
	}
	if acknowledged != s.Delivered {
		t.Errorf("%d acknowledged, %d delivered", acknowledged, s.Delivered)
	}
	var rows int
	testwait.Must(t, direct.QueryRow(t.Context(), `SELECT count(*) FROM marks`).Scan(&rows))
	if least, most := s.Delivered+s.AnswerLost, s.Delivered+s.AnswerLost+s.OutcomeOpen; rows < least || rows > most {
		t.Errorf("%d rows, want %d to %d", rows, least, most)
	}
}

// TestReadsAndRollbacksPassAnArmedProxy sends what commits nothing through a proxy that would lose every commit.
func TestReadsAndRollbacksPassAnArmedProxy(t *testing.T) {
	proxy, through, _ := start(t, wire.Options{Seed: 1, LoseOneIn: 1})
	conn := connect(t, through)
	proxy.Arm(true)
	for range 20 {
		var one int
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT 1`).Scan(&one))
		tx, err := conn.Begin(t.Context())
		testwait.Must(t, err)
		testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `CREATE TABLE gone (n int)`)))
		testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `INSERT INTO gone VALUES ($1)`, 1)))
		testwait.Must(t, tx.Rollback(t.Context()))
	}
	if s := proxy.Stats(); s != (wire.Stats{}) {
		t.Errorf("commits seen: %+v", s)
	}
	proxy.Arm(false)
	if _, err := conn.Exec(t.Context(), `CREATE TEMP TABLE kept (n int); INSERT INTO kept VALUES (1)`); err != nil {
		t.Errorf("commit through a disarmed proxy: %v", err)
	}
}

// TestBlackoutRefusesConnections loses commits until a blackout follows one, and checks that it cuts the others, that
// nobody gets in, and that it ends.
func TestBlackoutRefusesConnections(t *testing.T) {
	const dark = 2 * time.Second
	proxy, through, _ := start(t, wire.Options{Seed: 3, LoseOneIn: 1, Blackout: dark})
	bystander := connect(t, through)
	proxy.Arm(true)
	var began time.Time
	for proxy.Stats().Blackouts == 0 {
		conn, err := pgx.Connect(t.Context(), through)
		testwait.Must(t, err)
		began = time.Now()
		_, err = conn.Exec(t.Context(), `CREATE TEMP TABLE t (n int); INSERT INTO t VALUES (1)`)
		if err == nil {
			t.Fatal("a commit was acknowledged")
		}
		if t.Context().Err() != nil {
			t.Fatal("no blackout")
		}
	}
	// Its connection is cut at about the same time as the one that sent the commit.
	for bystander.Ping(t.Context()) == nil {
		if time.Since(began) > dark {
			t.Fatal("a connection lived through a blackout")
		}
	}
	refused := 0
	for {
		conn, err := pgx.Connect(t.Context(), through)
		if err == nil {
			err = conn.Close(t.Context())
			if since := time.Since(began); since < dark {
				t.Errorf("let in after %v", since)
			}
			testwait.Check(t, err)
			break
		}
		refused++
		if time.Since(began) > dark+10*time.Second {
			t.Fatalf("the blackout does not end: %v", errors.Unwrap(err))
		}
	}
	if refused == 0 {
		t.Error("nobody was refused")
	}
}

// TestDelayedAnswers holds back every answer.
func TestDelayedAnswers(t *testing.T) {
	const delay = 300 * time.Millisecond
	proxy, through, around := start(t, wire.Options{Seed: 5})
	direct, conn := connect(t, around), connect(t, through)
	testwait.Must(t, testwait.Err(direct.Exec(t.Context(), `CREATE TABLE marks (n int)`)))
	proxy.Delay(1, delay, delay)
	began := time.Now()
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `INSERT INTO marks VALUES (1)`, pgx.QueryExecModeSimpleProtocol)))
	if took := time.Since(began); took < delay {
		t.Errorf("answered after %v", took)
	}
	if s := proxy.Stats(); s.Delayed != 1 {
		t.Errorf("%d answers were held back", s.Delayed)
	}
	var rows int
	if err := direct.QueryRow(t.Context(), `SELECT count(*) FROM marks`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
	proxy.Delay(0, 0, 0)
	testwait.Check(t, conn.Ping(t.Context()))
	if s := proxy.Stats(); s.Delayed != 1 {
		t.Errorf("%d answers were held back", s.Delayed)
	}
	proxy.DelayNext(1, delay)
	for n, want := range []int{1, 2, 2} {
		testwait.Check(t, conn.Ping(t.Context()))
		if s := proxy.Stats(); s.Delayed != want {
			t.Errorf("after %d: %d answers were held back", n, s.Delayed)
		}
	}
}

// TestRefusingProxy: a proxy that refuses cuts its connections and takes no new ones, until it is told to take them again.
func TestRefusingProxy(t *testing.T) {
	proxy, through, _ := start(t, wire.Options{})
	conn := connect(t, through)
	proxy.Refuse(true)
	if conn.Ping(t.Context()) == nil {
		t.Error("a connection was not cut")
	}
	if other, err := pgx.Connect(t.Context(), through); err == nil {
		_ = other.Close(t.Context())
		t.Error("a connection was let in")
	}
	proxy.Refuse(false)
	testwait.Check(t, connect(t, through).Ping(t.Context()))
}
