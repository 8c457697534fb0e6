package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/saga"
)

// Each filter has a statement of its own: one that served all would be planned for none.

// Campaigns lists campaigns, newest first, below the number before; of one status unless that is empty. Their layers and
// prizes are not read.
func (d *Operator) Campaigns(ctx context.Context, status lottery.Status, before int64, limit int) ([]lottery.Campaign, error) {
	if status == "" {
		return query(ctx, d.db.reads, scanCampaign,
			`SELECT `+campaignFields+` FROM campaigns WHERE number < $1 ORDER BY number DESC LIMIT $2`, before, limit)
	}
	return query(ctx, d.db.reads, scanCampaign,
		`SELECT `+campaignFields+` FROM campaigns WHERE status = $3 AND number < $1 ORDER BY number DESC LIMIT $2`, before, limit, status)
}

// Auctions lists auctions as Campaigns lists campaigns. Their rounds are not read.
func (d *Operator) Auctions(ctx context.Context, status auction.Status, before int64, limit int) ([]auction.Auction, error) {
	if status == "" {
		return query(ctx, d.db.reads, scanListed,
			`SELECT `+auctionFields+` FROM auctions WHERE number < $1 ORDER BY number DESC LIMIT $2`, before, limit)
	}
	return query(ctx, d.db.reads, scanListed,
		`SELECT `+auctionFields+` FROM auctions WHERE status = $3 AND number < $1 ORDER BY number DESC LIMIT $2`, before, limit, status)
}

// afterIDs sorts behind every id that begins with what precedes it: no id has a character as high.
const afterIDs = "~"

// Accounts lists accounts whose id begins with prefix, by id, behind the id after.
func (d *Operator) Accounts(ctx context.Context, prefix, after string, limit int) ([]ledger.Account, error) {
	return query(ctx, d.db.reads, scanAccount, `SELECT `+accountFields+` FROM accounts
		WHERE id >= $1 AND id < $2 AND id > $3 ORDER BY id LIMIT $4`, prefix, prefix+afterIDs, after, limit)
}

// Transfers lists transfers, newest first, below the id before; of one status unless that is empty. The statement names the
// status itself, not as a parameter, so that PostgreSQL can use the partial index of transfers that did not complete.
func (d *Operator) Transfers(ctx context.Context, status ledger.TransferStatus, before uuid.UUID, limit int) ([]ledger.Transfer, error) {
	sql := `SELECT ` + transferFields + ` FROM ` + transfersWithReferences + ` WHERE id < $1 ORDER BY id DESC LIMIT $2`
	switch status {
	case ledger.TransferPending:
		sql = `SELECT ` + transferFields + ` FROM ` + transfersWithReferences + ` WHERE status = 'pending' AND id < $1 ORDER BY id DESC LIMIT $2`
	case ledger.TransferFailed:
		sql = `SELECT ` + transferFields + ` FROM ` + transfersWithReferences + ` WHERE status = 'failed' AND id < $1 ORDER BY id DESC LIMIT $2`
	case ledger.TransferCompleted:
		sql = `SELECT ` + transferFields + ` FROM ` + transfersWithReferences + ` WHERE status = 'completed' AND id < $1 ORDER BY id DESC LIMIT $2`
	}
	return query(ctx, d.db.reads, pgx.RowToStructByPos[ledger.Transfer], sql, before, limit)
}

const auditFields = `id, at, principal, action, object, request_id`

// Audit lists administrative actions, newest first, below the id before.
func (d *Operator) Audit(ctx context.Context, f operator.AuditFilter, before uuid.UUID, limit int) ([]operator.AuditRow, error) {
	sql, args := `SELECT `+auditFields+` FROM audit_log WHERE id < $1 ORDER BY id DESC LIMIT $2`, []any{before, limit}
	switch {
	case f.Object != "":
		sql, args = `SELECT `+auditFields+` FROM audit_log WHERE object = $3 AND id < $1 ORDER BY id DESC LIMIT $2`, append(args, f.Object)
	case f.Principal != "":
		sql, args = `SELECT `+auditFields+` FROM audit_log WHERE principal = $3 AND id < $1 ORDER BY id DESC LIMIT $2`, append(args, f.Principal)
	case f.Action != "":
		sql, args = `SELECT `+auditFields+` FROM audit_log WHERE action = $3 AND id < $1 ORDER BY id DESC LIMIT $2`, append(args, f.Action)
	}
	return query(ctx, d.db.reads, pgx.RowToStructByPos[operator.AuditRow], sql, args...)
}

