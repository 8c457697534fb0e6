package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// releaseBatch is how many stale claims one transaction releases.
const releaseBatch = 500

// claims are the execution claims on the table of publications. A claim is an attempt, and is counted as it is made, so that
// the attempts of workers that die are bounded too.
var claims = claim.Must[uuid.UUID](claim.Table{ //nolint:gochecknoglobals // A constant, but for its making.
	Name:    "publications",
	Ready:   "status = 'scheduled'",
	Due:     "due_at",
	OnClaim: "status = 'publishing', attempts = t.attempts + 1",
	OnRelease: "last_error = '" + releasedError + "', last_cause = '" + string(publish.CauseOther) + "', due_at = clock_timestamp(), " +
		"status = CASE WHEN " + retriesLeft + " THEN 'scheduled' ELSE 'failed' END",
})

const (
	// openTargets are those that something may be sent to now, and that this process can send to. Their order is random, so
	// that none is always the last to be looked at.
	openTargets = `targets AS t LEFT JOIN unnest($2::uuid[], $3::bigint[]) AS s (target, slots) ON s.target = t.id
			LEFT JOIN unnest($6::uuid[], $7::timestamptz[]) AS m (target, mark) ON m.target = t.id
		WHERE t.secret_key = ANY($4) AND t.paused_at IS NULL AND coalesce(s.slots, $5) > 0`
	// dueInTargets goes to each open target for its own due items, so that a target with many of them, or a slow one, stands
	// in nobody's way. A target that is slowed down is sent one at a time.
	dueInTargets = `SELECT p.id FROM (
			SELECT t.id, CASE WHEN t.pace_interval > 0 OR t.refusals > 0 THEN 1 ELSE coalesce(s.slots, $5) END AS slots,
				coalesce(m.mark, $8) AS mark
			FROM ` + openTargets + ` AND (t.next_send_at IS NULL OR t.next_send_at <= clock_timestamp()) ORDER BY random()
		) AS open CROSS JOIN LATERAL (
			SELECT d.id FROM publications AS d WHERE d.target = open.id AND d.status = 'scheduled' AND d.due_at >= open.mark AND d.due_at <= statement_timestamp()
			ORDER BY d.due_at LIMIT open.slots FOR UPDATE SKIP LOCKED
		) AS p WHERE $1::uuid IS NOT NULL LIMIT $9`
	// workFields are all columns of a claim: w is the claims, with the number of their try.
	workFields = `w.id, w.execution_lock_id, w.execution_version, p.payload, nullif(p.progress, ''), w.try - p.spent,
			(extract(epoch FROM w.execution_locked_at - p.due_at) * 1000000)::bigint, w.execution_locked_at, ` + targetFields + `
		FROM work AS w JOIN publications AS p ON p.id = ANY (ARRAY[w.id]) JOIN targets AS t ON t.id = p.target`
	selectClaimed = `WITH work AS (
			SELECT id, execution_lock_id, execution_version, execution_locked_at, attempts AS try FROM publications WHERE execution_lock_id = $1
		) SELECT ` + workFields
	// beginClaimed begins the attempts of the rows that the same statement claims, and returns their fields. It sees publications
	// as they were before that statement.
	beginClaimed = `begun AS (
			INSERT INTO publication_attempts (publication, version, lock_id, started_at)
			SELECT id, execution_version, execution_lock_id, execution_locked_at FROM claimed
		), paced AS (
			UPDATE targets SET next_send_at = clock_timestamp() + (pace_interval * (0.8 + 0.4 * random())) * interval '1 microsecond'
			WHERE id IN (SELECT t.id FROM targets AS t WHERE t.pace_interval > 0
				AND t.id IN (SELECT p.target FROM claimed AS c JOIN publications AS p ON p.id = ANY (ARRAY[c.id])) FOR NO KEY UPDATE SKIP LOCKED)
		), work AS (
			SELECT c.*, p.attempts + 1 AS try FROM claimed AS c JOIN publications AS p ON p.id = ANY (ARRAY[c.id])
		) SELECT ` + workFields
	selectNextDue = `SELECT (extract(epoch FROM min(greatest(p.due_at, open.next_send_at)) - clock_timestamp()) * 1000000)::bigint FROM (
			SELECT t.id, t.next_send_at, coalesce(m.mark, $8) AS mark FROM ` + openTargets + `
		) AS open CROSS JOIN LATERAL (
			SELECT d.due_at FROM publications AS d WHERE d.target = open.id AND d.status = 'scheduled' AND d.due_at >= open.mark ORDER BY d.due_at LIMIT 1
		) AS p WHERE $1::uuid IS NULL`
)

