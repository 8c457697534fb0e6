package demo

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// lockQuestions ask about the locks, and about the table of what was written under them.
func lockQuestions(writes string) []question {
	return []question{
		{"L1", "every grant has a higher token", `
			SELECT @tokens_grow::bool AND token = @last_token, format('%s grants, up to token %s', @grants::int, token) FROM lock_keys WHERE key = @turn_key`},
		{"L2", "a write with an old token refused", `
			SELECT @stale_refused::bool AND w.n = 1 AND w.newest = @new_token AND f.token = @new_token,
			       format('written with token %s, refused with %s', w.newest, @old_token::bigint)
			FROM (SELECT count(*) AS n, max(token) AS newest FROM ` + writes + `) w, lock_fences f WHERE f.resource = @last_key`},
		{"L3", "a dead holder's lock moves on", `
			SELECT @ended_in_time::bool AND @late_release_refused::bool AND k.token = @new_token AND g.granted_at >= @expires::timestamptz
			       AND g.granted_at <= @died::timestamptz + @handover_ms::float8 * interval '1 ms' AND g.expires_at > g.granted_at,
			       format('%s ms after its lease ended', round(extract(epoch FROM g.granted_at - @expires::timestamptz) * 1000))
			FROM lock_keys k LEFT JOIN lock_grants g ON g.id = @grant::uuid AND g.id = k.holder WHERE k.key = @last_key`},
		{"L4", "a deadlock has one victim", `
			SELECT @victims::int = 1 AND @cycle_told::bool AND @deadlock_ms::float8 <= @deadlock_limit_ms::float8 AND sum(token) = @fork_grants::int,
			       format('%s victim, told who waits; %s grants', @victims::int, sum(token)) FROM lock_keys WHERE key = ANY(@fork_keys)`},
	}
}

// legs are the transfers between ledgers, each with what was done of it in either ledger.
const legs = `WITH told AS (
	SELECT * FROM json_to_recordset(@movements::text::json) AS m (id uuid, account text, mode text, status text, amount bigint)
), legs AS (
	SELECT l.saga, l.step, coalesce(l.gid, '') AS gid, t.amount FROM saga_legs l JOIN transfers t ON t.id = l.transfer WHERE l.outcome = 'done'
	UNION ALL
	SELECT * FROM json_to_recordset(@branch_legs::text::json) AS b (saga uuid, step text, gid text, amount bigint)
), ends AS (
	SELECT t.id, t.mode, t.status, t.amount, s.status AS stored, s.decided, string_agg(l.step, ' ' ORDER BY l.step) AS steps,
	       coalesce(bool_and(l.amount = t.amount), true) AS amounts,
	       coalesce(bool_and(strpos(l.gid, ':' || t.id || ':' || s.decided || ':') > 0), true) AS of_decision
	FROM told t LEFT JOIN sagas s ON s.id = t.id LEFT JOIN legs l ON l.saga = t.id WHERE t.mode <> '' GROUP BY t.id, t.mode, t.status, t.amount, s.status, s.decided
) `

