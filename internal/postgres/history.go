package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// beatEvery is how often a server counts in its row.
	beatEvery = time.Second
	// serverKept is how long the row of a server that ended without a word is kept. One that was stopped for longer starts anew.
	serverKept = 30 * 24 * time.Hour
	// serverAlive is how long after its last beat a server is taken to be at work.
	serverAlive = 10 * time.Second
	// recentAnswers is how many of the last answers are looked up when a connection reaches another run of the database's server.
	// What a failover loses is the end of the log: if anything is lost, so are the last answers.
	recentAnswers = 512
	// lookTimeout bounds such a look, lookPatience its wait for a row that somebody else has locked.
	lookTimeout  = 2 * time.Second
	lookPatience = `SELECT set_config('lock_timeout', '250ms', true)`
)

const (
	selectPlace = `SELECT substr(pg_walfile_name(p), 1, 8) || ' ' || p FROM pg_current_wal_insert_lsn() AS p`
	startBeat   = `INSERT INTO servers (id, name, version, step, beat, started_at, at) VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp())
		ON CONFLICT (id) DO UPDATE SET beat = excluded.beat, at = excluded.at RETURNING at`
	nextBeat    = `UPDATE servers SET beat = $2, at = clock_timestamp() WHERE id = $1 AND beat >= $3 RETURNING at`
	selectBeat  = `SELECT beat, at FROM servers WHERE id = $1`
	deleteBeat  = `DELETE FROM servers WHERE id = $1`
	forgetBeats = `DELETE FROM servers WHERE id IN (SELECT id FROM servers WHERE at < clock_timestamp() - $1::interval FOR UPDATE SKIP LOCKED)`

	insertLoss = `INSERT INTO history_losses (id, server, found_at, since, until, answers, checked, beats, before, now)
		VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`
	countLosses  = `SELECT count(*) FROM history_losses WHERE accepted_at IS NULL`
	selectLosses = `SELECT id, server, found_at, since, until, answers, checked, beats, before, now FROM history_losses
		WHERE accepted_at IS NULL ORDER BY found_at`
	acceptLosses = `UPDATE history_losses SET accepted_at = clock_timestamp() WHERE accepted_at IS NULL`
)

// Watch says as what a server watches the database for lost commits.
type Watch struct {
	Version  string        // of the server, for its row
	KeysKept time.Duration // how long the records of idempotency keys are kept
	// Losses is called with what is known after each beat: how many losses no operator has accepted, and whether this server
	// has just found one. It may be nil.
	Losses func(open int64, found bool)
}

// Loss is that the database lacks commits that it had confirmed to a server.
type Loss struct {
	ID      uuid.UUID
	Server  string
	FoundAt time.Time
	Since   *time.Time // the server's last beat that is there; nil: there is none
	Until   time.Time  // when the last commit was confirmed that is known to be lost
	Answers int64      // that are lost, of those that were checked
	Checked int64
	Beats   int64  // that are lost, one a second
	Before  string // the timeline and the place in the write-ahead log when the last beat was confirmed
	Now     string // the same when the loss was found
}

