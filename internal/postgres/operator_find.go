package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// foundByID looks ids up in every table by its primary key.
const foundByID = `
	SELECT 'campaign', id::text, name, status FROM campaigns WHERE id = ANY($1)
	UNION ALL SELECT 'auction', id::text, title, status FROM auctions WHERE id = ANY($1)
	UNION ALL SELECT 'transfer', id::text, kind || ' from ' || source || ' to ' || destination, status FROM transfers WHERE id = ANY($1)
	UNION ALL SELECT 'hold', account, 'hold on ' || account, status FROM holds WHERE id = ANY($1)
	UNION ALL SELECT 'multidraw', id::text, lock_key, status FROM multidraws WHERE id = ANY($1)
	UNION ALL SELECT 'publication', p.id::text, 'to ' || t.name, p.status FROM publications AS p JOIN targets AS t ON t.id = p.target WHERE p.id = ANY($1)
	UNION ALL SELECT 'automation', id::text, name, status FROM automations WHERE id = ANY($1)
	UNION ALL SELECT 'target', id::text, name, '' FROM targets WHERE id = ANY($1)
	UNION ALL SELECT 'saga', id::text, name, status FROM sagas WHERE id = ANY($1)
	UNION ALL SELECT 'lock', id::text, owner, '' FROM lock_grants WHERE id = ANY($1)
	UNION ALL SELECT 'key', id, name, role FROM api_keys WHERE id = ANY($2)`

// Find looks ids up. What has none of them is left out; what has several comes in no order.
func (d *Operator) Find(ctx context.Context, ids []uuid.UUID) ([]operator.Found, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return query(ctx, d.db.reads, pgx.RowToStructByPos[operator.Found], foundByID, ids, texts)
}

// madeAtOnce is how many campaigns of one millisecond a position is looked for in.
const madeAtOnce = 1000

// FindPosition finds the campaign of a position. A position has no row; its id begins with the time in its campaign's id.
func (d *Operator) FindPosition(ctx context.Context, id uuid.UUID) (operator.Position, bool, error) {
	const timeBytes = 6
	low, high := uuid.UUID{}, uuid.Max
	copy(low[:timeBytes], id[:])
	copy(high[:timeBytes], id[:])
	found, err := query(ctx, d.db.reads, pgx.RowToStructByPos[operator.Position],
		`SELECT id, name, total_positions FROM campaigns WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT $3`, low, high, madeAtOnce)
	i := slices.IndexFunc(found, func(p operator.Position) bool {
		_, ok := (&lottery.Campaign{ID: p.Campaign, TotalPositions: p.Total, Layers: []lottery.Layer{{}}}).FindPosition(id)
		return ok
	})
	if i < 0 {
		return operator.Position{}, false, err
	}
	return found[i], true, err
}

// recently is how many of the newest rows are looked through for a word that is not at the beginning of the name.
const recently = 1000

// Search finds accounts whose id begins with a text, the completed transfer with that reference, and whatever has the text in its name:
// among all campaigns and auctions at the beginning of the name, elsewhere among the newest thousand of each table. It returns at most
// limit of each kind.
func (d *Operator) Search(ctx context.Context, text string, limit int) (found []operator.Found, err error) {
	lower := strings.ToLower(text)
	statements := []struct {
		sql  string
		args []any
	}{
		{`SELECT 'account', id, id, '' FROM accounts WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3`, []any{text, text + afterIDs, limit}},
		{`SELECT 'transfer', t.id::text, 'reference ' || r.reference, t.status FROM transfer_references AS r JOIN transfers AS t ON t.id = r.transfer
			WHERE r.reference = $1 AND r.completed`, []any{text}},
		{`SELECT 'campaign', id::text, name, status FROM campaigns
			WHERE lower(name) COLLATE "C" >= $1 AND lower(name) COLLATE "C" < $2 ORDER BY lower(name) COLLATE "C" LIMIT $3`, []any{lower, lower + afterNames, limit}},
		{`SELECT 'campaign', id::text, name, status FROM (SELECT * FROM campaigns ORDER BY number DESC LIMIT $2) AS c
			WHERE strpos(lower(name), $1) > 1 ORDER BY number DESC LIMIT $3`, []any{lower, recently, limit}},
		{`SELECT 'auction', id::text, title, status FROM auctions
			WHERE lower(title) COLLATE "C" >= $1 AND lower(title) COLLATE "C" < $2 ORDER BY lower(title) COLLATE "C" LIMIT $3`, []any{lower, lower + afterNames, limit}},
		{`SELECT 'auction', id::text, title, status FROM (SELECT * FROM auctions ORDER BY number DESC LIMIT $2) AS a
			WHERE strpos(lower(title), $1) > 1 ORDER BY number DESC LIMIT $3`, []any{lower, recently, limit}},
		{`SELECT 'multidraw', id::text, lock_key, status FROM (SELECT * FROM multidraws ORDER BY number DESC LIMIT $2) AS m
			WHERE strpos(lower(lock_key), $1) > 0 ORDER BY number DESC LIMIT $3`, []any{lower, recently, limit}},
		{`SELECT 'target', id::text, name, '' FROM (SELECT * FROM targets ORDER BY number DESC LIMIT $2) AS t
			WHERE strpos(lower(name), $1) > 0 ORDER BY number DESC LIMIT $3`, []any{lower, recently, limit}},
		{`SELECT 'automation', id::text, name, status FROM (SELECT * FROM automations ORDER BY number DESC LIMIT $2) AS a
			WHERE strpos(lower(name), $1) > 0 ORDER BY number DESC LIMIT $3`, []any{lower, recently, limit}},
	}
	err = d.db.reads.snapshot(ctx, "search", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		found = nil
		var b pgx.Batch
		for _, s := range statements {
			b.Queue(s.sql, s.args...).Query(extend(&found, pgx.RowToStructByPos[operator.Found]))
		}
		return pgkit.Send(ctx, tx, &b)
	})
	return found, err
}