// crashQuestions ask what became of the work of the servers that were killed.
func (d *Demo) crashQuestions() []question {
	all := []question{
		{"I3", "lost answers: each done once", `
			WITH told AS (SELECT * FROM json_to_recordset(@movements::text::json) AS m (id uuid, account text, mode text, amount bigint) WHERE mode = '')
			SELECT @lost_answers::int > 0 AND n.asked = n.found AND n.asked = n.different AND n.asked = n.effects,
			       format('%s transfers, %s effects', n.asked, n.effects)
			FROM (SELECT count(*) AS asked, count(t.id) AS found, count(DISTINCT told.id) AS different,
			             (SELECT count(*) FROM transfers WHERE source = ANY(@payers) AND kind = 'transfer' AND status = 'completed') AS effects
			      FROM told LEFT JOIN transfers t ON t.id = told.id AND t.source = told.account AND t.amount = told.amount AND t.status = 'completed') n`},
		{"P1", "every post published once", `
			WITH posts AS (SELECT unnest(@posts::uuid[]) AS id), got AS (SELECT * FROM json_to_recordset(@deliveries::text::json) AS g (id uuid, version bigint))
			SELECT n.posts = n.published AND n.posts = n.once AND n.posts = n.arrived AND n.repeats = 0 AND n.unknown = 0,
			       format('%s of %s published, %s sent again', n.published, n.posts, n.again)
			FROM (SELECT (SELECT count(*) FROM posts) AS posts,
			             (SELECT count(*) FROM posts JOIN publications p USING (id) WHERE p.status = 'published') AS published,
			             (SELECT count(*) FROM posts WHERE (SELECT count(*) FROM publication_attempts a WHERE a.publication = id AND a.result = 'published') = 1) AS once,
			             (SELECT count(DISTINCT g.id) FROM publication_attempts a JOIN got g ON g.id = a.publication AND g.version = a.version WHERE a.result = 'published') AS arrived,
			             (SELECT count(*) - count(DISTINCT (id, version)) FROM got) AS repeats,
			             (SELECT count(*) FROM got g LEFT JOIN publication_attempts a ON a.publication = g.id AND a.version = g.version WHERE a.version IS NULL) AS unknown,
			             (SELECT count(DISTINCT id) FROM got WHERE version > 1) AS again) n`},
		{"P2", "no post early or cancelled", `
			WITH got AS (SELECT * FROM json_to_recordset(@deliveries::text::json) AS g (id uuid, version bigint))
			SELECT n.sent > 0 AND n.early = 0 AND n.cancelled = cardinality(@cancelled::uuid[]) AND n.of_cancelled = 0,
			       format('%s sent, %s early; %s cancelled, %s of them sent', n.sent, n.early, n.cancelled, n.of_cancelled)
			FROM (SELECT (SELECT count(*) FROM got) AS sent,
			             (SELECT count(*) FROM publications p JOIN publication_attempts a ON a.publication = p.id
			              WHERE p.id = ANY(@posts::uuid[]) AND a.started_at < greatest(p.publish_at, p.actual_publish_at)) AS early,
			             (SELECT count(*) FROM publications WHERE id = ANY(@cancelled::uuid[]) AND status = 'cancelled') AS cancelled,
			             (SELECT count(*) FROM got WHERE id = ANY(@cancelled::uuid[]))
			             + (SELECT count(*) FROM publication_attempts WHERE publication = ANY(@cancelled::uuid[])) AS of_cancelled) n`},
		{"C1", "resumed draws: those of one run", `
			SELECT a.status = 'completed' AND a.digest = @draws_digest AND @other_count_refused::bool
			       AND b.status = 'rolled_back' AND b.completed = @rolled_back_at::bigint AND b.kept = b.completed,
			       format('%s draws; %s kept of those rolled back', a.completed, b.kept)
			FROM (SELECT m.status, m.completed, (SELECT encode(sha256(string_agg(data, ''::bytea ORDER BY seq)), 'hex') FROM multidraw_chunks WHERE multidraw = m.id) AS digest
			      FROM multidraws m WHERE m.id = @resumed::uuid) a,
			     (SELECT m.status, m.completed, (SELECT coalesce(sum(length(data)), 0) FROM multidraw_chunks WHERE multidraw = m.id) AS kept
			      FROM multidraws m WHERE m.id = @undone::uuid) b`},
	}
	if d.databases.branch == "" {
		return all
	}
	return append(all, question{"S1", "a saga is whole, or undone", legs + `
		SELECT n.transfers > 0 AND n.transfers = n.whole, format('%s of %s: %s done, %s undone', n.whole, n.transfers, n.done, n.undone)
		FROM (SELECT count(*) AS transfers, count(*) FILTER (WHERE stored = status AND amounts AND coalesce(steps, '') =
		             CASE status WHEN 'completed' THEN 'credit debit' WHEN 'compensated' THEN 'debit undo.debit' WHEN 'failed' THEN '' END) AS whole,
		             count(*) FILTER (WHERE status = 'completed') AS done, count(*) FILTER (WHERE status = 'compensated') AS undone
		      FROM ends WHERE mode = 'saga') n`}, question{"T1", "two ledgers: both or neither", legs + `
		SELECT n.transfers > 0 AND n.transfers = n.whole AND n.in_doubt = 0 AND @settled_ms::float8 <= @doubt_limit_ms::float8,
		       format('%s of %s: %s in both, %s in neither; %s in doubt', n.whole, n.transfers, n.done, n.transfers - n.done, n.in_doubt)
		FROM (SELECT count(*) AS transfers, count(*) FILTER (WHERE stored = status AND amounts AND of_decision AND coalesce(steps, '') =
		             CASE WHEN status = 'completed' AND decided > 0 THEN 'credit debit' WHEN status = 'failed' AND decided = 0 THEN '' END) AS whole,
		             count(*) FILTER (WHERE status = 'completed') AS done,
		             (SELECT count(*) FROM pg_prepared_xacts x JOIN told ON strpos(x.gid, told.id::text) > 0) + @branch_in_doubt::int AS in_doubt
		      FROM ends WHERE mode = 'twophase') n`})
}