// KeyRecord reads what is kept under an idempotency key, or returns [operator.ErrNoKeyRecord].
func (d *Operator) KeyRecord(ctx context.Context, id idempotency.ID) (operator.KeyRecord, error) {
	return queryOne(ctx, d.db.reads, operator.ErrNoKeyRecord, pgx.RowToStructByPos[operator.KeyRecord],
		`SELECT execution, status, body, created_at FROM stored_keys WHERE id = $1`, id[:])
}

// SoldOrdinals lists the places of a campaign's sold positions in campaign order, from 0.
func (d *Operator) SoldOrdinals(ctx context.Context, campaign uuid.UUID) ([]int, error) {
	ordinals, err := query(ctx, d.db.reads, pgx.RowTo[int], `SELECT ordinal FROM purchases WHERE campaign = $1`, campaign)
	return unlessArchived(ctx, d.db, campaign, ordinals, err)
}

// Bids reads up to limit bids of an auction, evenly spread over its sequence numbers: all of them where there are fewer. Each
// is found by one look into the primary key, so that a million bids cost what a thousand do.
func (d *Operator) Bids(ctx context.Context, id uuid.UUID, limit int) ([]operator.BidMark, error) {
	return query(ctx, d.db.reads, pgx.RowToStructByPos[operator.BidMark], `WITH points AS (
			SELECT 1 + (a.seq * n / $2::bigint) AS low, a.seq * (n + 1) / $2::bigint AS high
			FROM auctions AS a, generate_series(0::bigint, $2::bigint - 1) AS n WHERE a.id = $1)
		SELECT b.seq, b.amount, b.round, b.at FROM points, LATERAL (
			SELECT seq, amount, round, at FROM auction_bids
			WHERE auction = $1 AND seq BETWEEN points.low AND points.high ORDER BY seq LIMIT 1) AS b
		ORDER BY b.seq`, id, limit)
}

// LatestBids reads the newest bids of an auction, newest first, below the sequence number before; of one account unless that is empty.
// Those of an account are looked for among the auction's, by the primary key: a bid pays for no index by account.
func (d *Operator) LatestBids(ctx context.Context, id uuid.UUID, account string, before int64, limit int) ([]auction.Placed, error) {
	const bids = `SELECT account, amount, previous_amount, round, seq, at FROM auction_bids WHERE auction = $1 AND seq < $2`
	scan := func(row pgx.CollectableRow) (p auction.Placed, err error) {
		err = row.Scan(&p.Account, &p.Amount, &p.PreviousAmount, &p.Round, &p.Seq, &p.At)
		p.Auction = id
		return p, err
	}
	if account == "" {
		return query(ctx, d.db.reads, scan, bids+` ORDER BY seq DESC LIMIT $3`, id, before, limit)
	}
	return query(ctx, d.db.reads, scan, bids+` AND account = $4 ORDER BY seq DESC LIMIT $3`, id, before, limit, account)
}

// RoundMarks reads the newest starts, extensions and ends of an auction's rounds, oldest first.
func (d *Operator) RoundMarks(ctx context.Context, id uuid.UUID, limit int) ([]operator.RoundMark, error) {
	return query(ctx, d.db.reads, pgx.RowToStructByPos[operator.RoundMark], `SELECT seq, type, at, data FROM (
			SELECT seq, type, at, data FROM auction_events
			WHERE auction = $1 AND type IN ('round.started', 'round.extended') ORDER BY seq DESC LIMIT $2) AS newest
		ORDER BY seq`, id, limit)
}

