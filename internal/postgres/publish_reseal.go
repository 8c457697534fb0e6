package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// resealBatch is how many secrets one transaction seals anew.
const resealBatch = 100

// What another session has locked is left to a later sweep.
const (
	lockOldSecrets  = `SELECT id, secret, secret_key FROM targets WHERE secret_key = ANY($1) ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED` //nolint:gosec // It holds no credentials, only the words.
	lockOldPrevious = `SELECT id, previous_secret, previous_secret_key FROM targets WHERE previous_secret_key = ANY($1) ORDER BY id LIMIT $2
		FOR NO KEY UPDATE SKIP LOCKED`
	lockOldTokens = `SELECT target, sealed, sealed_key FROM target_tokens WHERE sealed_key = ANY($1) ORDER BY target LIMIT $2
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
		id     uuid.UUID
		sealed publish.Sealed
	}
	err = s.db.run(ctx, "publish.reseal", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, lock, old, resealBatch)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (out row, err error) {
			err = r.Scan(&out.id, &out.sealed.Bytes, &out.sealed.KeyID)
			return out, err
		})
		if err != nil {
			return err
		}
		var b pgx.Batch
		for _, r := range found {
			fresh, err := v.Reseal(r.sealed, purpose(r.id))
			if err != nil {
				return err
			}
			expectRows(b.Queue(update, r.id, fresh.Bytes, fresh.KeyID), 1, errLostRow)
		}
		n = len(found)
		return pgkit.Send(ctx, tx, &b)
	})
	return n, err
}
