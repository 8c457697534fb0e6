package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

const (
	// blockedAfter is how long a transaction waits for a row that somebody else has locked. Transactions of other servers
	// end far sooner; longer waits are those for a forgotten session, or a prepared transaction whose coordinator is gone.
	// Speculative transactions wait half as long, because what is sent behind them on the connection waits, too, and may
	// meet further locked rows. All of it stays below the 250 ms that strangers may cost.
	blockedAfter            = 100 * time.Millisecond
	speculativeBlockedAfter = blockedAfter / 2
	// probeEvery is how often blocked rows are looked at, and probeTimeout bounds one look.
	probeEvery   = 25 * time.Millisecond
	probeTimeout = time.Second
	// maxBlockedCommands bounds the commands that wait for blocked rows; one more is refused at once.
	maxBlockedCommands = 8192
	// maxProbed bounds the rows of a look, which takes any of those that are blocked.
	maxProbed = 500
)

// waitBriefly bounds every wait for a lock in the rest of the transaction by blockedAfter.
const waitBriefly = `SELECT set_config('lock_timeout', '100ms', true)`

// rowKind says in which table a blocked row is.
type rowKind string

const (
	accountRow       rowKind = "account"
	auctionRowKind   rowKind = "auction"
	standingRow      rowKind = "standing bid" // by standingID
	campaignRow      rowKind = "campaign"
	targetNameRow    rowKind = "target name" // which publications of the target need
	newAccountRow    rowKind = "new account" // not there yet: another session has inserted it, and has not committed
	holdRow          rowKind = "hold"
	referenceRow     rowKind = "reference" // of a transfer, not there yet: as a new account
	lockGrantRow     rowKind = "lock"
	lockKeyRow       rowKind = "lock key"
	multidrawRowKind rowKind = "multi-draw"
	publicationRow   rowKind = "publication"
	targetRowKind    rowKind = "target"
	automationRow    rowKind = "automation"
	subscriptionRow  rowKind = "subscription"
	placeRowKind     rowKind = "place of a subscription" // by placeID
	sagaRow          rowKind = "saga"
	keyRecord        rowKind = "idempotency key" // in hex; not there yet, likewise, but no command waits for one
	// otherRow names what is no single row, or one that can't be looked at: it is tried again after each look.
	otherRow rowKind = "a row of"
)