// crashArguments adds to the arguments of the questions what was seen in the acts of the locks and of the crash, and what the
// database of the branch says.
func (d *Demo) crashArguments(ctx context.Context, args pgx.NamedArgs) error {
	l, c := &d.result.Locks, &d.result.Crash
	slack := inMilliseconds(d.slack)
	grow := len(l.Tokens) > 0
	for i := 1; i < len(l.Tokens); i++ {
		grow = grow && l.Tokens[i] > l.Tokens[i-1]
	}
	payers := make([]string, demoPayers)
	for i := range payers {
		payers[i] = d.payer("", i)
	}
	maps.Copy(args, map[string]any{
		"tokens_grow": grow, "grants": l.Grants, "turn_key": d.turnKey(), "last_token": slices.Max(append(l.Tokens, 0)),
		"victims": l.Victims, "cycle_told": d.cycleTold(), "deadlock_ms": l.DeadlockMS, "deadlock_limit_ms": inMilliseconds(deadlockLimit) + slack,
		"fork_keys": d.deadlockKeys(), "fork_grants": demoOwners + demoOwners - 1, "last_key": d.lastLock(), "stale_refused": c.StaleWrite,
		"old_token": c.OldToken, "new_token": c.NewToken, "ended_in_time": c.endedInTime, "late_release_refused": c.LateRelease, "grant": c.grant,
		"expires": c.expires, "died": c.died, "handover_ms": inMilliseconds(d.holderTTL()+handoverLimit) + slack,
		"lost_answers": c.LostAnswers, "payers": payers, "posts": d.posts, "cancelled": append([]string{}, d.cancelled...),
		"resumed": c.resumed, "undone": c.undone, "draws_digest": c.digest, "other_count_refused": c.otherCount, "rolled_back_at": c.RolledBack,
		"settled_ms": c.SettledMS, "doubt_limit_ms": inMilliseconds(doubtLimit) + slack,
	})
	branch, doubts, err := d.branchLegs(ctx)
	if err != nil {
		return err
	}
	args["branch_in_doubt"] = doubts
	for name, document := range map[string]any{"movements": d.movements, "deliveries": d.deliveries, "branch_legs": branch} {
		b, err := json.Marshal(document)
		if err != nil {
			return err
		}
		args[name] = string(b)
	}
	return nil
}

// branchLeg is what was done of a transfer in the branch.
type branchLeg struct {
	Saga   string `json:"saga"`
	Step   string `json:"step"`
	GID    string `json:"gid"`
	Amount int64  `json:"amount"`
}

// branchLegs reads what was done in the branch, and counts what is in doubt there.
func (d *Demo) branchLegs(ctx context.Context) (all []branchLeg, doubts int, err error) {
	all = []branchLeg{}
	if d.databases.branch == "" {
		return all, 0, nil
	}
	conn, err := pgx.Connect(ctx, d.databases.branch)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, `SELECT l.saga::text, l.step, coalesce(l.gid, ''), t.amount FROM saga_legs l JOIN transfers t ON t.id = l.transfer WHERE l.outcome = 'done'`)
	if err != nil {
		return nil, 0, err
	}
	if all, err = pgx.AppendRows(all, rows, pgx.RowToStructByPos[branchLeg]); err != nil {
		return nil, 0, err
	}
	err = conn.QueryRow(ctx, `SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()`).Scan(&doubts)
	return all, doubts, err
}