// claimDue is the statement that claims what is due and begins its attempts. It is a single one, sent together with COMMIT, because
// many processes claim at once when much becomes due.
func claimDue() string {
	return fmt.Sprintf("with claimed as (%s), %s", claims.SelectedSQL(dueInTargets), beginClaimed)
}

// slotArgs are the parameters by which a statement finds open targets, and where it looks from.
func slotArgs(s publish.Slots, l *look) []any {
	ids, slots := make([][16]byte, 0, len(s.Targets)), make([]int64, 0, len(s.Targets))
	for id, n := range s.Targets {
		ids, slots = append(ids, id), append(slots, int64(n))
	}
	return append([]any{ids, slots, s.Keys, int64(s.Each)}, l.args()...)
}

// ClaimDue implements [publish.Queue].
func (s *Publications) ClaimDue(ctx context.Context, slots publish.Slots) (work []*publish.Work, err error) {
	// The lock id outlives a transaction that has to be run again: if an earlier run was committed after all, the rows that it
	// claimed are found by it. Only those of a run that is committed after the next one has looked are left to go stale.
	lock := newID()
	first := true
	from := s.marks.from(&s.marks.until, s.db.chapters.Load())
	err = s.db.run(ctx, "publish.claim", func(ctx context.Context, tx pgx.Tx) error {
		work = nil
		if !first {
			if err := pgkit.Send(ctx, tx, workBatch(&work, selectClaimed, lock)); err != nil || len(work) > 0 {
				return err
			}
		}
		first = false
		args := append(append([]any{lock}, slotArgs(slots, &from)...), int64(slots.Total))
		return sendAndCommit(ctx, tx, workBatch(&work, claimDue(), args...))
	})
	if err != nil {
		return nil, err
	}
	s.marks.claimed(&from, slots, work)
	if len(work) > 0 {
		crashpoint.Hit(crashpoint.PublishClaimed)
	}
	return work, nil
}

// workBatch is a query for work.
func workBatch(into *[]*publish.Work, sql string, args ...any) *pgx.Batch {
	var b pgx.Batch
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.AppendRows((*into)[:0], rows, scanWork)
		return err
	})
	return &b
}

func scanWork(row pgx.CollectableRow) (*publish.Work, error) {
	w := &publish.Work{Target: &publish.Target{}}
	err := row.Scan(append([]any{&w.ID, &w.LockID, &w.Version, &w.Payload, &w.Progress, &w.Try, (*micros)(&w.Late), &w.ClaimedAt},
		targetInto(w.Target)...)...)
	return w, err
}

// NextDue implements [publish.Queue].
func (s *Publications) NextDue(ctx context.Context, slots publish.Slots) (publish.Next, error) {
	from := s.marks.from(&s.marks.next, s.db.chapters.Load())
	in, err := queryOne(ctx, s.db, errEmpty, pgx.RowTo[*micros], selectNextDue, append([]any{nil}, slotArgs(slots, &from)...)...)
	if err != nil {
		return publish.Next{}, err
	}
	if from.whole {
		s.marks.asked(&from)
	}
	n := publish.Next{Whole: from.whole}
	if in != nil {
		n.In = (*time.Duration)(in)
	}
	return n, nil
}

