package turns

import (
	"context"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const patience = testwait.Patience

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// process is one that takes turns on a database.
type process struct {
	*Turns

	without chan string // the reasons for which it had none
	opened  int         // sessions
}

// begin returns a process whose turns end only when nobody has them, unless the test changes its pace.
func begin(t *testing.T, url string, settings map[string]string) *process {
	t.Helper()
	pgtest.Needs(t, pgkit.AdvisoryLocks)
	p := &process{without: make(chan string, 100)}
	p.Turns = New(Options{
		Connect: func(ctx context.Context) (*pgx.Conn, func(context.Context), error) {
			p.opened++
			conn, err := connect(ctx, url, settings)
			return conn, func(ctx context.Context) { _ = conn.Close(ctx) }, err
		},
		Without: func(reason string) { p.without <- reason },
	})
	p.pace = pace{length: time.Hour, linger: time.Millisecond, drain: time.Hour, idle: time.Hour, most: time.Hour}
	t.Cleanup(p.Close)
	return p
}

// connect opens a session that turns can be taken on, but with other settings.
func connect(ctx context.Context, url string, but map[string]string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	names, values := Settings()
	for i := range names {
		config.RuntimeParams[names[i]] = values[i]
	}
	maps.Copy(config.RuntimeParams, but)
	return pgx.ConnectConfig(ctx, config)
}

// meet has a process take turns at a target for as long as the test takes.
func (p *process) meet(target string) {
	p.Met(target)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met[target] = time.Now().Add(time.Hour)
}

// take takes a part in a turn, in the background.
func (p *process) take(t *testing.T, target string) <-chan *Turn {
	t.Helper()
	turn := make(chan *Turn, 1)
	go func() { turn <- p.Take(t.Context(), target) }()
	return turn
}

func got[T any](t *testing.T, from <-chan T) (x T) {
	t.Helper()
	select {
	case x = <-from:
	case <-time.After(patience):
		t.Fatal("nothing comes")
	}
	return x
}

// waiting returns when a session waits for the turn.
func waiting(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	testwait.Eventually(t, patience, "a process waits for its turn", func() bool {
		var n int
		testwait.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = x'4654'::integer::oid
			AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n))
		return n > 0
	})
}

var forLong = map[string]string{"lock_timeout": "1h", "idle_session_timeout": "1h"}

func TestWhoMeetsNobodyTakesNoTurns(t *testing.T) {
	t.Parallel()
	p := begin(t, pgtest.NewDatabase(t, nil), forLong)
	if turn := p.Take(t.Context(), "auction"); turn != nil || turn.IsFirst() {
		t.Errorf("took %v", turn)
	}
	p.Await(t.Context(), "auction", func(context.Context) { t.Error("was told to refresh") })
	p.meet("campaign")
	(*Turn)(nil).Leave()
	if p.Take(t.Context(), "auction") != nil || p.opened > 0 {
		t.Error("took a turn at another target")
	}
	none := New(Options{})
	none.Met("auction")
	if none.Take(t.Context(), "auction") != nil {
		t.Error("took a turn without locks")
	}
	none.Close()
}

// TestTheFirstOfATurn: on each target, others wait for the first one of a turn, and no later one is the first.
func TestTheFirstOfATurn(t *testing.T) {
	t.Parallel()
	p := begin(t, pgtest.NewDatabase(t, nil), forLong)
	p.meet("a")
	p.meet("b")
	one := p.Take(t.Context(), "a")
	if !one.IsFirst() {
		t.Fatal("the first one is not")
	}
	two := p.take(t, "a")
	refreshed := make(chan bool)
	go func() {
		p.Await(t.Context(), "b", func(context.Context) { refreshed <- true })
		close(refreshed)
	}()
	if !got(t, refreshed) || got(t, refreshed) {
		t.Error("the first one to wait for a target was not told to refresh it once")
	}
	p.Await(t.Context(), "b", func(context.Context) { t.Error("a target was refreshed twice in a turn") })
	if turn := p.Take(t.Context(), "b"); turn == nil || turn.IsFirst() {
		t.Error("no turn after a refresh")
	} else {
		turn.Leave()
	}
	testwait.Eventually(t, patience, "the second one waits", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(one.first.waiting) == 1
	})
	one.Opened()
	if second := got(t, two); second == nil || second.IsFirst() {
		t.Error("the second one has no part in the turn")
	} else {
		second.Leave()
	}
	if three := p.Take(t.Context(), "a"); three == nil || three.IsFirst() {
		t.Error("the third one has no part in the turn")
	} else {
		three.Leave()
		three.Leave()
	}
	one.Leave()
	if p.opened != 1 {
		t.Errorf("opened %d sessions", p.opened)
	}
}