// probes lock the rows that are free, for as long as the statement runs, and return them. A row that is gone is free.
var probes = map[rowKind]string{ //nolint:gochecknoglobals // A constant, but for the type.
	accountRow: `WITH free AS (SELECT id FROM accounts WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED)
		SELECT id FROM free UNION ALL
		SELECT gone FROM unnest($1::text[]) AS gone WHERE NOT EXISTS (SELECT FROM accounts WHERE id = gone)`,
	targetNameRow: `WITH free AS (SELECT name FROM targets WHERE name = ANY($1) FOR KEY SHARE SKIP LOCKED)
		SELECT name FROM free UNION ALL
		SELECT gone FROM unnest($1::text[]) AS gone WHERE NOT EXISTS (SELECT FROM targets WHERE name = gone)`,
	lockKeyRow: `WITH free AS (SELECT key FROM lock_keys WHERE key = ANY($1) FOR NO KEY UPDATE SKIP LOCKED)
		SELECT key FROM free UNION ALL
		SELECT gone FROM unnest($1::text[]) AS gone WHERE NOT EXISTS (SELECT FROM lock_keys WHERE key = gone)`,
	lockGrantRow: `WITH free AS (SELECT id FROM lock_grants WHERE id = ANY($1::uuid[]) FOR UPDATE` + // They are deleted.
		freeOrGone + `lock_grants WHERE id = gone)`,
	auctionRowKind: `WITH free AS (SELECT id FROM auctions WHERE` + named + freeOrGone + `auctions WHERE id = gone)`,
	standingRow: `WITH free AS (SELECT auction::text || '/' || account FROM auction_standing WHERE (auction, account) IN (
			SELECT split_part(id, '/', 1)::uuid, substr(id, 38) FROM unnest($1::text[]) AS id) AND active FOR NO KEY UPDATE SKIP LOCKED)
		SELECT * FROM free UNION ALL
		SELECT gone FROM unnest($1::text[]) AS gone WHERE NOT EXISTS (
			SELECT FROM auction_standing WHERE auction = split_part(gone, '/', 1)::uuid AND account = substr(gone, 38) AND active)`,
	campaignRow:      `WITH free AS (SELECT id FROM campaigns WHERE` + named + freeOrGone + `campaigns WHERE id = gone)`,
	holdRow:          `WITH free AS (SELECT id FROM hold_rows WHERE` + named + freeOrGone + `hold_rows WHERE id = gone)`,
	multidrawRowKind: `WITH free AS (SELECT id FROM multidraws WHERE` + named + freeOrGone + `multidraws WHERE id = gone)`,
	publicationRow:   `WITH free AS (SELECT id FROM publications WHERE` + named + freeOrGone + `publications WHERE id = gone)`,
	targetRowKind:    `WITH free AS (SELECT id FROM targets WHERE` + named + freeOrGone + `targets WHERE id = gone)`,
	automationRow:    `WITH free AS (SELECT id FROM automations WHERE` + named + freeOrGone + `automations WHERE id = gone)`,
	subscriptionRow:  `WITH free AS (SELECT id FROM subscriptions WHERE` + named + freeOrGone + `subscriptions WHERE id = gone)`,
	sagaRow:          `WITH free AS (SELECT id FROM sagas WHERE` + named + freeOrGone + `sagas WHERE id = gone)`,
	placeRowKind: `WITH free AS (SELECT subscription || '/' || topic FROM subscription_topics
			WHERE (subscription, topic) IN (SELECT split_part(id, '/', 1)::uuid, split_part(id, '/', 2) FROM unnest($1::text[]) AS id) FOR NO KEY UPDATE SKIP LOCKED)
		SELECT * FROM free UNION ALL
		SELECT gone FROM unnest($1::text[]) AS gone WHERE NOT EXISTS (
			SELECT FROM subscription_topics WHERE subscription = split_part(gone, '/', 1)::uuid AND topic = split_part(gone, '/', 2))`,
	newAccountRow:  "", // see contests
	referenceRow:   "", // likewise
	holdTable:      "",
	legTable:       "",
	referenceTable: "",
	auditTable:     "",
	otherRow:       `SELECT unnest($1::text[])`,
}

// contests make rows that nobody has made. PostgreSQL shows a row of a transaction that has not ended to nobody: only who tries to
// make it too has to wait.
var contests = map[rowKind]string{ //nolint:gochecknoglobals // A constant, but for the type.
	newAccountRow: `INSERT INTO accounts (id, currency, available, held, version, created_at)
		SELECT id, 'XXX', 0, 0, 1, clock_timestamp() FROM unnest($1::text[]) AS id ON CONFLICT DO NOTHING`,
	referenceRow: `INSERT INTO transfer_references (transfer, reference, completed, available)
		SELECT gen_random_uuid(), reference, true, 0 FROM unnest($1::text[]) AS reference ON CONFLICT (reference) WHERE completed DO NOTHING`,
	keyRecord: contestKeys,
}

// Parts of probes of tables whose ids are UUIDs.
const (
	named      = ` id = ANY($1::uuid[]) FOR NO KEY UPDATE`
	freeOrGone = ` SKIP LOCKED) SELECT id::text FROM free
		UNION ALL SELECT gone::text FROM unnest($1::uuid[]) AS gone WHERE NOT EXISTS (SELECT FROM `
)

type blockedRow struct {
	kind rowKind
	id   string
}

func (r blockedRow) String() string { return strings.TrimSuffix(string(r.kind)+" "+r.id, " ") }

// blockedRows are the rows that a batch found locked by somebody else. Commands that need one leave their batch and wait by
// themselves, and later ones do not try. One goroutine looks, on one connection, which rows have become free; it runs while
// there are any. All of it is safe for concurrent use.
type blockedRows struct {
	db *DB

	mu       sync.Mutex
	rows     map[blockedRow]chan struct{} // closed when the row is free
	turns    map[blockedRow]chan struct{} // of who came last: closed when that one has had its turn on the row
	patience time.Duration                // turnPatience, but in tests
	waiting  int                          // commands
	tables   lockedTables
	probing  bool
	ctx      context.Context // ends when the database is closed
	stop     context.CancelFunc
	probers  sync.WaitGroup
}

