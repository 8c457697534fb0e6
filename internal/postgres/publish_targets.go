package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

const (
	lockTarget   = `SELECT ` + targetFields + ` FROM targets AS t WHERE t.id = $1 FOR NO KEY UPDATE`
	updateTarget = `UPDATE targets SET secret = $2, secret_key = $3, previous_secret = $4, previous_secret_key = nullif($5, ''), previous_until = $6,
		paused_at = $7, paused_reason = $8, resumed_at = $9 WHERE id = $1`
	// A token that is given by hand takes the place of the one that there is, and of a renewal that is under way.
	//
	//nolint:gosec // It holds no credentials, only the words.
	upsertToken = `INSERT INTO target_tokens (target, sealed, sealed_key) VALUES ($1, $2, $3)
		ON CONFLICT (target) DO UPDATE SET sealed = excluded.sealed, sealed_key = excluded.sealed_key,
			generation = target_tokens.generation + 1, execution_lock_id = NULL, execution_locked_at = NULL`
	selectToken = `SELECT k.sealed_key, k.sealed, k.generation FROM target_tokens AS k WHERE k.target = $1` //nolint:gosec // As above.
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
	if t != nil {
		expectRows(b.Queue(updateTarget, t.ID, t.Secret.Bytes, t.Secret.KeyID, t.Previous.Bytes, t.Previous.KeyID, t.PreviousUntil,
			t.PausedAt, t.PausedReason, t.ResumedAt), 1, errLostRow)
	}
}

func saveTokens(b *pgx.Batch, tokens map[uuid.UUID]publish.Sealed) {
	for id, token := range tokens {
		expectRows(b.Queue(upsertToken, id, token.Bytes, token.KeyID), 1, errLostRow)
	}
}

// Token implements [publish.TokenStore].
func (s *Publications) Token(ctx context.Context, target uuid.UUID) (publish.SealedToken, error) {
	return queryOne(ctx, s.db, &publish.NotFoundError{What: "target", ID: target}, pgx.RowToStructByPos[publish.SealedToken], selectToken, target)
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
		found, err := pgkit.Rows(ctx, tx, pgx.RowToStructByPos[publish.SealedToken], selectToken, target)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return &publish.NotFoundError{What: "target", ID: target}
		case len(got) == 0:
			return publish.ErrTokenBusy
		}
		c, k = got[0], found[0]
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

// resealBatch is how many secrets one transaction seals anew.
const resealBatch = 100

// What another session has locked is left to a later sweep.
const (
	lockOldSecrets  = `SELECT secret_key, secret, id FROM targets WHERE secret_key = ANY($1) ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED`
	lockOldPrevious = `SELECT previous_secret_key, previous_secret, id FROM targets WHERE previous_secret_key = ANY($1) ORDER BY id LIMIT $2
		FOR NO KEY UPDATE SKIP LOCKED`
	//nolint:gosec // It holds no credentials, only the words.
	lockOldTokens = `SELECT sealed_key, sealed, target FROM target_tokens WHERE sealed_key = ANY($1) ORDER BY target LIMIT $2
		FOR NO KEY UPDATE SKIP LOCKED`
	resealSecret   = `UPDATE targets SET secret = $2, secret_key = $3 WHERE id = $1`
	resealPrevious = `UPDATE targets SET previous_secret = $2, previous_secret_key = $3 WHERE id = $1`
	// The generation stays: it is the same token.
	resealToken = `UPDATE target_tokens SET sealed = $2, sealed_key = $3 WHERE target = $1`
)

// Reseal implements [publish.Queue].
func (s *Publications) Reseal(ctx context.Context, v *publish.Vault) (total int, err error) {
	keys := v.KeyIDs()
	if len(keys) < 2 {
		return 0, nil
	}
	for _, what := range []struct {
		lock, update string
		purpose      func(uuid.UUID) []byte
	}{
		{lockOldSecrets, resealSecret, ofTarget},
		{lockOldPrevious, resealPrevious, ofTarget},
		{lockOldTokens, resealToken, publish.TokenPurpose},
	} {
		for n := resealBatch; n == resealBatch; total += n {
			if n, err = s.resealSome(ctx, v, what.lock, what.update, what.purpose, keys[1:]); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// ofTarget is what a target's secrets are sealed for.
func ofTarget(id uuid.UUID) []byte { return id[:] }

func (s *Publications) resealSome(ctx context.Context, v *publish.Vault, lock, update string, purpose func(uuid.UUID) []byte, old []string) (n int, err error) {
	type row struct {
		publish.Sealed

		ID uuid.UUID
	}
	err = s.db.run(ctx, "publish.reseal", func(ctx context.Context, tx pgx.Tx) error {
		found, err := pgkit.Rows(ctx, tx, pgx.RowToStructByPos[row], lock, old, resealBatch)
		if err != nil {
			return err
		}
		var b pgx.Batch
		for _, r := range found {
			fresh, err := v.Reseal(r.Sealed, purpose(r.ID))
			if err != nil {
				return err
			}
			expectRows(b.Queue(update, r.ID, fresh.Bytes, fresh.KeyID), 1, errLostRow)
		}
		n = len(found)
		return pgkit.Send(ctx, tx, &b)
	})
	return n, err
}
