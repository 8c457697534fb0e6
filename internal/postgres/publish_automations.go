package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

const (
	automationFields = `a.id, a.number, a.name, a.target, t.name, a.status, a.weekdays, a.times, a.time_zone, a.every, a.starts_at, a.pick,
		a.daily_quota, a.jitter, a.next_at, a.created_at`
	automationsAndTargets = ` FROM automations AS a JOIN targets AS t ON t.id = a.target`
	lockAutomation        = `SELECT ` + automationFields + automationsAndTargets + ` WHERE a.id = $1 FOR NO KEY UPDATE OF a`
	// One of the automations that are due, which no other transaction has locked.
	lockDueAutomation = `SELECT ` + automationFields + automationsAndTargets + `
		WHERE a.status = 'active' AND a.next_at <= clock_timestamp() ORDER BY a.next_at LIMIT 1 FOR NO KEY UPDATE OF a SKIP LOCKED`
	selectTakenNames = `SELECT name FROM automations WHERE name = ANY($1)`
	newAutomation    = `INSERT INTO automations (id, name, target, status, weekdays, times, time_zone, every, starts_at, pick, daily_quota, jitter,
			next_at, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`
	updateAutomation = `UPDATE automations SET status = $2, next_at = $3 WHERE id = $1`
	// moveAutomation names the time that the rule was found due for, as an assertion: the row is locked.
	moveAutomation = `UPDATE automations SET next_at = $3 WHERE id = $1 AND next_at = $2 AND status = 'active'`
	countScheduled = `SELECT count(*) FROM automation_firings WHERE automation = $1 AND outcome = 'scheduled' AND fired_at >= $2 AND fired_at < $3`
	insertFiring   = `INSERT INTO automation_firings (automation, scheduled_for, fired_at, outcome, publication, skipped) VALUES ($1, $2, $3, $4, $5, $6)`

	drafts         = `SELECT ` + publicationFields + `, NULL::text FROM publications AS p JOIN targets AS t ON t.id = p.target WHERE p.target = $1 AND p.status = 'draft'`
	lockFirstDraft = drafts + ` ORDER BY p.number LIMIT 1 FOR NO KEY UPDATE OF p SKIP LOCKED`
	lockLastDraft  = drafts + ` ORDER BY p.number DESC LIMIT 1 FOR NO KEY UPDATE OF p SKIP LOCKED`
	// The place of a random draft is drawn first, so that one row is locked and not all of them.
	lockRandomDraft = drafts + ` AND p.id IN (SELECT d.id FROM publications AS d WHERE d.target = $1 AND d.status = 'draft' ORDER BY d.number LIMIT 1 OFFSET $2)
		FOR NO KEY UPDATE OF p SKIP LOCKED`
	countDrafts = `SELECT count(*) FROM publications WHERE target = $1 AND status = 'draft'`
)

func insertAutomation(b *pgx.Batch, a *publish.Automation) {
	r := &a.Rule
	weekdays, times := make([]int16, len(r.Weekdays)), make([]int32, len(r.Times))
	for i, day := range r.Weekdays {
		weekdays[i] = int16(day) //nolint:gosec // 0 to 6.
	}
	for i, at := range r.Times {
		times[i] = int32(at / time.Second) //nolint:gosec // Below 24 h.
	}
	expectRows(b.Queue(newAutomation, a.ID, a.Name, a.Target, a.Status, weekdays, times, r.Zone.String(), r.Every.Microseconds(), r.From, a.Pick,
		a.DailyQuota, a.Jitter.Microseconds(), a.NextAt, a.CreatedAt), 1, errLostRow)
}