// Heartbeat implements [publish.Queue]. It returns a [command.BlockedError] where another session has locked one of them.
func (s *Publications) Heartbeat(ctx context.Context, beats []publish.Beat) (lost []publish.Claim, err error) {
	n := len(beats)
	alive := make([]publish.Claim, n)
	ids, locks, versions := make([][16]byte, n), make([][16]byte, n), make([]int64, n)
	stages, sent, total := make([]string, n), make([]int64, n), make([]int64, n)
	for i := range beats {
		b := &beats[i]
		alive[i], ids[i], locks[i], versions[i] = b.Claim, b.ID, b.LockID, b.Version
		stages[i], sent[i], total[i] = b.Stage, b.Sent, b.Total
	}
	err = s.db.runOn(ctx, "publish.heartbeat", nil, func(ctx context.Context, tx pgx.Tx) (err error) {
		if lost, err = claims.Heartbeat(ctx, tx, alive...); err == nil {
			_, err = tx.Exec(ctx, noteActivity, ids, locks, versions, stages, sent, total)
		}
		return err
	})
	return lost, err
}

// noteActivity notes what attempts are doing. The publications of those whose claims are in force are locked by their heartbeat; the
// others have ended.
const noteActivity = `UPDATE publication_attempts AS a SET heartbeat_at = clock_timestamp(), stage = v.stage, sent_bytes = v.sent, total_bytes = v.total
	FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[]) AS v (id, lock_id, version, stage, sent, total)
	WHERE a.publication = ANY (ARRAY[v.id]) AND a.lock_id = v.lock_id AND a.version = v.version AND a.result IS NULL`

const (
	// concludePublications ends claims under their lock id and version, and only then are their attempts what they seem to be;
	// an attempt that was given up for lost is refused. What had ended before is left alone, so that the statement can be run
	// again when nobody knows whether it was committed. The rows are locked in the order of their ids first, as a heartbeat of
	// the same claims does. An equality of lock ids would let the planner go through the index of all claimed rows.
	concludePublications = `WITH ended AS (
			SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::integer[], $9::text[],
				$10::integer[], $11::text[]) AS v (id, lock_id, version, status, delay, result, message, code, external_id, free, cause)
		), held AS MATERIALIZED (
			SELECT v.* FROM publications AS p JOIN ended AS v ON p.id = ANY (ARRAY[v.id]) AND p.execution_lock_id IS NOT DISTINCT FROM v.lock_id AND p.execution_version = v.version
			ORDER BY p.id FOR NO KEY UPDATE OF p
		), done AS (
			UPDATE publications AS p SET status = v.status, execution_lock_id = NULL, execution_locked_at = NULL, last_error = v.message, last_cause = v.cause,
				spent = p.spent + v.free, external_id = v.external_id,
				due_at = CASE WHEN v.status = 'scheduled' THEN clock_timestamp() + v.delay * interval '1 microsecond' ELSE p.due_at END,
				published_at = CASE WHEN v.status = 'published' THEN clock_timestamp() END
			FROM held AS v WHERE p.id = ANY (ARRAY[v.id]) AND p.execution_lock_id IS NOT DISTINCT FROM v.lock_id AND p.execution_version = v.version
			RETURNING v.id, v.version, v.lock_id, v.result, v.message, v.code
		)
		UPDATE publication_attempts AS a SET ended_at = coalesce(a.ended_at, clock_timestamp()), status_code = nullif(v.code, 0), error = v.message,
			result = CASE WHEN v.in_force THEN v.result ELSE 'refused' END
		FROM (SELECT *, true AS in_force FROM done UNION ALL SELECT id, version, lock_id, result, message, code, false FROM ended) AS v
		WHERE a.publication = ANY (ARRAY[v.id]) AND a.version = v.version AND a.lock_id = v.lock_id AND (v.in_force OR a.result = 'lost')
		RETURNING a.publication, a.version, a.result`
	lockTargets   = `SELECT ` + targetFields + ` FROM targets AS t WHERE t.id = ANY($1) ORDER BY t.id FOR NO KEY UPDATE`
	updateTargets = `UPDATE targets AS t SET pace_interval = v.pace_interval, refusals = v.refusals, refused_last = v.refused_last,
			next_send_at = v.next_send_at, open_until = v.open_until
		FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::uuid[], $5::timestamptz[], $6::timestamptz[])
			AS v (id, pace_interval, refusals, refused_last, next_send_at, open_until)
		WHERE t.id = ANY (ARRAY[v.id])`
	// pauseTargets pauses the targets whose authorization has expired, unless it was given anew while the attempt ran.
	pauseTargets = `UPDATE targets AS t SET paused_at = clock_timestamp(), paused_reason = 'auth_expired'
		WHERE t.paused_at IS NULL AND t.id IN (
			SELECT p.target FROM unnest($1::uuid[], $2::bigint[]) AS v (id, version)
			JOIN publication_attempts AS a ON a.publication = v.id AND a.version = v.version
			JOIN publications AS p ON p.id = v.id
			WHERE p.target = t.id AND (t.resumed_at IS NULL OR t.resumed_at < a.started_at)
		)`
	saveProgress = `UPDATE publications SET progress = $4
		WHERE id = $1 AND execution_lock_id IS NOT DISTINCT FROM $2 AND execution_version = $3`
)

