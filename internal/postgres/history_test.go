package postgres

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// lossesSeen is a [Watch]'s Losses.
type lossesSeen struct {
	mu    sync.Mutex
	open  int64
	found int
}

func (l *lossesSeen) note(open int64, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
	if found {
		l.found++
	}
}

func (l *lossesSeen) seen() (open int64, found int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.found
}

// watched is a database that is watched, by way of a proxy that can lead to another.
type watched struct {
	*DB
	t      *testing.T
	server *localpg.Instance
	proxy  *wire.Proxy
	seen   lossesSeen
	log    *testwait.Buffer
	money  *ledger.Service
	n      int
}

func newWatched(t *testing.T, o Options) *watched {
	t.Helper()
	w := &watched{t: t, server: pgtest.Server(t), log: &testwait.Buffer{}}
	testwait.Must(t, migrated(t.Context(), w.server.URL()))
	w.proxy, o.URL = wire.Through(t, w.server.URL(), wire.Options{})
	o.Watch = &Watch{Version: "test", KeysKept: time.Hour, Losses: w.seen.note}
	o.Logger = slog.New(slog.NewJSONHandler(w.log, nil))
	w.DB = open(t, o)
	w.money = newLedgerService(t, w.DB)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.WatchHistory(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	w.beats(1)
	return w
}

// beats waits for so many beats that the database has confirmed.
func (w *watched) beats(n int64) {
	w.t.Helper()
	count := func() int64 {
		w.history.mu.Lock()
		defer w.history.mu.Unlock()
		return w.history.confirmed.count
	}
	from := count()
	testwait.Eventually(w.t, patience, "beats", func() bool { return count() >= from+n })
}

// deposit commits a deposit, and says that its client was told.
func (w *watched) deposit() {
	w.t.Helper()
	w.n++
	c := keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, "deposit "+time.Now().String(), "")
	if a, err := w.money.Execute(w.t.Context(), c); err != nil || a.Status != 201 {
		w.t.Fatalf("deposit: %+v, %v", a, err)
	}
	w.Acknowledge(c.Key.ID, c.Key.Execution)
}

// lead has all new connections go to another server.
func (w *watched) lead(to *localpg.Instance) {
	w.t.Helper()
	config, err := pgx.ParseConfig(to.URL())
	testwait.Must(w.t, err)
	w.proxy.Lead(pgconn.NetworkAddress(config.Host, config.Port))
}

// TestLostAnswer has a failover lose one answer, a moment old: the server's row is as it was.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	w := newWatched(t, Options{})
	fund(t, w.money, 100, "ann")
	w.deposit()
	w.beats(1)
	standby := pgtest.CopyOf(t, w.server)
	w.deposit()
	dropped := false
	w.OnLostHistory(func() { dropped = true })
	w.lead(standby)
	testwait.Eventually(t, patience, "the loss to be noticed and written", func() bool {
		open, found := w.seen.seen()
		return open == 1 && found == 1 && !w.saving()
	})
	if !dropped || !w.HistoryLost() {
		t.Errorf("dropped %t, lost %t", dropped, w.HistoryLost())
	}
	losses, err := w.Losses(t.Context())
	if err != nil || len(losses) != 1 || losses[0].Answers != 1 || losses[0].Checked < 2 || losses[0].Until.IsZero() {
		t.Fatalf("%+v, %v", losses, err)
	}
	if said := w.log.String(); !strings.Contains(said, "history lost") || !strings.Contains(said, losses[0].Server) {
		t.Errorf("the log says %s", said)
	}
	testwait.Eventually(t, patience, "tokens to jump", func() bool {
		return ask[int64](t, w.DB, `SELECT token_floor FROM lock_arbiter`) >= pglock.LostGrants &&
			ask[int64](t, w.DB, `SELECT token_floor FROM fairlead_elections.lock_arbiter`) >= pglock.LostGrants
	})
	// Everything goes on, and is not reported again.
	w.deposit()
	w.beats(2)
	if open, found := w.seen.seen(); open != 1 || found != 1 {
		t.Errorf("%d open, %d found", open, found)
	}
	accepted, err := w.AcceptHistory(t.Context())
	if err != nil || len(accepted) != 1 || accepted[0].ID != losses[0].ID {
		t.Errorf("%+v, %v", accepted, err)
	}
	// The beat that ends next may have read before it.
	testwait.Eventually(t, patience, "none is open", func() bool { open, _ := w.seen.seen(); return open == 0 && !w.HistoryLost() })
}

func (w *watched) saving() bool {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	return w.history.unsaved != nil
}

// TestLostBeat has an older state restored while the server has nothing to do.
func TestLostBeat(t *testing.T) {
	t.Parallel()
	testpromise.Check(t, "history-lost", func() time.Duration { return loseBeat(t) })
}