func (l *Loss) String() string {
	since := "before the server's first beat"
	if l.Since != nil {
		since = "after " + l.Since.Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("commits %s are lost, up to %s: %d of the last %d answers of %s, and %d of its beats (timeline and place in the log were %s, and are %s)",
		since, l.Until.Format(time.RFC3339Nano), l.Answers, l.Checked, l.Server, l.Beats, l.Before, l.Now)
}

// answer is a success that a client was told.
type answer struct {
	key       idempotency.ID
	execution uuid.UUID
	at        time.Time
}

// history remembers commits that the database has confirmed to this process, and notices when it no longer has them: after a
// failover that lost the last commits, or when an older state was restored under a running server. What it compares:
//
//   - the server's row, in which it counts each second;
//   - the records of the last answers, by the ids of their executions.
//
// Every new connection asks for the database's timeline and start time. Where they have changed, both are compared before the
// connection is used. The beat compares the count, so that a change behind a pooler is noticed within a second. It is safe for
// concurrent use; its zero value watches nothing.
type history struct {
	server uuid.UUID
	name   string
	step   int64
	watch  *Watch // nil: nothing is watched
	logger *slog.Logger
	open   atomic.Int64 // losses that no operator has accepted, as far as is known

	told struct {
		sync.Mutex

		answers [recentAnswers]answer
		next    int
	}

	turn chan struct{} // has a value during a look, so that other new connections wait for what comes of it

	mu        sync.Mutex
	instance  string   // the run of the database's server that was looked at last
	unsure    bool     // the next beat looks too
	confirmed beat     // the last one whose COMMIT was answered
	enrolled  bool     // the server has its row
	sent      int64    // the last count that was sent
	losses    int      // that this process has found
	unsaved   *Loss    // the last of them, while it is not written
	jump      bool     // tokens have to jump past those that are lost
	forget    []func() // drop what the process remembers
}

type beat struct {
	count int64
	at    time.Time // by the database's clock
	place string    // in the write-ahead log
}

func (h *history) begin(watch *Watch, step int64, logger *slog.Logger) {
	host, _ := os.Hostname() // Without it the process's number must do.
	h.server, h.name, h.step, h.watch, h.logger = uuid.New(), host+"/"+strconv.Itoa(os.Getpid()), step, watch, logger
	h.turn = make(chan struct{}, 1)
}

// Acknowledge notes that a client is told of a success whose record is stored under a key.
func (db *DB) Acknowledge(key idempotency.ID, execution uuid.UUID) {
	t := &db.history.told
	t.Lock()
	defer t.Unlock()
	t.answers[t.next] = answer{key, execution, time.Now()}
	t.next = (t.next + 1) % recentAnswers
}

// OnLostHistory has f called when commits turn out to be lost. It must drop what was remembered of them, and must not use the
// database before it returns.
func (db *DB) OnLostHistory(f func()) {
	db.history.mu.Lock()
	defer db.history.mu.Unlock()
	db.history.forget = append(db.history.forget, f)
}

// recent returns the answers that must still be there, the oldest first. A record may be swept when its time is over, by a clock
// that is not this process's.
func (h *history) recent() []answer {
	h.told.Lock()
	defer h.told.Unlock()
	var recent []answer
	for i := range recentAnswers {
		if a := h.told.answers[(h.told.next+i)%recentAnswers]; !a.at.IsZero() && time.Since(a.at) < h.watch.KeysKept/2 {
			recent = append(recent, a)
		}
	}
	return recent
}

// met looks at a new connection before it is used. Its error is that of a connection that can't be used.
func (h *history) met(ctx context.Context, conn *pgx.Conn) error {
	if h.watch == nil {
		return nil
	}
	instance := instanceOf(conn.PgConn())
	if instance == "" { // It doesn't tell. The beat notices what is lost.
		return nil
	}
	if err := h.takeTurn(ctx); err != nil {
		return err
	}
	defer h.giveTurn()
	h.mu.Lock()
	known := instance == h.instance
	h.mu.Unlock()
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := h.look(ctx, conn); err != nil {
		if pgkit.Code(err) == "" {
			return err
		}
		// Somebody has locked a table, or there is none yet. Everybody goes on.
		h.logger.WarnContext(ctx, "the database's server was restarted or changed, and could not be asked whether commits are lost", "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Again, since an answer of before may have been noted just now.
	h.instance, h.unsure = instance, true
	return nil
}

func (h *history) takeTurn(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *history) giveTurn() { <-h.turn }

// look compares what is there with what was confirmed. The caller has the turn.
func (h *history) look(ctx context.Context, conn *pgx.Conn) error {
	recent := h.recent()
	h.mu.Lock()
	confirmed := h.confirmed
	h.mu.Unlock()
	if confirmed.count == 0 && len(recent) == 0 {
		return nil
	}
	keys := make([][]byte, len(recent))
	for i := range recent {
		keys[i] = recent[i].key[:]
	}
	var (
		stored []idempotency.Record
		beats  []beat
		place  string
	)
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lookPatience); err != nil { // Before the others: they lock tables when they are prepared.
			return err
		}
		var b pgx.Batch
		b.Queue(selectKeys, keys).Query(collect(&stored, scanRecord))
		b.Queue(selectBeat, h.server).Query(collect(&beats, func(row pgx.CollectableRow) (one beat, err error) {
			err = row.Scan(&one.count, &one.at)
			return one, err
		}))
		b.Queue(selectPlace).QueryRow(func(row pgx.Row) error { return row.Scan(&place) })
		return pgkit.Send(ctx, tx, &b)
	})
	if err != nil {
		return fmt.Errorf("look for lost commits: %w", err)
	}
	loss := compare(confirmed, recent, beats, stored)
	h.mu.Lock()
	if h.unsure = false; loss != nil {
		loss.ID, loss.Server, loss.Now = uuid.Must(uuid.NewV7()), h.name, place
		h.lost(ctx, loss)
	}
	h.mu.Unlock()
	if loss != nil && saveLoss(ctx, conn, loss) == nil {
		h.mu.Lock()
		h.unsaved = nil
		h.mu.Unlock()
	}
	return nil
}

