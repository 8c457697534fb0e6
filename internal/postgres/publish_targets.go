package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

const (
	lockTarget   = `SELECT ` + targetFields + ` FROM targets AS t WHERE t.id = $1 FOR NO KEY UPDATE`
	updateTarget = `UPDATE targets SET secret = $2, secret_key = $3, previous_secret = $4, previous_secret_key = $5, previous_until = $6,
		paused_at = $7, paused_reason = $8, resumed_at = $9 WHERE id = $1`
	// A token that is given by hand takes the place of the one that there is, and of a renewal that is under way.
	//
	//nolint:gosec // It holds no credentials, only the words.
	upsertToken = `INSERT INTO target_tokens (target, sealed, sealed_key) VALUES ($1, $2, $3)
		ON CONFLICT (target) DO UPDATE SET sealed = excluded.sealed, sealed_key = excluded.sealed_key,
			generation = target_tokens.generation + 1, execution_lock_id = NULL, execution_locked_at = NULL`
	selectToken = `SELECT k.sealed, k.sealed_key, k.generation FROM target_tokens AS k WHERE k.target = $1` //nolint:gosec // As above.
	saveToken   = `UPDATE target_tokens SET sealed = $4, sealed_key = $5, generation = generation + 1,
		execution_lock_id = NULL, execution_locked_at = NULL
		WHERE target = $1 AND execution_lock_id = $2 AND execution_version = $3`
	tokenIsSaved = `SELECT EXISTS (SELECT FROM target_tokens WHERE target = $1 AND execution_version = $2 AND sealed = $3)` //nolint:gosec // As above.
)

// tokenClaims are the claims on the renewal of a token.
var tokenClaims = claim.Must[uuid.UUID](claim.Table{Name: "target_tokens", ID: "target"}) //nolint:gochecknoglobals // A constant, but for its making.

var _ publish.TokenStore = (*Publications)(nil)

// saveTarget writes what a command may have changed of a target, which may be nil.
func saveTarget(b *pgx.Batch, t *publish.Target) {
	if t == nil {
		return
	}
	var (
		previous []byte
		key      *string
	)
	if t.Previous != nil {
		previous, key = t.Previous.Bytes, &t.Previous.KeyID
	}
	expectRows(b.Queue(updateTarget, t.ID, t.Secret.Bytes, t.Secret.KeyID, previous, key, t.PreviousUntil, t.PausedAt, t.PausedReason, t.ResumedAt),
		1, errLostRow)
}

func saveTokens(b *pgx.Batch, tokens map[uuid.UUID]publish.Sealed) {
	for id, token := range tokens {
		expectRows(b.Queue(upsertToken, id, token.Bytes, token.KeyID), 1, errLostRow)
	}
}

func scanToken(row pgx.CollectableRow) (k publish.SealedToken, err error) {
	err = row.Scan(&k.Bytes, &k.KeyID, &k.Generation)
	return k, err
}

// Token implements [publish.TokenStore].
func (s *Publications) Token(ctx context.Context, target uuid.UUID) (publish.SealedToken, error) {
	return queryOne(ctx, s.db, &publish.NotFoundError{What: "target", ID: target}, scanToken, selectToken, target)
}

// ClaimToken implements [publish.TokenStore]. A claim whose holder died is released by whoever comes next.
func (s *Publications) ClaimToken(ctx context.Context, target uuid.UUID) (c publish.Claim, k publish.SealedToken, err error) {
	lock := newID()
	const one = `SELECT target FROM target_tokens WHERE $1::uuid IS NOT NULL AND target = $2 FOR UPDATE SKIP LOCKED`
	err = s.db.run(ctx, "publish.token", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tokenClaims.ReleaseStale(ctx, tx, publish.TokenClaimAge, 1); err != nil {
			return err
		}
		// The lock id outlives a commit without an answer: the claim that an earlier run has made is found by it.
		got, err := tokenClaims.Claimed(ctx, tx, lock)
		if err == nil && len(got) == 0 {
			got, err = tokenClaims.ClaimSelected(ctx, tx, lock, one, target)
		}
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, selectToken, target)
		if err != nil {
			return err
		}
		if k, err = pgx.CollectExactlyOneRow(rows, scanToken); errors.Is(err, pgx.ErrNoRows) {
			return &publish.NotFoundError{What: "target", ID: target}
		} else if err != nil {
			return err
		}
		if len(got) == 0 {
			return publish.ErrTokenBusy
		}
		c = got[0]
		return nil
	})
	return c, k, err
}

// SaveToken implements [publish.TokenStore].
func (s *Publications) SaveToken(ctx context.Context, c publish.Claim, sealed publish.Sealed) error {
	return s.db.run(ctx, "publish.token", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, saveToken, c.ID, c.LockID, c.Version, sealed.Bytes, sealed.KeyID)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		// An earlier run may have been committed without an answer.
		var saved bool
		if err := tx.QueryRow(ctx, tokenIsSaved, c.ID, c.Version, sealed.Bytes).Scan(&saved); err != nil {
			return err
		}
		if !saved {
			return publish.ErrClaimLost
		}
		return nil
	})
}

// ReleaseToken implements [publish.TokenStore].
func (s *Publications) ReleaseToken(ctx context.Context, c publish.Claim) error {
	err := tokenClaims.Fail(ctx, s.db.pool, c, nil)
	if err == nil || errors.Is(err, claim.ErrLost) {
		return nil
	}
	return readError(err)
}