// loseBeat returns how long after a connection to the other database the loss was noticed.
func loseBeat(t *testing.T) time.Duration {
	t.Helper()
	w := newWatched(t, Options{})
	backup := pgtest.CopyOf(t, w.server)
	w.beats(2)
	w.lead(backup)
	testwait.Eventually(t, patience, "a connection", func() bool { return w.pool.Ping(t.Context()) == nil })
	began := time.Now()
	testwait.Eventually(t, patience, "the loss to be noticed", func() bool { return strings.Contains(w.log.String(), "history lost") })
	took := time.Since(began)
	testwait.Eventually(t, patience, "the loss to be counted", func() bool { open, found := w.seen.seen(); return open == 1 && found == 1 })
	losses, err := w.Losses(t.Context())
	if err != nil || len(losses) != 1 || losses[0].Beats < 2 || losses[0].Answers != 0 || losses[0].Since == nil {
		t.Fatalf("%+v, %v", losses, err)
	}
	return took
}

// TestNothingIsLost has PostgreSQL killed, restarted and copied whole, and nothing reported.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	w := newWatched(t, Options{})
	fund(t, w.money, 100, "ann")
	for range 3 {
		w.deposit()
		instance := w.instance()
		pgtest.Restart(t, w.server)
		testwait.Eventually(t, patience, "another run of the server", func() bool {
			_ = w.pool.Ping(t.Context())
			return w.instance() != instance
		})
		w.beats(2)
	}
	if open, found := w.seen.seen(); open != 0 || found != 0 {
		t.Errorf("%d open, %d found: %s", open, found, w.log.String())
	}
}

func (w *watched) instance() string {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	return w.history.instance
}

// TestLostWhileLocked has the look wait for a table that somebody else has locked: connections are made all the same, and the
// loss is found when the table is free.
func TestLostWhileLocked(t *testing.T) {
	t.Parallel()
	w := newWatched(t, Options{})
	fund(t, w.money, 100, "ann")
	w.beats(1)
	standby := pgtest.CopyOf(t, w.server)
	w.deposit()
	other, err := pgx.Connect(t.Context(), standby.URL())
	testwait.Must(t, err)
	defer func() { _ = other.Close(context.WithoutCancel(t.Context())) }()
	_, err = other.Exec(t.Context(), `BEGIN; LOCK TABLE servers, history_losses`)
	testwait.Must(t, err)
	w.lead(standby)
	testwait.Eventually(t, patience, "a connection", func() bool { return w.pool.Ping(t.Context()) == nil })
	if _, found := w.seen.seen(); found != 0 {
		t.Error("found, although the look could not be")
	}
	_, err = other.Exec(t.Context(), `ROLLBACK`)
	testwait.Must(t, err)
	testwait.Eventually(t, patience, "the loss to be noticed", func() bool { open, found := w.seen.seen(); return open == 1 && found == 1 })
}

// TestCompare decides on what is there.
func TestCompare(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mine, other := uuid.New(), uuid.New()
	told := []answer{{key: idempotency.ID{1}, execution: mine, at: at}, {key: idempotency.ID{2}, execution: mine, at: at.Add(1)}}
	record := func(key byte, execution uuid.UUID) idempotency.Record {
		return idempotency.Record{Request: idempotency.Request{ID: idempotency.ID{key}, Execution: execution}}
	}
	both := []idempotency.Record{record(1, mine), record(2, mine)}
	for _, c := range []struct {
		what            string
		confirmed       int64
		beats           []beat
		stored          []idempotency.Record
		answers, beats2 int64
	}{
		{"all is there", 5, []beat{{count: 5, at: at}}, both, 0, 0},
		{"a beat of unknown outcome is there", 5, []beat{{count: 6, at: at}}, both, 0, 0},
		{"the last answer is lost", 5, []beat{{count: 5, at: at}}, both[:1], 1, 0},
		{"it was given again", 5, []beat{{count: 5, at: at}}, []idempotency.Record{both[0], record(2, other)}, 1, 0},
		{"two beats are lost", 5, []beat{{count: 3, at: at}}, both, 0, 2},
		{"the row is lost", 5, nil, both, 0, 5},
		{"all is lost", 5, nil, nil, 2, 5},
		{"there was no beat yet", 0, nil, both, 0, 0},
	} {
		loss := compare(beat{count: c.confirmed, at: at}, told, c.beats, c.stored)
		if (loss == nil) != (c.answers+c.beats2 == 0) || loss != nil && (loss.Answers != c.answers || loss.Beats != c.beats2) {
			t.Errorf("%s: %+v", c.what, loss)
		}
	}
}
