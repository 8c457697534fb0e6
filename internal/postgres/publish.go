package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Publications is the store of publications and their targets.
type Publications struct {
	db    *DB
	marks dueMarks
}

var (
	_ publish.Store = (*Publications)(nil)
	_ publish.Queue = (*Publications)(nil)
)

// NewPublications returns the store on db.
func NewPublications(db *DB) *Publications { return &Publications{db: db} }

const (
	selectNow    = `SELECT clock_timestamp()`
	targetFields = `t.id, t.number, t.name, t.kind, t.url, t.timeout, t.secret, t.secret_key, t.pace_interval, t.refusals, t.refused_last,
		t.next_send_at, t.open_until, t.previous_secret, coalesce(t.previous_secret_key, ''), t.previous_until, t.paused_at, t.paused_reason, t.resumed_at,
		t.created_at`
	selectTargetsByName = `SELECT ` + targetFields + ` FROM targets AS t WHERE t.name = ANY($1)`
	// What refers to a target locks it so, in the order in which all do.
	lockTargetsByName = selectTargetsByName + ` ORDER BY t.id FOR KEY SHARE`
	lockFreeTargets   = lockTargetsByName + ` SKIP LOCKED`
	presentTargets    = `SELECT name FROM targets WHERE name = ANY($1)`
	insertTarget      = `INSERT INTO targets (id, name, kind, url, timeout, secret, secret_key, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	// Members of the same name as a column of targets are the publication's.
	publicationFields = `p.id, p.number, p.target, t.name, p.status, p.jitter, p.publish_at, p.actual_publish_at, p.due_at, p.execution_lock_id,
		p.execution_locked_at, p.execution_version, p.attempts, p.spent, p.last_error, p.external_id, p.published_at, p.created_at`
	lockPublication = `SELECT ` + publicationFields + `, NULL::text FROM publications AS p JOIN targets AS t ON t.id = p.target
		WHERE p.id = $1 FOR NO KEY UPDATE OF p`
	insertPublications = `INSERT INTO publications (id, target, status, payload, jitter, publish_at, actual_publish_at, due_at,
			execution_version, attempts, spent, last_error, external_id, created_at)
		SELECT id, target, status, payload, jitter, publish_at, actual_publish_at, due_at, 0, 0, 0, '', '', $9
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[], $7::timestamptz[], $8::timestamptz[])
			AS n (id, target, status, payload, jitter, publish_at, actual_publish_at, due_at)`
	// What a command may change. The claim's columns are the worker's, and the guard keeps a command off a claimed row.
	updatePublication = `UPDATE publications SET status = $2, jitter = $3, publish_at = $4, actual_publish_at = $5, due_at = $6, spent = $7
		WHERE id = $1 AND execution_lock_id IS NULL`
)

// commits are the names of the transactions of [Publications.Commit], for metrics, and the rows that they lock.
var commits = [...]struct { //nolint:gochecknoglobals // A constant, but for the type.
	name string
	row  rowKind
}{
	publish.NewPublications: {name: "publish.create"}, publish.NewTargets: {name: "publish.targets"},
	publish.NewAutomations: {name: "publish.automations"}, publish.NewSubscriptions: {name: "publish.subscriptions"},
	publish.OnePublication: {"publish", publicationRow}, publish.OneTarget: {"publish.target", targetRowKind},
	publish.OneAutomation: {"publish.automation", automationRow}, publish.OneSubscription: {"publish.subscription", subscriptionRow},
}

// Commit implements [publish.Store]. That a name is new is the unique index's to say: who loses the race runs again. Where
// another session has locked the one thing, or a whole table, decide gets the records of the keys alone.
func (s *Publications) Commit(ctx context.Context, want publish.Want, decide func(*publish.Unit) error) error {
	var err error
	if kind := commits[want.Thing]; kind.row == "" {
		err = s.db.run(ctx, kind.name, s.commit(want, decide))
	} else {
		err = s.db.runOn(ctx, kind.name, []blockedRow{{kind.row, want.ID.String()}}, s.commit(want, decide))
	}
	if reason, blocked := errors.AsType[*command.BlockedError](err); blocked {
		known, err := s.db.readKeys(ctx, want.Keys)
		if err != nil {
			return err
		}
		return decide(&publish.Unit{Blocked: reason, Known: known})
	}
	return err
}

func (s *Publications) commit(want publish.Want, decide func(*publish.Unit) error) func(context.Context, pgx.Tx) error {
	aside := setAside{rows: s.db.blocked}
	return func(ctx context.Context, tx pgx.Tx) error {
		u, err := lockUnit(ctx, tx, &want, &aside)
		if err != nil {
			return aside.met(err)
		}
		noteUnrecorded(tx, u.Known)
		var before publish.Publication
		if u.Publication != nil {
			before = *u.Publication
		}
		if err := decide(u); err != nil {
			return err
		}
		var b pgx.Batch
		if p := u.Publication; p != nil && changed(&before, p) {
			expectRows(b.Queue(updatePublication, p.ID, p.Status, p.Jitter.Microseconds(), p.PublishAt, p.ActualPublishAt, p.DueAt, p.Spent), 1, errLostRow)
		}
		if len(u.Audit) > 0 { // Every change of a target, an automation or a subscription is audited.
			saveTarget(&b, u.Target)
			saveSubscription(&b, u)
			if a := u.Automation; a != nil {
				expectRows(b.Queue(updateAutomation, a.ID, a.Status, a.NextAt), 1, errLostRow)
			}
		}
		for _, t := range u.MadeTargets {
			expectRows(b.Queue(insertTarget, t.ID, t.Name, t.Kind, t.URL, t.Timeout.Microseconds(), t.Secret.Bytes, t.Secret.KeyID, u.Now), 1, errLostRow)
		}
		saveTokens(&b, u.Tokens)
		for _, a := range u.MadeAutomations {
			insertAutomation(&b, a)
		}
		for _, made := range u.MadeSubscriptions {
			saveMadeSubscription(&b, made, u.FromStart[made.ID], u.Spans)
		}
		if want.Thing != publish.NewPublications {
			return sendDecided(ctx, tx, &b, u.Audit, u.Fresh, u.Now)
		}
		savePublications(&b, u.Made, u.Now)
		// Plain inserts, which write all their rows or fail: COMMIT needn't wait until somebody has counted them.
		saveKeys(&b, u.Fresh, u.Now, guardedWrites)
		if b.Len() == 0 {
			return nil
		}
		return sendAndCommit(ctx, tx, &b)
	}
}

// lockUnit locks and reads what a transaction works on, and then the records of its keys and the time.
func lockUnit(ctx context.Context, tx pgx.Tx, want *publish.Want, aside *setAside) (*publish.Unit, error) {
	aside.begin(tx)
	var (
		b       pgx.Batch
		found   []publish.Target
		taken   []string
		present []string
		u       = &publish.Unit{
			NewID: newID, Targets: map[string]*publish.Target{}, BlockedTargets: map[string]error{}, AutomationNames: map[string]bool{},
			Tokens: map[uuid.UUID]publish.Sealed{}, SubscriptionNames: map[string]bool{}, Spans: map[string]publish.TopicSpan{}, FromStart: map[uuid.UUID]bool{},
		}
	)
	switch want.Thing {
	case publish.OnePublication:
		b.Queue(lockPublication, want.ID).Query(collectOne(&u.Publication, scanPublication, &publish.NotFoundError{What: "publication", ID: want.ID}))
	case publish.OneTarget:
		b.Queue(lockTarget, want.ID).Query(collectOne(&u.Target, scanTarget, &publish.NotFoundError{What: "target", ID: want.ID}))
	case publish.OneAutomation:
		b.Queue(lockAutomation, want.ID).Query(collectOne(&u.Automation, scanAutomation, &publish.NotFoundError{What: "automation", ID: want.ID}))
	case publish.OneSubscription:
		b.Queue(lockSubscription, want.ID).Query(collectOne(&u.Subscription, scanSubscription, &publish.NotFoundError{What: "subscription", ID: want.ID}))
	case publish.NewAutomations, publish.NewSubscriptions, publish.NewPublications:
		switch want.Thing { //nolint:exhaustive // Publications have no names.
		case publish.NewAutomations:
			b.Queue(selectTakenNames, want.Automations).Query(collect(&taken, pgx.RowTo[string]))
		case publish.NewSubscriptions:
			b.Queue(takenSubscriptions, want.Subscriptions).Query(collect(&taken, pgx.RowTo[string]))
		}
		// The targets are locked. Those that somebody else has locked are done without, as lockBookAside does without accounts.
		free := slices.DeleteFunc(slices.Clone(want.Targets), func(name string) bool {
			reason := aside.find(targetNameRow, name)
			if reason != nil {
				u.BlockedTargets[name] = reason
			}
			return reason != nil
		})
		lock := lockTargetsByName
		b.Queue(waitBriefly)
		if aside.skip {
			lock = lockFreeTargets
			b.Queue(presentTargets, free).Query(collect(&present, pgx.RowTo[string]))
		}
		b.Queue(lock, free).Query(collect(&found, scanTarget))
	case publish.NewTargets:
		b.Queue(selectTargetsByName, want.Targets).Query(collect(&found, scanTarget))
	}
	loadSpans(&b, want.Topics, u.Spans)
	loadKeys(&b, want.Keys, &u.Known)
	b.Queue(selectNow).QueryRow(func(row pgx.Row) error { return row.Scan(&u.Now) })
	err := pgkit.Send(ctx, tx, &b)
	for i := range found {
		u.Targets[found[i].Name] = &found[i]
	}
	for _, name := range present {
		if u.Targets[name] == nil {
			u.BlockedTargets[name] = aside.add(targetNameRow, name)
		}
	}
	for _, name := range taken {
		u.AutomationNames[name], u.SubscriptionNames[name] = true, true // One of them is of no use.
	}
	return u, err
}

// collectOne reads the one row of a query, or returns absent where there is none.
func collectOne[T any](into **T, scan pgx.RowToFunc[T], absent error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scan)
		if *into = firstOf(found); err == nil && *into == nil {
			err = absent
		}
		return err
	}
}

// changed reports whether a command has changed what [updatePublication] writes. Times are replaced, never written to.
func changed(a, b *publish.Publication) bool {
	return a.Status != b.Status || a.Jitter != b.Jitter || a.PublishAt != b.PublishAt || a.ActualPublishAt != b.ActualPublishAt ||
		a.DueAt != b.DueAt || a.Spent != b.Spent
}

func savePublications(b *pgx.Batch, made []*publish.Publication, now time.Time) {
	n := len(made)
	if n == 0 {
		return
	}
	ids, targets, statuses, payloads := make([][16]byte, n), make([][16]byte, n), make([]string, n), make([]string, n)
	jitters, at, actual, due := make([]int64, n), make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	for i, p := range made {
		ids[i], targets[i], statuses[i], payloads[i] = p.ID, p.Target, string(p.Status), string(p.Payload)
		jitters[i], at[i], actual[i], due[i] = p.Jitter.Microseconds(), p.PublishAt, p.ActualPublishAt, p.DueAt
	}
	expectRows(b.Queue(insertPublications, ids, targets, statuses, payloads, jitters, at, actual, due, now), n, errLostRow)
}

// targetInto is where targetFields go.
func targetInto(t *publish.Target) []any {
	return []any{
		&t.ID, &t.Number, &t.Name, &t.Kind, &t.URL, (*micros)(&t.Timeout), &t.Secret.Bytes, &t.Secret.KeyID,
		(*micros)(&t.Pace.Interval), &t.Pace.Refusals, &t.Pace.Last, &t.Pace.NextAt, &t.Pace.OpenUntil,
		&t.Previous.Bytes, &t.Previous.KeyID, &t.PreviousUntil, &t.PausedAt, &t.PausedReason, &t.ResumedAt, &t.CreatedAt,
	}
}

func scanTarget(row pgx.CollectableRow) (t publish.Target, err error) {
	err = row.Scan(targetInto(&t)...)
	return t, err
}

func scanPublication(row pgx.CollectableRow) (p publish.Publication, err error) {
	err = row.Scan(&p.ID, &p.Number, &p.Target, &p.TargetName, &p.Status, (*micros)(&p.Jitter), &p.PublishAt, &p.ActualPublishAt, &p.DueAt, &p.LockID,
		&p.LockedAt, &p.Version, &p.Attempts, &p.Spent, &p.LastError, &p.ExternalID, &p.PublishedAt, &p.CreatedAt, &p.Payload)
	return p, err
}

// Publication implements [publish.Reader].
func (s *Publications) Publication(ctx context.Context, id uuid.UUID) (*publish.Publication, error) {
	const (
		one     = `SELECT ` + publicationFields + `, p.payload FROM publications AS p JOIN targets AS t ON t.id = p.target WHERE p.id = $1`
		running = `SELECT ` + attemptFields + ` FROM publication_attempts WHERE publication = $1 AND result IS NULL ORDER BY version DESC LIMIT 1`
	)
	var p *publish.Publication
	err := s.db.reads.snapshot(ctx, "publication", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var (
			b        pgx.Batch
			attempts []publish.Attempt
		)
		b.Queue(one, id).Query(collectOne(&p, scanPublication, &publish.NotFoundError{What: "publication", ID: id}))
		b.Queue(running, id).Query(collect(&attempts, pgx.RowToStructByPos[publish.Attempt]))
		err := pgkit.Send(ctx, tx, &b)
		if err == nil {
			p.Running = firstOf(attempts)
		}
		return err
	})
	return p, err
}

const publicationExists = `SELECT EXISTS (SELECT FROM publications WHERE id = $1)`

const attemptFields = `version, lock_id, started_at, ended_at, coalesce(result, ''), coalesce(status_code, 0), error, heartbeat_at, coalesce(stage, ''),
	coalesce(sent_bytes, 0), coalesce(total_bytes, 0)`

// Publications implements [publish.Reader].
func (s *Publications) Publications(ctx context.Context, status publish.Status, after int64, limit int) ([]publish.Publication, error) {
	const (
		ofAll    = `SELECT ` + publicationFields + `, NULL::text FROM publications AS p JOIN targets AS t ON t.id = p.target WHERE p.number > $1 ORDER BY p.number LIMIT $2`
		ofStatus = `SELECT ` + publicationFields + `, NULL::text FROM publications AS p JOIN targets AS t ON t.id = p.target
			WHERE p.number > $1 AND p.status = $3 ORDER BY p.number LIMIT $2`
	)
	if status == "" {
		return query(ctx, s.db.reads, scanPublication, ofAll, after, limit)
	}
	return query(ctx, s.db.reads, scanPublication, ofStatus, after, limit, status)
}

// Attempts implements [publish.Reader].
func (s *Publications) Attempts(ctx context.Context, id uuid.UUID, after int64, limit int) ([]publish.Attempt, error) {
	const selectAttempts = `SELECT ` + attemptFields + `
		FROM publication_attempts WHERE publication = $1 AND version > $2 ORDER BY version LIMIT $3`
	return listOf[publish.Attempt](ctx, s.db.reads, publicationExists, &publish.NotFoundError{What: "publication", ID: id},
		selectAttempts, id, after, limit)
}

// listOf reads a page of what belongs to an entity, or returns absent where there is no such entity.
func listOf[T, P any](ctx context.Context, from reads, exists string, absent error, list string, id uuid.UUID, after P, limit int) (out []T, err error) {
	err = from.snapshot(ctx, list, readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var (
			b     pgx.Batch
			there bool
		)
		b.Queue(exists, id).QueryRow(func(row pgx.Row) error { return row.Scan(&there) })
		b.Queue(list, id, after, limit).Query(collect(&out, pgx.RowToStructByPos[T]))
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		if !there {
			return absent
		}
		return nil
	})
	return out, err
}

// Target implements [publish.Reader].
func (s *Publications) Target(ctx context.Context, id uuid.UUID) (*publish.Target, error) {
	t, err := queryOne(ctx, s.db.reads, &publish.NotFoundError{What: "target", ID: id}, scanTargetHealth, targetHealth+` WHERE t.id = $1`, id)
	return &t, err
}

// Targets implements [publish.Reader].
func (s *Publications) Targets(ctx context.Context, after int64, limit int) ([]publish.Target, error) {
	return query(ctx, s.db.reads, scanTargetHealth, targetHealth+` WHERE t.number > $1 ORDER BY t.number LIMIT $2`, after, limit)
}

// releasedError is what a publication shows whose worker did not come back.
const releasedError = "the claim went stale: its worker did not come back in time"

// retriesLeft is the condition under which a publication is attempted again.
var retriesLeft = fmt.Sprintf("attempts - spent < %d", publish.MaxAttempts) //nolint:gochecknoglobals // A constant, but for its making.