func newBlockedRows(db *DB) *blockedRows {
	b := &blockedRows{db: db, rows: map[blockedRow]chan struct{}{}, turns: map[blockedRow]chan struct{}{}, patience: turnPatience}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// find returns why one of the rows can't be had, nil where none is known to be blocked.
func (b *blockedRows) find(kind rowKind, ids ...string) *command.BlockedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rows) == 0 {
		return nil
	}
	for _, id := range ids {
		row := blockedRow{kind, id}
		if free := b.rows[row]; free != nil {
			return b.reason(row, free)
		}
	}
	return nil
}

// add notes a row that was found locked, and has it looked at until it is free.
func (b *blockedRows) add(kind rowKind, id string) *command.BlockedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := blockedRow{kind, id}
	free := b.rows[row]
	if free == nil {
		free = make(chan struct{})
		b.rows[row] = free
		b.report()
		b.watch()
	}
	return b.reason(row, free)
}

// watch has the goroutine that looks run. The caller holds the mutex.
func (b *blockedRows) watch() {
	if !b.probing && b.ctx.Err() == nil {
		b.probing = true
		b.probers.Go(b.probe)
	}
}

func (b *blockedRows) reason(row blockedRow, free <-chan struct{}) *command.BlockedError {
	return &command.BlockedError{Row: row.String(), Wait: func(ctx context.Context) error { return b.wait(ctx, free) }, Recorded: b.db.recorded}
}

// newRecords returns a group whose callers share questions for their keys' records: however many commands give up at once, one connection
// at a time is taken for them. Each caller brings the keys of one command, or of a list, and gets those that have a record.
func (db *DB) newRecords() *groupcommit.Group[struct{}, []idempotency.ID, []idempotency.ID] {
	g := groupcommit.New(func(ctx context.Context, _ struct{}, asked [][]idempotency.ID) ([][]idempotency.ID, error) {
		all, err := db.readRecorded(ctx, slices.Concat(asked...))
		if err != nil {
			return nil, err
		}
		recorded := make([][]idempotency.ID, len(asked))
		for i, keys := range asked {
			recorded[i] = slices.DeleteFunc(slices.Clone(keys), func(id idempotency.ID) bool { return !slices.Contains(all, id) })
		}
		return recorded, nil
	}, groupcommit.Options{MaxQueue: maxBlockedCommands, Divisible: func(error) bool { return false }})
	g.Weigh(func(keys []idempotency.ID) int { return len(keys) })
	return g
}

// recorded returns those of the keys that have a record, also of a transaction that has not ended: one whose COMMIT waits for a standby
// has all of its rows still.
func (db *DB) recorded(ctx context.Context, keys []idempotency.ID) ([]idempotency.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return db.records.Do(ctx, struct{}{}, keys)
}

func (db *DB) readRecorded(ctx context.Context, keys []idempotency.ID) ([]idempotency.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ids := make([]string, len(keys))
	for i := range keys {
		ids[i] = hex.EncodeToString(keys[i][:])
	}
	var taken []string
	err := pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) (err error) {
		taken, err = contested(ctx, tx, keyRecord, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	known, err := db.readKeys(ctx, keys) // Only now: a transaction that has ended since has its records here.
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(keys), func(id idempotency.ID) bool {
		return !slices.Contains(taken, hex.EncodeToString(id[:])) && !slices.ContainsFunc(known, func(r idempotency.Record) bool { return r.ID == id })
	}), nil
}

func (b *blockedRows) wait(ctx context.Context, free <-chan struct{}) error {
	b.mu.Lock()
	full := b.waiting >= maxBlockedCommands
	if !full {
		b.waiting++
		b.report()
	}
	b.mu.Unlock()
	if full {
		return errors.New("too many commands wait for locked rows")
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiting--
		b.report()
	}()
	select {
	case <-free:
		return ctx.Err() // Whoever meets another blocked row each time has an end, too.
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count is how many rows are blocked, and how many commands wait for them.
func (b *blockedRows) count() (rows, commands int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows), b.waiting
}

// probe looks at the rows until none is left.
func (b *blockedRows) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for looked := time.Now(); ; {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return
		}
		if time.Since(looked) > stalledEvery {
			looked = time.Now()
			b.endStalled()
		}
		for kind := range probes {
			b.release(kind, b.free(kind))
		}
		b.lookAtTables()
		b.mu.Lock()
		done := len(b.rows) == 0 && b.tables.met.IsZero()
		b.probing = !done
		b.mu.Unlock()
		if done {
			return
		}
	}
}