// Backlog counts what waits. The counts are of one snapshot.
func (d *Operator) Backlog(ctx context.Context) (out operator.Backlog, err error) {
	counts := []struct {
		into *int
		sql  string
	}{
		{&out.CampaignsActive, `SELECT count(*) FROM (SELECT FROM campaigns WHERE status = 'active' LIMIT $1) AS c`},
		{&out.CampaignsDrawing, `SELECT count(*) FROM (SELECT FROM campaigns WHERE status = 'drawing' LIMIT $1) AS c`},
		// 10 s is lottery.DelayedAfter: since the beacon's round was due, or since the last sale.
		{&out.DrawsDelayed, `SELECT count(*) FROM (SELECT FROM campaigns AS c LEFT JOIN campaign_beacons AS b ON b.campaign = c.id
			WHERE status = 'drawing' AND coalesce(due_at, draw_started_at) + interval '10 s' < clock_timestamp() LIMIT $1) AS c`},
		{&out.AuctionsActive, `SELECT count(*) FROM (SELECT FROM auctions WHERE status = 'active' LIMIT $1) AS c`},
		// 10 s: the leader closes rounds within milliseconds, and another one follows it within seconds. Where no server is at work, as after a restore, none should.
		{&out.RoundsOverdue, `SELECT count(*) FROM (SELECT FROM auction_rounds WHERE status = 'active' AND ends_at + interval '10 s' < clock_timestamp()
			AND EXISTS (SELECT FROM servers WHERE at > clock_timestamp() - interval '10 s') LIMIT $1) AS c`},
		{&out.PublicationsLate, `SELECT count(*) FROM (SELECT FROM targets AS t, LATERAL (SELECT FROM publications
			WHERE target = t.id AND status = 'scheduled' AND due_at <= clock_timestamp() - interval '1 minute' LIMIT $1) AS p
			WHERE t.paused_at IS NULL AND coalesce(t.resumed_at < clock_timestamp() - interval '1 minute', true) AND t.pace_interval = 0 AND t.refusals = 0
				AND (t.next_send_at IS NULL OR t.next_send_at <= clock_timestamp() - interval '1 minute') LIMIT $1) AS c`},
		// Target by target, as their index has them: those that are not due yet may be many.
		{&out.PublicationsDue, `SELECT count(*) FROM (SELECT FROM targets AS t, LATERAL (SELECT FROM publications
			WHERE target = t.id AND status = 'scheduled' AND due_at <= clock_timestamp() LIMIT $1) AS p LIMIT $1) AS c`},
		{&out.PublicationsRunning, `SELECT count(*) FROM (SELECT FROM publications WHERE status = 'publishing' LIMIT $1) AS c`},
		{&out.PublicationsFailed, `SELECT count(*) FROM (SELECT FROM publications WHERE status = 'failed' LIMIT $1) AS c`},
		{&out.LocksHeld, `SELECT count(*) FROM (SELECT FROM lock_grants WHERE expires_at > clock_timestamp() LIMIT $1) AS c`},
		{&out.LocksWaited, `SELECT count(*) FROM (SELECT FROM lock_waiters WHERE alive_until > clock_timestamp() LIMIT $1) AS c`},
		{&out.TransfersPending, `SELECT count(*) FROM (SELECT FROM transfers WHERE status = 'pending' LIMIT $1) AS c`},
		{&out.SagasPending, `SELECT count(*) FROM (SELECT FROM sagas WHERE status = 'pending' LIMIT $1) AS c`},
		{&out.MultidrawsRunning, `SELECT count(*) FROM (SELECT FROM multidraws WHERE status = 'running' LIMIT $1) AS c`},
		{&out.MultidrawsStopped, `SELECT count(*) FROM (SELECT FROM multidraws WHERE status = 'interrupted' LIMIT $1) AS c`},
	}
	oldest := []struct {
		into **time.Time
		sql  string
	}{
		{&out.OldestDrawing, `SELECT min(draw_started_at) FROM campaigns WHERE status = 'drawing'`},
		{&out.OldestClaim, `SELECT min(execution_locked_at) FROM publications WHERE status = 'publishing'`},
		{&out.OldestDue, `SELECT min(p.due_at) FROM targets AS t, LATERAL (SELECT due_at FROM publications
			WHERE target = t.id AND status = 'scheduled' AND due_at <= clock_timestamp() ORDER BY due_at LIMIT 1) AS p`},
	}
	err = d.db.reads.snapshot(ctx, "backlog", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		for _, c := range counts {
			b.Queue(c.sql, operator.BacklogLimit).QueryRow(func(row pgx.Row) error { return row.Scan(c.into) })
		}
		for _, o := range oldest {
			b.Queue(o.sql).QueryRow(func(row pgx.Row) error { return row.Scan(o.into) })
		}
		b.Queue(`SELECT count(*) FROM (SELECT FROM sagas WHERE status = 'pending' AND attempts >= $2 LIMIT $1) AS c`,
			operator.BacklogLimit, saga.StuckAfter).QueryRow(func(row pgx.Row) error { return row.Scan(&out.SagasStuck) })
		return pgkit.Send(ctx, tx, &b)
	})
	return out, err
}