// compare decides whether commits are lost: a beat or an answer that was confirmed and isn't there. beats is the server's row,
// if there is one; stored are the records under the answers' keys.
func compare(confirmed beat, recent []answer, beats []beat, stored []idempotency.Record) *Loss {
	executions := make(map[idempotency.ID]uuid.UUID, len(stored))
	for i := range stored {
		executions[stored[i].ID] = stored[i].Execution
	}
	loss := Loss{Until: confirmed.at, Checked: int64(len(recent)), Before: confirmed.place, Beats: confirmed.count}
	if len(beats) > 0 {
		loss.Since, loss.Beats = &beats[0].at, max(confirmed.count-beats[0].count, 0)
	}
	for _, a := range recent {
		// Under the key of a lost answer, a client that has asked again has another one.
		if executions[a.key] != a.execution {
			loss.Answers++
			loss.Until = a.at
		}
	}
	if loss.Beats == 0 && loss.Answers == 0 {
		return nil
	}
	return &loss
}

// lost tells of a loss, and has everything dropped that the process remembers. The caller holds the mutex.
func (h *history) lost(ctx context.Context, loss *Loss) {
	h.logger.ErrorContext(ctx, "history lost: the database lacks commits that it had confirmed. Two-phase transactions stay as they are until an "+
		"operator runs fairlead doctor --accept-history", "loss", loss.String(), "answers", loss.Answers, "checked", loss.Checked, "beats", loss.Beats,
		"since", loss.Since, "until", loss.Until, "before", loss.Before, "now", loss.Now)
	h.unsaved, h.enrolled, h.confirmed, h.jump = loss, false, beat{}, true
	h.losses++
	h.told.Lock()
	h.told.answers, h.told.next = [recentAnswers]answer{}, 0
	h.told.Unlock()
	for _, f := range h.forget {
		f()
	}
	h.observe(max(h.open.Load(), 1), true)
}

// saveLoss writes a loss, once.
func saveLoss(ctx context.Context, conn pgkit.Beginner, l *Loss) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertLoss, l.ID, l.Server, l.Since, l.Until, l.Answers, l.Checked, l.Beats, l.Before, l.Now)
		return err
	})
}