// free asks which rows of a kind nobody has locked.
func (b *blockedRows) free(kind rowKind) []string {
	b.mu.Lock()
	var ids []string
	for row := range b.rows {
		if row.kind == kind && len(ids) < maxProbed {
			ids = append(ids, row.id)
		}
	}
	b.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, probeTimeout)
	defer cancel()
	if contests[kind] != "" || tables[kind] != "" {
		return b.uncontested(ctx, kind, ids)
	}
	rows, err := b.db.pool.Query(ctx, probes[kind], ids)
	if err != nil {
		return nil // The commands have deadlines of their own.
	}
	free, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil
	}
	return free
}

// uncontested returns the ids of rows that no other session is about to insert.
func (b *blockedRows) uncontested(ctx context.Context, kind rowKind, ids []string) []string {
	var taken []string
	err := pgx.BeginFunc(ctx, b.db.pool, func(tx pgx.Tx) (err error) {
		taken, err = contested(ctx, tx, kind, ids)
		return err
	})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(taken, id) })
}

// contested returns the ids of rows that another session has inserted in a transaction which has not ended. It waits a millisecond
// for each, and asks for all of them at once, since most often there is none; then for halves.
func contested(ctx context.Context, tx pgx.Tx, kind rowKind, ids []string) (taken []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var b pgx.Batch
	b.Queue(`SAVEPOINT contest`)
	b.Queue(`SELECT set_config('lock_timeout', '1ms', true)`)
	if tables[kind] != "" {
		return contestedTable(ctx, tx, &b, kind, ids)
	}
	b.Queue(contests[kind], ids)
	b.Queue(`ROLLBACK TO SAVEPOINT contest`)
	err = pgkit.Send(ctx, tx, &b)
	if !isLockTimeout(err) {
		return nil, err
	}
	if _, err = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT contest`); err != nil {
		return nil, err
	}
	if len(ids) == 1 {
		return slices.Clone(ids), nil
	}
	for half := range slices.Chunk(ids, (len(ids)+1)/2) {
		found, err := contested(ctx, tx, kind, half)
		if err != nil {
			return nil, err
		}
		taken = append(taken, found...)
	}
	return taken, nil
}

func (b *blockedRows) release(kind rowKind, ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		row := blockedRow{kind, id}
		if free := b.rows[row]; free != nil {
			close(free)
			delete(b.rows, row)
		}
	}
	b.report()
}

// report passes the counts to the observer. The caller holds the mutex.
func (b *blockedRows) report() {
	if b.db.observer != nil {
		b.db.observer.Blocked(len(b.rows), b.waiting)
	}
}

// close stops looking. What still waits does so until its deadline.
func (b *blockedRows) close() {
	b.stop()
	b.mu.Lock()
	b.probing = true // No further one begins.
	b.mu.Unlock()
	b.probers.Wait()
}

var (
	// errLockedOut ends the wait for what can't be looked at.
	errLockedOut = errors.New("it has been waited for already")
	// errNoTry is returned where a transaction has waited in vain for a connection that stuck ones may take.
	errNoTry = errors.New("others have waited for it in vain meanwhile")
)

// lockedOut is err, or, where that says that a lock was not had in time, a [command.BlockedError] for what can't be waited for any
// longer.
func lockedOut(err error, recorded func(context.Context, []idempotency.ID) ([]idempotency.ID, error)) error {
	if !isLockTimeout(err) && !errors.Is(err, errNoTry) {
		return err
	}
	return &command.BlockedError{Row: "a table or a row of it", Waited: true, Wait: func(context.Context) error { return errLockedOut }, Recorded: recorded}
}

// isLockTimeout reports whether a lock was not had in time.
func isLockTimeout(err error) bool {
	return pgkit.Code(err) == pgkit.LockTimeout
}

// refuse answers a batch that has failed by err, where that says that a row is blocked: decide gets the records of its keys, so that
// repeats are answered. It returns all other errors.
func (db *DB) refuse(ctx context.Context, err error, keys []idempotency.ID, decide func(blocked error, known *idempotency.Batch)) error {
	reason, blocked := errors.AsType[*command.BlockedError](err)
	if !blocked {
		return err
	}
	known, err := db.known(ctx, keys)
	if err == nil {
		decide(reason, known)
	}
	return err
}