// SaveProgress implements [publish.Queue]. It is run again after a lost answer, which changes nothing.
func (s *Publications) SaveProgress(ctx context.Context, c publish.Claim, progress []byte) error {
	return s.db.run(ctx, "publish.progress", func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		expectRows(b.Queue(saveProgress, c.ID, c.LockID, c.Version, string(progress)), 1, publish.ErrClaimLost)
		return pgkit.Send(ctx, tx, &b)
	})
}

// Conclude implements [publish.Queue]. It returns a [command.BlockedError] where another session has locked a publication or a
// target of the batch, which is then recorded in parts.
func (s *Publications) Conclude(ctx context.Context, batch []publish.Conclusion,
	repace func(*publish.Conclusion, publish.Pace, time.Time) publish.Pace,
) (results []publish.AttemptResult, err error) {
	err = s.db.runOn(ctx, "publish.conclude", nil, func(ctx context.Context, tx pgx.Tx) error {
		recorded, err := conclude(ctx, tx, batch)
		if err != nil {
			return err
		}
		results = make([]publish.AttemptResult, len(batch))
		for i := range batch {
			results[i] = recorded[attemptKey{batch[i].ID, batch[i].Version}]
		}
		if err := pauseExpired(ctx, tx, batch, results); err != nil {
			return err
		}
		if err := repaceTargets(ctx, tx, batch, results, repace); err != nil {
			return err
		}
		crashpoint.Hit(crashpoint.PublishMarked)
		return nil
	})
	return results, err
}

type attemptKey struct {
	publication uuid.UUID
	version     int64
}

func conclude(ctx context.Context, tx pgx.Tx, batch []publish.Conclusion) (map[attemptKey]publish.AttemptResult, error) {
	n := len(batch)
	ids, locks, versions, statuses := make([][16]byte, n), make([][16]byte, n), make([]int64, n), make([]string, n)
	delays, results, messages := make([]int64, n), make([]string, n), make([]string, n)
	codes, externals, free, causes := make([]int, n), make([]string, n), make([]int, n), make([]string, n)
	for i := range batch {
		c := &batch[i]
		ids[i], locks[i], versions[i], statuses[i] = c.ID, c.LockID, c.Version, string(c.Status)
		delays[i], results[i], messages[i] = c.Delay.Microseconds(), string(c.Verdict.Result), c.Error
		codes[i], externals[i], causes[i] = c.StatusCode, c.ExternalID, string(c.FailedFor())
		if c.Free {
			free[i] = 1
		}
	}
	var b pgx.Batch
	recorded := map[attemptKey]publish.AttemptResult{}
	b.Queue(concludePublications, ids, locks, versions, statuses, delays, results, messages, codes, externals, free, causes).Query(func(rows pgx.Rows) error {
		var (
			key    attemptKey
			result publish.AttemptResult
		)
		_, err := pgx.ForEachRow(rows, []any{&key.publication, &key.version, &result}, func() error {
			recorded[key] = result
			return nil
		})
		return err
	})
	noteOutcomes(&b, batch)
	return recorded, pgkit.Send(ctx, tx, &b)
}