// afterNames sorts behind every name that begins with what precedes it.
const afterNames = "\U0010FFFF"

// Entries lists an account's entries, newest first. An entry's balance follows from that of the entry after it: the newest one's is the
// account's own, and a place in the list knows its balance.
func (d *Operator) Entries(ctx context.Context, account string, before operator.EntryPlace, limit int) ([]operator.Entry, error) {
	balance := before.Balance
	entries, err := query(ctx, d.db.reads, func(row pgx.CollectableRow) (e operator.Entry, err error) {
		var now *int64
		err = row.Scan(&e.ID, &e.Account, &e.Version, &e.Transfer, &e.Amount, &e.Currency, &e.At, &e.Memo, &e.Kind, &e.Counterparty, &now)
		if balance == nil && before == operator.NewestEntry() {
			balance = now
		}
		return e, err
	}, `SELECT e.id, e.account, e.version, e.transfer, e.amount, e.currency, e.at, e.memo, coalesce(t.kind, ''),
			coalesce(CASE WHEN t.source = e.account THEN t.destination ELSE t.source END, ''), (SELECT available + held FROM accounts WHERE id = $1)
		FROM entries AS e LEFT JOIN transfers AS t ON t.id = e.transfer
		WHERE e.account = $1 AND (e.version, e.id) < ($2, $3) ORDER BY e.version DESC, e.id DESC LIMIT $4`, account, before.Version, before.ID, limit)
	if balance == nil {
		return entries, err
	}
	rest := *balance
	for i := range entries {
		entries[i].Balance = new(rest)
		rest -= entries[i].Amount
	}
	return entries, err
}

// Multidraws lists multi-draws, newest first, below the number before.
func (d *Operator) Multidraws(ctx context.Context, before int64, limit int) ([]multidraw.Operation, error) {
	return query(ctx, d.db.reads, scanMultidraw,
		`SELECT `+multidrawRow+`, NULL, NULL, NULL FROM multidraws WHERE number < $1 ORDER BY number DESC LIMIT $2`, before, limit)
}

// Attempts lists a publication's attempts, newest first, below the version before.
func (d *Operator) Attempts(ctx context.Context, id uuid.UUID, before int64, limit int) ([]publish.Attempt, error) {
	return listOf[publish.Attempt](ctx, d.db.reads, publicationExists, &publish.NotFoundError{What: "publication", ID: id},
		`SELECT `+attemptFields+` FROM publication_attempts WHERE publication = $1 AND version < $2 ORDER BY version DESC LIMIT $3`, id, before, limit)
}

// Targets lists targets, newest first, below the number before.
func (d *Operator) Targets(ctx context.Context, before int64, limit int) ([]publish.Target, error) {
	return query(ctx, d.db.reads, scanTargetHealth, targetHealth+` WHERE t.number < $1 ORDER BY t.number DESC LIMIT $2`, before, limit)
}

// Automations lists automations, newest first, below the number before.
func (d *Operator) Automations(ctx context.Context, before int64, limit int) ([]publish.Automation, error) {
	return query(ctx, d.db.reads, scanAutomation, `SELECT `+automationFields+automationsAndTargets+` WHERE a.number < $1 ORDER BY a.number DESC LIMIT $2`, before, limit)
}