// FireDue implements [publish.Queue]. The automation's row is locked first, then the draft's.
func (s *Publications) FireDue(ctx context.Context, draw publish.Draw) (fired *publish.Automation, f *publish.Firing, scheduled *publish.Publication, err error) {
	err = s.db.run(ctx, "publish.fire", func(ctx context.Context, tx pgx.Tx) error {
		fired, f, scheduled = nil, nil, nil
		var (
			b     pgx.Batch
			found []publish.Automation
			now   time.Time
		)
		b.Queue(lockDueAutomation).Query(collect(&found, scanAutomation))
		b.Queue(selectNow).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		if err := pgkit.Send(ctx, tx, &b); err != nil || len(found) == 0 {
			return err
		}
		a := &found[0]
		was := *a.NextAt
		used, err := scheduledToday(ctx, tx, a, now)
		if err != nil {
			return err
		}
		draft, err := pickDraft(ctx, tx, a, draw)
		if err != nil {
			return err
		}
		firing := publish.Fire(a, draft, used, now, draw)
		b = pgx.Batch{}
		expectRows(b.Queue(insertFiring, firing.Automation, firing.ScheduledFor, firing.FiredAt, firing.Outcome, firing.Publication, firing.Skipped), 1, errLostRow)
		expectRows(b.Queue(moveAutomation, a.ID, was, a.NextAt), 1, errLostRow)
		if p := draft; firing.Publication != nil {
			expectRows(b.Queue(updatePublication, p.ID, p.Status, p.Jitter.Microseconds(), p.PublishAt, p.ActualPublishAt, p.DueAt, p.Spent), 1, errLostRow)
			scheduled = p
		}
		fired, f = a, firing
		return pgkit.Send(ctx, tx, &b)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return fired, f, scheduled, nil
}

// scheduledToday counts what an automation has scheduled in the day of now; nothing where no quota asks for it.
func scheduledToday(ctx context.Context, tx pgx.Tx, a *publish.Automation, now time.Time) (n int, err error) {
	if a.DailyQuota == 0 {
		return 0, nil
	}
	begins, ends := a.Rule.Day(now)
	err = tx.QueryRow(ctx, countScheduled, a.ID, begins, ends).Scan(&n)
	return n, err
}

// pickDraft locks the draft that an automation takes, nil when there is none. A draft that another transaction has locked is
// passed over; a random one is then drawn anew.
func pickDraft(ctx context.Context, tx pgx.Tx, a *publish.Automation, draw publish.Draw) (*publish.Publication, error) {
	const draws = 5
	lock := func(sql string, args ...any) (*publish.Publication, error) {
		found, err := pgkit.Rows(ctx, tx, scanPublication, sql, args...)
		return firstOf(found), err
	}
	switch a.Pick {
	case publish.PickFirst:
		return lock(lockFirstDraft, a.Target)
	case publish.PickLast:
		return lock(lockLastDraft, a.Target)
	case publish.PickRandom:
		for range draws {
			var n int64
			if err := tx.QueryRow(ctx, countDrafts, a.Target).Scan(&n); err != nil || n == 0 {
				return nil, err
			}
			if p, err := lock(lockRandomDraft, a.Target, draw(n)); p != nil || err != nil {
				return p, err
			}
		}
		return lock(lockFirstDraft, a.Target)
	}
	return nil, fmt.Errorf("postgres: automation %s picks %q", a.ID, a.Pick)
}

func scanAutomation(row pgx.CollectableRow) (a publish.Automation, err error) {
	var (
		weekdays []int16
		times    []int32
		zone     string
	)
	if err := row.Scan(&a.ID, &a.Number, &a.Name, &a.Target, &a.TargetName, &a.Status, &weekdays, &times, &zone, (*micros)(&a.Rule.Every),
		&a.Rule.From, &a.Pick, &a.DailyQuota, (*micros)(&a.Jitter), &a.NextAt, &a.CreatedAt); err != nil {
		return a, err
	}
	for _, day := range weekdays {
		a.Rule.Weekdays = append(a.Rule.Weekdays, time.Weekday(day))
	}
	for _, at := range times {
		a.Rule.Times = append(a.Rule.Times, time.Duration(at)*time.Second)
	}
	if a.Rule.Zone, err = time.LoadLocation(zone); err != nil {
		return a, fmt.Errorf("postgres: the time zone of automation %s: %w", a.ID, err)
	}
	return a, nil
}

// Automation implements [publish.Reader].
func (s *Publications) Automation(ctx context.Context, id uuid.UUID) (*publish.Automation, error) {
	a, err := queryOne(ctx, s.db.reads, &publish.NotFoundError{What: "automation", ID: id}, scanAutomation, `SELECT `+automationFields+automationsAndTargets+` WHERE a.id = $1`, id)
	return &a, err
}

// Automations implements [publish.Reader].
func (s *Publications) Automations(ctx context.Context, after int64, limit int) ([]publish.Automation, error) {
	return query(ctx, s.db.reads, scanAutomation, `SELECT `+automationFields+automationsAndTargets+` WHERE a.number > $1 ORDER BY a.number LIMIT $2`, after, limit)
}

const (
	automationExists = `SELECT EXISTS (SELECT FROM automations WHERE id = $1)`
	firingFields     = `automation, number, scheduled_for, fired_at, outcome, publication, skipped`
)

// Firings implements [publish.Reader].
func (s *Publications) Firings(ctx context.Context, id uuid.UUID, after int64, limit int) ([]publish.Firing, error) {
	const selectFirings = `SELECT ` + firingFields + ` FROM automation_firings
		WHERE automation = $1 AND number > $2 ORDER BY number LIMIT $3`
	return listOf[publish.Firing](ctx, s.db.reads, automationExists, &publish.NotFoundError{What: "automation", ID: id},
		selectFirings, id, after, limit)
}