const loseAttempts = `UPDATE publication_attempts AS a SET result = 'lost', ended_at = clock_timestamp(), error = $4
	FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS v (id, lock_id, version)
	WHERE a.publication = ANY (ARRAY[v.id]) AND a.lock_id = v.lock_id AND a.version = v.version AND a.result IS NULL`

// ReleaseStale implements [publish.Queue].
func (s *Publications) ReleaseStale(ctx context.Context, age time.Duration) (total int, err error) {
	for {
		var n int
		err := s.db.run(ctx, "publish.sweep", func(ctx context.Context, tx pgx.Tx) error {
			stale, err := claims.ReleaseStale(ctx, tx, age, releaseBatch)
			if n = len(stale); err != nil || n == 0 {
				return err
			}
			ids, locks, versions := make([][16]byte, n), make([][16]byte, n), make([]int64, n)
			for i, c := range stale {
				ids[i], locks[i], versions[i] = c.ID, c.LockID, c.Version
			}
			var b pgx.Batch
			expectRows(b.Queue(loseAttempts, ids, locks, versions, releasedError), n, errLostRow)
			return pgkit.Send(ctx, tx, &b)
		})
		total += n
		if err != nil || n < releaseBatch {
			return total, err
		}
	}
}

// pauseExpired pauses the targets of attempts that were refused for their authorization.
func pauseExpired(ctx context.Context, tx pgx.Tx, batch []publish.Conclusion, results []publish.AttemptResult) error {
	var (
		ids      [][16]byte
		versions []int64
	)
	for i := range batch {
		if batch[i].Pause && results[i] == publish.ResultFailed {
			ids, versions = append(ids, batch[i].ID), append(versions, batch[i].Version)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, pauseTargets, ids, versions)
	return err
}

// repaceTargets writes the new pace of the targets that have said something about it.
func repaceTargets(ctx context.Context, tx pgx.Tx, batch []publish.Conclusion, results []publish.AttemptResult,
	repace func(*publish.Conclusion, publish.Pace, time.Time) publish.Pace,
) error {
	telling := func(i int) bool {
		c := &batch[i]
		return results[i] != "" && (c.Throttled || c.Slowed && c.Class == publish.Delivered)
	}
	var ids [][16]byte
	for i := range batch {
		if telling(i) && !slices.Contains(ids, [16]byte(batch[i].Target)) {
			ids = append(ids, batch[i].Target)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var (
		b     pgx.Batch
		found []publish.Target
		now   time.Time
	)
	b.Queue(lockTargets, ids).Query(collect(&found, scanTarget))
	b.Queue(selectNow).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return err
	}
	n := len(found)
	intervals, refusals, last := make([]int64, n), make([]int, n), make([]*uuid.UUID, n)
	next, open := make([]*time.Time, n), make([]*time.Time, n)
	ids = ids[:0]
	for k := range found {
		t := &found[k]
		for i := range batch {
			if batch[i].Target == t.ID && telling(i) {
				t.Pace = repace(&batch[i], t.Pace, now)
			}
		}
		ids = append(ids, t.ID)
		intervals[k], refusals[k], last[k] = t.Pace.Interval.Microseconds(), t.Pace.Refusals, t.Pace.Last
		next[k], open[k] = t.Pace.NextAt, t.Pace.OpenUntil
	}
	b = pgx.Batch{}
	expectRows(b.Queue(updateTargets, ids, intervals, refusals, last, next, open), n, errLostRow)
	return pgkit.Send(ctx, tx, &b)
}