// Firings lists what an automation has fired, newest first, below the number before.
func (d *Operator) Firings(ctx context.Context, id uuid.UUID, before int64, limit int) ([]publish.Firing, error) {
	return listOf[publish.Firing](ctx, d.db.reads, automationExists, &publish.NotFoundError{What: "automation", ID: id},
		`SELECT `+firingFields+` FROM automation_firings WHERE automation = $1 AND number < $2 ORDER BY number DESC LIMIT $3`, id, before, limit)
}

// Purchases lists a campaign's purchases, newest first, below the number before; of one account unless that is empty. Those of an account
// are found among the campaign's or among the account's, whichever are fewer.
func (d *Operator) Purchases(ctx context.Context, campaign uuid.UUID, account string, before int64, limit int) ([]lottery.Purchase, error) {
	const purchases = `SELECT ` + purchaseFields + ` FROM purchases WHERE campaign = $1 AND seq < $2`
	sql, args := purchases+` ORDER BY seq DESC LIMIT $3`, []any{campaign, before, limit}
	if account != "" {
		sql, args = purchases+` AND account = $4 ORDER BY seq DESC LIMIT $3`, append(args, account)
	}
	found, err := query(ctx, d.db.reads, scanPurchase, sql, args...)
	return unlessArchived(ctx, d.db, campaign, found, err)
}

// Sagas finds the transfers between ledgers from or to an account, newest first, below the number before. The expressions are those of
// the two indexes.
func (d *Operator) Sagas(ctx context.Context, ledger, account string, before int64, limit int) ([]uuid.UUID, error) {
	return query(ctx, d.db.reads, pgx.RowTo[uuid.UUID], `SELECT id FROM (
			(SELECT id, number FROM sagas WHERE name = 'cross-transfer' AND (input::jsonb #>> '{from,ledger}') || '/' || (input::jsonb #>> '{from,account}') = $1
				AND number < $2 ORDER BY number DESC LIMIT $3)
			UNION (SELECT id, number FROM sagas WHERE name = 'cross-transfer' AND (input::jsonb #>> '{to,ledger}') || '/' || (input::jsonb #>> '{to,account}') = $1
				AND number < $2 ORDER BY number DESC LIMIT $3)) AS s
		ORDER BY number DESC LIMIT $3`, ledger+"/"+account, before, limit)
}

// Publications lists publications, newest first, below the number before.
func (d *Operator) Publications(ctx context.Context, f operator.PublicationFilter, before int64, limit int) ([]publish.Publication, error) {
	const (
		fields  = `SELECT ` + publicationFields + `, NULL::text FROM publications AS p JOIN targets AS t ON t.id = p.target WHERE p.number < $1`
		newest  = ` ORDER BY p.number DESC LIMIT $2`
		ofError = ` AND p.status = 'failed' AND "left"(p.last_error, 100) = "left"($3::text, 100) AND p.last_error = $3`
		ofCause = ` AND p.status = 'failed' AND p.last_cause = $3`
		ofNamed = ` AND p.target = (SELECT id FROM targets WHERE name = $4)`
		// The index has each status by itself.
		ofTarget = `SELECT ` + publicationFields + `, NULL::text FROM targets AS t, unnest(ARRAY['draft', 'scheduled', 'publishing', 'published', 'failed', 'cancelled']) AS s,
			LATERAL (SELECT * FROM publications WHERE target = t.id AND status = s AND number < $1 ORDER BY number DESC LIMIT $2) AS p
			WHERE t.name = $3` + newest
	)
	sql, args := fields+newest, []any{before, limit}
	switch {
	case f.Error != "" && f.Target != "":
		sql, args = fields+ofError+ofNamed+newest, append(args, f.Error, f.Target)
	case f.Error != "":
		sql, args = fields+ofError+newest, append(args, f.Error)
	case f.Cause != "" && f.Target != "":
		sql, args = fields+ofCause+ofNamed+newest, append(args, f.Cause, f.Target)
	case f.Cause != "":
		sql, args = fields+ofCause+newest, append(args, f.Cause)
	case f.Status != "" && f.Target != "":
		sql, args = fields+` AND p.status = $3`+ofNamed+newest, append(args, f.Status, f.Target)
	case f.Target != "":
		sql, args = ofTarget, append(args, f.Target)
	case f.Status != "":
		sql, args = fields+` AND p.status = $3`+newest, append(args, f.Status)
	}
	return query(ctx, d.db.reads, scanPublication, sql, args...)
}