// WatchHistory counts in the server's row until ctx ends, and then deletes the row. The schema must be there.
func (db *DB) WatchHistory(ctx context.Context) {
	h := &db.history
	failing := false
	wait.Every(ctx, beatEvery, nil, func() {
		err := db.beat(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			h.logger.WarnContext(ctx, "the database was not watched for lost commits; it is tried again each second", "error", err)
		}
		failing = err != nil
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	if _, err := db.pool.Exec(ctx, deleteBeat, h.server); err != nil {
		h.logger.DebugContext(ctx, "the server's row stays", "error", err)
	}
}

// beat counts once, and looks where something may be lost.
func (db *DB) beat(ctx context.Context) error {
	h := &db.history
	h.mu.Lock()
	h.sent++
	count, confirmed, enrolled, losses, unsaved, look, jump := h.sent, h.confirmed, h.enrolled, h.losses, h.unsaved, h.unsure, h.jump
	h.mu.Unlock()
	if unsaved != nil {
		if err := saveLoss(ctx, db.pool, unsaved); err != nil {
			return err
		}
	}
	if jump {
		floor, err := db.AdvanceTokens(ctx)
		if err != nil {
			return err
		}
		h.logger.InfoContext(ctx, "fencing tokens have jumped past those that are lost", "above", floor)
	}
	next := beat{count: count}
	db.reads.replica.noteSent(count, time.Now())
	var open int64
	err := db.runner.Once(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var (
			b  pgx.Batch
			at []time.Time
		)
		if enrolled {
			b.Queue(nextBeat, h.server, count, confirmed.count).Query(collect(&at, pgx.RowTo[time.Time]))
		} else {
			b.Queue(forgetBeats, serverKept)
			b.Queue(startBeat, h.server, h.name, h.watch.Version, h.step, count).Query(collect(&at, pgx.RowTo[time.Time]))
		}
		b.Queue(countLosses).QueryRow(func(row pgx.Row) error { return row.Scan(&open) })
		b.Queue(selectPlace).QueryRow(func(row pgx.Row) error { return row.Scan(&next.place) })
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		if len(at) == 0 {
			return errBeatLost
		}
		next.at = at[0]
		return nil
	})
	if errors.Is(err, errBeatLost) || (err == nil && look) {
		err = db.lookNow(ctx)
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.losses == losses { // Else a new connection has found one meanwhile.
		h.unsaved, h.jump, h.confirmed, h.enrolled = nil, false, next, true
	}
	h.observe(open, false)
	return nil
}

func (h *history) observe(open int64, found bool) {
	h.open.Store(open)
	if h.watch != nil && h.watch.Losses != nil {
		h.watch.Losses(open, found)
	}
}

// errBeatLost is why a beat is undone whose row is behind.
var errBeatLost = errors.New("the server's row is behind what was confirmed")

// lookNow looks on a connection of the pool's.
func (db *DB) lookNow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := db.history.takeTurn(ctx); err != nil {
		return err
	}
	defer db.history.giveTurn()
	return db.history.look(ctx, conn.Conn())
}

// Losses lists the losses that no operator has accepted, the oldest first.
func (db *DB) Losses(ctx context.Context) ([]Loss, error) {
	losses, err := query(ctx, db, pgx.RowToStructByPos[Loss], selectLosses)
	if err != nil {
		return nil, fmt.Errorf("postgres: read what is lost: %w", err)
	}
	db.history.observe(int64(len(losses)), false)
	return losses, nil
}

// HistoryLost reports whether there are losses that no operator has accepted, as [DB.Losses] or the last beat has found. It does
// not ask the database.
func (db *DB) HistoryLost() bool { return db.history.open.Load() > 0 }

// AcceptHistory says that what is lost is lost: two-phase transactions go on. It returns the losses that it accepts.
func (db *DB) AcceptHistory(ctx context.Context) (accepted []Loss, err error) {
	err = db.run(ctx, "history.accept", func(ctx context.Context, tx pgx.Tx) error {
		if accepted, err = pgkit.Rows(ctx, tx, pgx.RowToStructByPos[Loss], selectLosses+" FOR UPDATE"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, acceptLosses)
		return err
	})
	return slices.Clip(accepted), err
}