// TestTurnsPass: a process that waits has its turn when the other one has no more to do, or when its time is over, whatever it does then.
func TestTurnsPass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length, drain time.Duration
		leaves        bool
	}{
		"nothing to do":              {time.Hour, time.Hour, true},
		"its time is over":           {time.Millisecond, time.Hour, true},
		"its transactions don't end": {time.Millisecond, time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.NewDatabase(t, nil)
			conn := pgtest.Connect(t, url)
			here, there := begin(t, url, forLong), begin(t, url, forLong)
			here.pace.length, here.pace.drain = c.length, c.drain
			here.meet("auction")
			there.meet("auction")
			mine := here.Take(t.Context(), "auction")
			theirs := there.take(t, "auction")
			if c.leaves {
				waiting(t, conn)
				if c.length < time.Hour {
					testwait.Eventually(t, patience, "the turn's time is over", func() bool {
						here.mu.Lock()
						defer here.mu.Unlock()
						return here.round.closing
					})
				}
				mine.Leave()
			}
			turn := got(t, theirs)
			if !turn.IsFirst() {
				t.Error("the other process is not the first one of its own turn")
			}
			again := here.take(t, "auction")
			waiting(t, conn)
			turn.Leave()
			if turn := got(t, again); !turn.IsFirst() {
				t.Error("the turn does not come back")
			} else {
				turn.Leave()
			}
			mine.Leave()
		})
	}
}

// TestLateTurns: a turn that does not come is not waited for again and again.
func TestLateTurns(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	conn := pgtest.Connect(t, url)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), takeTurn)))
	p := begin(t, url, map[string]string{"lock_timeout": "1ms"})
	p.meet("auction")
	for range 3 {
		if p.Take(t.Context(), "auction") != nil {
			t.Error("took a turn that another session has")
		}
	}
	if reason := got(t, p.without); reason != "late" || len(p.without) > 0 {
		t.Errorf("went without a turn: %q, and %d more times", reason, len(p.without))
	}
	if p.hush != quiet {
		t.Errorf("asks for none for %v", p.hush)
	}
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), giveTurn)))
	p.mu.Lock()
	p.quiet = time.Time{}
	p.mu.Unlock()
	if turn := p.Take(t.Context(), "auction"); turn == nil || p.hush != 0 {
		t.Error("takes no turn when it can be had again")
	} else {
		turn.Leave()
	}
}

// TestTheFirstOfATurnIsNotWaitedForForever: where it does not end, others go on without a turn.
func TestTheFirstOfATurnIsNotWaitedForForever(t *testing.T) {
	t.Parallel()
	p := begin(t, pgtest.NewDatabase(t, nil), forLong)
	p.meet("auction")
	first := p.Take(t.Context(), "auction")
	p.pace.most = time.Millisecond
	if second := got(t, p.take(t, "auction")); second != nil {
		t.Error("has a turn before the first one has ended")
	}
	if reason := got(t, p.without); reason != "late" {
		t.Errorf("went without a turn: %q", reason)
	}
	first.Leave()
	testwait.Eventually(t, patience, "all parts are given back", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.round == nil
	})
}

// TestAStoppedProcessLosesItsTurn: PostgreSQL ends the session of a process that says nothing.
func TestAStoppedProcessLosesItsTurn(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	stopped, err := connect(t.Context(), url, nil)
	testwait.Must(t, err)
	defer func() { _ = stopped.Close(context.WithoutCancel(t.Context())) }()
	testwait.Must(t, testwait.Err(stopped.Exec(t.Context(), takeTurn)))
	p := begin(t, url, forLong)
	p.meet("auction")
	if turn := got(t, p.take(t, "auction")); turn == nil {
		t.Error("has no turn")
	} else {
		turn.Leave()
	}
}

// TestLostSessions: without a session there are no turns, and nobody waits for any.
func TestLostSessions(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	p := begin(t, url, forLong)
	p.meet("auction")
	turn := p.Take(t.Context(), "auction")
	testwait.Must(t, testwait.Err(pgtest.Connect(t, url).Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND classid = x'4654'::integer::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)))
	turn.Leave()
	if reason := got(t, p.without); reason != "connection" {
		t.Errorf("went without a turn: %q", reason)
	}
	if p.Take(t.Context(), "auction") != nil {
		t.Error("took a turn at once")
	}
	testwait.Eventually(t, patience, "the keeper ends", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.kept
	})

	away := New(Options{Connect: func(context.Context) (*pgx.Conn, func(context.Context), error) {
		return nil, nil, context.DeadlineExceeded
	}})
	defer away.Close()
	away.Met("auction")
	if away.Take(t.Context(), "auction") != nil {
		t.Error("took a turn without a session")
	}
}

// TestCloseWhileOthersHaveTheTurn: nobody waits any longer.
func TestCloseWhileOthersHaveTheTurn(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	conn := pgtest.Connect(t, url)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), takeTurn)))
	p := begin(t, url, forLong)
	p.meet("auction")
	turn := p.take(t, "auction")
	waiting(t, conn)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if p.Take(gone, "auction") != nil {
		t.Error("a caller who has gone has a turn")
	}
	p.Close()
	if got(t, turn) != nil || p.Take(t.Context(), "auction") != nil {
		t.Error("took a turn after the end")
	}
	if len(p.without) > 0 {
		t.Errorf("the end was reported as %q", got(t, p.without))
	}
}
